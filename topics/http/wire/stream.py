"""An answer that goes on: bytes to one client, as long as it listens."""

from __future__ import annotations

from typing import Protocol


class Block:
    """Bytes that many streams send: what a kind of transport wraps around them is made once."""

    __slots__ = ("_chunk", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._chunk = b""

    @property
    def chunk(self) -> bytes:
        """As one chunk of HTTP/1.1's transfer coding."""
        if not self._chunk:
            self._chunk = chunked(self.data)
        return self._chunk


class Stream(Protocol):
    """What `Call.open_stream` gives. After `end`, and after `on_disconnect` was called, writing does nothing.

    Back-pressure: whoever writes stops while `over_high_water`, and goes on when `on_drained` is called; one block
    may cross the mark, so what is held for a client that does not read is bounded by the mark and a block.
    """

    @property
    def over_high_water(self) -> bool: ...

    def write(self, data: bytes) -> None:
        """data: never empty."""

    def write_block(self, block: Block) -> None:
        """The same, for bytes that go to many."""

    def end(self) -> None:
        """The answer is complete; the connection goes on with its next request where it can."""


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
