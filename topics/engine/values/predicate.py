"""The predicate of record deletion and of routers: a test of a record's tag.

On the wire it is `["tag","Eq",v]`, `["tag","Glob",p]` with p ending in `*`, or a bare string, which
is a Glob if it ends in `*` and an Eq otherwise. A `*` elsewhere is a literal character. Source:
wire contract, section 7.7 and R-DEL-8.
"""

from __future__ import annotations

from itertools import islice

from topics.common.values.configs import Predicate
from topics.engine.json import strict_json
from topics.engine.json.strict_json import JsonKind, JsonSpan, string_value
from topics.engine.values.json_fields import refuse
from topics.engine.values.name_rules import shown
from topics.errors import RequestError

__all__ = ["Predicate", "parse_predicate"]

_PARTS = 3
_ESCAPED_BYTES = 6
"""Bytes of an escaped one-byte character, such as \\u0061."""
_ROOM_BYTES = 1024
"""Bytes allowed for everything except the text: quotes, brackets, the operator, blanks."""
_SHAPE = '["tag", "Eq", value], ["tag", "Glob", "prefix*"] or a string'


def parse_predicate(span: JsonSpan, most: int, name: str = "match") -> Predicate:
    """Parse the predicate in field `name`.

    most: bytes of its text at most, the limit on tags.
    Raises: RequestError invalid_request, it has another shape, or a longer text.
    """
    # Checked before decoding: no escapes make a legal text so long.
    if len(span.text) > _ESCAPED_BYTES * most + _ROOM_BYTES:
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
