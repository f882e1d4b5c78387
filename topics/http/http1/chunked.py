"""A parser of chunked request bodies. Source: RFC 9112 section 7.1; wire contract, R-NET-8.

It is strict: a malformed size, chunk end or trailer is an error, because input that one parser
forgives can smuggle a request past the next one. It is our own because a pipelined connection needs
the end of a body, which httptools does not report.
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
"""Most bytes of size lines and extensions beyond the size of the body: more is abuse."""

SIZE, DATA, END, TRAILER, DONE = range(5)


class ChunkedBody:
    """A collector of one body: feed it until `done`.

    `size` counts payload bytes as soon as a chunk announces them, so a limit applies at once. The
    last `feed` returns the bytes that follow the body.
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
        """Return the number of body bytes received."""
        return len(self._body)

    def take(self) -> bytes | memoryview:
        """Return the body, once `done`."""
        assert self._state == DONE, "a chunked body taken before its end"
        return self._body.take()

    def feed(self, data: bytes) -> bytes:
        """Take more of the stream. Return the bytes after the body's end; b"" before it.

        Raises: BadRequestError, the chunks are malformed.
        """
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
                at = self._take_whole(data, at)
                line = _SIZE_LINE.match(data, at)
                if line is None:
                    self._pending = _partial_line(data[at:])
                    return b""
                self._overhead += line.end() - at
                if self._overhead > _MAX_OVERHEAD_BYTES + self.size:
                    raise _wasteful()
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

    def _take_whole(self, data: bytes, at: int) -> int:
        """Take the chunks that are whole in `data`, from `at` on. Return where they end.

        Raises: BadRequestError, their sizes are larger than they are.
        """
        pieces: list[bytes] = []
        while (line := _SIZE_LINE.match(data, at)) is not None:
            begin, size = line.end(), int(line[1], 16)
            if not size or not data.startswith(b"\r\n", begin + size):
                break
            self._overhead += begin - at
            if self._overhead > _MAX_OVERHEAD_BYTES + self.size:
                raise _wasteful()
            self.size += size
            pieces.append(data[begin : begin + size])
            at = begin + size + 2
        if pieces:
            self._body += b"".join(pieces)
        return at


def _wasteful() -> BadRequestError:
    return BadRequestError("the chunk sizes are larger than the chunks")


_PARTIAL_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{0,16}|[0-9A-Fa-f]{1,16}(?:;[\t\x20-\x7e\x80-\xff]*)?\r?")


def _partial_line(rest: bytes) -> bytes:
    """Return `rest` if it can still become a size line.

    Raises: BadRequestError, it cannot.
    """
    if len(rest) > _MAX_LINE_BYTES or _PARTIAL_SIZE.fullmatch(rest) is None:
        raise BadRequestError("a chunk size is malformed")
    return rest


def _trailer_end(data: bytes, at: int) -> int | None:
    """Return the end of the trailer (fields, which are dropped, and an empty line).

    None: more must arrive.

    Raises: BadRequestError, a field is malformed.
    """
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
