"""A graceful stop. Source: wire contract, R-LIFE-7 and R-LIFE-8.

Accepting stops; what is new on open connections is told `shutting_down`; streams end; long polls answer empty; requests
in progress finish, and are taken by their clients; then connections close, the log drains and a checkpoint is written.
Nothing waits for an idle client, for a body that has stopped arriving, nor for a client that takes nothing of its
answer: each has a moment, and after `shutdown_grace_ms` whoever is left is abandoned.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from topics.server.pace import BodyPace, Stalls

if TYPE_CHECKING:
    from topics.server.app import Server

_log = logging.getLogger(__name__)

_LAME_DUCK_MS = 250
"""A request that crossed our decision on its way gets its 503 instead of a reset."""
_BODY_PAUSE_MS = 1000
"""A body of which nothing came for so long is not waited for."""
_TAKE_PAUSE_MS = 2000
"""An answer of which nothing was taken for so long is not waited for: a kernel with much of it in its buffer takes more
only when a good part of that is gone."""
_LOOK_EVERY_MS = 10
_FLUSH_MS = 1000
"""For the last answers to leave once everything is decided, and to be read by those who are slow."""


async def drain(server: Server) -> None:
    """Returns when every connection is closed and nothing is in progress, or the grace is over."""
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


def _arriving(server: Server, bodies: BodyPace, now_ns: int) -> bool:
    """Some request's body is on its way."""
    moving = [
        bodies.look(conn.id, arriving, now_ns)
        for conn in server.listener.connections
        for arriving in conn.state.arriving
    ]
    bodies.forget_others()
    return any(moving)


class _Takers:
    """Connections that do not take at once what was written for them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stalls = Stalls()
        self._before: set[int] = set()
        """Those at the last look."""
        self._slow: set[int] = set()
        """Those at two looks running."""

    def look(self, now_ns: int) -> bool:
        """Whether some of them takes more now and then."""
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
        """Some of them has not got all, as far as we know: what lies in the kernels is not seen from here, and would
        be lost if the client said something, a WINDOW_UPDATE perhaps, when its connection is gone."""
        return any(conn.outbound_bytes or conn.id in self._slow for conn in self._server.listener.connections)


def _busy(server: Server) -> bool:
    """A connection has begun something that ends by itself."""
    return any(conn.state.busy for conn in server.listener.connections)
