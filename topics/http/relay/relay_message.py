"""Messages between two cores: the requests of a pass one way, what became of them the other way.

    header   magic, format, kind, number of rows, of heads, `begun`, bytes of the texts, checksum
    columns  of the rows: numbers (u64), bytes of the bodies (u32), codes (u16), which head (u16)
             of the heads: their bytes (u32)
    texts    the heads, each different one once, then the bodies

The checksum covers all but the bodies: a message with damage to it is none, and ends its pair. What
a body may be is checked by its length, as where it was received. Numbers have the byte order of the
machine that both cores run on.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import xxhash
from typing_extensions import Buffer

from topics.common.memory import GrowingBytes
from topics.common.tuples import make_tuple

_HEADER = struct.Struct("=4sBBHHQQQ")
_SUM = struct.Struct("=Q")
_ROW = struct.Struct("=QIHHI")
"""The columns of one row, and those of one head."""
_MAGIC = b"TPRL"
_FORMAT = 3
_ROW_BYTES = 8 + 4 + 2 + 2
_SIZE_BYTES = 4
_SUM_BYTES = _SUM.size
REQUESTS = 1
ANSWERS = 2
ROWS_MAX = 1024
TEXT_BYTES_MAX = 1 << 30
"""Most bytes of the texts of a message."""
SEPARATE_BYTES = 65_536
"""A body from this size on is not copied into its message."""

# Codes of requests about a stream that is open.
TAKEN = 3
"""The client has taken more bytes of the stream. body: how many, `COUNT`."""
KEY_GONE = 4
"""The key of the client is not valid any more."""
STOP = 5
"""The core of the client stops."""
ORDER = 6
"""The reader of a stream asks its writer for something. body: what, in the words of both."""

# Codes of answers that are streams: first `OPENS`, then chunks, and one end.
CHUNK = 3
"""More of the stream: the head, so that streams which get the same share it, or a large body."""
END = 4
"""The end of the stream."""
OPENS = 1000
"""The stream opens, with this status and `OPENS` more."""
COUNT = struct.Struct("=Q")

Part = bytes | bytearray | memoryview


class DamagedRelayError(ValueError):
    """Bytes of another core that are no message, or a message that cannot follow those before."""


class RelayRow(NamedTuple):
    """One request, or what became of one.

    number: of the request, counted by the core that relays it, from 1 on for each pair. code: of a
    request `ASK`, `CANCEL`, or one about its stream; of an answer its status, `WAITS`, `NONE`,
    `WHOLE`, or one of a stream.
    """

    number: int
    code: int
    head: bytes
    body: Part


class Message(NamedTuple):
    """One message, as columns over its rows.

    begun: how many requests of the pair its sender has begun, in messages of answers; 0 elsewhere.
    heads: the different ones. whose: which of them is that of a row. text: all bodies, one after
    the other; sizes: their bytes.
    """

    begun: int
    numbers: tuple[int, ...]
    codes: tuple[int, ...]
    whose: tuple[int, ...]
    heads: list[bytes]
    sizes: tuple[int, ...]
    text: memoryview

    def bodies(self) -> list[memoryview]:
        """Return the body of each row."""
        text = self.text
        ends = list(accumulate(self.sizes))
        return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []

    def rows(self) -> list[RelayRow]:
        heads = self.heads
        columns = zip(self.numbers, self.codes, self.whose, self.bodies(), strict=True)
        return [RelayRow(number, code, heads[head], body) for number, code, head, body in columns]


def encoded(kind: int, begun: int, rows: Sequence[RelayRow]) -> list[bytes | memoryview]:
    """Return the parts of a message, to be sent one after the other. Large bodies are not copied.

    The caller has bounded the rows and their bytes.
    """
    if len(rows) == 1 and len(rows[0].body) < SEPARATE_BYTES:
        return [encoded_row(kind, begun, rows[0])]
    numbers, codes, heads, bodies = zip(*rows, strict=True) if rows else ((), (), (), ())
    places: dict[bytes, int] = {}
    whose = [places.setdefault(head, len(places)) for head in heads]
    sizes = list(map(len, bodies))
    columns = (array("Q", numbers), array("I", sizes), array("H", codes), array("H", whose))
    small: list[Part] = [_start(kind, begun, columns, list(places), sum(sizes))]
    if not sizes or max(sizes) < SEPARATE_BYTES:
        return [b"".join((*small, *bodies))]
    parts: list[bytes | memoryview] = []
    for body in bodies:
        if len(body) < SEPARATE_BYTES:
            small.append(body)
        else:
            parts += (b"".join(small), body if isinstance(body, bytes) else memoryview(body))
            small = []
    if small:
        parts.append(b"".join(small))
    return parts


def encoded_row(kind: int, begun: int, row: RelayRow) -> bytes:
    """Return a message of one row."""
    number, code, head, body = row
    text = _ROW.pack(number, len(body), code, 0, len(head)) + head
    start = _HEADER.pack(_MAGIC, _FORMAT, kind, 1, 1, begun, len(head) + len(body), 0)[:-_SUM_BYTES]
    return b"".join((start, _SUM.pack(_sum_of(start, text)), text, body))


def encoded_columns(begun: int, code: int, numbers: bytes, sizes: bytes, text: bytes) -> bytes:
    """Return a message of answers with the same code and no heads.

    numbers, sizes: packed, as in the message. text: all bodies.
    """
    count = len(sizes) // _SIZE_BYTES
    columns = numbers, sizes, array("H", [code]) * count, bytes(2 * count)
    return b"".join((_start(ANSWERS, begun, columns, [b""], len(text)), text))


def _start(kind: int, begun: int, columns: Sequence[Buffer], heads: Sequence[bytes], body_bytes: int) -> bytes:
    """Return a message up to its bodies."""
    rows = memoryview(columns[-1]).nbytes // 2
    head_sizes = array("I", map(len, heads))
    text = b"".join((*columns, head_sizes, *heads))
    size = len(text) - rows * _ROW_BYTES - len(heads) * _SIZE_BYTES + body_bytes
    start = _HEADER.pack(_MAGIC, _FORMAT, kind, rows, len(heads), begun, size, 0)[:-_SUM_BYTES]
    return b"".join((start, _SUM.pack(_sum_of(start, text)), text))


class RelayDecoder:
    """The messages in bytes as they arrive, of one kind."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._held = GrowingBytes()
        """The beginning of a message."""
        self._needed = _HEADER.size
        """Bytes without which `_held` is no message."""
        self._is_damaged = False

    def feed(self, data: Part) -> Iterator[Message]:
        """Take bytes; yield the messages that end in them, each before the next is looked at.

        Raises: DamagedRelayError, there is no message; from here on for all that follows.
        """
        if self._is_damaged:
            raise DamagedRelayError("it follows damage")
        held = self._held
        if held:
            held += data
            if len(held) < self._needed:
                return
            text = memoryview(held.take())
        else:
            text = memoryview(bytes(data))
            only = _only_row(text, self._kind)
            if only is not None:
                yield only
                return
        try:
            while len(text) >= _HEADER.size:
                needed = _bytes_of(text, self._kind)
                if len(text) < needed:
                    self._needed = needed
                    break
                self._needed = _HEADER.size
                message = _message(text[:needed])
                text = text[needed:]
                yield message
            held += text
        except DamagedRelayError:
            self._is_damaged = True
            raise


def _only_row(text: memoryview, kind: int) -> Message | None:
    """Return the message of one row that all of these bytes are; None: they are something else."""
    at = _HEADER.size + _ROW.size
    if len(text) < at:
        return None
    magic, number, found, rows, heads, begun, size, checksum = _HEADER.unpack_from(text)
    if rows != 1 or heads != 1 or magic != _MAGIC or number != _FORMAT or found != kind or len(text) != at + size:
        return None
    number, body_size, code, whose, head_size = _ROW.unpack_from(text, _HEADER.size)
    end = at + head_size
    is_whole = checksum == _sum_of(text[: _HEADER.size - _SUM_BYTES], text[_HEADER.size : end])
    if whose or head_size + body_size != size or not is_whole:
        return None
    return make_tuple(Message, (begun, (number,), (code,), (0,), [bytes(text[at:end])], (body_size,), text[end:]))


def _bytes_of(text: Part, kind: int) -> int:
    """Return the bytes of the message that begins here. Raises: DamagedRelayError."""
    magic, number, found, rows, heads, _begun, size, _sum = _HEADER.unpack_from(text)
    if magic != _MAGIC or number != _FORMAT or found != kind:
        raise DamagedRelayError(f"it begins with {magic!r}, format {number}, kind {found}")
    if rows > ROWS_MAX or heads > rows or size > TEXT_BYTES_MAX:
        raise DamagedRelayError(f"{rows} rows of {heads} heads with {size} bytes are too many")
    return int(_HEADER.size + rows * _ROW_BYTES + heads * _SIZE_BYTES + size)


def _message(text: memoryview) -> Message:
    """Return a whole message. Raises: DamagedRelayError."""
    _magic, _format, _kind, count, head_count, begun, size, checksum = _HEADER.unpack_from(text)
    values = struct.unpack_from(f"={count}Q{count}I{2 * count}H{head_count}I", text, _HEADER.size)
    numbers, sizes, codes = values[:count], values[count : 2 * count], values[2 * count : 3 * count]
    whose, head_sizes = values[3 * count : 4 * count], values[4 * count :]
    at = _HEADER.size + count * _ROW_BYTES + head_count * _SIZE_BYTES
    bodies_at = at + sum(head_sizes)
    if sum(head_sizes) + sum(sizes) != size:
        raise DamagedRelayError(f"its rows have not the {size} bytes of its header")
    if checksum != _sum_of(text[: _HEADER.size - _SUM_BYTES], text[_HEADER.size : bodies_at]):
        raise DamagedRelayError("its checksum is another one")
    if count and max(whose) >= head_count:
        raise DamagedRelayError(f"head {max(whose)} of {head_count}")
    heads: list[bytes] = []
    for head_size in head_sizes:
        heads.append(bytes(text[at : at + head_size]))
        at += head_size
    return make_tuple(Message, (begun, numbers, codes, whose, heads, sizes, text[bodies_at:]))


def _sum_of(start: Part, text: Part) -> int:
    return int(xxhash.xxh3_64_intdigest(text, seed=xxhash.xxh3_64_intdigest(start)))
