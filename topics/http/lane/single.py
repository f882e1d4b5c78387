"""The only request of a pass, if it is plain: answered in the call that received it.

One client that waits for its answer feels every step of a pass. Columns cost more than they save
for one row, and the general path makes several objects for a request that is answered at once.
Here the lane's scanner reads the request, the engine commits or reads, and the answer is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from typing import Any

from topics.common.tuples import make_tuple
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.durations import milliseconds
from topics.engine.values.read_answer import LANE_TIMES
from topics.engine.values.results import AppendResult
from topics.engine.values.write_answer import write_times
from topics.engine.write.write_columns import GROUP, KEYED, WriteColumns
from topics.errors import TopicsError
from topics.http.access.principal import Principal
from topics.http.handlers.record_endpoints import one_written_json, write_json
from topics.http.http1.http1_connection import HttpConnection
from topics.http.lane._scan import ffi, lib
from topics.http.lane.lane_answers import AROUND_READ_BYTES, REQUEST, WITHOUT_SEQS, Taken
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.in_flight import NOTHING_COMES
from topics.http.plan.service import Service

_SCRATCH_BYTES = 65_536
"""Memory for the answer to a read; a longer one gets memory of its own."""
_SAMPLED = 16
"""One of so many writes is timed."""
_ROOM = 1
"""Requests that a scan has room for. A second one makes the receive unusable here."""


class SingleOutcome(Enum):
    """The outcome of a receive."""

    LEFT = 0
    """Nothing was done: it is for the general path."""
    UNSETTLED = 1
    """The request was taken; the end of the pass has work to do."""
    SETTLED = 2
    """The request was answered, and the end of the pass has nothing to do for it."""


LEFT, UNSETTLED, SETTLED = SingleOutcome.LEFT, SingleOutcome.UNSETTLED, SingleOutcome.SETTLED
"""Module names, since access to an Enum's member through its class takes ten times as long."""


class Single:
    """Takes the only receive of a pass if it is one plain request.

    names, names_json, principals: the lane's lists, by number of the topic. append: appends the
    group of a scan as the lane does, from the buffer and its columns.
    """

    def __init__(  # noqa: PLR0917 - the tables of the lane
        self,
        service: Service,
        scanner: Any,
        scanned: ScanTable,
        columns: WriteColumns,
        names: list[str],
        names_json: list[bytes],
        principals: list[Principal | None],
        long_read_bytes: int,
        append: Callable[[memoryview, Any, Taken], None],
    ) -> None:
        self._service = service
        self._scanner = scanner
        self._scanned = scanned
        self._columns = columns
        self._names = names
        self._names_json = names_json
        self._principals = principals
        self._long_read_bytes = long_read_bytes
        self._append = append
        self._start = ffi.new("uint64_t[]", [0])
        self._end = ffi.new("uint64_t[]", 1)
        self._refs = ffi.new("uint64_t[]", [0])
        self._reads = ffi.new("struct tp_read **"), ffi.new("uint32_t **"), ffi.new("uint32_t *")
        self._out = ffi.new("uint64_t[]", 1), ffi.new("uint32_t[]", 1), ffi.new("uint32_t *")
        self._scratch = ffi.new("char[]", _SCRATCH_BYTES)
        self._writes = 0
        self.taken = 0
        """Requests answered here."""

    def take(self, conn: Any, view: memoryview, started_ns: int) -> SingleOutcome:
        """Take the one plain request that was received, the only receive of the pass.

        The connection is not a column. started_ns: when its request began.
        """
        state = conn.state
        if type(state) is not HttpConnection or conn.expected or not state.idle:
            return LEFT
        service = self._service
        if service.gate is not None or service.closing or service.engine.refuses_writes:
            return LEFT
        if view.readonly:
            view = memoryview(bytearray(view))  # cleaning a body writes to it
        self._end[0] = len(view)
        data, scanned = ffi.from_buffer("char[]", view), self._scanned
        groups = lib.tp_scan_requests(
            self._scanner, data, self._start, self._end, 1, scanned.requests, scanned.groups, _ROOM, scanned.reasons
        )
        if scanned.reasons[0]:
            return LEFT
        if groups:
            return self._write(conn, view, data, started_ns)
        return self._read(conn, started_ns)

    # --- writes ------------------------------------------------------------------------------------------------------
    def _write(self, conn: Any, view: memoryview, data: Any, started_ns: int) -> SingleOutcome:
        service, scanned = self._service, self._scanned
        number = scanned.groups[0].topic
        if number >= KEYED or not service.has_one_sender():
            return LEFT
        engine, name, principal = service.engine, self._names[number], self._principals[number]
        if principal is not None and NOTHING_COMES.is_full(principal):
            return LEFT
        if not engine.takes_plain(name):
            lib.tp_forget_topic(self._scanner, number)
            return LEFT
        columns = self._columns
        body = ffi.cast("unsigned char *", data)
        columns.scan(body, scanned.requests, scanned.groups, 1, scanned.counts, scanned.upto)
        _number, _first, _count, taken, _row, count, size = GROUP.unpack_from(scanned.group_bytes)
        if not taken:
            return LEFT
        request = (name, columns.rows(view, 0, count, size), None, None, None, None, True, None, None, None)

        def answer(result: AppendResult) -> None:
            self._answer(conn, number, count, result, started_ns)

        self._writes += 1
        parsed_ns = 0 if self._writes % _SAMPLED else service.now_ns()
        try:
            result = engine.append_lone(make_tuple(AppendRequest, request), answer)
        except TopicsError:
            result = None  # the lane's append words the error
        if result is None:
            # The body may have been cleaned, so that only the columns are whole.
            conn.state.taken()
            refs = conn.ref.to_bytes(8, sys.byteorder)
            rows = scanned.request_bytes[0 : REQUEST.size], scanned.count_bytes[0:4]
            self._append(view, 1, Taken(*rows, refs, started_ns))
            return UNSETTLED
        self.taken += 1
        service.in_flight.answered_at_once(1)
        if parsed_ns:
            service.parse.add(parsed_ns - started_ns)
            service.append.add(service.now_ns() - parsed_ns - max(result.append_ns, result.sync_ns))
        return SETTLED if engine.is_settled else UNSETTLED

    def _answer(self, conn: Any, number: int, count: int, result: AppendResult, started_ns: int) -> None:
        service = self._service
        total_ns = service.now_ns() - started_ns
        times = write_times(total_ns, result.append_ns, result.sync_ns, service.engine.throttle_window_ns)
        topic, first = self._names_json[number], result.first_seq
        with_seqs = not self._scanned.requests[0].flags & WITHOUT_SEQS
        if count == 1 and with_seqs:
            body = one_written_json(topic, first, times)
        else:
            body = write_json(topic, first, count, with_seqs, times)
        conn.state.answer_at_once(service.writer.json(200, body))

    # --- reads -------------------------------------------------------------------------------------------------------
    def _read(self, conn: Any, started_ns: int) -> SingleOutcome:
        reads, numbers, topics = self._reads
        if lib.tp_scanned_reads(self._scanner, reads, numbers, topics) != 1:
            return LEFT
        number = numbers[0][0]
        principal = self._principals[number]
        if principal is not None and NOTHING_COMES.is_full(principal):
            return LEFT
        service = self._service
        found = service.engine.read_plain((self._names[number],), reads[0], 1, self._long_read_bytes)
        if not found.taken:
            return LEFT
        self.taken += 1
        service.in_flight.answered_at_once(1)
        head = service.writer.json_head
        times = LANE_TIMES % milliseconds(service.now_ns() - started_ns)
        room = found.size + len(head) + AROUND_READ_BYTES
        memory = self._scratch if room <= _SCRATCH_BYTES else ffi.new("char[]", room)
        size = lib.tp_render_reads(
            self._scanner,
            memory,
            room,
            found.elements,
            ffi.from_buffer("struct tp_read_topic[]", found.topics),
            self._refs,
            head,
            len(head),
            times,
            len(times),
            self._scanned.upto,
            *self._out,
        )
        assert size > 0, "an answer larger than the room for it"
        conn.state.answer_at_once(bytes(ffi.buffer(memory, size)))
        return SETTLED if service.engine.is_settled else UNSETTLED
