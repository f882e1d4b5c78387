"""The connections' part of a pass: batches of received data, one call for all sends.

Everything here is a list that a pass fills and empties. The dispatch (loop.py) only appends; the
handlers are called from `deliver`, and sends are queued by `flush_sends`.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from topics.loop.connection import OPEN, Connection, Row
from topics.loop.connection_table import ConnectionTable
from topics.loop.doors.departures import Departures
from topics.loop.operations import CONTROL, Operations, ignore
from topics.loop.ring import F_BUFFER, F_MORE, Ring, Send, Single
from topics.loop.senders import Senders
from topics.loop.stats import LoopStats
from topics.loop.streams import StreamHandler, StreamLimits, Streams
from topics.loop.timers import Timer

SHARE_ROWS = 8
"""Provided buffers that one connection may fill in a pass in which others found none."""

LARGE_SENDS_BYTES = 4 << 20
"""Bytes of large sends that a pass makes, and the piece that exceeds them.

The kernel copies them in the loop's thread, a megabyte in some half a millisecond.
"""
_SEND_COUNTS_BYTES = 16_384
"""Bytes that a send counts as beside its own: it takes as long as copying so many."""

_TRY_AGAIN = frozenset((errno.ECANCELED, errno.EINTR, errno.EAGAIN))
"""Errors that end a receive and do not concern the connection."""

OnError = Callable[[BaseException, str], None]
CallLater = Callable[[int, Callable[[], None]], Timer]


class Traffic:
    """State that all connections of a loop share."""

    def __init__(
        self,
        ring: Ring,
        operations: Operations[Connection],
        stats: LoopStats,
        on_error: OnError,
        call_later: CallLater,
        *,
        senders: Senders,
    ) -> None:
        self.ring = ring
        self.operations = operations
        self.stats = stats
        self._on_error = on_error
        self.call_later = call_later
        self.senders = senders
        self.table: ConnectionTable | None = None
        """The connection table, if a handler uses it: see `Loop.use_connection_table`."""
        self._serial = 0
        self._groups: list[Streams] = []
        self.sends: list[Send] = []
        """Sends of this pass; queued in one call at its end."""
        self.large: deque[Connection] = deque()
        """Connections with a large send, by turns; those closed meanwhile are not `in_line`."""
        self.staged: list[Connection] = []
        """Connections that wrote again after a send that is queued in this pass or in flight."""
        self.used: list[int] = []
        """Flags of the completions whose buffers are returned after delivery."""
        self.held: list[Row] = []
        """Rows that arrived for paused connections."""
        self.dropped: list[Row] = []
        """Rows that arrived for closing connections."""
        self.resumed: list[Connection] = []
        """Connections whose held bytes are to be delivered first."""
        self.ended: list[tuple[Connection, int]] = []
        """Connections with end of stream (0) or errno, reported after the rows of the pass."""
        self.rearm: list[Connection] = []
        """Connections whose receive ended otherwise: it is queued again, with buffers free."""
        self.benched: list[Connection] = []
        """Connections that took too many buffers while others starved: re-armed after those."""
        self.drained: list[Connection] = []
        self.departures = Departures(ring, on_error)
        """Connections that leave for another loop."""
        self.closed_some = False
        """Whether a connection left OPEN in this pass: rows of closing ones are filtered out."""
        self.starved = False
        self._was_offered = False
        """Whether the first receive of this pass was offered to its handler, which has left it."""
        self.answered_at_once = 0
        """Sends that receives of several connections began while they were handled."""

    @property
    def busy(self) -> bool:
        """Whether the next pass has work, whatever completes."""
        return bool(self.sends or self.large or self.drained or self.resumed or self.rearm)

    # --- making ------------------------------------------------------------------------------------------------------
    def group(self, handler: StreamHandler, limits: StreamLimits) -> Streams:
        streams = Streams(handler, limits)
        self._groups.append(streams)
        return streams

    def group_of(self, handler: StreamHandler, limits: StreamLimits) -> Streams:
        """Return the group of a handler that already has one, else a new one."""
        for streams in self._groups:
            if streams.handler is handler and streams.limits == limits:
                return streams
        return self.group(handler, limits)

    def open(self, streams: Streams, fd: int, peer: tuple[str, int]) -> Connection:
        """Return a new connection on a descriptor, reported to its handler and reading."""
        conn = self._new(streams, fd, peer)
        streams.handler.connected(conn)
        conn.arm()
        return conn

    def take_up(self, streams: Streams, fd: int, peer: tuple[str, int], hand_overs: int, unread: bytes) -> Connection:
        """Return a connection of another loop, reported to its handler.

        It receives `unread` first.
        """
        conn = self._new(streams, fd, peer)
        conn.hand_overs = hand_overs
        streams.handler.connected(conn)
        conn.begin_with(unread)
        return conn

    def _new(self, streams: Streams, fd: int, peer: tuple[str, int]) -> Connection:
        self._serial += 1
        conn = Connection(self, streams, self._serial, fd, peer)
        self.operations.sending[conn.send_data] = conn
        streams.connections[conn.id] = conn
        return conn

    def close_fd(self, fd: int) -> None:
        """Close a descriptor that belongs to no connection."""
        self.ring.queue_close(self.operations.expect(CONTROL, ignore), fd)

    def refuse(self, streams: Streams, fd: int, then: Callable[[int], None]) -> None:
        """Send the refusal of a group to a descriptor, if there is one. `then` gets it to close."""
        self.stats.refused += 1
        refusal = streams.limits.refusal
        if refusal:
            self.ring.queue_sends([(self.operations.expect(CONTROL, lambda _res: then(fd)), fd, refusal)])
        else:
            then(fd)

    def connections(self) -> list[Connection]:
        return [conn for streams in self._groups for conn in streams.connections.values()]

    # --- a pass ------------------------------------------------------------------------------------------------------
    def on_receive_without_more(self, user_data: int, res: int, flags: int) -> None:
        """Handle the rare completions of a receive: the last one, one without data, an error."""
        conn = self.operations.receiving[user_data]
        if flags & F_BUFFER:
            self.used.append(flags)
            if res > 0:
                conn.inbox.append((conn, self.ring.received(flags, res)))
        if flags & F_MORE:
            return
        del self.operations.receiving[user_data]
        conn.on_receive_ended()
        if res > 0:
            self.rearm.append(conn)
        elif res == -errno.ENOBUFS:
            self.stats.enobufs += 1
            self.starved = True
            self.rearm.append(conn)
        elif -res in _TRY_AGAIN:
            self.rearm.append(conn)
        else:
            self.ended.append((conn, -res))

    def take_single(self, single: Single) -> bool | None:
        """Offer the only completion of a pass to its handler.

        Return whether nothing is left to the hooks; None, if it is to be dispatched as any other.
        """
        conn = self.operations.receiving[single[0]]
        streams = conn.streams
        receive = streams.receive_single
        if receive is None or conn.owned or conn.inbox is not streams.inbox:
            return None
        has_others = not self.senders.count(conn.send_data)
        begun = self.stats.sends + len(self.sends) if has_others else 0
        try:
            is_settled = receive(conn, single[1])
        except Exception as error:
            is_settled = False
            self._on_error(error, "receive")
        if is_settled is None:
            self._was_offered = True
            return None
        self.stats.messages_received += 1
        if has_others and is_settled and self.stats.sends + len(self.sends) != begun:
            self.answered_at_once += 1
        return is_settled and not (self.sends or self.staged)

    def deliver(self) -> bool:
        """Call the handlers with what the dispatch collected, then return the buffers.

        Return whether something was received, and its handlers have left nothing to the hooks.
        """
        received, inputs, settled = len(self.used), 0, 0
        if self.held:
            self.hold()
        resumed = self._take_resumed() if self.resumed else ()
        table = self.table
        rows = 0 if table is None else table.count
        begun = self.stats.sends + len(self.sends)
        for streams in self._groups:
            inbox = streams.inbox
            if inbox or (rows and streams.takes_rows):
                if not self._was_offered or len(inbox) + rows > 1:
                    sender = 0
                    if len(inbox) + rows == 1:
                        sender = inbox[0][0].send_data if table is None or not rows else table.first_send_data()
                    self.senders.count(sender)
                inputs += 1
                settled += self._receive(streams, inbox, rows)
                inbox.clear()
        if not self.senders.is_one:
            self.answered_at_once += self.stats.sends + len(self.sends) - begun
        if table is not None and table.count:
            self.stats.messages_received += table.count
            table.recycle()
        self.dropped.clear()
        self._was_offered = False
        if received:
            self.stats.messages_received += received
            self.ring.recycle(self.used)
            self.used.clear()
        for conn in resumed:
            self._call(conn.on_held_delivered, "end_of_stream")
        self.closed_some = False
        is_settled = 0 < inputs == settled and not (resumed or self.ended or self.rearm or self.benched or self.drained)
        if self.ended:
            ended, self.ended = self.ended, []
            for conn, error in ended:
                self._call(lambda conn=conn, error=error: conn.on_end(error), "end_of_stream")  # type: ignore[misc]
        if self.benched or self.rearm:
            waiting, self.benched = self.benched, []
            self.rearm, ready = [], self.rearm
            for conn in (*ready, *waiting):
                conn.arm()
        if self.drained:
            drained, self.drained = self.drained, []
            for conn in drained:
                self._call(conn.drained, "drained")
        return is_settled and not (self.sends or self.staged)

    def hold(self) -> None:
        """Have the connections hold the rows that arrived while they were paused."""
        for conn, view in self.held:
            conn.hold(view)
        self.held.clear()

    def flush_sends(self) -> None:
        """Queue one gathered send for every connection that wrote, all in one call.

        Large sends are made in place, in pieces; those beyond the bytes of a pass are left to the
        next.
        """
        if self.staged:
            self._gather()
        if self.large:
            self._send_large()
        sends = self.sends
        if sends:
            self.stats.sends += len(sends)
            self.ring.queue_sends(sends)
            sends.clear()

    def _send_large(self) -> None:
        large, left = self.large, LARGE_SENDS_BYTES
        while large and left > 0:
            conn = large.popleft()
            if conn.in_line:
                self.stats.sends += 1
                left -= conn.send_piece() + _SEND_COUNTS_BYTES

    def send_now(self, conn: Connection, data: bytes | memoryview) -> bytes | memoryview:
        """Send at once the first write to the pass's only sender, and the first to one other
        connection.

        To wait for the end of the pass would help no connection, and delay these two.
        Returns: what was not sent; it is sent the usual way, which also handles errors.
        """
        if not self.senders.take_send(conn.send_data):
            return data
        res = self.ring.send_now(conn.fd, data)
        if res <= 0:
            return data
        self.stats.sends += 1
        return memoryview(data)[res:] if res < len(data) else b""

    def withdraw(self, send_data: int) -> bool:
        """Take back a send that is not queued yet. Return False if it is in flight."""
        for row, send in enumerate(self.sends):
            if send[0] == send_data:
                del self.sends[row]
                return True
        return False

    # --- inside ------------------------------------------------------------------------------------------------------
    def _gather(self) -> None:
        """Add bytes written after a send of this pass to that send.

        After one in flight they wait.
        """
        rows = {send[0]: row for row, send in enumerate(self.sends)}
        for conn in self.staged:
            row = rows.get(conn.send_data)
            if row is not None and conn.has_staged:
                user_data, fd, queued = self.sends[row]
                assert queued is conn.flying, "a send of this pass is the connection's only one"
                self.sends[row] = (user_data, fd, conn.gather(conn.flying))
        self.staged.clear()

    def _receive(self, streams: Streams, inbox: list[Row], rows: int) -> bool:
        """Call the handler; return whether it has left nothing to the hooks.

        rows: receives of the pass that are columns.
        """
        batch = inbox
        if self.closed_some:
            batch = [row for row in inbox if row[0].phase is OPEN]
        is_settled: bool | None = None
        try:
            if streams.receive_single is not None and len(batch) + rows == 1 and batch and not self._was_offered:
                conn, view = batch[0]
                is_settled = None if conn.owned else streams.receive_single(conn, view)
            if is_settled is None:
                is_settled = streams.handler.receive(batch)
        except Exception as error:
            is_settled = False
            self._on_error(error, "receive")
        if self.starved:
            self.starved = False
            self._bench(inbox)
        return bool(is_settled)

    def _take_resumed(self) -> list[Connection]:
        """Put the held bytes of resumed connections before the data of this pass."""
        resumed, self.resumed = self.resumed, []
        delivered: list[Connection] = []
        for conn in resumed:
            held = conn.take_held()
            if held:
                conn.inbox.insert(0, (conn, memoryview(held)))
                delivered.append(conn)
        return delivered

    def _bench(self, inbox: list[Row]) -> None:
        """Re-arm connections that took more than their share last, after a lack of buffers."""
        rows: dict[Connection, int] = {}
        for conn, _ in inbox:
            rows[conn] = rows.get(conn, 0) + 1
        for conn, count in rows.items():
            if count > SHARE_ROWS and conn.phase is OPEN:
                self.stats.throttled += 1
                if conn.recv_data:
                    conn.stop_receive()
                elif conn in self.rearm:
                    self.rearm.remove(conn)
                    self.benched.append(conn)

    def _call(self, fn: Callable[[], None], what: str) -> None:
        try:
            fn()
        except Exception as error:
            self._on_error(error, what)
