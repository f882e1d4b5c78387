"""Schemas of `data` as Spark writes them: "id bigint, name string, at struct<x: double>".

A schema is a tree of types. It can be converted to an Arrow type, to the JSON of a Delta table, and
back to its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from topics.common.values.near_names import bracketed
from topics.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

SCALARS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp")
_SYNONYMS = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
             "real": "float", "varchar": "string", "text": "string"}  # fmt: skip
_DELTA_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([A-Za-z0-9_.$-]+)|([<>(),:]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
SCHEMA_DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts: one of SCALARS."""

    name: str


@dataclass(frozen=True, slots=True)
class Array:
    """A JSON array whose elements have one type."""

    item: Type


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a JSON object; every field may be null or absent."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object: the fields that are read from it. Other members are ignored."""

    fields: tuple[Field, ...]


Type = Union[Scalar, Array, Struct]  # noqa: UP007 - evaluated while the classes above refer to it


class _Tokens:
    """The words of a DDL text, one at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[tuple[str, bool, int]] = []
        """(word, whether it was quoted, its start in the text)."""
        at = 0
        while at < len(text) and text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise UsageError(f"--schema: {text[at:].strip()[:20]!r} cannot be read: write {EXAMPLE!r}")
            quoted, word, sign = match.groups()
            self.words.append((quoted.replace("``", "`") if quoted is not None else word or sign, quoted is not None,
                               match.start()))  # fmt: skip
            at = match.end()
        self.next = 0

    def peek(self) -> str:
        """Return the next word; "" if it is a quoted one, and at the end."""
        if self.next == len(self.words) or self.words[self.next][1]:
            return ""
        return self.words[self.next][0]

    def take(self, wanted: str) -> str:
        """Take the next word. Raises UsageError at the end, naming what is wanted."""
        if self.next == len(self.words):
            raise UsageError(f"--schema ends where {wanted} should come: write {EXAMPLE!r}")
        self.next += 1
        return self.words[self.next - 1][0]

    def expect(self, *signs: str) -> str:
        """Take the next word. Raises UsageError if it is none of these signs."""
        wanted = " or ".join(repr(sign) for sign in signs)
        word = self.take(wanted)
        if word not in signs or self.words[self.next - 1][1]:
            raise UsageError(f"--schema: {word!r} stands where {wanted} should: write {EXAMPLE!r}")
        return word


EXAMPLE = "id bigint, name string, place struct<x: double, y: double>"


def parse(text: str) -> Struct:
    """Return the schema that a DDL text describes.

    Raises: UsageError, naming the place and the fix.
    """
    tokens = _Tokens(text)
    if not tokens.words:
        raise UsageError(f"--schema is empty: write {EXAMPLE!r}")
    fields = _fields(tokens, "", 1)
    if tokens.next < len(tokens.words):
        raise UsageError(f"--schema: {tokens.peek()!r} is one too many: write {EXAMPLE!r}")
    return Struct(fields)


def _fields(tokens: _Tokens, end: str, depth: int) -> tuple[Field, ...]:
    found: dict[str, Field] = {}
    while True:
        name = tokens.take("the name of a field")
        if not tokens.words[tokens.next - 1][1] and name in "<>(),:":
            raise UsageError(f"--schema: {name!r} stands where the name of a field should: write {EXAMPLE!r}")
        if tokens.peek() == ":":
            tokens.take("")
        kind = _type(tokens, name, depth)
        if name.lower() in found:
            raise UsageError(f"--schema: field {name} is there twice (names differ by more than case): remove one")
        found[name.lower()] = Field(name, kind)
        if tokens.peek().lower() in ("not", "comment"):
            raise UsageError(f"--schema: {tokens.peek()} after field {name}: give only name and type, all may be null")
        if tokens.next == len(tokens.words) and not end:
            return tuple(found.values())
        if tokens.expect(*((",", end) if end else (",",))) == end:
            return tuple(found.values())


def _type(tokens: _Tokens, field: str, depth: int) -> Type:
    if depth > SCHEMA_DEPTH_MAX:
        raise UsageError(f"--schema: field {field} is more than {SCHEMA_DEPTH_MAX} levels deep: name it as string")
    word = tokens.take(f"the type of field {field}").lower()
    if word in ("struct", "array"):
        tokens.expect("<")
        if word == "struct":
            return Struct(_fields(tokens, ">", depth + 1))
        item = _type(tokens, field, depth + 1)
        tokens.expect(">")
        return Array(item)
    name = _SYNONYMS.get(word, word)
    if name not in SCALARS:
        meant = bracketed(word, [*SCALARS, *_SYNONYMS, "array", "struct"])
        raise UsageError(
            f"--schema: {word!r} of field {field} is no type{meant}: use {', '.join(SCALARS)}, array<..> or struct<..>"
        )
    return Scalar(name)


def text_of(kind: Type) -> str:
    """Return the type as DDL, which `parse` reads again. The top level has no `struct<>`."""
    if isinstance(kind, Struct):
        return ", ".join(f"{_name(field.name)} {_inner(field.type)}" for field in kind.fields)
    return _inner(kind)


def _inner(kind: Type) -> str:
    if isinstance(kind, Scalar):
        return kind.name
    if isinstance(kind, Array):
        return f"array<{_inner(kind.item)}>"
    return f"struct<{', '.join(f'{_name(field.name)}: {_inner(field.type)}' for field in kind.fields)}>"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"


def arrow_type(kind: Type) -> pa.DataType:
    """Return the Arrow type: all nullable, timestamps in microseconds UTC, no large types."""
    import pyarrow as pa  # noqa: PLC0415 - a schema is also read where pyarrow is not

    if isinstance(kind, Struct):
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in kind.fields])
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.item)))
    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }[kind.name]


def delta_type(kind: Type) -> Any:
    """Return the type as the metadata of a Delta table spells it."""
    if isinstance(kind, Struct):
        return {"type": "struct", "fields": [delta_field(field.name, field.type) for field in kind.fields]}
    if isinstance(kind, Array):
        return {"type": "array", "elementType": delta_type(kind.item), "containsNull": True}
    return _DELTA_NAMES.get(kind.name, kind.name)


def delta_field(name: str, kind: Type) -> dict[str, Any]:
    """Return a field of a Delta table's schema."""
    return {"name": name, "type": delta_type(kind), "nullable": True, "metadata": {}}


def difference(kept: Type, asked: Type, where: str = "value") -> str:
    """Return the first difference of two schemas, as half a sentence; "" if they are equal."""
    if isinstance(kept, Struct) and isinstance(asked, Struct):
        old, new = ({field.name: field.type for field in side.fields} for side in (kept, asked))
        for name in (*old, *new):
            place = f"{where}.{name}"
            if name not in new:
                return f"{place} ({_inner(old[name])}) is only in the target"
            if name not in old:
                return f"{place} ({_inner(new[name])}) is new"
            inside = difference(old[name], new[name], place)
            if inside:
                return inside
        return "" if list(old) == list(new) else f"the fields of {where} stand in another order"
    if isinstance(kept, Array) and isinstance(asked, Array):
        return difference(kept.item, asked.item, f"{where}[]")
    return "" if kept == asked else f"{where} is {_inner(kept)} in the target and {_inner(asked)} now"
