"""Lone appends that one call in C writes: what they leave is what appends by the loop leave, whatever comes between."""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.amount import seeds
from tests.embedded.conftest import SMALL, copy_open
from tests.sim import SimRing
from tests.sim.world.sim_disk import SimDisk
from topics.config import Config, tiny_config
from topics.embedded.log import Log
from topics.embedded.open_logs import open_logs
from topics.uring.probe import probe

BYTES = b"\x00\xff" * 20


@pytest.fixture(params=["uring", "portable"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[topics.Log]:
    """A log with the ring that writes in C, and one with the ring that writes in Python."""
    if request.param == "uring" and not probe().ok:
        pytest.skip(probe().reason)
    with topics.open(tmp_path / "data", io=request.param, **SMALL) as opened:
        opened.put_topic("t")
        opened.put_topic("u")
        yield opened


def data_of(log: topics.Log, topic: str = "t") -> list[Any]:
    found: list[Any] = []
    position = 0
    while True:
        try:
            for record in log.read(topic, position):
                found.append(record.data)
            return found
        except topics.GapError as error:
            position = error.resume_from


def quick(log: topics.Log) -> int:
    """Appends that are written, and not published."""
    streak: Any = log._driver.quick
    return int(streak._writes._state.batches) if streak.is_open else 0


def be_patient(log: topics.Log) -> None:
    """Forget that streaks were for nothing."""
    streak: Any = log._driver.quick
    streak._patience = 2


def go_quick(log: topics.Log, topic: str = "t", count: int = 1) -> None:
    """Append 0 until some appends to the topic are quick.

    A background sync on a slow disk, or other programs, may keep many appends from being quick.
    """
    for _ in range(20_000):
        be_patient(log)
        log.append(topic, [0])
        if quick(log) == count:
            return
    raise AssertionError("appends are not quick")


def append_quickly(log: topics.Log, value: Any, *, after: int = 1) -> int:
    """Append a value after so many quick appends, and as quick as they; return the head.

    Work that is due may end a streak at any time: then another one is begun.
    """
    for _ in range(100):
        go_quick(log, count=after)
        head = log.append("t", [value]).head_seq
        if quick(log) == after + 1:
            return head
    raise AssertionError(f"an append of {value!r} is not quick")


# --- the same as by the loop ------------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def _none_is_closed_later() -> Iterator[None]:
    """The process of each life is gone at the end of its test."""
    yield
    while lives:
        gone = lives.pop().log
        gone._closed = True
        open_logs.discard(gone)


lives: list[Life] = []


class Life:
    """A log on a simulated disk, and a program that uses it."""

    def __init__(self, seed: int, *, goes_quick: bool, config: Config | None = None) -> None:
        self.rng = random.Random(seed)
        self.ring = SimRing(seed)
        self.log = Log(config or tiny_config("data"), self.ring, self.ring.clock)
        lives.append(self)
        self.is_quick = self.last_seq = 0
        if not goes_quick:
            noted: Any = self.log._quick
            noted.note = lambda _request: None
        self.acked: dict[str, list[bytes]] = {"disk": [], "fsync": [], "memory": []}

    def run(self, steps: int) -> list[Any]:
        """Return what the calls of the program have answered."""
        classes: Any = ("disk", "fsync", "memory")
        for name in classes:
            self.log.put_topic(name, durability=name)
        return [self.step(at) for at in range(steps)]

    def step(self, at: int) -> Any:
        log, rng = self.log, self.rng
        topic = rng.choice(("disk", "disk", "fsync", "memory"))
        match rng.randrange(12):
            case 0:
                return log.append(topic, [topics.NewRecord(self.noted(topic, b"tagged %d" % at), tag="tag")])[:6]
            case 1:
                return log.append(topic, [self.noted(topic, b"keyed %d" % at)], key=str(at))[:6]
            case 2:
                try:
                    pending = log.append_nowait(topic, [b"pending %d" % at])
                except topics.WouldBlockError as error:
                    return error.reason
                self.acked[topic].append(b"pending %d" % at)
                return log.append(topic, [self.noted(topic, b"after it %d" % at)])[:6], pending.result()[:6]
            case 3:
                return log.flush(topic)
            case 4:
                self.rest(rng.randrange(2000))
            case 5:
                return log.state(topic)
            case 6 if rng.random() < 0.2:
                return log.checkpoint()
            case _:
                answers = []
                be_patient(log)
                for number in range(rng.choice((1, 3, 5, 40))):
                    size = rng.choice((0, 10, 100, 1000))
                    records = [b"%d %d %d " % (at, number, row) + b"x" * size for row in range(rng.choice((1, 1, 3)))]
                    answers.append(log.append(topic, records)[:6])
                    self.acked[topic] += records
                    self.is_quick += quick(log) > 0
                return answers

    def rest(self, for_ms: int) -> None:
        """Drive as an idle caller does."""
        for _ in range(20):
            self.ring.events.advance_to(self.ring.clock.monotonic_ns() + for_ms * 50_000)
            self.log._driver.drive_due()

    def noted(self, topic: str, data: bytes) -> bytes:
        self.acked[topic].append(data)
        return data


@pytest.mark.parametrize("seed", seeds(40))
def test_answers_records_and_files_are_those_of_appends_by_the_loop(seed: int) -> None:
    one, other = Life(seed, goes_quick=True), Life(seed, goes_quick=False)
    assert one.run(60) == other.run(60)
    assert one.is_quick > 20
    assert other.is_quick == 0
    for topic, acked in one.acked.items():
        assert data_of(one.log, topic) == data_of(other.log, topic) == acked
    assert one.log._starts.append_times.count == other.log._starts.append_times.count
    assert one.log._opened.log.counters.batches == other.log._opened.log.counters.batches
    assert one.log._opened.log.counters.fsyncs == other.log._opened.log.counters.fsyncs
    for life in (one, other):
        life.log.close()
    assert records_of_disk(one.ring.disk) == records_of_disk(other.ring.disk)


def records_of_disk(disk: SimDisk) -> dict[str, Any]:
    """Return all records that a log on this disk has, with their times."""
    ring = SimRing(1, disk=disk)
    log = Log(tiny_config("data"), ring, ring.clock)
    found = {state.name: [(each.seq, each.data, each.tag) for each in log.read(state.name)] for state in log.topics()}
    log.close()
    return found


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", seeds(40))
def test_after_a_crash_all_is_there_that_its_class_promises(seed: int, power_cut: bool) -> None:
    """R-DUR-1. A kill leaves all of them, a power cut a prefix, and all of class `fsync`."""
    life = Life(seed, goes_quick=True)
    life.run(40)
    for topic in ("disk", "fsync"):
        life.rest(1000)
        go_quick(life.log, topic)
        last = [b"last %d" % number for number in range(10)]
        for data in last:
            life.log.append(topic, [data])
        life.acked[topic] += last
    life.last_seq = life.log.append("disk", [b"the last"]).last_seq
    life.acked["disk"].append(b"the last")
    go_quick(life.log, "fsync")
    assert quick(life.log) > 0
    ring = life.ring.next_life(power_cut=power_cut)
    log = Log(tiny_config("data"), ring, ring.clock)
    assert [data for data in data_of(log, "fsync") if data != 0] == life.acked["fsync"]
    disk = [data for data in data_of(log, "disk") if data != 0]
    assert disk == life.acked["disk"][: len(disk)]
    assert power_cut or len(disk) == len(life.acked["disk"])
    assert log.append("disk", [b"next"]).first_seq > life.last_seq, "R-DUR-6: no acknowledged seq comes again"
    log.close()


# --- what comes between -----------------------------------------------------------------------------------------------
CALLS: dict[str, Callable[[topics.Log], Any]] = {
    "page": lambda log: log.page("t", 0, limit=1000).head_seq,
    "state": lambda log: log.state("t").head_seq,
    "columns": lambda log: log.columns("t").seq[-1],
    "flush": lambda log: log.flush("t"),
    "a tag": lambda log: log.append("t", [topics.NewRecord(1, tag="a")]).last_seq - 1,
    "a key": lambda log: log.append("t", [1], key="k").last_seq - 1,
    "a node": lambda log: log.append("t", [1], node="n").last_seq - 1,
    "append_many": lambda log: log.append_many("t", [b"%d" % n for n in range(2000)]).last_seq - 2000,
    "nowait": lambda log: log.append_nowait("t", [1]).result().last_seq - 1,
    "with a time limit": lambda log: log.append("t", [1], timeout=1).last_seq - 1,
    "another topic": lambda log: log.append("u", [1]).last_seq - 1 + log.state("t").head_seq,
    "wait": lambda log: log.wait({"t": None})["t"].head_seq,  # type: ignore[union-attr]
}


@pytest.mark.parametrize("what", CALLS)
def test_every_other_call_finds_what_was_appended(log: topics.Log, what: str) -> None:
    head = append_quickly(log, 0, after=3)
    assert CALLS[what](log) == head
    assert quick(log) == 0
    rows = log.columns("t").seq.tolist()
    assert rows == list(range(1, len(rows) + 1))


def test_records_of_bytes_and_of_json_are_both_quick(log: topics.Log) -> None:
    log.append("t", [BYTES])  # raises the format of the directory
    for value in (BYTES, {"a": [1]}, bytearray(BYTES), memoryview(BYTES)):
        append_quickly(log, value)
        assert data_of(log)[-1] == (value if isinstance(value, dict) else BYTES)


def test_the_first_record_of_bytes_raises_the_format_first(log: topics.Log) -> None:
    go_quick(log)
    log.append("t", [BYTES])
    assert log._opened.store.format.number == 2
    assert data_of(log)[-1] == BYTES


def test_a_reader_that_waits_is_woken(log: topics.Log) -> None:
    go_quick(log)
    seen: list[Any] = []
    head = log.append("t", [0]).head_seq
    reader = threading.Thread(target=lambda: seen.append(log.page("t", head, wait_ms=60_000).records[0].data))
    topic: Any = log._engine._core.registry.by_name["t"]
    reader.start()
    while not topic.waiters:
        log.state("t")
    for _ in range(3):
        log.append("t", ["for it"])
    reader.join(20)
    assert seen == ["for it"]


def test_appends_that_were_not_waited_for_come_first(log: topics.Log) -> None:
    go_quick(log)
    pending = log.append_nowait("t", ["earlier"])
    later = log.append("t", ["later"])
    assert pending.result().last_seq + 1 == later.last_seq


def test_a_topic_with_caps_evicts_at_each_append(log: topics.Log) -> None:
    log.put_topic("t", cap_records=3)
    for number in range(20):
        log.append("t", [number])
        assert quick(log) == 0
    assert data_of(log) == [17, 18, 19]


def test_records_of_class_ephemeral_are_not_written(log: topics.Log) -> None:
    log.put_topic("e", durability="ephemeral")
    go_quick(log)
    for number in range(40):
        be_patient(log)
        log.append("e", [number])
        assert not log._driver.quick.is_open
    assert data_of(log, "e") == list(range(40))


def test_more_than_there_is_room_for_is_published_in_between() -> None:
    config = replace(tiny_config("data"), hot_tail_bytes=16 << 20, wal_file_bytes=4 << 20)
    life = Life(1, goes_quick=True, config=config)
    life.log.put_topic("t", durability="memory")  # it has no seqs to reserve
    go_quick(life.log)
    found = []
    for number in range(3000):
        life.log.append("t", [number])
        found.append(quick(life.log))
    assert max(found) == 1024
    assert found.count(0) < 100
    assert data_of(life.log)[-3000:] == list(range(3000))


def test_due_work_is_not_delayed() -> None:
    """The sync of class `disk` begins by appends, which come until it is due."""
    life = Life(1, goes_quick=True)
    life.log.put_topic("t")
    life.rest(3000)
    shard = life.log._opened.log.shards[0]
    go_quick(life.log)
    assert shard.state.sync_planned
    due_ns = life.log._loop.ns_until_work()
    assert due_ns is not None
    life.ring.events.advance_to(life.ring.clock.monotonic_ns() + due_ns)
    life.log.append("t", [1])
    assert quick(life.log) == 0


def test_the_bound_of_unsynced_bytes_counts_what_is_not_published(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SMALL, "wal_file_bytes": 8 << 20}
    with topics.open(tmp_path / "data", max_unsynced_bytes=1 << 20, sync_every_ms=60_000, **settings) as log:
        log.put_topic("t")
        go_quick(log)
        shard = log._opened.log.shards[0]
        promised = 0
        # Work that is due may end a streak at any time, also the last one.
        while promised <= 4000 or shard.state.unsynced_bytes + promised < 400_000:
            log.append("t", ["x" * 4000])
            if not quick(log):
                go_quick(log)
            promised = log._driver.quick.bytes
            assert shard.state.unsynced_bytes + promised < 900_000, "no streak lasts"
        left = (1 << 20) - shard.state.unsynced_bytes - promised
        refusal = log._admission._refusal_now
        assert getattr(refusal("t", left + 1), "reason", "") == "admission"
        assert getattr(refusal("t", left), "reason", "") != "admission"


# --- failures ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("res", [100, -errno.EINTR, -errno.ENOSPC])
def test_a_write_that_is_not_whole_leaves_what_was_written_before(res: int) -> None:
    life = Life(1, goes_quick=True)
    life.log.put_topic("t")
    go_quick(life.log, count=3)
    ring: Any = life.ring
    writes, write_now = [0], ring.write_now

    def failing(fd: int, buffer: Any, offset: int, *, dsync: bool) -> int:
        writes[0] += 1
        return res if writes[0] < 3 else write_now(fd, buffer, offset, dsync=dsync)

    before = life.log.append("t", [0]).head_seq
    ring.write_now = failing
    try:
        found = life.log.append("t", ["again"]).first_seq
    except topics.DiskFullError:
        found = 0
    ring.write_now = write_now
    assert found in {0, before + 1}
    kept = [0] * before + (["again"] if found else [])
    assert data_of(life.log) == kept
    ring = life.ring.next_life(power_cut=False)
    log = Log(tiny_config("data"), ring, ring.clock)
    assert data_of(log) == kept
    log.close()


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_failed_write_ends_all_writes_although_the_next_one_would_succeed(durability: Any, before: int) -> None:
    """The kernel may have dropped bytes of earlier appends with it, and reports that only once."""
    life = Life(1, goes_quick=True)
    life.log.put_topic("t", durability=durability)
    if before:
        go_quick(life.log, count=before)
    else:
        be_patient(life.log)
        while not life.log._driver.quick.is_open:
            life.log.append("t", [0])
    ring: Any = life.ring
    write_now = ring.write_now

    def failing_once(*_args: Any, **_options: Any) -> int:
        ring.write_now = write_now
        return -errno.EIO

    ring.write_now = failing_once
    for _ in range(2):
        with pytest.raises(topics.StorageError):
            life.log.append("t", [1])
    assert set(data_of(life.log)) == {0}


def test_an_exception_within_the_write_ends_the_log_and_nothing_is_appended_after_it() -> None:
    life = Life(1, goes_quick=True)
    life.log.put_topic("t")
    go_quick(life.log, count=3)
    ring: Any = life.ring

    def interrupted(*_args: Any, **_options: Any) -> int:
        raise KeyboardInterrupt

    ring.write_now = interrupted
    with pytest.raises(KeyboardInterrupt):
        life.log.append("t", [1])
    with pytest.raises(topics.LogFailedError):
        life.log.append("t", [1])


def test_a_publication_that_fails_ends_all_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(1, goes_quick=True)
    life.log.put_topic("t")
    go_quick(life.log, count=3)

    def fail(*_args: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("topics.engine.write.append.index_some", fail)
    with pytest.raises(topics.LogFailedError):
        life.log.state("t")
    assert life.log._opened.log.read_only
    monkeypatch.undo()
    with pytest.raises(topics.LogFailedError):
        life.log.append("t", [1])


# --- threads, handlers, processes -------------------------------------------------------------------------------------
def test_a_call_that_a_clock_makes_does_not_change_where_the_append_goes() -> None:
    """A signal's handler may do the same: it runs in the midst of a call, before the lock is held."""
    ring = SimRing(1)
    clock: Any = ring.clock
    log = Log(tiny_config("data"), ring, clock)
    log.put_topic("t")
    log.put_topic("u")
    go_quick(log)
    streak: Any = log._driver.quick
    now_ms, within = clock.now_ms, [False]

    def nested() -> int:
        if not within[0]:
            within[0] = True
            go_quick(log, "u")
        return int(now_ms())

    streak._writes._cells[4] = nested
    head = log.state("t").head_seq
    go_quick(log)
    appended = log.append("t", ["here"])
    streak._writes._cells[4] = now_ms
    assert within == [True]
    assert appended.first_seq > head
    assert data_of(log)[-1] == "here"
    assert "here" not in data_of(log, "u")
    log.close()


def test_threads_that_append_at_once_lose_nothing_and_keep_their_order(log: topics.Log) -> None:
    """Beside a reader, and one that looks at the state."""
    count, done = 600, threading.Event()
    seqs: dict[int, list[int]] = {}

    def write(name: int) -> None:
        seqs[name] = [log.append("t", [[name, number]]).first_seq for number in range(count)]

    def look() -> None:
        while not done.is_set():
            found = log.page("t", 0, limit=100).head_seq
            assert log.state("t").head_seq >= found

    writers = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    looker = threading.Thread(target=look)
    for thread in (*writers, looker):
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    looker.join(60)
    assert all(found == sorted(found) for found in seqs.values())
    assert sorted(seq for found in seqs.values() for seq in found) == list(range(1, 3 * count + 1))
    found = data_of(log)
    for name in seqs:
        assert [number for of, number in found if of == name] == list(range(count))


def test_a_copy_of_the_files_has_what_is_not_published(log: topics.Log, tmp_path: Path) -> None:
    """A killed process leaves such files."""
    head = append_quickly(log, "last", after=3)
    with topics.open(copy_open(tmp_path / "data", tmp_path / "copy"), **SMALL) as copy:
        assert copy.state("t").head_seq == head
        assert data_of(copy)[-1] == "last"


def test_a_forked_child_appends_nothing(log: topics.Log) -> None:
    go_quick(log)
    streak: Any = log._driver.quick
    streak._writes._state.until_ns = 1 << 62  # a fork may take longer than the time to the next work
    child = os.fork()
    if not child:
        try:
            log.append("t", ["of the child"])
        except topics.UsageError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    log.append("t", ["of the parent"])
    assert data_of(log)[-1] == "of the parent"
    assert "of the child" not in data_of(log)


def test_after_the_close_appends_are_refused(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.put_topic("t")
        go_quick(log, count=3)
        head = log.append("t", ["last"]).head_seq
    with pytest.raises(topics.UsageError, match="closed"):
        log.append("t", [1])
    with topics.open(tmp_path / "data", **SMALL) as log:
        assert log.state("t").head_seq == head
        assert data_of(log)[-1] == "last"


def test_a_log_that_is_not_closed_is_freed_nevertheless() -> None:
    """The callable of C refers to the log, which refers to it: the collector follows both."""
    life = Life(1, goes_quick=True)
    life.log.put_topic("t")
    go_quick(life.log)
    driver = weakref.ref(life.log._driver)
    lives.remove(life)
    life.log._closed = True
    open_logs.discard(life.log)
    del life
    gc.collect()
    assert driver() is None
