"""Answers of the lane, rendered group by group into one buffer and queued at once."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from topics.engine.read.plain_reads import PlainReads
from topics.engine.values.durations import milliseconds
from topics.engine.values.read_answer import LANE_TIMES
from topics.engine.values.results import AppendResult
from topics.engine.values.write_answer import LANE_END, repeat_times, write_times
from topics.engine.write.plain_appends import PlainAppended
from topics.engine.write.write_columns import GroupColumns
from topics.errors import TopicsError, as_request_error
from topics.http.access.principal import Principal
from topics.http.handlers import record_endpoints
from topics.http.lane._scan import ffi, lib
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.service import Service
from topics.http.wire.error_answers import envelope, extra_headers, status_of
from topics.http.wire.preference import APPLIED

REQUEST = struct.Struct("=8I")
"""receive, topic, off, len, flags, end, key_off, key_len: a tp_request of columns.h."""
WITHOUT_SEQS = lib.TP_WITHOUT_SEQS
STRICT = lib.TP_STRICT
_FIXED_BYTES = 500
"""Bound of an answer's bytes without name, seqs, and its head up to the length."""
_NAME_BYTES = 257
"""Bound of a topic's name as JSON, none of whose characters is escaped."""
AROUND_READ_BYTES = 768
"""Bound of a read's answer without head and elements."""
_READ_HEAD_BYTES = 64
"""Bound of a read's head from the length on."""
_SCRATCH_BYTES = 65_536
"""Memory for the answer to a single read; a longer one gets memory of its own."""


class LaneConnections(Protocol):
    """The calls of `topics.loop.ConnectionTable` that the lane makes."""

    count: int

    def rows(self) -> tuple[int, bytearray | memoryview, Any, Any, Any]: ...

    def view(self, row: int) -> memoryview: ...

    def own(self, conn: Any) -> None: ...

    def leave(self, conn: Any) -> bool: ...

    def since(self, conn: Any, tick: int) -> int: ...

    def connection(self, ref: int) -> Any: ...

    def room(self, size: int) -> tuple[int, Any]: ...

    def answer(  # noqa: PLR0917 - columns
        self, number: int, data: Any, refs: Any, lengths: Any, count: int, tick: int
    ) -> list[tuple[int, bytes]]: ...


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
        answers: Answers,
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
        self.answers.finished.append((self, result))

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

    def __init__(self, answers: Answers, columns: Taken, principals: dict[int, Principal]) -> None:
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
        self.answers.finished_many.append((self, appended))

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


class Answers:
    """The answers of one server. `flush` is called at the end of every pass, before its sends."""

    def __init__(self, service: Service, table: LaneConnections, scanned: ScanTable, room: int) -> None:
        """scanned: the lane's, whose scanner has the texts of answers.

        room: the most requests of one scan.
        """
        self._scanned = scanned
        self._scanner = scanned.scanner
        self.service = service
        self._table = table
        routes = {route.handler: route for route in service.routes.routes}
        self.write_route, self.read_route = routes[record_endpoints.write], routes[record_endpoints.diff]
        self.writes = service.answered.of(self.write_route)
        """The answers to writes, counted here and by `Single`."""
        self.reads = service.answered.of(self.read_route)
        self.finished: list[tuple[Group, AppendResult | TopicsError]] = []
        self.finished_many: list[tuple[Groups, PlainAppended]] = []
        self._room = room
        self._refs = ffi.new("uint64_t[]", room)
        self._lengths = ffi.new("uint32_t[]", room)
        self._count = ffi.new("uint32_t *")
        self._scratch = ffi.new("char[]", _SCRATCH_BYTES)
        self._no_refs = ffi.new("uint64_t[]", [0])

    def _make_room(self, answers: int) -> None:
        """Replace the columns by longer ones."""
        self._room = answers
        self._refs = ffi.new("uint64_t[]", answers)
        self._lengths = ffi.new("uint32_t[]", answers)

    def flush(self) -> None:
        """Answer all decided requests.

        Refusals, repeats and the last answers of connections are rendered one by one; refusals and
        last answers take turns.
        """
        if not self.finished and not self.finished_many:
            return
        service = self.service
        finished, self.finished = self.finished, []
        many, self.finished_many = self.finished_many, []
        if many:
            many = self._end_many(many)
        written: list[tuple[Group, AppendResult]] = []
        for group, result in finished:
            if isinstance(result, TopicsError):
                self._refuse(group, result)
                continue
            if service.closing:
                service.failures.answer(partial(self._close_with, group, result))
                continue
            service.in_flight.leave(group.principal, group.taken)
            if result.deduped:
                self._repeat(group, result)
            else:
                written.append((group, result))
        if written or many:
            self._answer(written, many)

    def _end_many(self, many: list[tuple[Groups, PlainAppended]]) -> list[tuple[Groups, PlainAppended]]:
        """Return the groups that are answered together; the others take turns."""
        together = []
        for groups, appended in many:
            if appended.error is not None or self.service.closing:
                self.service.failures.answer_each(self._each(groups, appended))
                continue
            together.append((groups, appended))
            groups.end(appended.groups)
        return together

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
        number, memory = self._table.room(room)
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

    def render_reads(self, found: PlainReads, refs: Any, started_ns: int) -> tuple[int, Any, int]:
        """Render the answers to the reads of a scan. Return the arguments of `send`.

        `send` must be called before anything else is rendered. `upto` of the scan is set to the end
        of the bytes that were taken of each receive.
        """
        if found.taken > self._room:
            self._make_room(found.taken)
        head = self.service.writer.json_head
        room = found.size + found.taken * (len(head) + _READ_HEAD_BYTES + AROUND_READ_BYTES)
        number, memory = self._table.room(room)
        self._render_reads(found, memory, room, head, refs, started_ns)
        self.reads.add_many(200, self.service.now_ns() - started_ns, found.taken)
        return number, memory, self._count[0]

    def render_read(self, found: PlainReads, started_ns: int) -> bytes:
        """Return the answer to the only read of a scan."""
        head = self.service.writer.json_head
        room = found.size + len(head) + _READ_HEAD_BYTES + AROUND_READ_BYTES
        memory = self._scratch if room <= _SCRATCH_BYTES else ffi.new("char[]", room)
        answer: bytes = ffi.unpack(memory, self._render_reads(found, memory, room, head, self._no_refs, started_ns))
        return answer

    def _render_reads(  # noqa: PLR0917 - columns
        self, found: PlainReads, memory: Any, room: int, head: bytes, refs: Any, started_ns: int
    ) -> int:
        times = LANE_TIMES % milliseconds(self.service.now_ns() - started_ns)
        size: int = lib.tp_render_reads(
            self._scanner,
            memory,
            room,
            found.elements,
            ffi.from_buffer("struct tp_read_topic[]", found.topics),
            refs,
            head,
            len(head),
            times,
            len(times),
            self._scanned.upto,
            self._refs,
            self._lengths,
            self._count,
        )
        assert size > 0, "answers larger than the room for them"
        return size

    def send(self, number: int, memory: Any, sends: int) -> bool:
        """Queue the answers last rendered; return whether all are of connections in the table."""
        others = self._table.answer(number, memory, self._refs, self._lengths, sends, self.service.tick)
        for ref, data in others:
            self._one(ref, data)
        return not others

    def leave(self, conn: Any) -> None:
        """Return a connection of the table to the general path, because of an unusual event."""
        if self._table.leave(conn):
            conn.state.taken()

    def _one(self, ref: int, data: bytes, *, last: bool = False) -> None:
        """Answer a connection that is not a column any more, or will not be."""
        conn = self._table.connection(ref)
        if conn is not None:
            if conn.owned:
                self.leave(conn)
            self.service.again()  # later bytes run now, and the log has had its turn
            conn.state.answer(data, last=last)

    def _refuse(self, group: Group, error: TopicsError) -> None:
        """Answer each request with the error, as the general path words it.

        The connections take turns. Until its turn, each takes no other request.
        """
        self.service.failures.answer_each(self._refusals(group, error))

    def _refusals(self, group: Group, error: TopicsError) -> Iterator[Callable[[], None]]:
        """Yield for each connection a call that answers it."""
        preferences: dict[int, list[bytes]] = {}
        for ref, _count, flags in group.requests():
            preferences.setdefault(ref, []).append(applied(flags))
        for ref, headers in preferences.items():
            yield partial(self._refuse_one, group.principal, error, ref, headers)

    def _each(self, groups: Groups, appended: PlainAppended) -> Iterator[Callable[[], None]]:
        """Yield calls that answer groups which cannot be answered together."""
        for group, result in groups.one_by_one(appended):
            if isinstance(result, TopicsError):
                yield from self._refusals(group, result)
            else:
                yield partial(self._close_with, group, result)

    def _refuse_one(self, principal: Principal | None, error: TopicsError, ref: int, applied: list[bytes]) -> None:
        """Answer the requests of one connection. applied: a header line for each, or b""."""
        service, refusal = self.service, as_request_error(error)
        status = status_of(refusal)
        service.in_flight.leave(principal, len(applied))
        service.refused_total += len(applied)
        self.writes.count(status, len(applied))
        body, headers, last = envelope(refusal), extra_headers(refusal), service.closing
        close = b"close" if last else b""
        answers = [service.writer.render(status, body, headers=headers + line, connection=close) for line in applied]
        self._one(ref, answers[0] if last else b"".join(answers), last=last)

    def _repeat(self, group: Group, result: AppendResult) -> None:
        """Answer duplicates with the result of the original write.

        Their own number of records does not matter.

        Source: wire contract, R-IDEM-3.
        """
        service = self.service
        total_ns = service.now_ns() - group.columns.started_ns
        self.writes.add_many(200, total_ns, group.taken)
        times = repeat_times(total_ns)
        for ref, _count, flags in group.requests():
            self._one(ref, service.writer.json(200, _repeated(group, result, flags, times), applied(flags)))

    def _close_with(self, group: Group, result: AppendResult) -> None:
        """Answer and close, because the server stops. The groups take turns.

        Later requests of the connections get no answer.
        """
        service = self.service
        service.in_flight.leave(group.principal, group.taken)
        total_ns = service.now_ns() - group.columns.started_ns
        self.writes.add_many(200, total_ns, group.taken)
        if result.deduped:
            times = repeat_times(total_ns)
            for ref, _count, flags in group.requests():
                body = _repeated(group, result, flags, times)
                self._one(ref, service.writer.render(200, body, headers=applied(flags), connection=b"close"), last=True)
            return
        times = self._times(total_ns, result.append_ns, result.sync_ns)
        seq = result.first_seq
        for ref, count, flags in group.requests():
            body = record_endpoints.write_json(group.topic, seq, count, not flags & WITHOUT_SEQS, times)
            self._one(ref, service.writer.render(200, body, headers=applied(flags), connection=b"close"), last=True)
            seq += count


def applied(flags: int) -> bytes:
    """Return the line of a strict answer, or nothing. flags: of its request."""
    return APPLIED if flags & STRICT else b""


def _repeated(group: Group, result: AppendResult, flags: int, times: bytes) -> bytes:
    """Return the body of the answer to a duplicate."""
    with_seqs = not flags & WITHOUT_SEQS
    return record_endpoints.write_json(
        group.topic, result.first_seq, result.count, with_seqs, times, head=result.head_seq, deduped=True
    )
