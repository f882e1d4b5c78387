"""One TCP connection as a byte stream: one send in flight, and a close that waits for operations.

docs/internals/loop.md says what causes each change of its phase.

A connection that was closed lingers because a peer that is still sending when it is closed gets a
reset, which may overtake our answer.

The descriptor is closed only after the last completion of its operations, because its number may be
given to a new connection at once, and because close(2) ends no pending operation.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from topics.common.memory import let_go, note_held
from topics.common.transitions import Transitions
from topics.loop.operations import CONTROL, KIND_BITS, RECV, SEND, Operations, ignore
from topics.loop.ring import Ring, Send
from topics.loop.senders import Senders
from topics.loop.timers import Timer


class ConnectionPhase(enum.IntEnum):
    """How far a connection has come towards its end."""

    OPEN = 0
    FLUSHING = 1
    """Staged bytes are still sent, and received ones dropped. Then our end is sent, and the peer's
    is awaited for LINGER_NS.
    """
    CLOSING = 2
    """Shut down, or given to another loop: its own operations are cancelled, and awaited."""
    CLOSED = 3
    """The descriptor is closed, and `handler.lost` was called."""


OPEN, FLUSHING, CLOSING, CLOSED = ConnectionPhase
CONNECTION_PHASES: Final = Transitions(
    {OPEN: (FLUSHING, CLOSING), FLUSHING: (CLOSING,), CLOSING: (CLOSED,), CLOSED: ()}
)
LINGER_NS: Final = 1_000_000_000
"""Time that a flushed connection waits for the peer's end."""
LARGE_BYTES: Final = 65_536
"""Size (bytes) from which a write, or the rest of one, is a send of its own.

It is not copied, because other connections may be sending the same bytes. It is sent in pieces,
which take turns with those of other connections (`Connection.send_piece`).
"""
PIECE_BYTES: Final = 1 << 20
PROBE_BYTES: Final = 4096
"""Bytes of a large write that wait in the ring for a full socket.

With more of them, hundreds of readers that read again at once would have the kernel copy megabytes
for each of them, in one wait.
"""
LOOK_CLOSER: Final = -(1 << 20)
"""`expected` of a connection whose next send completion needs more than a comparison.

No result is equal to it.
"""

Row = tuple["Connection", memoryview]


class StreamEvents(Protocol):
    """The events of a handler that a connection itself reports: see `StreamHandler`."""

    def end_of_stream(self, conn: Connection) -> None: ...

    def drained(self, conn: Connection) -> None: ...


class WaterMarks(Protocol):
    """The bounds of what is written and not yet sent, in bytes."""

    @property
    def send_high_water_bytes(self) -> int: ...

    @property
    def send_low_water_bytes(self) -> int: ...


class StreamGroup(Protocol):
    """The connections with the same handler."""

    inbox: list[Row]
    connections: dict[int, Connection]
    on_lost: Callable[[Connection, int], None]
    receive_single: Callable[[Connection, memoryview], bool | None] | None

    @property
    def handler(self) -> StreamEvents: ...

    @property
    def limits(self) -> WaterMarks: ...


class ConnectionOwner(Protocol):
    """The calls of `ConnectionTable` that a connection makes. The table may own it."""

    def open(self, conn: Connection) -> int: ...

    def set(self, conn: Connection) -> None: ...

    def reads(self, conn: Connection) -> None: ...

    def close(self, conn: Connection) -> None: ...

    def leave(self, conn: Connection) -> bool: ...

    def outbound_bytes(self, conn: Connection) -> int: ...


class ConnectionDepartures(Protocol):
    """The calls of `Departures` that a connection makes. It may be leaving for another loop."""

    def settle(self, conn: Connection) -> None: ...

    def note_end(self, conn: Connection) -> bool: ...

    def forget(self, conn: Connection) -> None: ...


class ConnectionHost(Protocol):
    """The state that all connections of a loop share: see `traffic.py`, which empties the lists."""

    ring: Ring
    operations: Operations[Connection]
    call_later: Callable[[int, Callable[[], None]], Timer]
    sends: list[Send]
    large: deque[Connection]
    staged: list[Connection]
    held: list[Row]
    dropped: list[Row]
    resumed: list[Connection]
    rearm: list[Connection]
    drained: list[Connection]
    closed_some: bool
    senders: Senders

    @property
    def table(self) -> ConnectionOwner | None: ...

    @property
    def departures(self) -> ConnectionDepartures: ...

    def send_now(self, conn: Connection, data: bytes | memoryview) -> bytes | memoryview: ...

    def hold(self) -> None: ...

    def withdraw(self, send_data: int) -> bool: ...


class Connection:
    """A stream of bytes each way, made by a listener or `Loop.connect`.

    Its handler gets its events.
    """

    __slots__ = (
        "_end",
        "_error",
        "_held",
        "_linger",
        "_low_water",
        "_pending",
        "_sends",
        "_staged",
        "_staged_bytes",
        "_traffic",
        "expected",
        "fd",
        "flying",
        "hand_overs",
        "high_water",
        "id",
        "in_line",
        "inbox",
        "over_high_water",
        "owned",
        "paused",
        "peer",
        "phase",
        "recv_data",
        "send_data",
        "shares",
        "slot",
        "state",
        "streams",
    )

    def __init__(
        self, traffic: ConnectionHost, streams: StreamGroup, number: int, fd: int, peer: tuple[str, int]
    ) -> None:
        self.id = number
        self.fd = fd
        self.peer = peer
        self.state: Any = None
        """Value for the handler's use."""
        self.over_high_water = False
        """True from crossing the high water mark until `handler.drained`."""
        self.phase: ConnectionPhase = OPEN
        self.paused = False
        self.hand_overs = 0
        """Number of loops that have given it away before."""
        self.inbox: list[Row] = streams.inbox
        """List that the dispatch adds received rows to: a batch, or held or dropped rows."""
        self.recv_data = 0
        """user_data of the receive in flight; 0 without one."""
        self.owned = False
        """Whether its receives and answers are columns at the moment: see `connection_table.py`."""
        self.shares = False
        """Whether `ConnectionTable.share` may send from it. Any other write ends that."""
        self.slot = 0 if traffic.table is None else traffic.table.open(self)
        self.send_data = traffic.operations.number(SEND, self.slot)
        if traffic.table is not None:
            traffic.table.set(self)
        self.flying: bytes | memoryview | None = None
        """Bytes of the one send: queued in this pass, in line, or in flight."""
        self.in_line = False
        """Whether that send is large, and waits for its turn."""
        self.expected = 0
        """Result of a send that leaves no work; 0: open and idle, so a write is sent directly.

        `LOOK_CLOSER` while the connection is in a table.
        """
        self._traffic = traffic
        self.streams = streams
        self._sends = traffic.sends
        self.high_water = streams.limits.send_high_water_bytes
        self._low_water = streams.limits.send_low_water_bytes
        self._staged: list[bytes | memoryview] = []
        self._staged_bytes = 0
        self._held: list[bytes] | None = None
        self._end = False
        """Whether the peer sends nothing more."""
        self._linger: Timer | None = None
        self._error = 0
        """The errno that `handler.lost` reports; 0 after a close or an abort."""
        self._pending = 0
        """Number of shutdowns and cancels that have not completed."""

    def __repr__(self) -> str:
        return f"<Connection {self.id} {self.peer[0]}:{self.peer[1]} {self.phase.name.lower()}>"

    # --- what a handler calls ----------------------------------------------------------------------------------------
    def write(self, data: bytes | memoryview) -> None:
        """Stage bytes. All bytes of a pass are sent in one send, or several if some are large.

        Bytes are dropped silently once the connection is closing. While one connection sends, or
        two by turns, this pass's first write to its sender, and the first to one other connection,
        are sent before this returns.
        """
        if self.expected == 0 and 0 < len(data) <= self.high_water:
            senders = self._traffic.senders
            in_place = senders.to_answer or senders.may_answer_another
            rest = self._traffic.send_now(self, data) if in_place else data
            if len(rest) >= LARGE_BYTES:
                self._stage(rest)
            elif rest:
                self.expected = len(rest)
                self.flying = rest
                self._sends.append((self.send_data, self.fd, rest))
        elif self.phase is OPEN and data:
            self._stage(data)

    @property
    def ref(self) -> int:
        """Name of this connection in the columns of `Loop.use_connection_table`."""
        return self.send_data >> KIND_BITS

    def set_water_marks(self, high_bytes: int, low_bytes: int) -> None:
        """Set the bounds of bytes written from now on (`over_high_water`, `drained`)."""
        self.stop_sharing()
        self.high_water, self._low_water = high_bytes, low_bytes

    @property
    def outbound_bytes(self) -> int:
        """Bytes written and not yet taken by the kernel."""
        if self.owned or self.shares:
            return self._table.outbound_bytes(self)
        return self._staged_bytes + (0 if self.flying is None else len(self.flying))

    def large_sends(self) -> list[bytes | memoryview]:
        """Return the unsent parts that other connections may be sending, too."""
        parts = self._staged if self.flying is None else [self.flying, *self._staged]
        return [part for part in parts if len(part) >= LARGE_BYTES or type(part) is memoryview]

    @property
    def held_bytes(self) -> int:
        """Number of bytes received while reading was paused, held until it is resumed."""
        return 0 if self._held is None else sum(map(len, self._held))

    @property
    def held(self) -> bytes:
        """The bytes received while reading was paused."""
        return b"".join(self._held or ())

    @property
    def _table(self) -> ConnectionOwner:
        table = self._traffic.table
        assert table is not None, "owned by no table"
        return table

    def _leave_table(self) -> None:
        """Return to this object what the table has of the connection, if anything."""
        if self.owned or self.shares:
            self._table.leave(self)

    def stop_sharing(self) -> None:
        """Leave the connections that `ConnectionTable.share` sends from, if it is one of them."""
        if self.shares:
            self._table.leave(self)

    def pause_reading(self) -> None:
        """Stop `receive` until `resume_reading`, except for rows of the batch being handled.

        Data that the kernel still delivers is held. The first of it ends the receive, so that flow
        control slows the peer.
        """
        if self.phase is OPEN and not self.paused:
            self.paused = True
            self.inbox = self._traffic.held

    def resume_reading(self) -> None:
        """Undo `pause_reading`. Held bytes are delivered first, in the next pass."""
        if self.phase is not OPEN or not self.paused:
            return
        self.paused = False
        traffic = self._traffic
        if traffic.held:  # a completion resumes while rows of this pass are still to be held
            traffic.hold()
        if self._held:
            traffic.resumed.append(self)
            return
        self.inbox = self.streams.inbox
        self.arm()

    def close(self) -> None:
        """Close after all staged bytes were sent. No more data is received."""
        if self.phase is not OPEN:
            return
        self._leave_table()
        self._enter(FLUSHING)
        self._traffic.departures.forget(self)
        self._traffic.closed_some = True
        self.paused = False
        self._held = None
        self.inbox = self._traffic.dropped
        self.expected = LOOK_CLOSER
        self.arm()
        if self.flying is None:
            self._on_flushed()

    def abort(self) -> None:
        """Close at once. Staged bytes are lost."""
        if self.phase < CLOSING:
            self._shut(0)

    # --- completions -------------------------------------------------------------------------------------------------
    def arm(self) -> None:
        """Queue the receive, unless one is in flight or no data is wanted."""
        if self.recv_data or self.paused or self._end or self.phase >= CLOSING:
            if not self.recv_data:
                self._traffic.departures.settle(self)
            return
        traffic = self._traffic
        self.recv_data = user_data = traffic.operations.number(RECV, self.slot)
        traffic.operations.receiving[user_data] = self
        if traffic.table is not None:
            traffic.table.reads(self)
        traffic.ring.queue_recv(user_data, self.fd)

    def stop_receive(self) -> None:
        """Ask the receive in flight to end.

        Its final completion re-arms it unless reading is paused.
        """
        if self.recv_data:
            self._traffic.ring.queue_cancel(self._traffic.operations.expect(CONTROL, ignore), self.recv_data)

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def gather(self, queued: bytes | memoryview) -> bytes | memoryview:
        """Return one buffer of the queued send and later writes, up to a large part."""
        self._staged.insert(0, queued)
        self._staged_bytes += len(queued)
        return self._take_staged()

    def on_sent(self, res: int) -> None:
        """Handle the result of a send that is not `expected`.

        The rest of a short send precedes newer bytes.
        """
        self._leave_table()
        flying = self.flying
        assert flying is not None, "a send's completion without a send"
        self.flying = None
        let_go(flying)
        if self.phase >= CLOSING:
            self._finish()
            return
        if res <= 0:
            self._shut(-res)
            return
        if res < len(flying):
            self._staged.insert(0, memoryview(flying)[res:])
            self._staged_bytes += len(flying) - res
        if self._staged:
            self._send(self._take_staged())
        elif self.phase is FLUSHING:
            self._on_flushed()
            return
        else:
            self.expected = 0
        self._note_drained()

    def _note_drained(self) -> None:
        if self.over_high_water and self.outbound_bytes <= self._low_water:
            self.over_high_water = False
            if self.phase is OPEN:
                self._traffic.drained.append(self)

    def _send(self, data: bytes | memoryview) -> None:
        """Queue the one send, or stand in line with it."""
        self.flying = data
        if len(data) < LARGE_BYTES:
            self._sends.append((self.send_data, self.fd, data))
        else:
            self.in_line = True
            self._traffic.large.append(self)

    def send_piece(self) -> int:
        """Send a piece of the large send in line, as much of it as the socket takes.

        Return the number of bytes sent.
        """
        self.in_line = False
        flying = self.flying
        assert flying is not None, "in line without a send"
        view = memoryview(flying)
        piece = view[:PIECE_BYTES]
        sent = max(self._traffic.ring.send_now(self.fd, piece), 0)
        if sent == len(flying):
            self.on_sent(sent)
            return sent
        if sent == len(piece):
            self._send(view[sent:])
        else:  # the socket is full, or has an error, which this send reports
            rest = view[sent + PROBE_BYTES :]
            if rest:
                self._staged.insert(0, rest)
                self._staged_bytes += len(rest)
            self.expected = LOOK_CLOSER
            self._send(view[sent : sent + PROBE_BYTES])
        self._note_drained()
        return sent

    def _stage(self, data: bytes | memoryview) -> None:
        """Stage a write that cannot be sent directly: it is not the first, or too large."""
        assert not self.owned, "written to past the table that owns it"
        self.stop_sharing()
        if len(data) >= LARGE_BYTES:
            note_held(data)
        if self.expected == 0:
            self._send(data)
        else:
            if self.expected != LOOK_CLOSER or not self._staged:
                self._traffic.staged.append(self)
            self._staged.append(data)
            self._staged_bytes += len(data)
        self.expected = LOOK_CLOSER
        if self.outbound_bytes > self.high_water:
            self.over_high_water = True

    def _take_staged(self) -> bytes | memoryview:
        """Put the next staged bytes in flight: all joined up to a large part, or that part.

        Return them.
        """
        staged = self._staged
        data: bytes | memoryview = staged[0]
        if len(data) >= LARGE_BYTES:
            del staged[0]
        else:
            sizes = [len(part) >= LARGE_BYTES for part in staged]
            end = sizes.index(True) if True in sizes else len(staged)
            data = b"".join(staged[:end])
            del staged[:end]
        self._staged_bytes -= len(data)
        self.flying = data
        self.expected = LOOK_CLOSER if staged or self.over_high_water or self.phase is not OPEN else len(data)
        return data

    def on_receive_ended(self) -> None:
        """Handle the final completion of the receive."""
        self.recv_data = 0
        if self.phase >= CLOSING:
            self._finish()

    def hold(self, view: memoryview) -> None:
        """Hold a copy of bytes that arrived while paused. The first of them ends the receive."""
        if self.phase is not OPEN:
            return
        if self._held is None:
            self._held = []
            self.stop_receive()
        self._held.append(bytes(view))

    def take_held(self) -> bytes:
        """Return the held bytes after a resume. Later arrivals are added to the batch again."""
        held, self._held = self._held, None
        if self.paused or self.phase is not OPEN:
            self._held = held
            return b""
        self.inbox = self.streams.inbox
        return b"".join(held or ())

    def on_end(self, error: int) -> None:
        """Handle the end of the stream (0) or a receive's errno, after the rows before it."""
        if self.phase >= CLOSING:
            return
        if error or self._linger is not None:
            self._shut(error)
            return
        if self._end:
            return  # a receive that was begun before the end was known has found it again
        self._end = True
        if self._traffic.departures.note_end(self):
            self._traffic.rearm.append(self)
        elif self.phase is OPEN and not self._held:
            self.streams.handler.end_of_stream(self)

    def on_held_delivered(self) -> None:
        """Continue after delivery of held bytes: report the end of the stream, or read again."""
        if self._end and self.phase is OPEN:
            self.streams.handler.end_of_stream(self)
        else:
            self.arm()

    def drained(self) -> None:
        if self.phase is OPEN:
            self.streams.handler.drained(self)

    # --- to and from another loop ------------------------------------------------------------------------------------
    def begin_with(self, data: bytes) -> None:
        """Receive these bytes first: they came with the connection. Then read."""
        self._held = [data]
        self._traffic.resumed.append(self)

    def begin_leaving(self) -> None:
        """Pause, and end the receive. `Departures.settle` is called after its last completion."""
        self.pause_reading()
        if not self.recv_data:
            self._traffic.rearm.append(self)
        elif self._held is None:
            self._held = []
            self.stop_receive()

    def leave(self) -> None:
        """End here without a shutdown, which would end the stream for the other loop, too."""
        self._enter(CLOSING)
        self._traffic.closed_some = True
        self.paused = False
        self._held = None
        self.expected = LOOK_CLOSER
        self._finish()

    def stay(self, *, was_paused: bool, has_ended: bool) -> None:
        """Continue, because the connection could not be given away.

        has_ended: the end of the peer's data came since `begin_leaving`.
        """
        if not self._held:
            self._held = None  # so that the next pause ends the receive, too
        if not was_paused:
            self.resume_reading()
        if has_ended and self.phase is OPEN and not self._held:
            self.streams.handler.end_of_stream(self)

    # --- closing -----------------------------------------------------------------------------------------------------
    def _enter(self, phase: ConnectionPhase) -> None:
        self.phase = CONNECTION_PHASES.check(self.phase, phase)

    def _on_flushed(self) -> None:
        """End our direction: all bytes written before `close` are sent.

        Then await the peer's end.
        """
        if self._end:
            self._shut(0)
            return
        traffic = self._traffic
        self._pending += 1
        traffic.ring.queue_shutdown(traffic.operations.expect(CONTROL, self._on_control), self.fd, sends_only=True)
        self._linger = traffic.call_later(LINGER_NS, self.abort)

    def _shut(self, error: int) -> None:
        """Shut down, then cancel by user_data.

        `_finish` closes when the last completion has come.
        """
        traffic = self._traffic
        self._leave_table()
        traffic.departures.forget(self)
        self._enter(CLOSING)
        self._error = error
        traffic.closed_some = True
        self.paused = False
        self._held = None
        self.inbox = traffic.dropped
        for part in self._staged:
            let_go(part)
        self._staged.clear()
        self._staged_bytes = 0
        self.expected = LOOK_CLOSER
        if self.flying is not None and (self.in_line or traffic.withdraw(self.send_data)):
            let_go(self.flying)
            self.flying = None
            self.in_line = False
        expect = traffic.operations.expect
        if self._linger is not None:
            self._linger.cancel()
        self._pending += 1
        traffic.ring.queue_shutdown(expect(CONTROL, self._on_control), self.fd)
        for target in (self.recv_data, self.send_data if self.flying is not None else 0):
            if target:
                self._pending += 1
                traffic.ring.queue_cancel(expect(CONTROL, self._on_control), target)

    def _on_control(self, _res: int) -> None:
        self._pending -= 1
        if self.phase is CLOSING:
            self._finish()

    def _finish(self) -> None:
        """Close the descriptor and call `handler.lost`, if every operation has completed."""
        if self._pending or self.recv_data or self.flying is not None:
            return
        self._enter(CLOSED)
        traffic = self._traffic
        del traffic.operations.sending[self.send_data]
        if traffic.table is not None:
            traffic.table.close(self)
        del self.streams.connections[self.id]
        traffic.ring.queue_close(traffic.operations.expect(CONTROL, ignore), self.fd)
        self.streams.on_lost(self, self._error)
