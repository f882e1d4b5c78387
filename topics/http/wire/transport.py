"""What a protocol stands between: the byte stream below it, and the server that feeds and watches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Transport(Protocol):
    """The byte stream below: the loop's `Connection`, or a list of bytes in tests."""

    over_high_water: bool
    state: Any
    """The `ProtocolState` that gets what arrives; one that hands the connection over puts its successor here."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Closes after what was written has been sent; what the peer still sends is taken and dropped for a while."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_water_marks(self, high_bytes: int, low_bytes: int) -> None:
        """Bounds of what is written and not yet taken, from here on: see `over_high_water`."""


class Waits(NamedTuple):
    """How many ticks of `Service.tick` a connection may keep the server waiting, each rounded up.

    head: for a request head, or for more of a body. idle: between requests. ping_after: silence of an HTTP/2 peer
    until it is asked for a sign of life; ping_timeout: for that sign. stall: for a peer to take more of an answer.
    drain: for the rest of a request body after the answer, over HTTP/2.
    """

    head: int
    idle: int
    ping_after: int
    ping_timeout: int
    stall: int
    drain: int


class Arriving(NamedTuple):
    """A request body of which more is to come."""

    body: int
    """Tells it from the others of its connection, also from those before it."""
    bytes: int
    """That have come."""


class ProtocolState(Protocol):
    """One connection in one protocol, as the server's glue, sweep and shutdown know it."""

    @property
    def held_bytes(self) -> int:
        """Kept here for the peer: input that is not whole, and output that waits for more than the socket."""

    def large_writes(self) -> Sequence[bytes]:
        """Of what is kept here to be sent, that which other connections may be sending, too."""

    @property
    def arriving(self) -> Sequence[Arriving]:
        """Request bodies on their way. A graceful stop waits for those that move."""

    def cut_off(self, body: int) -> None:
        """Too little came of one of them for too long: its request is over."""

    @property
    def busy(self) -> bool:
        """In the middle of something else that a graceful stop waits for."""

    @property
    def admitted(self) -> bool:
        """A request of this connection was let in: its key, where there are keys, is a valid one. Those of whom nothing
        was let in so far are the first to go when memory is short."""

    @property
    def patient(self) -> bool:
        """What is not taken waits for its reader, however long that takes (R-SSE-6)."""

    def receive(self, data: bytes | memoryview) -> None:
        """Bytes from the peer; a view is only read during the call."""

    def end_of_stream(self) -> None: ...

    def drained(self) -> None: ...

    def lost(self) -> None: ...

    def overdue(self, waits: Waits) -> bool:
        """Asked every tick: whether the peer kept us waiting for too long and the connection is to be closed."""

    def going_away(self) -> None:
        """The server stops: the peer is told where the protocol has words for it. Called again right before the end."""
