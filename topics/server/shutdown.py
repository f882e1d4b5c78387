"""A graceful stop. Source: wire contract, R-LIFE-7 and R-LIFE-8.

Accepting stops; what is new on open connections is told `shutting_down`; streams end; long polls answer empty; requests
in progress finish; then connections close, the log drains and a checkpoint is written. Nothing waits for an idle
client, nor for a body that has stopped arriving: both have a moment, and after `shutdown_grace_ms` whoever is left is
abandoned.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from topics.server.pace import BodyPace

if TYPE_CHECKING:
    from topics.server.app import Server

_log = logging.getLogger(__name__)

_LAME_DUCK_MS = 250
"""A request that crossed our decision on its way gets its 503 instead of a reset."""
_BODY_PAUSE_MS = 1000
"""A body of which nothing came for so long is not waited for."""
_LOOK_EVERY_MS = 10
_FLUSH_MS = 1000
"""For the last answers to leave once everything is decided."""


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
    while listener.connections and not server.hurried:
        now_ns = loop.clock.monotonic_ns()
        busy = service.in_progress or _arriving(server, bodies, now_ns) or _busy(server)
        if now_ns - started_ns >= grace_ns or (now_ns - started_ns >= _LAME_DUCK_MS * 1_000_000 and not busy):
            break
        await loop.sleep(_LOOK_EVERY_MS * 1_000_000)
    if service.in_progress:
        _log.warning("%d requests were not finished within the grace and are abandoned", service.in_progress)
    for conn in listener.connections:
        conn.state.going_away()
        conn.close()
    flush_until_ns = loop.clock.monotonic_ns() + _FLUSH_MS * 1_000_000
    while any(conn.outbound_bytes for conn in listener.connections) and not server.hurried:
        if loop.clock.monotonic_ns() >= flush_until_ns:
            break
        await loop.sleep(_LOOK_EVERY_MS * 1_000_000)
    for conn in listener.connections:
        conn.abort()


def _arriving(server: Server, bodies: BodyPace, now_ns: int) -> bool:
    """Some request's body is on its way."""
    moving = [
        bodies.look(conn.id, conn.state.arriving, now_ns)
        for conn in server.listener.connections
        if conn.state.arriving is not None
    ]
    bodies.forget_others()
    return any(moving)


def _busy(server: Server) -> bool:
    """A connection has begun something that ends by itself."""
    return any(conn.state.busy for conn in server.listener.connections)
