"""Strict JSON over records.c: values, the members of objects and arrays, compact form and size.

Strict means RFC 8259 plus the wire contract's R-JSON-1 and -2: valid UTF-8, no lone surrogates,
numbers in the range of a double, at most 127 nested containers. Every error is a JsonError that
states the name of the text, the byte and the fix.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from topics.engine.json._records import ffi, lib
from topics.errors import RequestError
from topics.store.format.c_interface import layout_of


class JsonKind:
    """The kinds of JSON values: the numbers of records.h."""

    NULL: Final = lib.KIND_NULL
    FALSE: Final = lib.KIND_FALSE
    TRUE: Final = lib.KIND_TRUE
    NUMBER: Final = lib.KIND_NUMBER
    STRING: Final = lib.KIND_STRING
    ARRAY: Final = lib.KIND_ARRAY
    OBJECT: Final = lib.KIND_OBJECT


KIND_NAMES = {
    JsonKind.NULL: "null",
    JsonKind.FALSE: "false",
    JsonKind.TRUE: "true",
    JsonKind.NUMBER: "a number",
    JsonKind.STRING: "a string",
    JsonKind.ARRAY: "an array",
    JsonKind.OBJECT: "an object",
}
"""The names of the kinds in messages."""
_QUOTED = {JsonKind.NUMBER: "number", JsonKind.STRING: "string"}

FIELDS_MAX = 1000
"""The most members of an object that is read field by field, unknown ones included (R-JSON-9)."""
SECRET = ffi.new("uint64_t[2]", [int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2)])
"""The seed of the hash of keys, so that no client can prepare colliding ones. It never changes in a
process.
"""

_KEY_ROOM = 1024
_SPAN_ROOM = 64
SPAN = layout_of(ffi, "tp_span")
assert SPAN.format == "=3I", "spans are unpacked as numbers of one size"
_new_dirty = ffi.new_allocator(should_clear_after_alloc=False)
_NO_LIMIT = 2**64 - 1


class JsonError(RequestError):
    """A text that is not strict JSON of the required shape.

    It is a RequestError `invalid_request` with the byte offset of the error.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__("invalid_request", message)
        self.offset = offset


class TooManyError(JsonError):
    """An object or array with more entries than allowed."""


class JsonSpan(NamedTuple):
    """One valid JSON value: its kind and its text (a string with its quotes)."""

    kind: int
    text: bytes

    def described(self) -> str:
        """Return the value in words, for a message after "not "; a short one is quoted."""
        if self.kind in _QUOTED and len(self.text) <= 40:
            return f"the {_QUOTED[self.kind]} {self.text.decode()}"
        return KIND_NAMES[self.kind]


class Checked(NamedTuple):
    """The result of the scan of one value.

    compact_bytes: its accounted size. keys: the keys of the outermost object.
    """

    kind: int
    keys: int
    compact_bytes: int
    maybe_twice: bool


def check(text: bytes, what: str = "the body", open_containers: int = 0) -> Checked:
    """Validate one whole JSON text. Raises: JsonError.

    open_containers: containers around the text, which count towards the depth.
    """
    out = ffi.new("struct tp_value *")
    room = _KEY_ROOM
    while lib.tp_scan_value(out, text, len(text), open_containers, ffi.new("uint64_t[]", room), room, SECRET) < 0:
        if out.error.code != lib.E_ROOM:
            raise json_error(out.error, text, what)
        room = key_room(text)
    return Checked(out.kind, out.keys, out.compact, bool(out.maybe_twice))


Place = tuple[int, int, int]
"""The place of a value in its text, and its kind: start, end, kind."""


def object_places(
    text: bytes, what: str = "the body", members_max: int | None = None
) -> tuple[dict[str, Place], list[str]]:
    """Return the members of an object by decoded name, and the names that are repeated.

    Of members with equal names, the last one is returned. The whole text is validated.
    Raises: JsonError, the text is not strict JSON or no object. TooManyError, more than
    `members_max`; the text after so many members is not read then.
    """
    found: dict[str, Place] = {}
    flat = _members(text, JsonKind.OBJECT, what, members_max)
    step = iter(flat)
    for off, size, _, value, value_size, kind in zip(step, step, step, step, step, step, strict=False):
        name = text[off + 1 : off + size - 1]
        found[name.decode() if b"\\" not in name else string_value(text[off : off + size])] = (
            value,
            value + value_size,
            kind,
        )
    return found, _repeated(text, flat) if 6 * len(found) < len(flat) else []


def _repeated(text: bytes, flat: tuple[int, ...]) -> list[str]:
    names = Counter(string_value(text[off : off + size]) for off, size in zip(flat[::6], flat[1::6], strict=True))
    return [name for name, count in names.items() if count > 1]


def array_items(text: bytes) -> Items:
    """Return the validated elements of an array. Raises: JsonError, not strict JSON or no array."""
    room, count = _fill(text, JsonKind.ARRAY, "the array")
    items = Items(text, room, count)
    _give_back(room)
    return items


class Items:
    """The elements of a valid array.

    More than a few are created one by one during iteration, because all at once would take seconds.
    """

    def __init__(self, text: bytes, room: _Room, count: int) -> None:
        self._text = text
        self._room = room
        self._count = count
        self._few = self._made(0, count) if count <= _SPAN_ROOM else None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[JsonSpan]:
        return iter(self._few) if self._few is not None else self._one_by_one()

    def _one_by_one(self) -> Iterator[JsonSpan]:
        for start in range(0, self._count, _SPAN_ROOM):
            yield from self._made(start, min(_SPAN_ROOM, self._count - start))

    def _made(self, start: int, count: int) -> list[JsonSpan]:
        text = self._text
        step = iter(_INTEGERS[count].unpack_from(self._room.view, SPAN.size * start))
        return [JsonSpan(kind, text[off : off + size]) for off, size, kind in zip(step, step, step, strict=True)]


def array_length(text: bytes, most: int | None = None) -> int:
    """Count the elements of a valid array; stop at `most` + 1."""
    limit = _NO_LIMIT if most is None else most
    error = ffi.new("struct tp_error *")
    count: int = lib.tp_members(text, len(text), JsonKind.ARRAY, ffi.NULL, 0, limit, error)
    assert count >= 0, "tp_members has refused an array"
    return count


def strings_of(text: bytes) -> list[str] | None:
    """Decode the elements of a valid array in one call; None if one of them is no string."""
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.ValidationError:
        return None


def _members(text: bytes, kind: int, what: str, members_max: int | None) -> tuple[int, ...]:
    """Return off, size, kind of each span, flat."""
    room, count = _fill(text, kind, what, members_max)
    flat: tuple[int, ...] = _INTEGERS[count].unpack_from(room.view) if count <= _SPAN_ROOM else room.unpack(count)
    _give_back(room)
    return flat


def _fill(text: bytes, kind: int, what: str, members_max: int | None = None) -> tuple[_Room, int]:
    """Return a room with the spans, and their number: two for a member of an object."""
    room = _ROOMS.pop() if _ROOMS else _Room(_SPAN_ROOM)
    most = _NO_LIMIT if members_max is None else 2 * members_max
    count = lib.tp_members(text, len(text), kind, room.spans, room.count, most, room.error)
    if count > most:
        _give_back(room)
        raise TooManyError(too_many(what, members_max), 0)
    if count > room.count:
        room = _Room(count)
        lib.tp_members(text, len(text), kind, room.spans, count, count, room.error)
    if count >= 0:
        return room, count
    if room.error.code == lib.E_TYPE:
        raise JsonError(f"{what} must be {KIND_NAMES[kind]}, not {KIND_NAMES[room.error.kind]}", room.error.at)
    raise json_error(room.error, text, what)


def too_many(what: str, most: int | None) -> str:
    """Build the message for an object or array with more entries than its limit."""
    return f"{what} has too many entries: at most {most} are allowed"


def _give_back(room: _Room) -> None:
    if room.count == _SPAN_ROOM:
        _ROOMS.append(room)


class _Room:
    """The memory for the spans of one call."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.spans = ffi.new("struct tp_span[]", count)
        self.error = ffi.new("struct tp_error *")
        self.view = ffi.buffer(self.spans)

    def unpack(self, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"={3 * count}I", self.view)


_INTEGERS = [struct.Struct(f"={3 * count}I") for count in range(_SPAN_ROOM + 1)]
_ROOMS: list[_Room] = []
"""Unused rooms. Any thread may use the list, because taking and returning are one step each."""


def string_value(text: bytes) -> str:
    """Decode a valid JSON string with its quotes."""
    if b"\\" not in text:
        return text[1:-1].decode()
    return msgspec.json.decode(text, type=str)


def compacted(text: bytes) -> bytes:
    """Return valid JSON without white space outside strings; numbers and strings are kept."""
    out = ffi.new("unsigned char[]", len(text))
    return bytes(ffi.buffer(out, lib.tp_compact(text, len(text), out)))


def keep_last(text: bytes) -> bytes:
    """Return valid compact JSON without members whose key is repeated later in the same object."""
    keys, size = key_room(text), len(text)
    out = ffi.new("unsigned char[]", 2 * size)
    ffi.memmove(out, text, size)
    return bytes(ffi.buffer(out, lib.tp_keep_last(out, size, new_key_work(keys), keys, SECRET)))


def new_key_work(keys: int) -> Any:
    """Allocate the work area for dropping repeated keys of a text with so many keys."""
    return new_dirty(lib.KEY_WORK_BYTES * keys + lib.KEY_WORK_LEAST)


def new_dirty(size: int) -> Any:
    """Allocate memory without clearing it."""
    return _new_dirty("unsigned char[]", size)


def key_room(text: bytes) -> int:
    """Return an upper bound of the number of keys in a JSON text: its colons, plus one."""
    return text.count(b":") + 1


# --- errors -----------------------------------------------------------------------------------------------------------

_CAUSES = {
    lib.E_END: "it ends before it is complete",
    lib.E_SYNTAX: "{found} is unexpected here",
    lib.E_UTF8: "it is not valid UTF-8",
    lib.E_CONTROL: "a control character inside a string must be escaped, as in \\n or \\u0000",
    lib.E_ESCAPE: 'unknown escape: after a backslash comes one of " \\ / b f n r t or u with four hex digits',
    lib.E_SURROGATE: "half of a surrogate pair has no other half: escape both halves, or send the character as UTF-8",
    lib.E_NUMBER: "this is no JSON number",
    lib.E_RANGE: "a number is too large for a double: send it as a string",
    lib.E_DEPTH: f"more than {lib.DEPTH_MAX} arrays and objects are nested",
    lib.E_LITERAL: "literals are spelled true, false and null; NaN and Infinity are not JSON",
    lib.E_TRAILING: "there is text after the end of the JSON value",
    lib.E_BOM: "it starts with a byte order mark: leave it out",
    lib.E_LONG: "it is longer than 4 GiB",
}


def json_error(error: Any, text: bytes | bytearray | memoryview, what: str, where: str = "") -> JsonError:
    """Build the exception for a struct tp_error about the JSON itself.

    what: the name of the whole text. where: the name of the part with the error ("records[3]"), or
    "".
    """
    found = repr(chr(text[error.at])) if error.at < len(text) else "the end"
    cause = _CAUSES[error.code].format(found=found)
    inside = f" in {where}" if where else ""
    return JsonError(f"{what} is not valid JSON: {cause} (byte {error.at}{inside})", error.at)
