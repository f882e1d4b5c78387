"""The two neighbours of a protocol: the byte stream below it, and the server that drives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Transport(Protocol):
    """The byte stream below: the loop's `Connection`, or a list of bytes in tests."""

    peer: tuple[str, int]
    """The address of the client, or of the proxy before it."""
    over_high_water: bool
    state: Any
    """The `ProtocolState` that receives what arrives; a handover sets its successor here."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Close once the written bytes are sent.

        Bytes of the peer are read and dropped for a while.
        """

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_water_marks(self, high_bytes: int, low_bytes: int) -> None:
        """Bound the bytes written and not yet sent, from now on: see `over_high_water`."""


class Waits(NamedTuple):
    """How long a peer may be silent or slow, in ticks of `Service.tick`, each rounded up.

    head: for a request head, or for more of a body. idle: between requests. ping_after: silence of
    an HTTP/2 peer until it is sent a PING; ping_timeout: for the answer to it. stall: for a peer to
    take more of an answer. drain: for the rest of a request body after the answer, over HTTP/2.
    """

    head: int
    idle: int
    ping_after: int
    ping_timeout: int
    stall: int
    drain: int


class Arriving(NamedTuple):
    """A request body that is not complete."""

    body: int
    """The number of the body: unique within its connection, earlier bodies included."""
    bytes: int
    """Bytes received so far."""


class ProtocolState(Protocol):
    """One connection in one protocol, as the server's glue, sweep and shutdown see it."""

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete input, and of output that waits for more than the socket."""

    def large_writes(self) -> Sequence[bytes]:
        """Return those bytes of the unsent output that other connections may be sending, too."""

    @property
    def arriving(self) -> Sequence[Arriving]:
        """Request bodies that are being received. A graceful stop waits for those that progress."""

    @property
    def look_cost(self) -> int:
        """The cost of a look at the connection: 1, and 1 for each of its streams (HTTP/2)."""

    def cut_off(self, body: int) -> None:
        """End the request of a body that has been too slow for too long."""

    @property
    def busy(self) -> bool:
        """Whether the connection does other work that a graceful stop waits for."""

    @property
    def admitted(self) -> bool:
        """Whether a request was admitted: with keys configured, one with a valid key.

        Connections that were never admitted are closed first when memory is short.
        """

    @property
    def patient(self) -> bool:
        """Whether unsent output waits for its reader without a time limit (R-SSE-6)."""

    def receive(self, data: bytes | memoryview) -> None:
        """Take bytes from the peer. A view is only read during the call."""

    def end_of_stream(self) -> None: ...

    def drained(self) -> None: ...

    def lost(self) -> None: ...

    def overdue(self, waits: Waits) -> bool:
        """Return whether the peer exceeded a wait, so that the connection is closed.

        Called every tick.
        """

    def going_away(self) -> None:
        """Announce to the peer that the server stops, if the protocol has a message for it.

        Called again right before the end.
        """
