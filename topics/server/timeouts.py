"""Time limits of connections, checked by one look over all of them each second: no timers.

A look takes some connections a pass, and so does the end of those that are dropped.

A connection is closed if its protocol has waited for the peer for too long (`overdue`: for a
request head, more of a body, or a sign of life), or if the peer takes nothing of its answer. A body
that arrives too slowly is cut off. If all connections together make the server hold too much
memory, those that hold most are dropped; that is looked at sooner where much has come for them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from email.utils import formatdate
from heapq import merge
from typing import Protocol

from topics.common.memory import GrowthWatch, MemoryReturns
from topics.config import Config
from topics.http.wire.response import ResponseWriter
from topics.http.wire.transport import Waits
from topics.loop.connection import CLOSING, Connection
from topics.loop.loop import Loop
from topics.server.pace import BodyPace, Stalls

_log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1000
_PACE_WINDOW_MS = 10_000
"""Time in which a body may pause without counting as slow."""
CONNECTIONS_A_PASS = 256
"""Connections that a pass looks at; each stream of HTTP/2 counts as another one."""
DROPS_A_PASS = 32
"""Connections that a pass drops. The kernel frees what their sockets hold."""
_GROWTH_PARTS = 16
"""A look at the memory follows when this part of the limit has come since the last one."""

Steps = Generator[None, None, None]


class SweptService(Protocol):
    """The parts of the service that the sweep moves on."""

    tick: int
    writer: ResponseWriter
    memory_returns: MemoryReturns


class Sweep:
    """Checks all `connections()` every second, or more often under shorter limits.

    It also updates the Date header. Connections that may take work to look up are an iterator,
    which is asked for some of them in each pass.
    """

    def __init__(
        self, loop: Loop, config: Config, service: SweptService, connections: Callable[[], Iterable[Connection]]
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
        self._looks: Steps | None = None
        """The look over all connections that is in progress."""
        self._is_due = False
        """Whether a second has passed meanwhile: another look follows."""
        self._has_grown = False
        """Whether much has come during the look: the memory is looked at again after it."""
        self._growth: GrowthWatch | None = None
        if self._max_bytes:
            part = self._max_bytes // _GROWTH_PARTS
            self._growth = GrowthWatch(part, self._on_growth, self._max_bytes + part)

    def is_memory_short(self) -> bool:
        """Return whether what is held for clients, or for none any more, has used up its bound.

        What was dropped is used until it is returned to the system.
        """
        return self._growth is not None and self._growth.is_short(self._service.memory_returns.bytes)

    def start(self) -> None:
        self._set_date()
        self._loop.call_later(self._every_ms * 1_000_000, self._look)

    def stop(self) -> None:
        self._stopped = True

    def _ticks(self, ms: int) -> int:
        """Return a limit as a number of looks, rounded up."""
        return -(-ms // self._every_ms)

    def _look(self) -> None:
        if self._stopped:
            return
        self._service.tick += 1
        self._set_date()
        self._loop.trim()
        self._loop.call_later(self._every_ms * 1_000_000, self._look)
        self._is_due = True
        if self._looks is None:
            self._look_again()

    def _on_growth(self) -> None:
        """Look at the memory once this pass has ended: its work may be half done."""
        self._loop.call_later(0, self._look_at_memory)

    def _look_at_memory(self) -> None:
        self._has_grown = self._looks is not None
        if not self._stopped and self._looks is None:
            self._go_on(self._weigh())

    def _look_again(self) -> None:
        self._is_due = False
        self._go_on(self._check())

    def _go_on(self, looks: Steps) -> None:
        """Take a step of a look, and the next one in another pass."""
        if self._stopped:
            return
        self._looks = None  # in case the step fails by a bug of ours
        if next(looks, looks) is not looks:
            self._looks = looks
            self._loop.call_later(0, lambda: self._go_on(looks))
        elif self._is_due:
            self._loop.call_later(0, self._look_again)
        elif self._has_grown:
            self._loop.call_later(0, self._look_at_memory)

    def _set_date(self) -> None:
        self._service.writer.set_date(formatdate(self._loop.clock.now_ms() / 1000, usegmt=True).encode())

    def _check(self) -> Steps:
        tick = self._service.tick
        pinned = self._loop.pinned()
        found = None if self._growth is None else self._growth.begin_look()
        held = sum(pinned.values())
        work = 0
        for conn in self._connections():
            work += 1
            if conn.phase < CLOSING:
                try:
                    work += conn.state.look_cost - 1
                    held += self._look_at(conn, tick)
                # the state of this connection is unknown; the others are still checked
                except Exception:
                    _log.exception("looking at connection %d failed by a bug of ours; it is closed", conn.id)
                    conn.abort()
            else:
                held += _held_at_end(conn)
            if work >= CONNECTIONS_A_PASS:
                work = 0
                yield
        self._stalls.forget_others()
        if self._pace is not None:
            self._pace.forget_others()
        if 0 < self._max_bytes < held:
            yield from self._weigh()
        elif found is not None:
            found(held)

    def _look_at(self, conn: Connection, tick: int) -> int:
        """Close a connection that has kept the server waiting too long; return its held bytes."""
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

    def _weigh(self) -> Steps:
        """Count the memory held for clients, and bring it within its limit."""
        found = None if self._growth is None else self._growth.begin_look()
        held = yield from self._shed(self._loop.pinned())
        if found is not None:
            found(held)

    def _shed(self, pinned: dict[int, int]) -> Generator[None, None, int]:
        """Drop the largest connections until the memory held for clients is within its limit.

        Return the bytes held by the others. Connections without an admitted request are dropped
        first, so that a client without a key cannot cause others to be dropped.

        pinned: bytes that pending sends hold in addition, by send_data.
        """
        held = work = 0
        shares = SharedOut()
        rows: list[tuple[int, Connection]] = []
        for conn in self._connections():
            work += 1
            if conn.phase < CLOSING:
                work += conn.state.look_cost - 1
                shares.add(len(rows), conn)
                rows.append((_held_for(conn) + pinned.get(conn.send_data, 0), conn))
            else:
                held += _held_at_end(conn)
            if work >= CONNECTIONS_A_PASS:
                work = 0
                yield
        lines: list[list[tuple[int, Connection]]] = []
        for first in range(0, len(rows), CONNECTIONS_A_PASS):
            line = [
                (max(size + shares.correction(row), 0), conn)
                for row, (size, conn) in enumerate(rows[first : first + CONNECTIONS_A_PASS], first)
            ]
            held += sum(size for size, _conn in line)
            line.sort(key=_first_to_go, reverse=True)
            lines.append(line)
            yield
        dropped = work = 0
        for size, conn in merge(*lines, key=_first_to_go, reverse=True):
            if held <= self._max_bytes:
                break
            work += 1
            if size:
                held -= size
                dropped += 1
                work += CONNECTIONS_A_PASS // DROPS_A_PASS - 1
                conn.abort()
            if work >= CONNECTIONS_A_PASS:
                work = 0
                yield
        if dropped:
            _log.warning("%d connections dropped: clients held over %d bytes of memory", dropped, self._max_bytes)
        return held


def _first_to_go(row: tuple[int, Connection]) -> tuple[bool, int]:
    size, conn = row
    return not (conn.owned or conn.state.admitted), size


class SharedOut:
    """Corrections for the large buffers that several connections send.

    One is the connection's share of these buffers minus the bytes of them that it has still to
    send: a buffer is held as a whole until its last sender is done.
    """

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()
        self._sends: dict[int, list[tuple[object, int, int]]] = {}
        """By row: the buffer, which keeps its id unique, its size, and the bytes to be sent."""

    def add(self, row: int, conn: Connection) -> None:
        found: list[tuple[object, int, int]] = []
        for part in (*conn.large_sends(), *conn.state.large_writes()):
            whole = part.obj if isinstance(part, memoryview) else part
            found.append((whole, memoryview(whole).nbytes, len(part)))
        if found:
            self._users.update(id(whole) for whole, _size, _left in found)
            self._sends[row] = found

    def correction(self, row: int) -> int:
        """Return the correction of a row; 0 for most. All rows have been added."""
        users = self._users
        return sum(size // users[id(whole)] - left for whole, size, left in self._sends.get(row, ()))


def _held_at_end(conn: Connection) -> int:
    """Return the bytes that a connection holds until its last operation has completed."""
    return sum(memoryview(part.obj if isinstance(part, memoryview) else part).nbytes for part in conn.large_sends())


def _held_for(conn: Connection) -> int:
    held: int = conn.outbound_bytes + conn.held_bytes + conn.state.held_bytes
    return held
