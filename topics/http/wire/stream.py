"""The interface of a streamed answer: bytes to one client while it reads."""

from __future__ import annotations

from typing import Any, Protocol


class Block:
    """Bytes that many streams send, so that the framing of a transport is made once."""

    __slots__ = ("_chunk", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._chunk = b""

    @property
    def chunk(self) -> bytes:
        """The bytes as one chunk of HTTP/1.1's transfer coding."""
        if not self._chunk:
            self._chunk = chunked(self.data)
        return self._chunk


class Stream(Protocol):
    """The stream that `Call.open_stream` returns.

    After `end`, and after `on_disconnect` was called, writing does nothing. Back-pressure: the
    writer stops while `over_high_water`, and continues when `on_drained` is called. One block may
    cross the mark, so the memory for a client that does not read is bounded by the mark and a
    block.
    """

    @property
    def over_high_water(self) -> bool: ...

    @property
    def shared_connection(self) -> Any | None:
        """The connection, if `Block.chunk` written to it is the same as `write_block`."""

    def write(self, data: bytes) -> None:
        """Send bytes to the client. data: never empty."""

    def write_block(self, block: Block) -> None:
        """Send a block that other streams send, too."""

    def end(self) -> None:
        """Complete the answer. The connection continues with its next request where it can."""

    def drop(self) -> None:
        """End without the end of the answer, as the client can see: the rest of it is unknown."""


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
