"""A graceful stop. Source: wire contract, R-LIFE-7 and R-LIFE-8.

1. The server stops accepting. New requests on open connections are refused with `shutting_down`.
2. Streams end; long polls answer empty.
3. Requests in progress finish, and their clients take the answers.
4. Connections close, the log drains, and a checkpoint is written.

Idle clients, bodies that have stopped arriving and clients that take nothing of their answers are
not waited for beyond a short pause. After `shutdown_grace_ms` all remaining connections are
dropped.

There may be tens of thousands of connections, so a pass of the loop looks at some of them, and ends
some.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

from topics.config import Config
from topics.http.http1.http1_connection import HttpConnection
from topics.http.plan.in_flight import InFlight
from topics.http.streams.open_streams import OpenStreams
from topics.loop.connection import CLOSING, Connection
from topics.loop.doors.listener import Listener
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
LOOKS_A_PASS = 256
"""Connections that a pass looks at."""
ENDS_A_PASS = 64
"""Streams and connections that a pass ends, for which the kernel has work, too."""


class DrainedService(Protocol):
    """The parts of the service that a stop uses."""

    streams: OpenStreams
    in_flight: InFlight

    def drain(self) -> None: ...


class DrainedServer(Protocol):
    """The parts of a server that a stop uses."""

    config: Config
    loop: Loop
    listener: Listener
    gate: Gate
    hurried: bool

    @property
    def service(self) -> DrainedService: ...

    @property
    def engine(self) -> ServedEngine | None: ...


async def drain(server: DrainedServer) -> None:
    """Return when every connection is closed and nothing is in progress, or the grace has ended."""
    loop, service, listener = server.loop, server.service, server.listener
    started_ns = loop.clock.monotonic_ns()
    grace_ns = server.config.shutdown_grace_ms * 1_000_000
    listener.stop_accepting()
    await _by_turns(loop, map(_begin_held, listener.connections), ENDS_A_PASS)
    server.gate.drain()
    service.drain()
    for end_streams in service.streams.at_drain:
        await _by_turns(loop, end_streams(), ENDS_A_PASS)
    if server.engine is not None:
        server.engine.begin_shutdown()
    await _by_turns(loop, map(_announce, listener.connections), ENDS_A_PASS)
    looks = _Looks(server)
    while listener.connections and not server.hurried:
        busy = await looks.find_work() or service.in_flight.requests
        since_ns = loop.clock.monotonic_ns() - started_ns
        if since_ns >= grace_ns or (since_ns >= _LAME_DUCK_MS * 1_000_000 and not busy):
            break
        await loop.sleep(_LOOK_EVERY_MS * 1_000_000)
    if service.in_flight.requests:
        _log.warning("%d requests were not finished within the grace and are abandoned", service.in_flight.requests)
    await _by_turns(loop, map(_close, listener.connections), ENDS_A_PASS)
    flush_until_ns = loop.clock.monotonic_ns() + _FLUSH_MS * 1_000_000
    while not server.hurried and await looks.find_takers() and loop.clock.monotonic_ns() < flush_until_ns:
        await loop.sleep(_LOOK_EVERY_MS * 1_000_000)
    await _by_turns(loop, map(_abort, listener.connections), ENDS_A_PASS)


async def _by_turns(loop: Loop, steps: Iterator[None], a_pass: int) -> None:
    """Take so many steps in each pass of the loop."""
    for number, _ in enumerate(steps, 1):
        if number % a_pass == 0:
            await loop.next_pass()


def _begin_held(conn: Connection) -> None:
    if isinstance(conn.state, HttpConnection):
        conn.state.begin_held()


def _announce(conn: Connection) -> None:
    if conn.phase < CLOSING:
        conn.state.going_away()


def _close(conn: Connection) -> None:
    _announce(conn)
    conn.close()


def _abort(conn: Connection) -> None:
    conn.abort()


class _Looks:
    """Looks at all connections, each of which takes some of them in a pass."""

    def __init__(self, server: DrainedServer) -> None:
        self._server = server
        self._bodies = BodyPace(_BODY_PAUSE_MS * 1_000_000, 1)
        self._stalls = Stalls()
        self._before: set[int] = set()
        """The numbers of connections that had not taken all of their output at the last look."""
        self._slow: set[int] = set()
        """The numbers of connections that had not at two looks in a row."""

    async def find_work(self) -> bool:
        """Return whether a connection is worth waiting for.

        It is executing something that ends by itself, or the body of a request is arriving, or it
        takes its output from time to time.
        """
        works = False
        waiting: set[int] = set()
        now_ns = self._server.loop.clock.monotonic_ns()
        work = 0
        for conn in self._server.listener.connections:
            work += conn.state.look_cost
            works |= conn.state.busy
            for arriving in conn.state.arriving:
                works |= self._bodies.look(conn.id, arriving, now_ns)
            outbound_bytes = conn.outbound_bytes
            if outbound_bytes:
                waiting.add(conn.id)
                works |= self._stalls.look(conn.id, outbound_bytes, now_ns) < _TAKE_PAUSE_MS * 1_000_000
            if work >= LOOKS_A_PASS:
                work = 0
                await self._server.loop.next_pass()
        self._bodies.forget_others()
        self._stalls.forget_others()
        self._slow |= self._before & waiting
        self._before = waiting
        return works

    async def find_takers(self) -> bool:
        """Return whether a connection may not have received everything.

        Bytes in the kernels' buffers are invisible here. They would be lost if the client sent
        anything, such as a WINDOW_UPDATE, after its connection is closed.
        """
        for number, conn in enumerate(self._server.listener.connections, 1):
            if conn.outbound_bytes or conn.id in self._slow:
                return True
            if number % LOOKS_A_PASS == 0:
                await self._server.loop.next_pass()
        return False
