"""Connections that keep the server waiting, found by one look over all of them each second: no timer per request.

A connection is closed when its protocol has waited for the peer too long (`overdue`: a request head, more of a body, a
sign of life), or when the peer takes nothing of its answer; a body of which too little comes is cut off. When all of
them together make the server hold too much, those with the most are dropped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate

from topics.config import Config
from topics.http.plan.service import Service
from topics.http.wire.transport import Waits
from topics.loop.connection import Connection
from topics.loop.loop import Loop
from topics.server.pace import BodyPace, Stalls

_log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1000
_PACE_WINDOW_MS = 10_000
"""A body may pause for so long without being called slow."""


class Sweep:
    """Looks at `connections()` every second (more often under shorter limits); also moves the clock of the Date."""

    def __init__(
        self, loop: Loop, config: Config, service: Service, connections: Callable[[], Iterable[Connection]]
    ) -> None:
        self._loop = loop
        self._service = service
        self._connections = connections
        shortest_ms = min(
            config.head_timeout_ms,
            config.idle_timeout_ms,
            config.write_stall_timeout_ms,
            config.h2_ping_after_ms,
            config.h2_ping_timeout_ms,
            config.h2_drain_ms,
        )
        self._every_ms = max(10, min(LOOK_EVERY_MS, shortest_ms // 4))
        head = self._ticks(config.head_timeout_ms)
        self._waits = Waits(
            head=head,
            idle=min(head, self._ticks(config.idle_timeout_ms)),
            ping_after=self._ticks(config.h2_ping_after_ms),
            ping_timeout=self._ticks(config.h2_ping_timeout_ms),
            stall=self._ticks(config.write_stall_timeout_ms),
            drain=self._ticks(config.h2_drain_ms),
        )
        least = config.min_body_bytes_per_s * _PACE_WINDOW_MS // 1000
        self._pace = BodyPace(self._ticks(_PACE_WINDOW_MS), least) if least else None
        self._max_bytes = config.max_client_bytes
        self._stalls = Stalls()
        self._stopped = False

    def start(self) -> None:
        self._set_date()
        self._loop.call_later(self._every_ms * 1_000_000, self._look)

    def stop(self) -> None:
        self._stopped = True

    def _ticks(self, ms: int) -> int:
        """A limit in looks, rounded up."""
        return -(-ms // self._every_ms)

    def _look(self) -> None:
        if self._stopped:
            return
        self._service.tick += 1
        self._set_date()
        self._check()
        self._loop.trim()
        self._loop.call_later(self._every_ms * 1_000_000, self._look)

    def _set_date(self) -> None:
        self._service.writer.set_date(formatdate(self._loop.clock.now_ms() / 1000, usegmt=True).encode())

    def _check(self) -> None:
        tick = self._service.tick
        pinned = self._loop.pinned()
        held = sum(pinned.values())
        for conn in self._connections():
            try:
                held += self._look_at(conn, tick)
            except Exception:  # its state is anybody's guess; the others are looked at all the same
                _log.exception("looking at connection %d failed by a bug of ours; it is closed", conn.id)
                conn.abort()
        self._stalls.forget_others()
        if self._pace is not None:
            self._pace.forget_others()
        if 0 < self._max_bytes < held:
            self._shed(pinned)

    def _look_at(self, conn: Connection, tick: int) -> int:
        """Ends a connection that has kept us waiting for too long; returns the bytes held for it."""
        outbound = conn.outbound_bytes
        held = _held_for(conn)
        if outbound and not conn.state.patient:
            if self._stalls.look(conn.id, outbound, tick) > self._waits.stall:
                conn.abort()
            return held
        if self._pace is not None:
            for arriving in conn.state.arriving:
                if not self._pace.look(conn.id, arriving, tick):
                    conn.state.cut_off(arriving.body)
        if conn.state.overdue(self._waits):
            conn.close()
        return held

    def _shed(self, pinned: dict[int, int]) -> None:
        """Drops connections until what the server holds for clients is within its limit, the largest first.

        Before all others those go of which no request was let in, so that nobody without a key has others dropped.

        pinned: what their sends keep besides, by send_data.
        """
        connections = list(self._connections())
        shared = _shared_out(connections)
        sizes = [
            (max(_held_for(conn) + pinned.get(conn.send_data, 0) + share, 0), conn)
            for conn, share in zip(connections, shared, strict=True)
        ]
        held = sum(size for size, _conn in sizes)
        dropped = 0
        for size, conn in sorted(sizes, key=_first_to_go, reverse=True):
            if held <= self._max_bytes or not size:
                continue
            held -= size
            dropped += 1
            conn.abort()
        if dropped:
            _log.warning("%d connections dropped: clients held over %d bytes of memory", dropped, self._max_bytes)


def _first_to_go(row: tuple[int, Connection]) -> tuple[bool, int]:
    size, conn = row
    return not (conn.owned or conn.state.admitted), size


def _shared_out(connections: Sequence[Connection]) -> list[int]:
    """What each connection's share of the large buffers that several are sending differs from what it has yet to send
    of them. A buffer is kept whole until the last of its senders is done."""
    users: Counter[int] = Counter()
    sends: list[list[tuple[int, int, int]]] = []
    for conn in connections:
        found = []
        for part in (*conn.large_sends(), *conn.state.large_writes()):
            whole = part.obj if isinstance(part, memoryview) else part
            found.append((id(whole), memoryview(whole).nbytes, len(part)))
        users.update(key for key, _whole, _left in found)
        sends.append(found)
    return [sum(whole // users[key] - left for key, whole, left in found) for found in sends]


def _held_for(conn: Connection) -> int:
    held: int = conn.outbound_bytes + conn.held_bytes + conn.state.held_bytes
    return held
