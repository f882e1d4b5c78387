"""Answers of the lane, rendered group by group into one buffer and queued at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from topics.engine.read.plain_reads import PlainReads
from topics.engine.values.durations import milliseconds
from topics.engine.values.read_answer import LANE_TIMES
from topics.engine.values.results import AppendResult
from topics.engine.values.write_answer import one_lone_json, repeat_times, write_times
from topics.engine.write.plain_appends import PlainAppended
from topics.errors import TopicsError, as_request_error
from topics.http.access.principal import Principal
from topics.http.handlers import record_endpoints
from topics.http.lane._scan import ffi, lib
from topics.http.lane.group_answers import STRICT, WITHOUT_SEQS, Group, GroupAnswers, Groups
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.service import Service
from topics.http.wire.error_answers import envelope, extra_headers, status_of
from topics.http.wire.preference import APPLIED

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


class Answers(GroupAnswers):
    """The answers of one server. `flush` is called at the end of every pass, before its sends."""

    def __init__(self, service: Service, table: LaneConnections, scanned: ScanTable, room: int) -> None:
        """scanned, room: as for `GroupAnswers`."""
        super().__init__(service, scanned, room)
        self._table = table
        self.reads = service.answered.of(self.read_route)
        self._scratch = ffi.new("char[]", _SCRATCH_BYTES)
        self._no_refs = ffi.new("uint64_t[]", [0])

    def _memory(self, size: int) -> tuple[int, Any]:
        return self._table.room(size)

    def flush(self) -> None:
        """Answer all decided requests.

        Refusals, repeats and the last answers of connections are rendered one by one; refusals and
        last answers take turns. Of very many groups or requests some are left to the next pass.
        """
        if self._waits or not (self.finished or self.finished_many):
            return
        service = self.service
        finished, many = self._due()
        if many:
            many = self._end_many(many)
        written: list[tuple[Group, AppendResult]] = []
        for group, result in finished:
            if isinstance(result, TopicsError):
                self._refuse(group, result)
                continue
            if service.closing:
                service.answer_turns.answer(partial(self._close_with, group, result))
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
                self.service.answer_turns.answer_each(self._each(groups, appended))
                continue
            together.append((groups, appended))
            groups.end(appended.groups)
        return together

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
            self.send_one(ref, data)
        return not others

    def leave(self, conn: Any) -> None:
        """Return a connection of the table to the general path, because of an unusual event."""
        if self._table.leave(conn):
            conn.state.taken()

    def send_whole(self, refs: Sequence[int], sizes: Sequence[int], text: memoryview) -> None:
        """Queue answers that are rendered already, one after the other in `text`."""
        count = len(refs)
        if count > self._room:
            self._make_room(count)
        ffi.memmove(self._refs, array("Q", refs), 8 * count)
        ffi.memmove(self._lengths, array("I", sizes), 4 * count)
        number, memory = self._memory(len(text))
        ffi.memmove(memory, text, len(text))
        self.send(number, memory, count)

    def connection(self, ref: int) -> Any:
        """Return the connection with this name, or None when it is gone."""
        return self._table.connection(ref)

    def send_one(self, ref: int, data: bytes, *, last: bool = False) -> None:
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
        self.service.answer_turns.answer_each(self._refusals(group, error))

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
        self.send_one(ref, answers[0] if last else b"".join(answers), last=last)

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
            self.send_one(ref, service.writer.json(200, _repeated(group, result, flags, times), applied(flags)))

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
                self.send_one(
                    ref, service.writer.render(200, body, headers=applied(flags), connection=b"close"), last=True
                )
            return
        times = self._times(total_ns, result.append_ns, result.sync_ns)
        seq = result.first_seq
        for ref, count, flags in group.requests():
            body = record_endpoints.write_json(group.topic, seq, count, not flags & WITHOUT_SEQS, times)
            self.send_one(ref, service.writer.render(200, body, headers=applied(flags), connection=b"close"), last=True)
            seq += count


def applied(flags: int) -> bytes:
    """Return the line of a strict answer, or nothing. flags: of its request."""
    return APPLIED if flags & STRICT else b""


def lone_body(topic: bytes, result: AppendResult, flags: int, total_ns: int, window_ns: int) -> bytes:
    """Return the body of the answer to a write whose commit has no other write.

    topic: its name as JSON. flags: of its request. window_ns: as in `write_times`.
    """
    if result.count == 1 and not flags & WITHOUT_SEQS:
        return one_lone_json(b"{", topic, result, total_ns, window_ns)
    times = write_times(total_ns, result.append_ns, result.sync_ns, window_ns)
    return record_endpoints.write_json(topic, result.first_seq, result.count, not flags & WITHOUT_SEQS, times)


def _repeated(group: Group, result: AppendResult, flags: int, times: bytes) -> bytes:
    """Return the body of the answer to a duplicate."""
    with_seqs = not flags & WITHOUT_SEQS
    return record_endpoints.write_json(
        group.topic, result.first_seq, result.count, with_seqs, times, head=result.head_seq, deduped=True
    )
