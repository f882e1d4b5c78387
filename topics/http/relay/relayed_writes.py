"""Plain writes of other cores' connections, taken as columns as the lane takes those of its own.

    rows of messages, by topic -> write_scan.c: bodies as rows -> one append of all topics
        -> committed: one call renders the answers, whose columns are those of the next message

A write is plain if its head says so (`RelayedPlan.flags`), if its topic needs only seqs, and if the
scan takes its body. All others take the general path, in their order with those of their topic.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, islice
from typing import Any, Protocol

from topics.engine.bodies.write_columns import GROUP, REQUEST
from topics.engine.values.results import AppendResult
from topics.engine.write.plain_appends import PlainAppended
from topics.engine.write.write_streak import WriteStreak
from topics.errors import RequestError, TopicsError, as_request_error
from topics.http.access.principal import Principal
from topics.http.lane._scan import ffi
from topics.http.lane.group_answers import Group, GroupAnswers, Groups, Taken
from topics.http.lane.lane_answers import applied, lone_body
from topics.http.lane.plain_writes import LaneTables, PlainWrites
from topics.http.plan.service import Service
from topics.http.relay.relay_message import ROWS_MAX, Part, RelayRow
from topics.http.relay.relayed_head import RelayedPlan
from topics.http.wire.error_answers import envelope, extra_headers, status_of
from topics.http.wire.response import JSON

RUN_BYTES = 1 << 20
"""Most bytes of bodies that are taken together."""
_KEPT_BYTES = 1 << 16
"""Memory for answers that is kept."""
_WORDS = REQUEST.size // 4

_new_room = ffi.new_allocator(should_clear_after_alloc=False)

Waiting = tuple[int, RelayedPlan, Part]
"""A request that was not begun: its number, its plan, its body."""


class AnswerRows(Protocol):
    """The core that asks, as the answers of its writes see it."""

    def answer(self, row: RelayRow) -> None:
        """Add an answer to the next message."""

    def answer_whole(self, numbers: bytes, sizes: bytes, text: bytes) -> None:
        """Add answers of HTTP/1.1. numbers, sizes: packed, as in a message."""

    def answer_at_once(self, number: int, answer: bytes) -> None:
        """Send the answer of HTTP/1.1 to the only request that was not answered."""

    def note_decided(self) -> None:
        """Have the answers flushed at the end of the pass."""


class RelayedAnswers(GroupAnswers):
    """The answers to plain writes of one other core, as rows of its messages."""

    def __init__(self, service: Service, tables: LaneTables, asking: AnswerRows) -> None:
        super().__init__(service, tables.scanned, ROWS_MAX)
        self._asking = asking
        self._kept = _new_room("char[]", _KEPT_BYTES)

    def finish(self, group: Group, result: AppendResult | TopicsError) -> None:
        super().finish(group, result)
        self._asking.note_decided()

    def finish_many(self, groups: Groups, appended: PlainAppended) -> None:
        super().finish_many(groups, appended)
        self._asking.note_decided()

    def flush(self) -> None:
        """Answer decided requests. Refusals take turns.

        Of very many groups or requests some are left to the next pass.
        """
        if self._waits:
            return
        finished, finished_many = self._due()
        written: list[tuple[Group, AppendResult]] = []
        for group, result in finished:
            if isinstance(result, TopicsError):
                self.service.answer_turns.answer_each(self._refusals(group, result))
            else:
                self.service.in_flight.leave(None, group.taken)
                written.append((group, result))
        many: list[tuple[Groups, PlainAppended]] = []
        for groups, appended in finished_many:
            if appended.error is not None:
                self.service.answer_turns.answer_each(self._each(groups, appended, appended.error))
            else:
                groups.end(appended.groups)
                many.append((groups, appended))
        if written or many:
            self._answer(written, many)

    def _go_on(self) -> None:
        super()._go_on()
        self._asking.note_decided()

    def _memory(self, size: int) -> tuple[int, Any]:
        return 0, self._kept if size <= _KEPT_BYTES else _new_room("char[]", size)

    def send(self, number: int, memory: Any, sends: int) -> bool:
        sizes = bytes(ffi.buffer(self._lengths, 4 * sends))
        text = bytes(ffi.buffer(memory, sum(array("I", sizes))))
        self._asking.answer_whole(bytes(ffi.buffer(self._refs, 8 * sends)), sizes, text)
        return True

    def _refusals(self, group: Group, error: TopicsError) -> Iterator[Callable[[], None]]:
        refusal = as_request_error(error)
        for number, _records, _flags in group.requests():
            yield partial(self._refuse_one, refusal, number)

    def _each(self, groups: Groups, appended: PlainAppended, error: TopicsError) -> Iterator[Callable[[], None]]:
        for group, _result in groups.one_by_one(appended):
            yield from self._refusals(group, error)

    def _refuse_one(self, error: RequestError, number: int) -> None:
        service, status = self.service, status_of(error)
        service.in_flight.leave(None)
        service.refused_total += 1
        self.writes.count(status)
        self._asking.answer(RelayRow(number, status, JSON + b"\0" + extra_headers(error), envelope(error)))


class RelayedWrites:
    """Takes the plain writes among the requests of one other core."""

    def __init__(
        self, service: Service, tables: LaneTables, elsewhere: Callable[[str], int | None], asking: AnswerRows
    ) -> None:
        self._service = service
        self._scanned, self._columns = tables
        self._elsewhere = elsewhere
        self.answers = RelayedAnswers(service, tables, asking)
        self._asking = asking
        self._writes = PlainWrites(self.answers, tables)
        request = ffi.new("struct tp_request *")
        self._request: Any = ffi.buffer(request)
        self._scan_body = self._columns.single(request)
        self._lone: tuple[int, RelayedPlan, int, int] | None = None
        """The lone write that is to be answered: its number and plan, when it was begun to be
        handled, and how long commits are held back (ns).
        """
        self._on_committed = self._answer_lone
        self._framing = partial(self._columns.framing, request)
        self._streak: WriteStreak | None = None
        """Lone writes to one topic: see `Single`."""
        self.lone = 0
        """Writes that were committed and answered by themselves."""

    @property
    def taken(self) -> int:
        """Writes taken as columns."""
        return self._writes.taken

    def take_lone(self, row: Waiting) -> bool | None:
        """Commit and answer the only request of the pass, if it is plain: see `Single`.

        None: nothing was done. Otherwise whether the end of the pass has nothing to do for it.
        """
        service, (number, plan, body) = self._service, row
        if plan.flags is None or not body or service.gate is not None or service.closing:
            return None
        engine, name = service.engine, plan.name
        if engine.refuses_writes:
            return None
        started_ns, view = service.now_ns(), memoryview(body)
        data = ffi.from_buffer(view)
        REQUEST.pack_into(self._request, 0, 0, 0, 0, len(body), plan.flags, 0, 0, 0)
        streak = self._streak
        if streak is not None and not (streak.fsync and not service.has_one_sender()):
            self._lone = number, plan, started_ns, 0  # a streak ends when commits are held back
            if streak.write(name, data, len(body), self._on_committed) is not None:
                return self._end_lone(started_ns)
        topic = None if self._elsewhere(name) is not None else engine.plain_topic(name)
        if topic is None or (topic.stage_class == "fsync" and not service.has_one_sender()):
            return None
        rows = self._scan_body(data, view)
        if rows is None:
            return None
        self._lone = number, plan, started_ns, engine.throttle_window_ns
        try:
            result = engine.append_rows_lone(topic, rows, self._on_committed)
        except TopicsError:
            result = None  # the general path words the error
        if result is None:
            self._lone = None
            return None
        is_settled = self._end_lone(started_ns)
        if is_settled:
            if self._streak is None:
                self._streak = engine.write_streak(self._framing)
            self._streak.begin(topic)
        return is_settled

    def _end_lone(self, started_ns: int) -> bool:
        service = self._service
        self.lone += 1
        service.in_flight.answered_at_once(1)
        service.in_flight.of_others += 1
        self.answers.writes.add(200, service.now_ns() - started_ns)
        return service.engine.settle_lone()

    def _answer_lone(self, result: AppendResult) -> None:
        """Answer the write that is committed and not published yet."""
        service = self._service
        lone, self._lone = self._lone, None
        assert lone is not None, "nothing was asked"
        number, plan, started_ns, window_ns = lone
        flags = plan.flags or 0
        body = lone_body(plan.name_json, result, flags, service.now_ns() - started_ns, window_ns)
        self._asking.answer_at_once(number, service.writer.json(200, body, applied(flags)))

    def run(self, waiting: deque[Waiting]) -> list[Waiting]:
        """Remove the first requests, as many as are writes that may be plain, and return them."""
        service = self._service
        if service.gate is not None or service.closing or service.engine.refuses_writes:
            return []
        run: list[Waiting] = []
        plain: dict[RelayedPlan, bool] = {}
        last, left, longest = None, RUN_BYTES, service.step_bytes
        for row in islice(waiting, ROWS_MAX):
            _number, plan, body = row
            if plan is not last:
                if plan not in plain:
                    plain[plan] = self._may_be_plain(plan)
                if not plain[plan]:
                    break
                last = plan
            size = len(body)
            left -= size
            if not size or left < 0 or size > longest:
                break
            run.append(row)
        if len(run) == len(waiting):
            waiting.clear()
        else:
            for _ in run:
                waiting.popleft()
        return run

    def _may_be_plain(self, plan: RelayedPlan) -> bool:
        name = plan.name
        return plan.flags is not None and self._elsewhere(name) is None and self._service.engine.takes_plain(name)

    def take(self, run: list[Waiting]) -> list[Waiting]:
        """Begin the writes that `run` has returned; return those that are not plain after all."""
        started_ns = self._service.now_ns()
        by_topic: dict[str, list[Waiting]] = {}
        for row in run:
            by_topic.setdefault(row[1].name, []).append(row)
        if len(by_topic) > 1:
            run = [row for rows in by_topic.values() for row in rows]
        numbers, plans, bodies = zip(*run, strict=True)
        requests, buffer = self._laid_out(by_topic, plans, bodies)
        scanned, groups = self._scanned, len(by_topic)
        self._columns.scan(
            ffi.cast("unsigned char *", ffi.from_buffer("char[]", buffer)),
            scanned.requests,
            scanned.groups,
            groups,
            scanned.counts,
            scanned.upto,
        )
        counts = scanned.count_bytes[0 : 4 * len(run)]
        requests[0::_WORDS] = array("I", range(len(run)))
        columns = Taken(requests.tobytes(), counts, array("Q", numbers).tobytes(), started_ns)
        self._writes.append(_Topics(by_topic), buffer, groups, columns)
        left = sorted(row for row, records in zip(run, array("I", counts), strict=True) if not records)
        self._service.in_flight.of_others += len(run) - len(left)
        return left

    def _laid_out(
        self, by_topic: dict[str, list[Waiting]], plans: tuple[RelayedPlan, ...], bodies: tuple[Part, ...]
    ) -> tuple[array[int], bytearray]:
        """Put requests and groups into the scan's columns. Return the requests, and all bodies.

        All requests of a topic are of one receive: after a body that is not plain, none of them is
        taken, so that they keep their order.
        """
        scanned, ends = self._scanned, list(accumulate(map(len, bodies)))
        requests = array("I", bytes(REQUEST.size * len(plans)))
        topics = array("I")
        first = 0
        for number, rows in enumerate(by_topic.values()):
            GROUP.pack_into(scanned.group_bytes, number * GROUP.size, number, first, len(rows), 0, 0, 0, 0)
            topics.extend([number] * len(rows))
            first += len(rows)
        requests[0::_WORDS] = requests[1::_WORDS] = topics
        requests[2::_WORDS] = array("I", [0, *ends[:-1]])
        requests[3::_WORDS] = array("I", map(len, bodies))
        requests[4::_WORDS] = array("I", [plan.flags or 0 for plan in plans])
        requests[5::_WORDS] = array("I", ends)
        scanned.request_bytes[0 : REQUEST.size * len(plans)] = requests.tobytes()
        return requests, bytearray().join(bodies)


class _Topics:
    """The topics of one run, by number. Their requests are counted where the connections are."""

    are_counted = False

    def __init__(self, by_topic: dict[str, list[Waiting]]) -> None:
        self.names = list(by_topic)
        self.names_json = [rows[0][1].name_json for rows in by_topic.values()]
        self.principals: list[Principal | None] = [None] * len(by_topic)
