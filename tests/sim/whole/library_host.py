"""The library instead of the server: clients and oracle are the same, and requests are calls
instead of HTTP.

There is one thread, the simulation's: a call runs to its end before the next one, and work that is
due between them (syncs, checkpoints) runs when its time has come. A crash ends the process in the
middle of a call. Between the steps of a read (its rows are chosen, then its bytes are read) that
thread does the work of other threads: calls of other clients, a checkpoint, and this client's next
call for the same topic. Appends that do not wait are made in a row, so that some join one request.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from tests.sim import SimRing
from tests.sim.genome import Seed, stream
from tests.sim.whole.clients.http_client import Answered
from tests.sim.whole.clients.operation import Flush, GetOne, Inconsistent, Maybe, Operation, Read, Write
from tests.sim.whole.clients.owned import Owner, OwningClient
from tests.sim.whole.clients.owned_topic import OwnedTopic
from tests.sim.whole.clients.payloads import text_of, value_of
from tests.sim.whole.clients.reader_clients import ReadingCaller
from tests.sim.whole.clients.state import CONFIG_DEFAULT, Record
from tests.sim.whole.machine import Actor, Machine
from topics.clock import ManualClock
from topics.common.values.delivered import GapError
from topics.common.values.written import NewRecord, Producer
from topics.embedded.appends.pending import Pending
from topics.embedded.log import Log
from topics.embedded.log_reader import LogReader
from topics.embedded.open_logs import open_logs
from topics.embedded.read_only_log import ReadOnlyLog
from topics.engine.values.incarnation import ends_with_process
from topics.engine.values.results import AppendResult
from topics.errors import CorruptError, StorageError, TopicsError, as_request_error
from topics.http.wire.error_answers import status_of

_READING = 0.4
"""Share of the seeds in which a client uses named readers."""
_STEPS_MAX = 200_000
_LOOK_EVERY_STEPS = 8
_FLUSHES = 0.1
"""Share of the requests that are flushes."""
_MEANWHILE = 0.3
"""Share of the pauses of reads in which other calls run."""
_SHORT_NS = 300_000
"""The longest time without another call meanwhile: a call has to be answered in time."""
_FLUSHED = 3
"""The choice to flush the topic, among those of a number of passes."""
_BEHIND = 0.5
"""Share of the reads after which a client at once changes the same topic."""
_ROW_MAX = 6
_IN_A_ROW = 0.4
"""Share of the appends without waiting that come in a row."""
_STREAKS = 0.4
"""Share of the callers that make appends which wait in a row, too, one record each to one topic.

Such appends are quick (topics/engine/write/write_streak.py) if no other work comes between them.
"""
_IN_A_STREAK = 0.3
"""Share of the appends of these callers that begin a row."""
_HOWS = (None, None, "nowait", "nowait", 0.0, 0.002, 1.0)
Asked = tuple[str, str, dict[str, Any]]


class Calls:
    """The counterpart of a connection (`Wire`): requests in, answers out, each by one call of the
    library.
    """

    def __init__(self, machine: LibraryMachine, on_lost: Callable[[], None]) -> None:
        self._machine = machine
        self._on_lost = on_lost
        self.waiting: deque[tuple[Asked, Answered]] = deque()
        self._early: deque[tuple[int, Any, bool]] = deque()
        """Answers to calls after the first, which is reading: they were made meanwhile; and whether
        the disk was sound when they were made.
        """
        self.over = False
        self.readers: dict[str, LogReader] = {}

    @property
    def outstanding(self) -> int:
        return len(self.waiting)

    def ask(self, method: str, path: str, body: dict[str, Any] | None, answered: Answered) -> None:
        self.waiting.append(((method, path, body or {}), answered))
        self._machine.callers.append(self)

    def reset(self) -> None:
        """Drop the calls that were not made yet."""
        if not self.over:
            waiting = list(self.waiting)
            self.forget()
            for _asked, answered in waiting:
                answered(0, None)
            self._on_lost()

    def forget(self) -> None:
        self.over = True
        self.waiting.clear()
        self._early.clear()

    def call(self) -> None:
        if not self.waiting:
            return
        machine = self._machine
        if not self._early:
            was_sound = machine.disk_is_sound
            answers = self._answers()
            if self.over:
                return  # the client has reset its connection meanwhile
            self._early.extendleft((*answer, was_sound) for answer in reversed(answers))
        _asked, answered = self.waiting.popleft()
        status, answer, machine.was_sound = self._early.popleft()
        answered(status, answer)
        machine.was_sound = True

    def call_meanwhile(self) -> bool:
        """Make the call after the one that reads.

        Return whether there is one; its answer comes in its turn.
        """
        at = 1 + len(self._early)
        if at >= len(self.waiting):
            return False
        self._machine.counts["changes of a topic that is being read"] += 1
        was_sound = self._machine.disk_is_sound
        self._early.append((*self._answer(self.waiting[at][0]), was_sound))
        return True

    def _answers(self) -> list[tuple[int, Any]]:
        """Make the first call; or, of appends that do not wait, all that come in a row.

        Return the answers.
        """
        row = list(takewhile(_waits_not, [asked for asked, _answered in self.waiting]))
        if len(row) < 2:
            return [self._answer(self.waiting[0][0])]
        log = self._machine.log
        assert log is not None
        pendings = [_outcome(partial(_nowait, log, asked[1], asked[2])) for asked in row]
        self._machine.counts["appends in a row"] += len(row)
        self._machine.counts["appends that joined another"] += log._admission._joined
        for _ in range(row[0][2]["passes"]):
            log._driver.drive_due()
        return [each if isinstance(each, tuple) else _outcome(partial(_wrote, each)) for each in pendings]

    def _answer(self, asked: Asked) -> tuple[int, Any]:
        log = self._machine.log
        assert log is not None
        answer: tuple[int, Any] = _outcome(
            partial(self._call_reader if "/readers/" in asked[1] else _call, log, *asked)
        )
        if "how" in asked[2] and log._quick.bytes:
            self._machine.counts["quick appends"] += 1
        return answer

    def _call_reader(self, log: Log, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Call a named reader, through an object for each reader.

        Its tokens mean nothing: it has one page at a time.
        """
        topic, _readers, name, *action = path.strip("/").split("/")[2:]
        if method == "PUT":
            made = log.reader(topic, name, **{"from_" if key == "from" else key: body[key] for key in body})
            position = made.position
            made.abandon()
            return 200, {"position": position}
        if method == "DELETE":
            return 200, {"deleted": log.delete_reader(topic, name)}
        if method == "GET":
            (state,) = [each for each in log.readers(topic) if each.name == name]
            return 200, {"committed": state.committed, "position": state.position}
        reader = self.readers.get(f"{topic}/{name}")
        if reader is None:
            reader = log.reader(topic, name, commit_every=body.get("commit_every", 1))
            self.readers[f"{topic}/{name}"] = reader
        if action == ["commit"]:
            return 200, {"committed": reader.commit(body["seq"])}
        if action == ["seek"]:
            return 200, {"committed": reader.seek(body["seq"])}
        try:
            records = reader.read(limit=body["limit"])
        except GapError as error:
            return 200, {"records": [], "tombstone": error.tombstone._asdict()}
        rows = [{"$seq": row.seq, "data": text_of(row.data)} for row in records]
        answer: dict[str, Any] = {"records": rows, "tombstone": None, "next_from_seq": rows[-1]["$seq"] if rows else 0}
        if rows and reader.delivery != "at-most-once":
            answer |= {"token": "page", "deadline": 1 << 62}
        return 200, answer


def _shown(log: Log) -> dict[str, Any]:
    """Return the state of each topic in a log, without what ends with time."""
    shown = {}
    for state in log.topics():
        if state.config.ttl_ms == 0 and state.config.durability != "ephemeral":
            columns = log.columns(state.name)
            told = (
                columns.seq.tolist(),
                columns.ts.tolist(),
                columns.payloads,
                columns.kind.tolist(),
                columns.tombstone,
            )
            readers = [reader._replace(lag_ms=0) for reader in log.readers(state.name)]
            known_as = None if ends_with_process(state.config) else state.incarnation
            numbers = (state.head_seq, state.earliest_seq, state.count, state.bytes, known_as, state.config)
            shown[state.name] = (numbers, state.synced_seq, told, readers)
    return shown


def _call(log: Log, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    parts = path.partition("?")[0].strip("/").split("/")[2:]
    name = parts[0] if parts else ""
    match method, parts[1:]:
        case "PUT", []:
            made = log.put_topic(name, **body)
            return 201 if made.created else 200, {"created": made.created}
        case "PATCH", []:
            log.patch_topic(name, **body)
            return 200, {}
        case "DELETE", []:
            return 200, {"deleted": log.delete_topic(name).deleted}
        case "GET", []:
            state = log.state(name, touch=False)
            shown: tuple[str, ...] = ("head_seq", "earliest_seq", "count", "bytes", "synced_seq")
            if "incarnation=true" in path:
                shown = (*shown, "incarnation")
            found = {field: getattr(state, field) for field in shown}
            return 200, {**found, "config": {field: getattr(state.config, field) for field in CONFIG_DEFAULT}}
        case "POST", []:
            return _write(log, name, body)
        case "POST", ["delete"]:
            return 200, log.delete(name, before_seq=body["before_seq"], match=body["match"])._asdict()
        case "POST", ["flush"]:
            return 200, {"synced_seq": log.flush(name, body["seq"])}
        case "POST", ["diff"]:
            limit, most = body["limit"], body.get("max_batch_bytes", 0)
            which = {key: body[key] for key in ("match", "node", "only_node") if key in body}
            page = log.page(name, body.get("from_seq"), limit=limit, max_bytes=most, from_=body.get("from"), **which)
            records = [
                {
                    "$seq": row.seq,
                    "$ts": row.ts,
                    "data": text_of(row.data),
                    "$tag": row.tag,
                    "$node": row.node,
                    "meta": row.meta,
                }
                for row in page.records
            ]
            tombstone = None if page.tombstone is None else page.tombstone._asdict()
            read: dict[str, Any] = {"records": records, "tombstone": tombstone, "next_from_seq": page.next_from_seq}
            read |= {"head_seq": page.head_seq, "earliest_seq": page.earliest_seq, "caught_up": page.caught_up}
            return 200, {**read, "lag": page.head_seq - page.next_from_seq}
        case "GET", ["records", seq]:
            return 200, _one(log, name, int(seq))
    raise AssertionError(f"{method} {path} is no call")


def _outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the answer that stands for its error."""
    try:
        return call()
    except TopicsError as error:
        told = as_request_error(error)
        return status_of(told), {"error": {"code": told.code, "message": told.message, "detail": told.detail or {}}}


def _waits_not(asked: Asked) -> bool:
    return asked[2].get("how") == "nowait"


def _one(log: Log, name: str, seq: int) -> dict[str, Any]:
    try:
        row = log.get(name, seq)
    except GapError as error:
        return {"record": None, "tombstone": error.tombstone._asdict(), "located": False}
    record = None if row is None else [row.seq, text_of(row.data), row.tag, row.node, row.meta]
    return {"record": record, "tombstone": None, "located": log.locate(name, seq) is not None}


def _write(log: Log, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    how = body.get("how")
    if how == "nowait":
        pending = _nowait(log, name, body)
        synced = _flushed(log, name) if body["passes"] == _FLUSHED else None
        if synced is None:
            for _ in range(body["passes"]):
                log._driver.drive_due()
        return _wrote(pending, synced)
    rows, options = _rows(body), _options(body)
    if all(row.keys() == {"data"} and not isinstance(row["data"], bytes) for row in rows):
        texts = [msgspec.json.encode(row["data"]) for row in rows]
        wrote = log.append_many(name, texts, **options, timeout=how)
    else:
        wrote = log.append(name, [NewRecord(**row) for row in rows], **options, timeout=how)
    return 201 if wrote.created else 200, wrote._asdict()


def _nowait(log: Log, path: str, body: dict[str, Any]) -> Pending[AppendResult]:
    return log.append_nowait(path.rpartition("/")[2], [NewRecord(**row) for row in _rows(body)], **_options(body))


def _wrote(pending: Pending[AppendResult], synced: int | None = None) -> tuple[int, dict[str, Any]]:
    wrote = pending.result()
    return 201 if wrote.created else 200, {**wrote._asdict(), "flushed": synced}


def _rows(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [row | {"data": value_of(row["data"])} for row in body["records"]]


def _options(body: dict[str, Any]) -> dict[str, Any]:
    named = body.get("producer")
    producer = None if named is None else Producer(**named)
    return {"key": body.get("idempotency_key"), "incarnation": body.get("incarnation"), "producer": producer}


def _flushed(log: Log, name: str) -> int | None:
    """Flush a topic to which an append was made that may not be in the log yet; None: the flush failed."""
    try:
        return log.flush(name)
    except TopicsError as error:  # the append's own result shows its outcome
        return 0 if as_request_error(error).code == "topic_not_found" else None


def _ignore(_outcome: object) -> None:
    pass


class LibraryMachine(Machine):
    """Lives of a process that has a log open."""

    has_calls = True
    log: Log | None = None
    callers: deque[Calls]
    _calling: Calls | None = None
    was_sound = True
    """Whether the disk was sound when the call was made whose answer a client gets now.

    An answer may come long after its call: after that to a read, or to other appends of a row.
    """
    _pauses = False
    """Whether a call reads, and others run meanwhile."""
    _chance: random.Random

    @property
    def disk_is_sound(self) -> bool:
        return self.was_sound and super().disk_is_sound

    def _open(self) -> bool:
        self.callers, self.was_sound = deque(), True
        self.log, self._calling, self._pauses = None, None, False
        only_read = self._look_only()
        try:
            self.log = Log(self.config, self.ring, self.ring.clock)
        except (StorageError, OSError) as error:
            return self._refused(str(error))
        if isinstance(only_read, CorruptError):
            raise self.wrong(f"a directory that opens cannot be read: {only_read}")
        if only_read is not None and (shown := self._shown(self.log)) is not None:
            self._compare(only_read, shown)
        self._chance = stream(self.plan.seed, f"{self.ring.life}:meanwhile")
        self.log._driver.rests.pause = self._meanwhile  # type: ignore[method-assign, assignment]
        return True

    def _look_only(self) -> dict[str, Any] | CorruptError | None:
        """Return the state in a log that is opened read-only, on a copy of the disk; None: there is
        no log yet.

        Nothing on that disk may change.
        """
        disk, now_ns = self.ring.disk.copy(), self.ring.clock.monotonic_ns()
        clock = ManualClock(self.ring.clock.now_ms() - now_ns // 1_000_000, now_ns)
        try:
            before = disk.contents(self.config.data_dir)
            log = ReadOnlyLog(self.config, SimRing(self.ring.seed, disk=disk, clock=clock), clock)
        except (FileNotFoundError, StorageError) as error:
            return error if isinstance(error, CorruptError) else None
        shown = self._shown(log)
        log.close()
        if disk.contents(self.config.data_dir) != before:
            raise self.wrong("a log that was opened to be read has changed its directory")
        return shown

    def _shown(self, log: Log) -> dict[str, Any] | None:
        """Return the state in a log; None if it cannot be read, and the disk is known to have failed,
        or a file not to be opened for want of descriptors.
        """
        try:
            return _shown(log)
        except StorageError:
            if self.disk_failed or self.descriptors_are_few or self.is_interrupted:
                return None
            raise

    def _compare(self, only_read: dict[str, Any], found: dict[str, Any]) -> None:
        for name in only_read.keys() | found.keys():
            if only_read.get(name) != found.get(name):
                raise self.wrong(f"read only, {name} was {only_read.get(name)}, and then it is {found.get(name)}")
        self.counts["logs that were read only first"] += 1

    def _meanwhile(self) -> None:
        """Run calls of other threads while a call reads the records that it has chosen."""
        log, rng = self.log, self._chance
        if self._pauses or rng.random() >= _MEANWHILE:
            return
        assert log is not None
        self._pauses, began_ns = True, self.ring.clock.monotonic_ns()
        try:
            self.counts["pauses of reads"] += 1
            if rng.random() < 0.3:
                log._driver.submit(log._starts.checkpointing(None), _ignore)
            for _ in range(rng.choice((1, 10, 100))):
                if self.callers and self.callers[0] is not self._calling:
                    self.callers.popleft().call()
                elif self._calling is None or not self._calling.call_meanwhile():
                    self._rest(_SHORT_NS)
        finally:
            self._pauses = False
            self.meanwhile_ns += self.ring.clock.monotonic_ns() - began_ns

    def _rest(self, most_ns: int = 1 << 62) -> None:
        """Do the work that is due, and let time pass until other work is."""
        log, events = self.log, self.ring.events
        assert log is not None
        waiting = len(self.callers)
        try:
            until_work_ns = log._driver.drive_due()
        except TopicsError as error:
            raise self.wrong(f"what runs between calls failed: {error}") from error
        if len(self.callers) > waiting:
            return  # time has passed meanwhile, and a client calls: no thread sleeps first
        now_ns = self.ring.clock.monotonic_ns()
        due_ns = [now_ns + max(until_work_ns, 1000)] if until_work_ns is not None else []
        due_ns += [due for due in [events.next_due_ns()] if due is not None]
        events.advance_to(min(min(due_ns, default=now_ns + 1_000_000), now_ns + most_ns))

    def connect(self, on_lost: Callable[[], None], *, may_stall: bool = False) -> Any:
        return Calls(self, on_lost)

    def run_until(self, done: Callable[[], bool]) -> None:
        """Run calls, and let time pass between them."""
        for number in range(1, _STEPS_MAX):
            if done():
                self._check_complaints()
                return
            if not number % _LOOK_EVERY_STEPS:
                self.look()
            if self.callers:
                self._calling = self.callers.popleft()
                self._calling.call()
                self._calling = None
            else:
                self._rest()
        raise self.wrong("the library is busy without end")

    @property
    def opened(self) -> Any:
        return self.log._opened if self.log is not None and not self.log._closed else None

    def crash(self, *, power_cut: bool) -> None:
        super().crash(power_cut=power_cut)
        if self.log is not None:
            self.log._closed = True  # a dead process drops nothing
            open_logs.discard(self.log)  # nor does it end: this interpreter would wait for it at its own end

    def stop(self) -> None:
        assert self.log is not None
        try:
            self.log.close()
        except (TopicsError, OSError) as error:
            if self.lacks_nothing:
                raise self.wrong(f"closing the log failed: {error}") from error
        self.stopped = True
        self.stopped_well = self.lacks_nothing and not self.lied
        self._check_complaints()
        self.counts["logs closed"] += 1


class _Called(Write):
    """An append without waiting.

    how: by `append_nowait`, or by `append` with this timeout. passes: driven before the result is
    asked for.
    """

    how: float | str | None = None
    passes = 0

    def __str__(self) -> str:
        return f"{super().__str__()} {self.how or ''}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        method, path, body = super().request(path)
        return method, path, {**(body or {}), "how": self.how, "passes": self.passes}

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        synced = answer.get("flushed")
        if synced is not None and synced < answer["last_seq"]:
            raise Inconsistent(f"a flush after its append is one up to {synced} only")
        return super().answered(state, instance, burned, status, answer)


class _CallingClient(OwningClient):
    """A client of the library, which has no configuration in a write, and flushes."""

    row_max = _ROW_MAX

    def __init__(self, shared: Owner, number: int, depth: int) -> None:
        super().__init__(shared, number, depth)
        self._streaks = stream(self.machine.plan.seed, f"streaks {number}").random() < _STREAKS

    @property
    def _may_refuse(self) -> bool:
        """Return the same; a crash or a reset may also come before the answers of a row of appends,
        of which some were refused at once.
        """
        limbo = (operation for topic in self.shared.topics for operation in topic.limbo)
        unanswered = (*(operation for _topic, operation in self._in_flight), *limbo)
        return super()._may_refuse or any(isinstance(each, _Called) and each.how == "nowait" for each in unanswered)

    def _choose(self, topic: OwnedTopic) -> Operation:
        if self.rng.random() >= _FLUSHES or topic.tip is None:
            return super()._choose(topic)
        certain = len(topic.states) == 1 and topic.tip.head > 0
        self.machine.counts["flushes"] += 1
        return Flush(self.rng.randint(1, topic.tip.head) if certain and self.rng.random() < 0.5 else None)

    def write(self, topic: OwnedTopic) -> _Called:
        write = super().write(topic)
        called = _Called(
            write.records,
            write.key,
            None,
            key_is_old=write.key_is_old,
            meant=write.meant,
            part=write.part,
            durability=self.machine.config.durability,
        )
        called.how = self.rng.choice(_HOWS)
        called.passes = self.rng.choice((0, 1, 2, _FLUSHED, _FLUSHED, _FLUSHED))
        return called

    def behind(self, topic: OwnedTopic, operation: Operation) -> Iterator[tuple[OwnedTopic, Operation]]:
        """Yield a change of the topic that is read; after an append without waiting mostly another
        to the same topic.
        """
        rng = self.rng
        if isinstance(operation, Read | GetOne) and rng.random() < _BEHIND:
            change = super()._choose(topic)
            if change.changes:
                yield topic, change
        if isinstance(operation, _Called) and operation.how == "nowait" and rng.random() < _IN_A_ROW:
            for _ in range(rng.randint(1, self.row_max - 1)):
                other = topic if rng.random() < 0.7 else rng.choice(self.shared.topics)
                write = self.write(other)
                write.how = "nowait"
                if rng.random() < 0.8:
                    write.key, write.key_is_old, write.part, write.meant = None, False, None, None
                yield other, write
        elif (
            isinstance(operation, _Called)
            and self._streaks
            and len(self._in_flight) == 1
            and rng.random() < _IN_A_STREAK
        ):
            for _ in range(self.row_max):
                record = Record(self._text(rng.choice((0, 0, 30))), None)
                yield topic, _Called([record], None, None, durability=self.machine.config.durability)


class Caller(Owner):
    """A client with exclusive topics, which calls."""

    kind = _CallingClient


def make_callers(machine: Machine, seed: Seed) -> list[Actor]:
    """Return the clients of a seed of the library."""
    rng = stream(seed, "callers")
    reading_rng = stream(seed, "reading")
    reading: list[Actor] = [ReadingCaller(machine, reading_rng)] if reading_rng.random() < _READING else []
    return reading + [
        Caller(machine, number, stream(seed, f"caller {number}"), topics=rng.choice((1, 2, 4)), depth=1)
        for number in range(rng.choice((1, 2)))
    ]
