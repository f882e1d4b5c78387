"""Rules on `data`: conditions for a place of each document, read from a TOML or a JSON file.

    [[rule]]
    topics = "orders"          # a regular expression of whole names; default: all topics
    pointer = "/amount"        # RFC 6901; "" is the document
    required = true            # the place exists and is not null
    type = "number"            # or a list; boolean, integer, number, string, array, object
    range = [0, 100000]        # of a number, or of a text's or array's length; null: no bound
    unique = true              # no two records of a topic have the same value

A record without the place, or with null there, breaks a rule only if the place is required.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import xxhash

from topics.common.values.near_names import bracketed
from topics.errors import UsageError
from topics.pipelines.values.pattern import compile_pattern
from topics.pipelines.values.pointer import MISSING, Pointer, find
from topics.pipelines.values.pointer import parse as parse_pointer

RULES_MAX = 1000
KEYS = ("topics", "pointer", "required", "type", "range", "unique")


def _is_integer(value: Any) -> bool:
    return type(value) is int


TYPES: dict[str, Callable[[Any], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": lambda value: type(value) in (int, float),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on `data`. number: its place in the file, from 1."""

    number: int
    text: str
    """The pointer as written in the file."""
    pointer: Pointer
    topics: str = ".*"
    required: bool = False
    types: tuple[str, ...] = ()
    low: int | float | None = None
    high: int | float | None = None
    unique: bool = False

    def concerns(self, topic: str) -> bool:
        """Return whether the rule applies to records of a topic."""
        return re.fullmatch(self.topics, topic) is not None

    def broken_by(self, value: Any) -> str:
        """Return the part of the rule that a value at the pointer breaks; "" for none."""
        if value is MISSING or value is None:
            return "required" if self.required else ""
        if self.types and not any(TYPES[name](value) for name in self.types):
            return "type"
        if self.low is not None or self.high is not None:
            measure = _measure(value)
            if measure is None or (self.low is not None and measure < self.low):
                return "range"
            if self.high is not None and measure > self.high:
                return "range"
        return ""

    def identity(self, value: Any) -> int | None:
        """Return a 64-bit hash of the value for `unique`; None without a value.

        Equal JSON values have equal hashes.
        """
        if not self.unique or value is MISSING or value is None:
            return None
        if type(value) is float and value.is_integer():
            value = int(value)
        return int(xxhash.xxh3_64_intdigest(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()))

    def __str__(self) -> str:
        asks = [word for word in ("required", "unique") if getattr(self, word)]
        if self.types:
            asks.append(f"type {' or '.join(self.types)}")
        if self.low is not None or self.high is not None:
            asks.append(f"range {_bound(self.low)} to {_bound(self.high)}")
        return f"rule {self.number} ({self.text or 'the document'}: {', '.join(asks)})"


def _bound(value: int | float | None) -> str:
    if isinstance(value, int):
        return str(value)  # an integer may exceed all doubles
    return "any" if value is None else f"{value:g}"


def _measure(value: Any) -> float | int | None:
    """Return the quantity that a range bounds: a number, or the length of a text or an array."""
    if type(value) in (int, float):
        return value  # type: ignore[no-any-return]
    return len(value) if isinstance(value, (str, list)) else None


def document(text: str | None) -> Any:
    """Return the value of a JSON text; MISSING if it is no JSON, or None, as for bytes."""
    if text is None:
        return MISSING
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING


def rules_for(rules: Iterable[Rule], topic: str) -> list[Rule]:
    """Return the rules that apply to a topic."""
    return [rule for rule in rules if rule.concerns(topic)]


def value_of(found: Any, rule: Rule) -> Any:
    """Return the value at the rule's pointer in a document, or MISSING."""
    return MISSING if found is MISSING else find(found, rule.pointer)


def read_rules(path: str) -> tuple[Rule, ...]:
    """Return the rules of a .toml or .json file.

    Raises: UsageError naming the rule, the key and the fix.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise UsageError(f"--rules {path} cannot be read ({error.strerror}): name a TOML or JSON file") from None
    try:
        content = tomllib.loads(raw.decode()) if path.endswith(".toml") else json.loads(raw)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.endswith(".toml") else "JSON (a TOML file's name ends in .toml)"
        raise UsageError(f"--rules {path} is no sound {kind}: {error}") from None
    listed = content.get("rule", content.get("rules")) if isinstance(content, dict) else content
    if not isinstance(listed, list) or not listed:
        raise UsageError(f'--rules {path} has no rules: write [[rule]] tables, or {{"rules": [..]}} in JSON')
    if len(listed) > RULES_MAX:
        raise UsageError(f"--rules {path} has {len(listed)} rules, {RULES_MAX} at most: split the file")
    return tuple(_rule(number, entry, path) for number, entry in enumerate(listed, 1))


def _rule(number: int, entry: Any, path: str) -> Rule:
    where = f"--rules {path}: rule {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is no table: give it a pointer and what is asked of it")
    for key in entry:
        if key not in KEYS:
            raise UsageError(f"{where} has {key!r}, which means nothing{bracketed(key, KEYS)}: use {', '.join(KEYS)}")
    text = entry.get("pointer")
    if not isinstance(text, str):
        raise UsageError(f'{where} has no pointer: add pointer = "/name"')
    for key in ("required", "unique"):
        if not isinstance(entry.get(key, False), bool):
            raise UsageError(f"{where}: {key} is {entry[key]!r}: use true or false")
    types = entry.get("type", [])
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(name, str) and name in TYPES for name in types):
        raise UsageError(f"{where}: type is {entry['type']!r}: use one of {', '.join(TYPES)}, or a list of them")
    low, high = _range(entry.get("range", [None, None]), where)
    topics = entry.get("topics", ".*")
    if not isinstance(topics, str):
        raise UsageError(f"{where}: topics is {topics!r}: write a regular expression of whole names")
    compile_pattern(topics, f"{where}: topics")
    rule = Rule(
        number,
        text,
        parse_pointer(text, f"{where}: pointer"),
        topics,
        entry.get("required", False),
        tuple(types),
        low,
        high,
        entry.get("unique", False),
    )
    if not (rule.required or rule.unique or types or low is not None or high is not None):
        raise UsageError(f"{where} asks for nothing: add required, type, range or unique")
    return rule


def _range(bounds: Any, where: str) -> tuple[int | float | None, int | float | None]:
    """Return (low, high), both included. TOML has no null, so "" means no bound there."""
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise UsageError(f'{where}: range is {bounds!r}: write [low, high], with null (TOML: "") for no bound')
    low, high = (None if bound in (None, "") else bound for bound in bounds)
    for bound in (low, high):
        is_number = type(bound) is int or (type(bound) is float and not math.isnan(bound))
        if bound is not None and not is_number:
            raise UsageError(f"{where}: range is {bounds!r}: bounds are numbers")
    if low is not None and high is not None and low > high:
        raise UsageError(f"{where}: range {bounds!r} holds nothing: the lower bound comes first")
    return low, high
