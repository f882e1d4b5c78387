"""The only request of a pass, if it is plain: answered in the call that received it.

One client that waits for its answer feels every step of a pass. Columns cost more than they save
for one row, and the general path makes several objects for a request that is answered at once.
Here the lane's scanner reads the request, the engine commits or reads, and the answer is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from topics.engine.bodies.write_columns import KEYED, REQUEST, WriteColumns
from topics.engine.values.results import AppendResult
from topics.engine.write.write_streak import WriteStreak
from topics.errors import TopicsError
from topics.http.http1.http1_connection import HttpConnection
from topics.http.lane._scan import ffi, lib
from topics.http.lane.far_writes import FarWrites
from topics.http.lane.group_answers import Taken
from topics.http.lane.lane_answers import Answers, applied, lone_body
from topics.http.lane.lane_topics import LaneTopics
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.engine_api import EngineApi
from topics.http.plan.in_flight import NOTHING_COMES
from topics.http.wire.head import HEAD_END

_SAMPLED = 16
"""Sampling rate: one in this many writes is timed."""
_ROOM = 1
"""Requests that a scan has room for. A second one makes the receive unusable here."""
_READ = -1
"""The result of a scan that found a read. Results below are reasons why the receive is left."""
_MISS_BODY = lib.TP_MISS_BODY
_MISS_LONE = lib.TP_MISS_LONE


_Asked = tuple[Any, memoryview, int, int, int]
"""A write: connection, receive, number of its topic, when it was begun to be handled, and how long
commits are held back (ns).
"""


class SingleOutcome(Enum):
    """The outcome of a receive."""

    LEFT = 0
    """Nothing was done: it is for the general path."""
    UNSETTLED = 1
    """The request was taken; the end of the pass has work to do."""
    SETTLED = 2
    """The request was answered, or its head is held. The end of the pass has nothing to do for it.
    """


LEFT, UNSETTLED, SETTLED = SingleOutcome.LEFT, SingleOutcome.UNSETTLED, SingleOutcome.SETTLED
"""Module names, since access to an Enum's member through its class takes ten times as long."""


class Single:
    """Takes the only receive of a pass if it is one plain request.

    scanned, topics, columns, answers: the lane's. append: appends the group of a scan as the lane
    does, from the buffer and its columns. far: asks other cores.
    """

    def __init__(  # noqa: PLR0917 - the tables of the lane
        self,
        answers: Answers,
        topics: LaneTopics,
        scanned: ScanTable,
        columns: WriteColumns,
        long_read_bytes: int,
        append: Callable[[memoryview, Any, Taken], None],
        far: FarWrites,
    ) -> None:
        self._service = answers.service
        self._far = far
        self._answers = answers
        self._topics = topics
        self._scanned = scanned
        self._columns = columns
        self._long_read_bytes = long_read_bytes
        self._append = append
        self._request = request = ffi.new("struct tp_request *")
        self._scan = partial(lib.tp_scan_single, scanned.scanner, request)
        self._scan_body = columns.single(request)
        self._reads = ffi.new("struct tp_read **"), ffi.new("uint32_t **"), ffi.new("uint32_t *")
        self._asked: _Asked | None = None
        """The write that is to be answered."""
        self._on_committed = self._answer
        self._streak: WriteStreak | None = None
        self._writes = 0
        self.writes_taken = self.reads_taken = 0
        """Requests answered here."""
        self._counted_writes = self._counted_reads = 0
        """Requests of them that are counted by route and status."""
        self.reason = 0
        """The reason why the last receive was left: TP_MISS_* of scan.h."""

    def take(self, conn: Any, view: memoryview, started_ns: int) -> SingleOutcome:
        """Take the one plain request that was received, the only receive of the pass.

        Many clients send a head and its body by two calls. A head without its body is held, and the
        request is scanned when the body is here.

        The connection is not a column. started_ns: when the receive was begun to be handled. LEFT:
        `Lane.take` gets the receive next.
        """
        state, service = conn.state, self._service
        if type(state) is not HttpConnection:
            self.reason = _MISS_LONE
            return LEFT
        begun = state.begun
        if conn.expected or begun is None or (begun and not _is_head(begun)):
            self.reason = lib.TP_MISS_BUSY
            return LEFT
        if service.gate is not None or service.closing:
            return LEFT
        engine = service.engine
        if engine.refuses_writes:
            return LEFT
        if begun:
            view = memoryview(begun + view)
        data = ffi.from_buffer(view)
        number = self._scan(data, len(view))
        if number < _READ:
            self.reason = _READ - number
            if self.reason != lib.TP_MISS_PART or begun or not _is_head(view):
                return LEFT
            state.hold_head(view)
            return SETTLED
        self.reason = _MISS_BODY
        if begun:
            state.take_begun()
        if number == _READ:
            outcome = self._read(engine, conn, view, started_ns)
        else:
            outcome = self._write(engine, conn, view, data, number, started_ns)
        if begun and outcome is LEFT:
            state.hold_head(begun)
        return outcome

    def _note(
        self, conn: Any, view: memoryview, number: int, size: int, started_ns: int, *, reads: bool = False
    ) -> None:
        """Note an answer in the access log. size: of its body."""
        service, answers, data = self._service, self._answers, bytes(view)
        assert service.access_log is not None, "no access log"
        received = len(data) - data.index(HEAD_END) - len(HEAD_END)
        path = f"/v0/topics/{self._topics.names[number]}{'/diff' if reads else ''}"
        route = answers.read_route if reads else answers.write_route
        ns = service.now_ns() - started_ns
        service.access_log.answered_plain(conn.peer, path, received, size, ns, route, self._topics.principals[number])

    @property
    def taken(self) -> int:
        """Requests answered here."""
        return self.writes_taken + self.reads_taken

    def count_answers(self) -> None:
        """Count the requests that were answered since the last call by route and status."""
        self._answers.writes.count(200, self.writes_taken - self._counted_writes)
        self._answers.reads.count(200, self.reads_taken - self._counted_reads)
        self._counted_writes, self._counted_reads = self.writes_taken, self.reads_taken

    # --- writes ------------------------------------------------------------------------------------------------------
    def _write(  # noqa: PLR0917 - hot
        self, engine: EngineApi, conn: Any, view: memoryview, data: Any, number: int, started_ns: int
    ) -> SingleOutcome:
        service, topics = self._service, self._topics
        if number >= KEYED or not service.has_few_senders():
            self.reason = _MISS_LONE
            return LEFT
        principal = topics.principals[number]
        if principal is not None and NOTHING_COMES.is_full(principal):
            return LEFT
        if self._go_on((conn, view, number, started_ns, 0), data):
            return SETTLED if engine.settle_lone() else UNSETTLED
        topic = engine.plain_topic(topics.names[number])
        if topic is None:
            if number in topics.fars:
                return self._ask(engine, conn, view, number)
            topics.forget(number)
            return LEFT
        if topic.stage_class == "fsync" and not service.has_one_sender():
            self.reason = _MISS_LONE  # its commit would hold up the other client
            return LEFT
        rows = self._scan_body(data, view)
        if rows is None:
            return LEFT
        self._writes += 1
        parsed_ns = 0 if self._writes % _SAMPLED else service.now_ns()
        self._asked = conn, view, number, started_ns, engine.throttle_window_ns
        try:
            result = engine.append_rows_lone(topic, rows, self._on_committed)
        except TopicsError:
            result = None  # the lane's append words the error
        if result is None:
            self._asked = None
            if service.access_log is not None:
                self.reason = _MISS_LONE
                return LEFT
            self._append_columns(conn, view, started_ns)
            return UNSETTLED
        if parsed_ns:
            now_ns = service.now_ns()
            service.parse.add(parsed_ns - started_ns)
            service.append.add(now_ns - parsed_ns - max(result.append_ns, result.sync_ns))
            self._answers.writes.times.add_sample(now_ns - started_ns, _SAMPLED)
        self.writes_taken += 1
        service.in_flight.answered_at_once(1)
        if not engine.settle_lone():
            return UNSETTLED
        if self._streak is None:
            self._streak = engine.write_streak(partial(self._columns.framing, self._request))
        self._streak.begin(topic)
        return SETTLED

    def _go_on(self, asked: _Asked, data: Any) -> bool:
        """Commit and answer a write of a streak; False: it is none, and nothing was done.

        While commits are held back there is no streak.
        """
        service, streak = self._service, self._streak
        if streak is None or (streak.fsync and not service.has_one_sender()):
            return False
        _conn, view, number, started_ns, _held_ns = self._asked = asked
        if streak.write(self._topics.names[number], data, len(view), self._on_committed) is None:
            self._asked = None
            return False
        self._writes += 1
        self.writes_taken += 1
        if not self._writes % _SAMPLED:
            self._answers.writes.times.add_sample(service.now_ns() - started_ns, _SAMPLED)
        service.in_flight.answered_at_once(1)
        return True

    def _ask(self, engine: EngineApi, conn: Any, view: memoryview, number: int) -> SingleOutcome:
        """Have the core that owns the topic answer the write."""
        request = self._request
        body = bytes(view[request.off : request.end])
        if self._service.access_log is not None or not self._far.ask_single(conn, number, request.flags, body):
            self.reason = _MISS_LONE
            return LEFT
        return SETTLED if engine.is_settled else UNSETTLED

    def _answer(self, result: AppendResult) -> None:
        """Answer the write that is committed and not published yet."""
        service = self._service
        asked, self._asked = self._asked, None
        assert asked is not None, "nothing was asked"
        conn, view, number, started_ns, window_ns = asked
        flags = self._request.flags
        body = lone_body(self._topics.names_json[number], result, flags, service.now_ns() - started_ns, window_ns)
        conn.state.answer_at_once(service.writer.json(200, body, applied(flags)))
        if service.access_log is not None:
            self._note(conn, view, number, len(body), started_ns)

    def _append_columns(self, conn: Any, view: memoryview, started_ns: int) -> None:
        """Append the one write that was received as the lane appends many."""
        scanned = self._scanned
        if view.readonly:
            view = memoryview(bytearray(view))  # cleaning a body writes to it
        data, bounds = ffi.from_buffer(view), ffi.new("uint64_t[2]", [0, len(view)])
        scanned.scan(data, bounds, bounds + 1, 1, _ROOM)
        self._columns.scan(data, scanned.requests, scanned.groups, 1, scanned.counts, scanned.upto)
        conn.state.taken()
        refs = conn.ref.to_bytes(8, sys.byteorder)
        self._append(
            view, 1, Taken(scanned.request_bytes[0 : REQUEST.size], scanned.count_bytes[0:4], refs, started_ns)
        )

    # --- reads -------------------------------------------------------------------------------------------------------
    def _read(self, engine: EngineApi, conn: Any, view: memoryview, started_ns: int) -> SingleOutcome:
        reads, numbers, topic_count = self._reads
        service, topics = self._service, self._topics
        if lib.tp_scanned_reads(self._scanned.scanner, reads, numbers, topic_count) != 1:
            return LEFT
        number = numbers[0][0]
        principal = topics.principals[number]
        if principal is not None and NOTHING_COMES.is_full(principal):
            return LEFT
        found = engine.read_plain((topics.names[number],), reads[0], 1, self._long_read_bytes)
        if not found.taken:
            return LEFT
        answer = self._answers.render_read(found, started_ns)
        conn.state.answer_at_once(answer)
        if service.access_log is not None:
            size = len(answer) - answer.index(HEAD_END) - len(HEAD_END)
            self._note(conn, view, number, size, started_ns, reads=True)
        self.reads_taken += 1
        service.in_flight.answered_at_once(1)
        if not self.reads_taken % _SAMPLED:
            self._answers.reads.times.add_sample(service.now_ns() - started_ns, _SAMPLED)
        return SETTLED if engine.is_settled else UNSETTLED


def _is_head(view: memoryview | bytearray) -> bool:
    """Return whether these bytes end with the head of a request, and are not a part of its body."""
    return bytes(view[-4:]) == HEAD_END and bytes(view).find(HEAD_END) == len(view) - len(HEAD_END)
