"""The writes of a scan that were appended together, and their answers, rendered into one buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator
from typing import Any

from topics.engine.bodies.write_columns import REQUEST, GroupColumns
from topics.engine.values.results import AppendResult
from topics.engine.values.write_answer import LANE_END, write_times
from topics.engine.write.plain_appends import PlainAppended
from topics.errors import TopicsError
from topics.http.access.principal import Principal
from topics.http.handlers import record_endpoints
from topics.http.lane._scan import ffi, lib
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.service import Service

WITHOUT_SEQS = lib.TP_WITHOUT_SEQS
STRICT = lib.TP_STRICT
GROUPS_A_PASS = 512
"""Groups that are answered in a pass, some 7 us each: each write with an idempotency key is one."""
REQUESTS_A_PASS = 8192
"""Requests that are answered in a pass, and those of the group, or of the groups of one scan, that
exceed it. A commit that takes long may have those of several scans.
"""
_FIXED_BYTES = 500
"""Bound of an answer's bytes without name, seqs, and its head up to the length."""
_NAME_BYTES = 257
"""Bound of a topic's name as JSON, none of whose characters is escaped."""


class Taken:
    """Columns over the plain requests of one scan.

    requests: tp_request rows. counts: records of each request; 0: not taken. refs: connections by
    number of the receive. started_ns: time of the scan.
    """

    __slots__ = ("counts", "refs", "requests", "started_ns")

    def __init__(self, requests: bytes, counts: bytes, refs: bytes, started_ns: int) -> None:
        self.requests = ffi.from_buffer("struct tp_request[]", requests)
        self.counts = ffi.from_buffer("uint32_t[]", counts)
        self.refs = ffi.from_buffer("uint64_t[]", refs)
        self.started_ns = started_ns


class Group:
    """The requests of one topic and scan in one append: rows `first` to `first + count`."""

    __slots__ = ("answers", "columns", "count", "first", "principal", "taken", "topic")

    def __init__(  # noqa: PLR0917 - one a topic and pass
        self,
        answers: GroupAnswers,
        columns: Taken,
        first: int,
        count: int,
        taken: int,
        topic: bytes,
        principal: Principal | None,
    ) -> None:
        self.answers = answers
        self.columns = columns
        self.first = first
        self.count = count
        self.taken = taken
        self.topic = topic
        """The topic's name as JSON."""
        self.principal = principal

    def begin(self) -> None:
        """Count the requests as in flight."""
        self.answers.service.in_flight.enter(self.principal, self.taken)

    def done(self, result: AppendResult | TopicsError) -> None:
        """Note the outcome of the append. The answers follow at the end of the pass."""
        self.answers.finish(self, result)

    def requests(self) -> list[tuple[int, int, int]]:
        """Return (ref, records, flags) of each request that was taken, in order."""
        columns, found = self.columns, []
        rows = ffi.buffer(columns.requests + self.first, self.count * REQUEST.size)
        for at, row in enumerate(REQUEST.iter_unpack(rows), self.first):
            if columns.counts[at]:
                found.append((columns.refs[row[0]], columns.counts[at], row[4]))
        return found


class Groups:
    """Requests of several topics and one scan in one `append_plain`."""

    __slots__ = ("answers", "columns", "principals")

    def __init__(self, answers: GroupAnswers, columns: Taken, principals: dict[int, Principal]) -> None:
        """principals: principals that count the requests, by number of the topic."""
        self.answers = answers
        self.columns = columns
        self.principals = principals

    def begin(self, groups: GroupColumns) -> int:
        """Count the requests as in flight; return their number."""
        in_flight, taken = self.answers.service.in_flight, sum(groups.taken)
        if self.principals:
            for number, requests in zip(groups.topics, groups.taken, strict=True):
                in_flight.enter(self.principals.get(number), requests)
        else:
            in_flight.enter(None, taken)
        return taken

    def end(self, groups: GroupColumns) -> None:
        """Count the requests of these groups as no longer in flight."""
        in_flight = self.answers.service.in_flight
        if self.principals:
            for number, requests in zip(groups.topics, groups.taken, strict=True):
                in_flight.leave(self.principals.get(number), requests)
        else:
            in_flight.leave(None, sum(groups.taken))

    def done(self, appended: PlainAppended) -> None:
        """Note the outcome of some groups. The answers follow at the end of the pass."""
        self.answers.finish_many(self, appended)

    def one_by_one(self, appended: PlainAppended) -> Iterator[tuple[Group, AppendResult | TopicsError]]:
        """Yield the outcome as groups of one topic each."""
        error, groups, names, first_seqs, append_ns, sync_ns = appended
        for (number, first, count, taken, _row, rows, _size), name, seq in zip(
            zip(*groups, strict=True), names, first_seqs, strict=True
        ):
            principal = self.principals.get(number)
            group = Group(self.answers, self.columns, first, count, taken, b'"%b"' % name.encode(), principal)
            last = seq + rows - 1
            result = AppendResult(seq, last, last, rows, False, False, append_ns, sync_ns)
            yield group, result if error is None else error


class GroupAnswers(ABC):
    """Renders the answers to groups of writes that one commit has decided."""

    def __init__(self, service: Service, scanned: ScanTable, room: int) -> None:
        """scanned: the lane's, whose scanner has the texts of answers.

        room: the most requests of one scan.
        """
        self._scanned = scanned
        self._scanner = scanned.scanner
        self.service = service
        routes = {route.handler: route for route in service.routes.routes}
        self.write_route, self.read_route = routes[record_endpoints.write], routes[record_endpoints.diff]
        self.writes = service.answered.of(self.write_route)
        """The answers to writes, counted here and by `Single`."""
        self.finished: list[tuple[Group, AppendResult | TopicsError]] = []
        self.finished_many: list[tuple[Groups, PlainAppended]] = []
        self._waits = False
        """Whether the groups that are finished wait for the next pass: this one may flush again."""
        self._room = room
        self._refs = ffi.new("uint64_t[]", room)
        self._lengths = ffi.new("uint32_t[]", room)
        self._count = ffi.new("uint32_t *")

    def _make_room(self, answers: int) -> None:
        """Replace the columns by longer ones."""
        self._room = answers
        self._refs = ffi.new("uint64_t[]", answers)
        self._lengths = ffi.new("uint32_t[]", answers)

    @abstractmethod
    def _memory(self, size: int) -> tuple[int, Any]:
        """Return the number and the memory of a buffer for answers, for one `send` at once."""

    @abstractmethod
    def send(self, number: int, memory: Any, sends: int) -> bool:
        """Send the answers last rendered. Return whether that leaves no work."""

    def finish(self, group: Group, result: AppendResult | TopicsError) -> None:
        """Note the outcome of a group, for `flush`."""
        self.finished.append((group, result))

    def finish_many(self, groups: Groups, appended: PlainAppended) -> None:
        """Note the outcome of groups that were appended together, for `flush`."""
        self.finished_many.append((groups, appended))

    def _due(self) -> tuple[list[tuple[Group, AppendResult | TopicsError]], list[tuple[Groups, PlainAppended]]]:
        """Take the groups that are answered in this pass out of those that are finished."""
        finished, many = self.finished, self.finished_many
        left = REQUESTS_A_PASS
        groups = scans = 0
        while groups < min(len(finished), GROUPS_A_PASS) and left > 0:
            left -= finished[groups][0].taken
            groups += 1
        while scans < len(many) and (left > 0 or not scans):
            left -= sum(many[scans][1].groups.taken)
            scans += 1
        self.finished, self.finished_many = finished[groups:], many[scans:]
        if self.finished or self.finished_many:
            self._waits = True
            self.service.answer_turns.wait(self._go_on)
        return finished[:groups], many[:scans]

    def _go_on(self) -> None:
        self._waits = False

    def _answer(self, finished: list[tuple[Group, AppendResult]], many: list[tuple[Groups, PlainAppended]]) -> None:
        service = self.service
        head, now_ns = service.writer.json_head, service.now_ns()
        room = answers = 0
        for _groups, appended in many:
            requests = sum(appended.groups.taken)
            answers += requests
            room += requests * (len(head) + _NAME_BYTES + _FIXED_BYTES)
            room += 21 * sum(appended.groups.records)
        for group, result in finished:
            answers += group.taken
            room += group.taken * (len(head) + len(group.topic) + _FIXED_BYTES) + 21 * result.count
        if answers > self._room:
            self._make_room(answers)
        number, memory = self._memory(room)
        at = sends = 0
        before, after, taken = None, b"", 0
        for group, result in finished:
            columns = group.columns
            times = (columns.started_ns, result.append_ns, result.sync_ns)
            if times != before:  # most groups of a pass and commit share them
                after = LANE_END % self._times(now_ns - times[0], times[1], times[2])
                if before is not None:
                    self.writes.add_many(200, now_ns - before[0], taken)
                before, taken = times, 0
            taken += group.taken
            name = group.topic[1:-1]
            size = lib.tp_render_answers(
                self._scanner,
                memory + at,
                room - at,
                columns.requests + group.first,
                columns.counts + group.first,
                group.count,
                result.first_seq,
                columns.refs,
                head,
                len(head),
                name,
                len(name),
                after,
                len(after),
                self._refs + sends,
                self._lengths + sends,
                self._count,
            )
            assert size > 0, "answers larger than the room for them"
            at += size
            sends += self._count[0]
        if before is not None:
            self.writes.add_many(200, now_ns - before[0], taken)
        for groups, appended in many:
            self.writes.add_many(200, now_ns - groups.columns.started_ns, sum(appended.groups.taken))
            at += self._render_many(groups, appended, now_ns, memory + at, room - at, sends)
            sends += self._count[0]
        self.send(number, memory, sends)

    def _times(self, total_ns: int, append_ns: int, sync_ns: int) -> bytes:
        return write_times(total_ns, append_ns, sync_ns, self.service.engine.throttle_window_ns)

    def _render_many(  # noqa: PLR0917 - columns
        self, groups: Groups, appended: PlainAppended, now_ns: int, memory: Any, room: int, sends: int
    ) -> int:
        """Render the answers of many topics, as sends from number `sends` on. Return the bytes."""
        columns, head = groups.columns, self.service.writer.json_head
        after = LANE_END % self._times(now_ns - columns.started_ns, appended.append_ns, appended.sync_ns)
        firsts, requests = appended.groups.firsts, appended.groups.requests
        size = lib.tp_render_topics(
            self._scanner,
            memory,
            room,
            columns.requests,
            columns.counts,
            ffi.from_buffer("uint32_t[]", array("I", firsts)),
            ffi.from_buffer("uint32_t[]", array("I", requests)),
            ffi.from_buffer("uint64_t[]", array("Q", appended.first_seqs)),
            len(firsts),
            "\0".join(appended.names).encode(),
            columns.refs,
            head,
            len(head),
            after,
            len(after),
            self._refs + sends,
            self._lengths + sends,
            self._count,
        )
        assert size > 0, "answers larger than the room for them"
        return int(size)
