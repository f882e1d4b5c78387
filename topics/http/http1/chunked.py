"""A chunked request body, taken strictly: a bad size, a bad chunk end or a bad trailer is an error (R-NET-8).

Our own because a pipelined connection needs to know where a body ends, which httptools does not tell, and because what
one parser forgives here is what the next one is smuggled past. RFC 9112 section 7.1.
"""

from __future__ import annotations

import re
from typing import Final

from topics.common.memory import GrowingBytes
from topics.http.wire.error_answers import BadRequestError

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
_MAX_LINE_BYTES = 4096
_MAX_OVERHEAD_BYTES = 1 << 20
"""Size lines and extensions over the whole body above this plus its size: nobody sends that in good faith."""

SIZE, DATA, END, TRAILER, DONE = range(5)


class ChunkedBody:
    """Collects one body. `size` counts payload bytes as soon as a chunk announces them, so a limit acts at once.

    Feed it until `done`; what follows the body is what `feed` returns then.
    """

    __slots__ = ("_body", "_left", "_overhead", "_pending", "_state", "size")

    def __init__(self) -> None:
        self.size = 0
        self._body = GrowingBytes()
        self._pending = b""
        self._left = 0
        self._overhead = 0
        self._state: int = SIZE

    @property
    def done(self) -> bool:
        return self._state == DONE

    def __len__(self) -> int:
        """Bytes of the body that have come."""
        return len(self._body)

    def take(self) -> bytes | memoryview:
        """The body, once `done`."""
        assert self._state == DONE, "a chunked body taken before its end"
        return self._body.take()

    def feed(self, data: bytes) -> bytes:
        """Takes more of the stream; returns what lies behind the body's end, b"" before it. Raises BadRequestError."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        at = 0
        while True:
            state = self._state
            if state == DATA:
                piece = data[at : at + self._left]
                self._body += piece
                self._left -= len(piece)
                at += len(piece)
                if self._left:
                    return b""
                self._state = END
            elif state == END:
                got = data[at : at + 2]
                if not b"\r\n".startswith(got):
                    raise BadRequestError("a chunk does not end in CR LF where its size says")
                if len(got) < 2:
                    self._pending = got
                    return b""
                at += 2
                self._state = SIZE
            elif state == SIZE:
                line = _SIZE_LINE.match(data, at)
                if line is None:
                    self._pending = _partial_line(data[at:])
                    return b""
                self._overhead += line.end() - at
                if self._overhead > _MAX_OVERHEAD_BYTES + self.size:
                    raise BadRequestError("the chunk sizes are larger than the chunks")
                at = line.end()
                self._left = int(line[1], 16)
                self.size += self._left
                self._state = DATA if self._left else TRAILER
            elif state == TRAILER:
                end = _trailer_end(data, at)
                if end is None:
                    self._pending = data[at:]
                    return b""
                self._state = DONE
                at = end
            else:
                return data[at:]


_PARTIAL_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{0,16}|[0-9A-Fa-f]{1,16}(?:;[\t\x20-\x7e\x80-\xff]*)?\r?")


def _partial_line(rest: bytes) -> bytes:
    """`rest` if it can still become a size line."""
    if len(rest) > _MAX_LINE_BYTES or _PARTIAL_SIZE.fullmatch(rest) is None:
        raise BadRequestError("a chunk size is malformed")
    return rest


def _trailer_end(data: bytes, at: int) -> int | None:
    """Where the trailer (fields, which are dropped, and an empty line) ends; None when more must come."""
    if data.startswith(b"\r\n", at):
        return at + 2
    end = data.find(b"\r\n\r\n", at)
    if end >= 0:
        if _TRAILER.fullmatch(data, at, end + 4) is None or end + 4 - at > _MAX_LINE_BYTES:
            raise BadRequestError("a trailer field is malformed")
        return end + 4
    rest = data[at:]
    if len(rest) > _MAX_LINE_BYTES or rest.count(b"\n") != rest.count(b"\r\n"):
        raise BadRequestError("a trailer field is malformed")
    return None
