"""What handlers of byte streams implement, and the connections that share one handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from topics.loop.connection import Connection, Row


class StreamHandler(Protocol):
    """Serves all connections of a listener; called on the loop's thread, never from inside another of its calls."""

    def connected(self, conn: Connection) -> None:
        """A new connection; nothing was received yet."""

    def receive(self, batch: list[Row]) -> None:
        """All receives of the pass, oldest first; a connection may have several rows. Neither list nor views may be
        kept: the buffers go back to the kernel when this returns."""

    def end_of_stream(self, conn: Connection) -> None:
        """The peer sends nothing more; writing goes on until `close`."""

    def drained(self, conn: Connection) -> None:
        """Outbound fell to the low water mark after having been over the high one."""

    def lost(self, conn: Connection, error: int) -> None:
        """The end, once: every operation has completed. errno, or 0 after `close` or `abort`."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one listener's connections."""

    max_connections: int = 0
    """Connections above this are refused; 0: no cap but the process's descriptors."""
    send_high_water_bytes: int = 1 << 20
    send_low_water_bytes: int = 1 << 18
    keepalive_ms: int = 0
    """See `Ring.listen`."""
    refusal: bytes = b""
    """Sent to a refused connection before it is closed, e.g. an HTTP 503."""


class Streams:
    """Connections with one handler; their receives of a pass are one batch."""

    __slots__ = ("connections", "handler", "inbox", "limits", "on_lost", "takes_rows")

    def __init__(self, handler: StreamHandler, limits: StreamLimits) -> None:
        assert limits.send_low_water_bytes <= limits.send_high_water_bytes, "low water above high water"
        self.handler = handler
        self.limits = limits
        self.inbox: list[Row] = []
        self.connections: dict[int, Connection] = {}
        self.takes_rows = bool(getattr(handler, "takes_rows", False))
        """The handler looks at the loop's `links`, too, when its `receive` is called."""
        self.on_lost: Callable[[Connection, int], None] = handler.lost
