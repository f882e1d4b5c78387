"""A graceful stop. Source: wire contract, R-LIFE-7 and R-LIFE-8.

1. The server stops accepting. New requests on open connections are refused with `shutting_down`.
2. Streams end; long polls answer empty.
3. Requests in progress finish, and their clients take the answers.
4. Connections close, the log drains, and a checkpoint is written.

Idle clients, bodies that have stopped arriving and clients that take nothing of their answers are
not waited for beyond a short pause. After `shutdown_grace_ms` all remaining connections are
dropped.
"""

from __future__ import annotations

import logging
from typing import Protocol

from topics.config import Config
from topics.http.plan.service import Service
from topics.loop.listener import Listener
from topics.loop.loop import Loop
from topics.server.backend import ServedEngine
from topics.server.gate import Gate
from topics.server.pace import BodyPace, Stalls

_log = logging.getLogger(__name__)

_LAME_DUCK_MS = 250
"""Time in which a request already on its way gets its 503 instead of a reset."""
_BODY_PAUSE_MS = 1000
"""A body that has not grown for so long is not waited for."""
_TAKE_PAUSE_MS = 2000
"""An answer of which the client took nothing for so long is not waited for.

The pause is long because a kernel with a full buffer takes more only when a good part is sent.
"""
_LOOK_EVERY_MS = 10
_FLUSH_MS = 1000
"""Time for the last answers to be sent, and for slow clients to read them."""


class DrainedServer(Protocol):
    """The parts of a server that a stop uses."""

    config: Config
    loop: Loop
    service: Service
    listener: Listener
    gate: Gate
    hurried: bool

    @property
    def engine(self) -> ServedEngine | None: ...


async def drain(server: DrainedServer) -> None:
    """Return when every connection is closed and nothing is in progress, or the grace has ended."""
    loop, service, listener = server.loop, server.service, server.listener
    started_ns = loop.clock.monotonic_ns()
    grace_ns = server.config.shutdown_grace_ms * 1_000_000
    listener.stop_accepting()
    server.gate.drain()
    for end_streams in service.at_drain:
        end_streams()
    if server.engine is not None:
        server.engine.begin_shutdown()
    for conn in listener.connections:
        conn.state.going_away()
    bodies = BodyPace(_BODY_PAUSE_MS * 1_000_000, 1)
    takers = _Takers(server)
    while listener.connections and not server.hurried:
        now_ns = loop.clock.monotonic_ns()
        taken = takers.look(now_ns)
        busy = service.in_flight.requests or _arriving(server, bodies, now_ns) or taken or _busy(server)
        if now_ns - started_ns >= grace_ns or (now_ns - started_ns >= _LAME_DUCK_MS * 1_000_000 and not busy):
            break
        await loop.sleep(_LOOK_EVERY_MS * 1_000_000)
    if service.in_flight.requests:
        _log.warning("%d requests were not finished within the grace and are abandoned", service.in_flight.requests)
    for conn in listener.connections:
        conn.state.going_away()
        conn.close()
    flush_until_ns = loop.clock.monotonic_ns() + _FLUSH_MS * 1_000_000
    while takers.stay and not server.hurried:
        if loop.clock.monotonic_ns() >= flush_until_ns:
            break
        await loop.sleep(_LOOK_EVERY_MS * 1_000_000)
    for conn in listener.connections:
        conn.abort()


def _arriving(server: DrainedServer, bodies: BodyPace, now_ns: int) -> bool:
    """Return whether the body of a request is arriving."""
    moving = [
        bodies.look(conn.id, arriving, now_ns)
        for conn in server.listener.connections
        for arriving in conn.state.arriving
    ]
    bodies.forget_others()
    return any(moving)


class _Takers:
    """Connections that do not take their output at once."""

    def __init__(self, server: DrainedServer) -> None:
        self._server = server
        self._stalls = Stalls()
        self._before: set[int] = set()
        """The numbers of these connections at the last look."""
        self._slow: set[int] = set()
        """The numbers of connections that were slow at two looks in a row."""

    def look(self, now_ns: int) -> bool:
        """Return whether one of them still takes output from time to time."""
        waited = {
            conn.id: self._stalls.look(conn.id, conn.outbound_bytes, now_ns)
            for conn in self._server.listener.connections
            if conn.outbound_bytes
        }
        self._stalls.forget_others()
        self._slow |= self._before & waited.keys()
        self._before = set(waited)
        return any(ns < _TAKE_PAUSE_MS * 1_000_000 for ns in waited.values())

    @property
    def stay(self) -> bool:
        """Whether one of them may not have received everything.

        Bytes in the kernels' buffers are invisible here. They would be lost if the client sent
        anything, such as a WINDOW_UPDATE, after its connection is closed.
        """
        return any(conn.outbound_bytes or conn.id in self._slow for conn in self._server.listener.connections)


def _busy(server: DrainedServer) -> bool:
    """Return whether a connection is executing something that ends by itself."""
    return any(conn.state.busy for conn in server.listener.connections)
