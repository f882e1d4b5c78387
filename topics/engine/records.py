"""Strict JSON over records.c: values, the members of objects and arrays, compact form and its size.

Strict means RFC 8259 plus the wire contract's R-JSON-1 and -2: valid UTF-8, no lone surrogates, numbers that a double
can hold, at most 127 nested containers. Every error is a JsonError naming what was read, the byte and the fix.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from topics.engine._records import ffi
from topics.errors import RequestError


class Kind:
    """What a JSON value is: the numbers of records.c."""

    NULL: Final = 1
    FALSE: Final = 2
    TRUE: Final = 3
    NUMBER: Final = 4
    STRING: Final = 5
    ARRAY: Final = 6
    OBJECT: Final = 7


KIND_NAMES = ("nothing", "null", "false", "true", "a number", "a string", "an array", "an object")
"""By kind, as they read in a message."""

DEPTH_MAX = 127
SECRET = ffi.new("uint64_t[2]", [int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2)])
"""Seeds the hash of keys, so that no client can prepare colliding ones. Never changes in a process."""

_KEY_ROOM = 1024
_SPAN_ROOM = 64


class JsonError(RequestError):
    """A text that is not strict JSON of the shape asked for: RequestError `invalid_request` plus the byte offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__("invalid_request", message)
        self.offset = offset


class JsonSpan(NamedTuple):
    """One valid JSON value: its kind and its text (a string with its quotes)."""

    kind: int
    text: bytes

    def described(self) -> str:
        """As it reads after "not ": the value itself when that is short."""
        if self.kind == Kind.NUMBER and len(self.text) <= 40:
            return f"the number {self.text.decode()}"
        return KIND_NAMES[self.kind]


class Checked(NamedTuple):
    """What the scan of one value found out. compact_bytes: accounted size; keys: of the outermost object."""

    kind: int
    keys: int
    white_bytes: int
    compact_bytes: int
    maybe_twice: bool


def check(text: bytes, what: str = "the body", open_containers: int = 0) -> Checked:
    """Validates one whole JSON text; `open_containers` count as already around it (depth)."""
    raise NotImplementedError


def object_fields(text: bytes, what: str = "the body") -> tuple[dict[str, JsonSpan], list[str]]:
    """The members of an object by decoded name, the last of equal names, and the names that come more than once.

    The whole text is validated. Raises JsonError: not strict JSON, or not an object.
    """
    raise NotImplementedError


def array_items(text: bytes, what: str = "the array") -> list[JsonSpan]:
    """The elements of an array, validated. Raises JsonError: not strict JSON, or not an array."""
    raise NotImplementedError


def compact(text: bytes, what: str = "the value") -> bytes:
    """The same JSON without white space outside strings; numbers and strings keep their spelling."""
    raise NotImplementedError


def compact_size(text: bytes, what: str = "the value") -> int:
    """Accounted bytes: the length of the compact form in the shortest string escapes."""
    return check(text, what).compact_bytes


def normalized(text: bytes, what: str = "the value") -> tuple[bytes, Checked]:
    """`text` as it is stored: compact, each object with the last of its equal keys; and what is known about that."""
    raise NotImplementedError
