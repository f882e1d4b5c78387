"""The protocol of handlers of byte streams, and the connections that share one handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from topics.loop.connection import Connection, Row


class StreamHandler(Protocol):
    """Events of all connections of a listener.

    Called on the loop's thread, never from inside another call.

    A handler may also have a method `receive_single(conn, view)`, which is offered the only receive
    of a pass before `receive` is. It returns True if all work that the receive causes was done, so
    that the hooks at the end of the pass need not run for it; False if they have to run; None, and
    nothing was done, if the receive is for `receive`.
    """

    def connected(self, conn: Connection) -> None:
        """Take a new connection, which has received no data yet."""

    def receive(self, batch: list[Row]) -> bool | None:
        """Take all receives of the pass, oldest first; a connection may have several rows.

        Neither the list nor the views may be kept: the buffers return to the kernel afterwards.

        Returns: True if all work that they cause was done, as `receive_single` does.
        """

    def end_of_stream(self, conn: Connection) -> None:
        """Take the end of the peer's data, once. Writing remains possible until `close`."""

    def drained(self, conn: Connection) -> None:
        """Take the fall of outbound bytes to the low water mark after exceeding the high one."""

    def lost(self, conn: Connection, error: int) -> None:
        """Take the end, once, after every operation has completed.

        error: errno, or 0 after `close` or `abort`.
        """


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one listener's connections."""

    max_connections: int = 0
    """Cap on connections; more are refused. 0: no cap except the process's descriptors."""
    send_high_water_bytes: int = 1 << 20
    send_low_water_bytes: int = 1 << 18
    keepalive_ms: int = 0
    """See `Ring.listen`."""
    refusal: bytes = b""
    """Bytes sent to a refused connection before it is closed, e.g. an HTTP 503."""


class Streams:
    """Connections with one handler. Their receives of a pass are one batch."""

    __slots__ = ("connections", "handler", "inbox", "limits", "on_lost", "receive_single", "takes_rows")

    def __init__(self, handler: StreamHandler, limits: StreamLimits) -> None:
        assert limits.send_low_water_bytes <= limits.send_high_water_bytes, "low water above high water"
        self.handler = handler
        self.limits = limits
        self.inbox: list[Row] = []
        self.connections: dict[int, Connection] = {}
        self.takes_rows = bool(getattr(handler, "takes_rows", False))
        """Whether the handler reads rows of the connection table in `receive`."""
        self.receive_single: Callable[[Connection, memoryview], bool | None] | None
        self.receive_single = getattr(handler, "receive_single", None)
        self.on_lost: Callable[[Connection, int], None] = handler.lost

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be."""
        return 0 < self.limits.max_connections <= len(self.connections)
