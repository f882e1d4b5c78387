"""Typed readers of the known fields of a JSON object in a request.

`records.c` validates the text first; the readers check the type of a field. Every error is a
RequestError `invalid_request` that names the field and the values it accepts. Unknown keys are
ignored, unless the request is strict (`check_keys`). A key that is given twice is refused when it
is read, so only if it is a known one. Source: wire contract, section 2.3, R-JSON-3 to R-JSON-9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from topics.common.values.begin import FIRST, NOW, Begin
from topics.config import RANGES, Config
from topics.engine.json import strict_json
from topics.engine.json.known_keys import KnownKeys
from topics.engine.json.strict_json import FIELDS_MAX, JsonKind, JsonSpan, Place, TooManyError, string_value, too_many
from topics.engine.values.node_set import NodeSet, node_set
from topics.errors import RequestError

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
I32_MIN, I32_MAX = -(2**31), 2**31 - 1

_NO_NODE = b"\xff"
"""A name that no node has, because it is no UTF-8."""
NODE_BYTES_MAX = RANGES["max_node_bytes"][1]

_BEGINNINGS = {begin.kind: begin for begin in (FIRST, NOW)}
_BEGINNING = '"first", "now", {"last": 10} or {"time": 1795325238494}'

T = TypeVar("T")
_OF_NUMBERS = b"0123456789, \t\r\n"
_SHORT_TEXT = 65_536
"""Bytes of an array that is decoded without being counted first: decoding takes up to 1 ms."""


def read_object(text: bytes, what: str = "the body", prefix: str = "", members_max: int = FIELDS_MAX) -> Fields:
    """Return the fields of `text`, which must be one strict JSON object.

    what: the value's name in messages ("the body", "config").
    prefix: precedes a field's name in messages ("config.").
    members_max: the limit on members, if the keys are data.
    Raises: RequestError invalid_request, `text` is no JSON, no object, or over the limit.
    """
    places, twice = strict_json.object_places(text, what, members_max)
    return Fields(text, places, twice, prefix)


def refuse(name: str, must_be: str, span: JsonSpan) -> RequestError:
    """Build the error for field `name` with a value of the wrong type.

    must_be: completes the sentence "NAME must be ...", such as "a string".
    """
    return RequestError("invalid_request", f"{name} must be {must_be}, not {span.described()}")


class Fields:
    """The top level of one JSON object, with a typed reader for each type of field.

    A reader returns its default if the field is absent. `null` is a wrong type, except for the
    nullable readers.
    """

    __slots__ = ("_places", "_prefix", "_text", "_twice")

    def __init__(self, text: bytes, places: dict[str, Place], twice: Sequence[str] = (), prefix: str = "") -> None:
        self._text = text
        self._places = places
        self._twice = twice
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def check_keys(self, known: KnownKeys, most: int) -> None:
        """Check that a strict request has no unknown keys, see `KnownKeys.check`."""
        known.check_places(self._text, self._places, most, self._prefix)

    def span(self, name: str) -> JsonSpan | None:
        """Return the raw value of a field, None if it is absent.

        Raises: RequestError, the key is given twice.
        """
        if self._twice and name in self._twice:
            raise RequestError("invalid_request", f"{self._prefix}{name} is given twice: send it once")
        place = self._places.get(name)
        if place is None:
            return None
        start, end, kind = place
        return JsonSpan(kind, self._text[start:end])

    def nullable_span(self, name: str) -> JsonSpan | None:
        """Return the raw value of a field, None if it is absent or `null`."""
        span = self.span(name)
        return None if span is None or span.kind == JsonKind.NULL else span

    def require(self, name: str) -> JsonSpan:
        """Return the raw value of a required field. Raises: RequestError, it is missing."""
        span = self.span(name)
        if span is None:
            raise RequestError("invalid_request", f"{self._prefix}{name} is missing: it is required")
        return span

    # --- integers ---------------------------------------------------------------------------------------------------
    def u64(self, name: str, default: int) -> int:
        return self._integer(name, default, U64_MAX)

    def u32(self, name: str, default: int) -> int:
        return self._integer(name, default, U32_MAX)

    def number(self, name: str, most: int) -> int:
        """Return a whole number from 0 to `most`; 0 if the field is absent."""
        span = self.span(name)
        return 0 if span is None else self._unsigned(name, span, most)

    def _integer(self, name: str, default: int, max_value: int) -> int:
        place = self._places.get(name)
        if place is None:
            return default
        text = self._text[place[0] : place[1]]
        # Nearly always: fewer than 10 digits are at most U32_MAX.
        if text.isdigit() and len(text) < 10 and not self._twice:
            return int(text)
        span = self.span(name)
        assert span is not None
        return self._unsigned(name, span, max_value)

    def nullable_u64(self, name: str) -> int | None:
        span = self.nullable_span(name)
        return None if span is None else self._unsigned(name, span, U64_MAX)

    def nullable_i32(self, name: str) -> int | None:
        span = self.nullable_span(name)
        if span is None:
            return None
        text = span.text
        digits = text[1:] if text.startswith(b"-") else text
        if span.kind == JsonKind.NUMBER and digits.isdigit() and len(digits) <= 10:
            value = int(text)
            if I32_MIN <= value <= I32_MAX:
                return value
        raise refuse(self._prefix + name, f"a whole number from {I32_MIN} to {I32_MAX} or null", span)

    def _unsigned(self, name: str, span: JsonSpan, max_value: int) -> int:
        text = span.text
        if span.kind == JsonKind.NUMBER and text.isdigit() and len(text) <= 20:
            value = int(text)
            if value <= max_value:
                return value
        raise refuse(self._prefix + name, f"a whole number from 0 to {max_value}", span)

    # --- booleans and strings ---------------------------------------------------------------------------------------
    def boolean(self, name: str, default: bool) -> bool:
        span = self.span(name)
        if span is None:
            return default
        if span.kind == JsonKind.TRUE:
            return True
        if span.kind == JsonKind.FALSE:
            return False
        raise refuse(self._prefix + name, "true or false", span)

    def string(self, name: str) -> str:
        """Return a required string."""
        span = self.require(name)
        if span.kind != JsonKind.STRING:
            raise refuse(self._prefix + name, "a string", span)
        return string_value(span.text)

    def nullable_string(self, name: str) -> str | None:
        span = self.nullable_span(name)
        if span is None:
            return None
        if span.kind != JsonKind.STRING:
            raise refuse(self._prefix + name, "a string or null", span)
        return string_value(span.text)

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of `choices`, which must be spelled exactly."""
        span = self.span(name)
        return default if span is None else self._choice(name, span, choices)

    def nullable_choice(self, name: str, choices: Sequence[str]) -> str | None:
        span = self.nullable_span(name)
        return None if span is None else self._choice(name, span, choices, "null")

    def _choice(self, name: str, span: JsonSpan, choices: Sequence[str], *others: str) -> str:
        """Return the value of a field. others: further values that the message names."""
        if span.kind == JsonKind.STRING and (value := string_value(span.text)) in choices:
            return value
        *first, last = [*(f'"{choice}"' for choice in choices), *others]
        raise refuse(self._prefix + name, f"{', '.join(first)} or {last}", span)

    # --- containers -------------------------------------------------------------------------------------------------
    def strings(self, name: str, most: int) -> tuple[str, ...]:
        """Return a list of strings: a single string is a list of one, `null` or absent is empty.

        Raises: RequestError, another type. TooManyError, more than `most`; a long array is counted
        before it is decoded.
        """
        span = self.nullable_span(name)
        if span is None:
            return ()
        if span.kind == JsonKind.STRING:
            return (string_value(span.text),)
        if span.kind == JsonKind.ARRAY:
            found, count = self._few_strings(name, span, most)
            if count > most:
                raise TooManyError(too_many(self._prefix + name, most), 0)
            return tuple(found)
        raise refuse(self._prefix + name, "a string, an array of strings or null", span)

    def nodes(self, limits: Config, name: str = "node") -> NodeSet:
        """Return the nodes of a reader's field `node` or `only_node`.

        Names that are longer than any record's node are left out, because they match no record.
        Of those in `only_node` one stays if all are, because an empty set is no filter.
        Raises: RequestError, wrong type. TooManyError, more names, or more bytes of them, than a
        reader may give (R-NODE-6).
        """
        given = self.strings(name, limits.max_nodes)
        names = {node.encode() for node in given if len(node) <= NODE_BYTES_MAX}
        size, most = sum(map(len, names)), limits.max_nodes * limits.max_node_bytes
        if size > most:
            raise TooManyError(f"{name} has {size} bytes of names: at most {most} are allowed", 0)
        if given and not names and name == "only_node":
            names.add(_NO_NODE)
        return node_set(names)

    def begin(self, limits: Config, *others: str) -> Begin | None:
        """Return the beginning in the field `from`, None if it is absent.

        others: fields that say where to begin, too, and are refused beside it.
        Raises: RequestError, it is no beginning, or more records than may be asked for.
        """
        span = self.span("from")
        if span is None:
            return None
        for other in others:
            if other in self._places:
                message = f"{self._prefix}from and {other} both say where to begin: send one of them"
                raise RequestError("invalid_request", message)
        if span.kind == JsonKind.STRING:
            word = string_value(span.text)
            if word in _BEGINNINGS:
                return _BEGINNINGS[word]
        elif span.kind == JsonKind.OBJECT:
            what = self._prefix + "from"
            try:
                members = self.few_members("from", _BEGINNING, 1, least=0)
            except TooManyError:
                raise RequestError("invalid_request", f"{what} must be {_BEGINNING}, not several members") from None
            if "last" in members:
                return Begin("last", members.number("last", limits.max_last))
            if "time" in members:
                return Begin("time", members.u64("time", 0))
            raise RequestError("invalid_request", f"{what} must be {_BEGINNING}, not another object")
        raise refuse(self._prefix + "from", _BEGINNING, span)

    def subscription_begin(self, limits: Config) -> Begin:
        """Return where a subscription begins, by `from_seq`, `tail` or `from`.

        Raises: RequestError, as `begin`, or for a wrong type.
        """
        from_seq, tail = self.u64("from_seq", 0), self.boolean("tail", False)
        return self.begin(limits, "from_seq", "tail") or (NOW if tail else Begin("seq", from_seq))

    def u64s(self, name: str, most: int) -> tuple[list[int], int]:
        """Return a required array of whole numbers and their count.

        Returns: an empty list with the count if a long text has more than `most`; nothing is
        decoded then.
        """
        span = self.require(name)
        if span.kind != JsonKind.ARRAY:
            raise refuse(self._prefix + name, "an array of whole numbers", span)
        if len(span.text) > _SHORT_TEXT and (count := strict_json.array_length(span.text)) > most:
            return [], count
        numbers = self._u64s(name, span)
        return numbers, len(numbers)

    def _u64s(self, name: str, span: JsonSpan) -> list[int]:
        # Nearly always: without sign, fraction or exponent.
        if not span.text[1:-1].translate(None, _OF_NUMBERS):
            numbers = msgspec.json.decode(span.text, type=list[int])
            if not numbers or max(numbers) <= U64_MAX:
                return numbers
        return [
            self._unsigned(f"{name}[{i}]", item, U64_MAX) for i, item in enumerate(strict_json.array_items(span.text))
        ]

    def string_array(self, name: str, most: int) -> tuple[list[str], int]:
        """Return an array of strings and their count; an absent field is an empty array.

        Returns: an empty list if a long text has more than `most`; nothing is decoded, and counting
        stops at `most` + 1.
        """
        span = self.span(name)
        if span is None:
            return [], 0
        if span.kind != JsonKind.ARRAY:
            raise refuse(self._prefix + name, "an array of strings", span)
        return self._few_strings(name, span, most)

    def _few_strings(self, name: str, span: JsonSpan, most: int) -> tuple[list[str], int]:
        if len(span.text) > _SHORT_TEXT and (count := strict_json.array_length(span.text, most)) > most:
            return [], count
        found = self._strings(name, span)
        return found, len(found)

    def _strings(self, name: str, span: JsonSpan) -> list[str]:
        found = strict_json.strings_of(span.text)
        if found is not None:
            return found
        for index, item in enumerate(strict_json.array_items(span.text)):
            if item.kind != JsonKind.STRING:
                raise refuse(f"{self._prefix}{name}[{index}]", "a string", item)
        raise AssertionError("strings_of has refused an array of strings")

    def few_members(self, name: str, must_be: str, most: int, least: int = 1) -> Fields:
        """Return a required object whose keys are data.

        It has `least` to `most` members, which are counted before decoding.
        """
        span = self.require(name)
        what = self._prefix + name
        if span.kind != JsonKind.OBJECT:
            raise refuse(what, must_be, span)
        members = read_object(span.text, what, f"{what}.", most)
        if least and not members.names():
            raise RequestError("invalid_request", f"{what} is empty: name at least one")
        return members

    def names(self) -> list[str]:
        """Return every key in order, of an object whose keys are data (topic name -> cursor).

        Raises: RequestError, a key is given twice.
        """
        for name in self._twice:
            self.span(name)
        return list(self._places)
