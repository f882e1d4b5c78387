"""Connections as columns: receives that reach the handler as rows, and answers sent in one call.

A connection is a `Connection`. As long as its handler wishes, it is *owned* by this table: received
data is then a row of the pass (`rows`), and `answer` queues the sends of many connections without
touching an object. Any unusual event of an owned connection (a second receive before the answer, a
short send, an end, a close) returns it to its object (`leave`), which continues as if it had done
all the work itself.

A connection that *shares* is left to its Connection except for one thing: `share` sends the same
bytes to many of them in one call. A send that completes in full touches no object. Whatever else
the Connection has to send makes it leave the table first. The rows are in connection_table.c.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, cast

from typing_extensions import Buffer

from topics.loop._connection_table import ffi, lib
from topics.loop.connection import LARGE_BYTES, LOOK_CLOSER, OPEN, Connection
from topics.loop.operations import KIND_BITS, SEND, SLOT_BITS
from topics.loop.ring import Completions, Ring
from topics.loop.stats import LoopStats

_SLOT_MASK = (1 << SLOT_BITS) - 1
SHARED_BYTES_MAX = LARGE_BYTES - 1
"""Bytes of the largest shared send: a Connection sends a larger one without a copy."""
_BY_BYTES = -1
"""Number of memory that is no send buffer: see `ConnectionTable.room`."""

Sort = Callable[[Any, Any, Any, int], int]
"""Function over completions: C columns user_data, res, flags, and their number.

It moves the completions that are not the table's to the front, and returns their number.
"""


class ColumnRing(Protocol):
    """Calls of a ring whose completions and sends are C columns, besides those of `Ring`."""

    receive_memory: memoryview
    """All receive buffers, one after the other."""
    receive_buffer_bytes: int

    def reap_sorted(self, sort: Sort) -> Completions: ...

    def queue_send_columns(self, count: int, user_data: Any, fds: Any, lengths: Any, data: Any) -> None:
        """Queue sends as `queue_sends`; their bytes are adjacent at `data`, held by the caller.

        fd -1: skipped.
        """

    def queue_broadcast_columns(self, count: int, user_data: Any, fds: Any, length: int, data: Any) -> None:
        """Queue sends of the same `length` bytes at `data`, held by the caller."""

    def recycle_columns(self, flags: Any, count: int) -> None: ...


class ReceivedRows(NamedTuple):
    """The receives of a pass from owned connections.

    buffer: their bytes; those of row i are from starts[i] to ends[i]. Columns are C arrays, valid
    until the next pass. refs: names of connections.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count, which is not called on rows
    buffer: bytearray | memoryview
    refs: Any
    starts: Any
    ends: Any


class ConnectionTable:
    """The connections of one loop, as the rows of a C table.

    Its users name what they ask of it: `ConnectionOwner` (a Connection), `LaneConnections` (the
    lane) and `SharedSends` (an audience).

    receives: number of rows that a pass has room for; further receives are passed to the
    Connections.
    """

    def __init__(self, ring: Ring, stats: LoopStats, receives: int = 4096) -> None:
        table = lib.tp_table_new(receives)
        if table == ffi.NULL:
            raise MemoryError("no memory for the table of connections")
        self._table = ffi.gc(table, lib.tp_table_free)
        self._ring = ring
        self._stats = stats
        self._columns = cast(ColumnRing, ring) if hasattr(ring, "reap_sorted") else None
        self._conns: list[Connection | None] = []
        self._out = ffi.new("uint64_t **"), ffi.new("uint32_t **"), ffi.new("uint64_t **"), ffi.new("uint64_t **")
        lib.tp_table_rows(self._table, *self._out)
        self._refs, self._flags, self._starts, self._ends = (pointer[0] for pointer in self._out)
        self._flying = ffi.new("char **")
        self._length = ffi.new("uint32_t *")
        self._busy = ffi.new("int *")
        self._memory = ffi.new("char **")
        self._sends_room = 0
        self._sends: tuple[Any, Any] = (None, None)
        self._lengths_room = 0
        self._lengths: Any = None
        self._left: Any = None
        self.count = 0
        """Number of rows of this pass."""
        self.reaped = 0
        """Number of completions of this pass, with those that stayed in the table."""

    # --- connections -------------------------------------------------------------------------------------------------
    def open(self, conn: Connection) -> int:
        """Return a slot for a new connection. Raises MemoryError."""
        slot = lib.tp_table_open(self._table)
        if slot < 0:
            raise MemoryError("no memory for another connection")
        if slot == len(self._conns):
            self._conns.append(None)
        self._conns[slot] = conn
        return slot

    def set(self, conn: Connection) -> None:
        lib.tp_table_set(self._table, conn.slot, conn.fd, conn.send_data)

    def reads(self, conn: Connection) -> None:
        """Note that its receive has begun, or ended (`recv_data` 0)."""
        lib.tp_table_reads(self._table, conn.slot, conn.recv_data)

    def close(self, conn: Connection) -> None:
        self._conns[conn.slot] = None
        lib.tp_table_close(self._table, conn.slot)

    def can_own(self, conn: Connection) -> bool:
        """Return whether the connection is open, reads, has nothing to send, and is not owned."""
        return conn.expected == 0 and conn.recv_data != 0 and conn.phase is OPEN and not (conn.owned or conn.paused)

    def own(self, conn: Connection) -> None:
        """Make the next receives rows. A request received already is to be answered first.

        The connection is open and has nothing to send.
        """
        assert conn.expected == 0, "a connection with something in flight"
        conn.owned = True
        conn.expected = LOOK_CLOSER
        lib.tp_table_own(self._table, conn.slot)

    def leave(self, conn: Connection) -> bool:
        """Return it to the Connection. Return whether a request was received and not answered."""
        busy = lib.tp_table_leave(self._table, conn.slot, self._flying, self._length)
        conn.owned = conn.shares = False
        length = self._length[0]
        if length:
            conn.flying = bytes(ffi.buffer(self._flying[0], length))
            conn.expected = length
        else:
            conn.expected = 0
        return bool(busy)

    def outbound_bytes(self, conn: Connection) -> int:
        """Return the unsent bytes of a connection that is owned or shares."""
        lib.tp_table_since(self._table, conn.slot, self._busy, self._length)
        return cast(int, self._length[0])

    def since(self, conn: Connection, tick: int) -> int:
        """Return the tick of the last answer; `tick` (now) while an answer is due."""
        since = lib.tp_table_since(self._table, conn.slot, self._busy, self._length)
        return tick if self._busy[0] else since

    def connection(self, ref: int) -> Connection | None:
        """Return the connection with this name, or None when it is gone."""
        conn = self._conns[ref & _SLOT_MASK]
        return conn if conn is not None and conn.ref == ref else None

    # --- a pass ------------------------------------------------------------------------------------------------------
    def reap(self) -> Completions:
        """Return the completions that are not the table's; its receives are rows from now on."""
        lib.tp_table_begin(self._table)
        self.reaped = 0
        if self._columns is not None:
            completions = self._columns.reap_sorted(self._sort)
        else:
            completions = self._sort_lists(self._ring.reap())
        self.count = lib.tp_table_rows(self._table, *self._out)
        return completions

    def _sort(self, user_data: Any, res: Any, flags: Any, count: int) -> int:
        self.reaped += count
        size = self._ring.receive_buffer_bytes
        return lib.tp_table_sort(self._table, count, user_data, res, flags, size)

    def _sort_lists(self, completions: Completions) -> Completions:
        user_data, res, flags = completions
        self.reaped = count = len(user_data)
        if not self._conns:
            return completions
        columns = ffi.new("uint64_t[]", user_data), ffi.new("int[]", res), ffi.new("uint32_t[]", flags)
        rest = lib.tp_table_sort(self._table, count, *columns, 0)
        if rest == count:
            return completions
        return ffi.unpack(columns[0], rest), ffi.unpack(columns[1], rest), ffi.unpack(columns[2], rest)

    def rows(self) -> ReceivedRows:
        if self._columns is not None:
            buffer: bytearray | memoryview = self._columns.receive_memory
        else:
            buffer = bytearray().join(map(self._received, range(self.count)))
        return ReceivedRows(self.count, buffer, self._refs, self._starts, self._ends)

    def first_send_data(self) -> int:
        """Return the `send_data` of the first row's connection."""
        return cast(int, self._refs[0]) << KIND_BITS | SEND

    def view(self, row: int) -> memoryview:
        """Return the bytes of one row."""
        if self._columns is not None:
            return self._columns.receive_memory[self._starts[row] : self._ends[row]]
        return self._received(row)

    def _received(self, row: int) -> memoryview:
        return self._ring.received(self._flags[row], self._ends[row] - self._starts[row])

    def recycle(self) -> None:
        """Return the buffers of the rows to the ring."""
        if self._columns is not None:
            self._columns.recycle_columns(self._flags, self.count)
        else:
            self._ring.recycle(ffi.unpack(self._flags, self.count))
        self.count = 0

    # --- answers -----------------------------------------------------------------------------------------------------
    def room(self, size: int) -> tuple[int, Any]:
        """Return the number and the memory for `size` bytes of answers, for one `answer` at once.

        While all 4096 possible buffers have sends in flight, the memory is none of them, and
        `answer` only returns its bytes.
        """
        number = lib.tp_table_buffer(self._table, size, self._memory)
        if number < 0:
            return _BY_BYTES, ffi.new("char[]", size)
        return number, self._memory[0]

    def answer(self, number: int, data: Any, refs: Any, lengths: Any, count: int, tick: int) -> list[tuple[int, bytes]]:  # noqa: PLR0917
        """Queue the answers in `room`'s memory, one after the other, lengths[i] bytes to refs[i].

        Returns the answers that could not be queued: (ref, bytes) of connections that are not owned
        any more, or gone. If the memory is no buffer, it returns all answers; connections still
        owned must leave first.
        """
        if number == _BY_BYTES:
            ends = [0, *accumulate(lengths[0:count])]
            return [(refs[row], bytes(ffi.buffer(data + ends[row], lengths[row]))) for row in range(count)]
        user_data, fds = self._room_for(count)
        odd = lib.tp_table_answer(self._table, number, refs, lengths, count, tick, user_data, fds)
        return self._queue(count, odd, lengths, data)

    def answer_spans(  # noqa: PLR0917 - columns
        self, memory: Buffer, refs: Any, starts: Any, ends: Any, count: int, tick: int = 0
    ) -> list[tuple[int, bytes]]:
        """Queue the answers memory[starts[i]:ends[i]] to refs[i], in two calls for all.

        The columns are those of `rows`, or lists. The bytes are copied.
        Returns: (ref, bytes) of connections that are not owned any more, or gone, as `answer`; if
        there is no buffer, those of all connections, which leave the table in this call.
        Raises: ValueError for an empty span, or one outside of the memory.
        """
        if count > self._lengths_room:
            self._lengths_room = max(count, 256)
            self._lengths = ffi.new("uint32_t[]", self._lengths_room)
        if type(refs) is list:
            refs, starts, ends = (ffi.new("uint64_t[]", column) for column in (refs, starts, ends))
        lengths, spans = self._lengths, ffi.from_buffer("char[]", memory)
        user_data, fds = self._room_for(count)
        odd = lib.tp_table_answer_spans(
            self._table, spans, len(spans), refs, starts, ends, count, tick, lengths, user_data, fds, self._memory
        )
        if odd < 0:
            if odd == -errno.EINVAL:
                raise ValueError("a span is empty or outside of the memory")
            for conn in filter(None, map(self.connection, refs[0:count])):
                if conn.owned:
                    self.leave(conn)
            return [(refs[row], bytes(ffi.buffer(spans + starts[row], lengths[row]))) for row in range(count)]
        return self._queue(count, odd, lengths, self._memory[0])

    # --- the same bytes to many ---------------------------------------------------------------------------------------
    def begin_sharing(self, conn: Connection) -> bool:
        """Let `share` send from a connection. Return False if it is not open and idle."""
        if conn.expected != 0 or conn.phase is not OPEN or conn.owned:
            return False
        conn.shares = True
        conn.expected = LOOK_CLOSER
        lib.tp_table_begin_sharing(self._table, conn.slot, min(conn.high_water, SHARED_BYTES_MAX))
        return True

    @staticmethod
    def column(refs: list[int]) -> Any:
        """Return names of connections (`Connection.ref`) as a column; 0: of none."""
        return ffi.new("uint64_t[]", refs)

    def share(self, data: bytes, refs: Any, count: int) -> list[int]:
        """Queue sends of `data` to all of refs[:count] (a C column) that share and are idle.

        Returns: the indexes of the others: connections that are gone, do not share, have a send in
        flight, or may not be given so many bytes at once.
        """
        size = len(data)
        number, memory = self.room(size)
        if number == _BY_BYTES:
            return list(range(count))
        ffi.memmove(memory, data, size)
        user_data, fds = self._room_for(count)
        sends = lib.tp_table_share(self._table, number, size, refs, count, user_data, fds, self._left)
        if sends:
            self._stats.sends += sends
            if self._columns is not None:
                self._columns.queue_broadcast_columns(sends, user_data, fds, size, memory)
            else:
                self._ring.queue_sends([(user_data[row], fds[row], data) for row in range(sends)])
        return ffi.unpack(self._left, count - sends) if sends < count else []

    # --- memory of the buffers, and helpers of the sends -------------------------------------------------------------
    def pinned(self) -> dict[int, int]:
        """Return the memory that sends from the buffers hold beyond their own bytes, by send_data.

        A buffer is held until the last of its sends has ended; its bytes are divided among those.
        """
        count = lib.tp_table_pinned(self._table, 0, ffi.NULL, ffi.NULL)
        if not count:
            return {}
        send_data, shares = ffi.new("uint64_t[]", count), ffi.new("uint64_t[]", count)
        lib.tp_table_pinned(self._table, count, send_data, shares)
        return dict(zip(ffi.unpack(send_data, count), ffi.unpack(shares, count), strict=True))

    def trim(self) -> None:
        """Free idle buffers except a few. Not between `room` and `answer`."""
        lib.tp_table_trim(self._table)

    def _room_for(self, count: int) -> tuple[Any, Any]:
        """Return columns user_data and fds with room for `count` sends."""
        if count > self._sends_room:
            self._sends_room = room = max(count, 256)
            self._sends = ffi.new("uint64_t[]", room), ffi.new("int[]", room)
            self._left = ffi.new("uint32_t[]", room)
        return self._sends

    def _queue(self, count: int, odd: int, lengths: Any, data: Any) -> list[tuple[int, bytes]]:
        """Queue the sends of `_sends`; return the `odd` ones, whose fd is -1."""
        user_data, fds = self._sends
        self._stats.sends += count - odd
        if self._columns is not None:
            self._columns.queue_send_columns(count, user_data, fds, lengths, data)
        else:
            self._queue_list(count, lengths, data)
        if not odd:
            return []
        found, at = [], 0
        for row in range(count):
            if fds[row] < 0:
                found.append((user_data[row] >> KIND_BITS, bytes(ffi.buffer(data + at, lengths[row]))))
            at += lengths[row]
        return found

    def _queue_list(self, count: int, lengths: Any, data: Any) -> None:
        user_data, fds = self._sends
        sends = []
        at = 0
        for row in range(count):
            if fds[row] >= 0:
                sends.append((user_data[row], fds[row], bytes(ffi.buffer(data + at, lengths[row]))))
            at += lengths[row]
        if sends:
            self._ring.queue_sends(sends)
