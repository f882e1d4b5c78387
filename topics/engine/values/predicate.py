"""The predicate of record deletion and of routers: which tags match.

Source: wire contract, section 7.7 and R-DEL-8. On the wire `["tag","Eq",v]`, `["tag","Glob",p]` with p ending in `*`,
or a bare string: ending in `*` it is a Glob, else an Eq. `*` elsewhere is a literal character.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import msgspec

from topics.engine.json import strict_json
from topics.engine.json.strict_json import JsonKind, JsonSpan, string_value
from topics.engine.values.json_fields import refuse
from topics.engine.values.name_rules import shown
from topics.errors import RequestError

_PARTS = 3
_ESCAPED_BYTES = 6
"""Of a character of one byte, as in \\u0061."""
_ROOM_BYTES = 1024
"""For all but the text: quotes, brackets, the operator, blanks."""
_SHAPE = '["tag", "Eq", value], ["tag", "Glob", "prefix*"] or a string'


class Predicate(NamedTuple):
    """is_prefix False (Eq): the tag equals `value`; True (Glob): it starts with it (UTF-8, without the `*`)."""

    is_prefix: bool
    value: bytes

    @classmethod
    def of(cls, text: str) -> Predicate:
        """The bare form: ending in `*` a Glob, else an Eq."""
        if text.endswith("*"):
            return cls(True, text[:-1].encode())
        return cls(False, text.encode())

    def matches(self, tag: bytes | None) -> bool:
        """None is an untagged record, which never matches."""
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value

    def as_json(self) -> bytes:
        """The three-element form, compact; `parse` of it gives an equal predicate."""
        operator, text = ("Glob", self.value.decode() + "*") if self.is_prefix else ("Eq", self.value.decode())
        return msgspec.json.encode(["tag", operator, text])


def parse_predicate(span: JsonSpan, most: int, name: str = "match") -> Predicate:
    """The predicate in field `name`, of a text of at most `most` bytes, as tags have.

    Raises: RequestError invalid_request, it has another shape, or a longer text.
    """
    if len(span.text) > _ESCAPED_BYTES * most + _ROOM_BYTES:  # however it is escaped, and before it is decoded
        raise _too_long(name, most)
    found = _parse_predicate(span, name)
    if len(found.value) > most:
        raise _too_long(name, most)
    return found


def _too_long(name: str, most: int) -> RequestError:
    return RequestError("invalid_request", f"{name} is too long: a tag has at most {most} bytes, and so has its match")


def _parse_predicate(span: JsonSpan, name: str) -> Predicate:
    if span.kind == JsonKind.STRING:
        return Predicate.of(string_value(span.text))
    if span.kind != JsonKind.ARRAY:
        raise refuse(name, _SHAPE, span)
    items = strict_json.array_items(span.text)
    for index, item in enumerate(islice(items, _PARTS + 1)):
        if item.kind != JsonKind.STRING:
            raise refuse(f"{name}[{index}]", "a string", item)
    if len(items) != _PARTS:
        raise RequestError("invalid_request", f"{name} has {len(items)} elements: use {_SHAPE}")
    field, operator, value = (string_value(item.text) for item in items)
    if field != "tag":
        raise RequestError("invalid_request", f'{name}[0] must be "tag", not {shown(field)}')
    if operator == "Eq":
        return Predicate(False, value.encode())
    if operator != "Glob":
        raise RequestError("invalid_request", f'{name}[1] must be "Eq" or "Glob", not {shown(operator)}')
    if not value.endswith("*"):
        raise RequestError("invalid_request", f'{name}[2] is {shown(value)}: a Glob must end in "*"')
    return Predicate.of(value)
