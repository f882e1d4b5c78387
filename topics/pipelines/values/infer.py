"""A schema inferred from a sample of records: `--schema infer`.

A member of the objects becomes a field if all of its sampled values fit one type. Whole numbers are
bigint, and double if mixed with other numbers. Texts stay string, even if they look like times.
Three kinds of members are left out and reported: those of mixed kinds, those that are always null
or empty, and those with a name that the target refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from topics.errors import UsageError
from topics.pipelines.values.ddl import Array, Field, Scalar, Struct, Type

FIELDS_MAX = 1000
INFERRED_DEPTH_MAX = 16
Names = re.Pattern[str] | None


class Inferred(NamedTuple):
    """The schema, and a sentence for each member that it leaves out."""

    schema: Struct
    left_out: list[str]


class _Seen:
    """The kinds of values seen at one place of the documents."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.members: dict[str, _Seen] = {}
        self.items: _Seen | None = None

    def add(self, value: Any, depth: int = 0) -> None:
        if value is None:
            return
        if depth > INFERRED_DEPTH_MAX:
            self.kinds.add("values too deep")
        elif isinstance(value, dict):
            self.kinds.add("object")
            for name, inner in value.items():
                self.members.setdefault(name, _Seen()).add(inner, depth + 1)
        elif isinstance(value, list):
            self.kinds.add("array")
            self.items = self.items or _Seen()
            for inner in value:
                self.items.add(inner, depth + 1)
        elif isinstance(value, bool):
            self.kinds.add("boolean")
        elif isinstance(value, int):
            self.kinds.add("bigint" if -(1 << 63) <= value < 1 << 63 else "double")
        else:
            self.kinds.add("double" if isinstance(value, float) else "string")

    def type(self, place: str, left_out: list[str], refused: Names) -> Type | None:
        """Return the one type of all values.

        Returns: None if there is no such type; the reason is appended to `left_out`.
        """
        if self.kinds == {"bigint", "double"}:
            return Scalar("double")
        if not self.kinds:
            left_out.append(f"{place} was null in every record of the sample")
        elif len(self.kinds) > 1 or "values too deep" in self.kinds:
            left_out.append(f"{place} holds {' and '.join(sorted(self.kinds))}")
        elif self.kinds == {"object"}:
            fields = _fields(self.members, place, left_out, refused)
            if fields:
                return Struct(fields)
            if not self.members:
                left_out.append(f"{place} was an empty object in every record of the sample")
        elif self.kinds == {"array"}:
            assert self.items is not None
            item = self.items.type(f"{place}[]", left_out, refused)
            return None if item is None else Array(item)
        else:
            return Scalar(next(iter(self.kinds)))
        return None


def infer(texts: Iterable[str], refused: Names = None) -> Inferred:
    """Return the schema of JSON texts.

    refused: a pattern that finds text not allowed in names of fields, if the target has such a
        rule.
    Raises: UsageError, no text is an object with a field of one type.
    """
    top = _Seen()
    others = 0
    for text in texts:
        value = json.loads(text)
        if isinstance(value, dict):
            top.add(value)
        else:
            others += 1
    left_out: list[str] = []
    schema = Struct(_fields(top.members, "", left_out, refused))
    if not schema.fields:
        raise UsageError("--schema infer found no field of one type in the first records: name the fields yourself")
    if _count(schema) > FIELDS_MAX:
        raise UsageError(
            f"--schema infer found {_count(schema)} fields, more than {FIELDS_MAX}: name those you need yourself"
        )
    if others:
        left_out.append(f"{others} of the sample are no objects, and null in the column")
    return Inferred(schema, left_out)


def _fields(members: dict[str, _Seen], place: str, left_out: list[str], refused: Names) -> tuple[Field, ...]:
    found: dict[str, Field] = {}
    for name, seen in members.items():
        where = f"{place}.{name}" if place else name
        if refused is not None and (sign := refused.search(name)):
            left_out.append(f"{where} has {sign.group()!r} in its name, which the target refuses")
            continue
        kind = seen.type(where, left_out, refused)
        if kind is None:
            continue
        if not name.strip() or name.lower() in found:
            left_out.append(f"{where or repr(name)} is a name that differs from another only by case, or is blank")
            continue
        found[name.lower()] = Field(name, kind)
    return tuple(found.values())


def _count(kind: Type) -> int:
    if isinstance(kind, Struct):
        return sum(1 + _count(field.type) for field in kind.fields)
    return _count(kind.item) if isinstance(kind, Array) else 0
