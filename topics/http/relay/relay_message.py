"""Messages between two cores: the requests of a pass one way, what became of them the other way.

    header   magic, format, kind, number of rows, `begun`, bytes of the texts, checksum
    columns  numbers (u64), codes (u16), bytes of the heads (u32), bytes of the bodies (u32)
    texts    the heads, one after the other, then the bodies

The checksum covers all but the bodies: a message with damage to it is none, and ends its pair. What
a body may be is checked by its length, as where it was received. Numbers have the byte order of the
machine that both cores run on.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import xxhash

from topics.common.memory import GrowingBytes

_HEADER = struct.Struct("=4sBBHQQQ")
_MAGIC = b"TPRL"
_FORMAT = 1
_COLUMNS = (("Q", 8), ("H", 2), ("I", 4), ("I", 4))
_ROW_BYTES = sum(size for _, size in _COLUMNS)
_SUM_BYTES = 8
REQUESTS = 1
ANSWERS = 2
ROWS_MAX = 1024
TEXT_BYTES_MAX = 1 << 30
"""Most bytes of the texts of a message."""
_SEPARATE_BYTES = 65_536
"""A body from this size on is not copied into its message."""

Part = bytes | bytearray | memoryview


class DamagedRelayError(ValueError):
    """Bytes of another core that are no message, or a message that cannot follow those before."""


class RelayRow(NamedTuple):
    """One request, or what became of one.

    number: of the request, counted by the core that relays it, from 1 on for each pair. code: of a
    request `ASK` or `CANCEL`; of an answer its status, or `WAITS` or `NONE`.
    """

    number: int
    code: int
    head: bytes
    body: Part


class Message(NamedTuple):
    """One message.

    begun: how many requests of the pair its sender has begun, in messages of answers; 0 elsewhere.
    """

    begun: int
    rows: list[RelayRow]


def encoded(kind: int, begun: int, rows: Sequence[RelayRow]) -> list[bytes | memoryview]:
    """Return the parts of a message, to be sent one after the other. Large bodies are not copied.

    The caller has bounded the rows and their bytes.
    """
    bodies = [row.body for row in rows]
    values = ([row.number for row in rows], [row.code for row in rows], [len(row.head) for row in rows])
    columns = b"".join(
        array(code, column).tobytes()
        for (code, _), column in zip(_COLUMNS, (*values, list(map(len, bodies))), strict=True)
    )
    heads = b"".join(row.head for row in rows)
    size = len(heads) + sum(map(len, bodies))
    start = _HEADER.pack(_MAGIC, _FORMAT, kind, len(rows), begun, size, 0)[:-_SUM_BYTES]
    text = columns + heads
    parts: list[bytes | memoryview] = []
    small: list[Part] = [start, struct.pack("=Q", _sum_of(start, text)), text]
    for body in bodies:
        if len(body) < _SEPARATE_BYTES:
            small.append(body)
        else:
            parts += (b"".join(small), body if isinstance(body, bytes) else memoryview(body))
            small = []
    if small:
        parts.append(b"".join(small))
    return parts


class RelayDecoder:
    """The messages in bytes as they arrive, of one kind."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._held = GrowingBytes()
        self._needed = _HEADER.size
        """Bytes without which `_held` is no message."""
        self._is_damaged = False

    def feed(self, data: Part) -> Iterator[Message]:
        """Take bytes; yield the messages that end in them.

        Raises: DamagedRelayError, there is no message; from here on for all that follows.
        """
        if self._is_damaged:
            raise DamagedRelayError("it follows damage")
        self._held += data
        try:
            while len(self._held) >= self._needed:
                text = self._held.take()
                self._needed = _bytes_of(text, self._kind)
                if len(text) < self._needed:
                    self._held += text
                    continue
                end = self._needed
                message = _message(text[:end])
                self._held += text[end:]
                self._needed = _HEADER.size
                yield message
        except DamagedRelayError:
            self._is_damaged = True
            raise


def _bytes_of(text: Part, kind: int) -> int:
    """Return the bytes of the message that begins here. Raises: DamagedRelayError."""
    magic, number, found, rows, _begun, size, _sum = _HEADER.unpack_from(text)
    if magic != _MAGIC or number != _FORMAT or found != kind:
        raise DamagedRelayError(f"it begins with {magic!r}, format {number}, kind {found}")
    if rows > ROWS_MAX or size > TEXT_BYTES_MAX:
        raise DamagedRelayError(f"{rows} rows with {size} bytes are too many")
    return int(_HEADER.size + rows * _ROW_BYTES + size)


def _message(text: Part) -> Message:
    """Return a whole message. Raises: DamagedRelayError."""
    _magic, _format, _kind, count, begun, size, checksum = _HEADER.unpack_from(text)
    columns: list[array[int]] = []
    at = _HEADER.size
    for kind, width in _COLUMNS:
        columns.append(array(kind, bytes(text[at : at + count * width])))
        at += count * width
    numbers, codes, head_sizes, body_sizes = columns
    bodies_at = at + sum(head_sizes)
    if sum(head_sizes) + sum(body_sizes) != size:
        raise DamagedRelayError(f"its rows have not the {size} bytes of its header")
    start = bytes(text[: _HEADER.size - _SUM_BYTES])
    if checksum != _sum_of(start, bytes(text[_HEADER.size : bodies_at])):
        raise DamagedRelayError("its checksum is another one")
    rows: list[RelayRow] = []
    body_at = bodies_at
    for number, code, head_size, body_size in zip(numbers, codes, head_sizes, body_sizes, strict=True):
        rows.append(RelayRow(number, code, bytes(text[at : at + head_size]), text[body_at : body_at + body_size]))
        at += head_size
        body_at += body_size
    return Message(begun, rows)


def _sum_of(start: bytes, text: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(text, seed=xxhash.xxh3_64_intdigest(start)))
