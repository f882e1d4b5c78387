"""`flush`: stable storage on request, whatever the class; on a simulated disk, which says what a power cut leaves."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.calls.test_no_maintenance import drive, is_durable
from tests.sim import SimRing
from tests.sim.world.faults import Faults
from topics.config import tiny_config
from topics.embedded.appends.offers import Offer
from topics.embedded.driving.calls import Start
from topics.embedded.log import Log
from topics.engine.shared.held_appends import HeldAppends
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.loop.ring import Buffer

_HOUR_MS = 3_600_000


def sim_log(*, faults: Faults | None = None, **changes: object) -> tuple[Log, SimRing]:
    """A log whose syncs by time do not come in a test."""
    ring = SimRing(1, faults=faults) if faults is not None else SimRing(1)
    ring.disk.make_directory("/srv")
    settings = {"sync_every_ms": _HOUR_MS, "checkpoint_every_ms": _HOUR_MS, **changes}
    config = replace(tiny_config("/srv/topics"), **settings)  # type: ignore[arg-type]
    return Log(config, ring, ring.clock), ring


def _request(log: Log, text: str) -> AppendRequest:
    return log._starts.request_of_texts("a", [f'"{text}"'.encode()], key=None)


def test_a_flush_returns_once_all_before_it_is_on_stable_storage() -> None:
    log, ring = sim_log()
    log.append("a", ["creates the topic, which is synced"])
    log.append("a", ["the record"])
    assert not is_durable(ring, b"the record")
    assert log.state("a").synced_seq == 1
    assert log.flush("a", 2) == 2
    assert is_durable(ring, b"the record")
    assert log.state("a").synced_seq == 2
    assert [state.synced_seq for state in log.topics()] == [2]
    log.close()


def test_a_flush_includes_files_that_the_log_has_left() -> None:
    log, ring = sim_log(checkpoint_wal_bytes=1 << 30, disk_reserve_bytes=0)
    log.append("a", ["creates the topic, which is synced"])
    rotations = log._opened.log.counters.rotations
    texts = [f"record {number} ".encode() for number in range(6)]
    for text in texts:
        log.append("a", [text.decode() + "x" * 100_000])
    assert log._opened.log.counters.rotations >= rotations + 2
    assert log.flush("a") == 7
    assert all(is_durable(ring, text) for text in texts)
    log.close()


def test_a_flush_of_a_record_that_is_on_stable_storage_syncs_nothing() -> None:
    log, _ring = sim_log()
    log.append("a", ["synced, because it creates the topic"])
    log.append("a", ["unsynced"])
    syncs = log._opened.log.counters.fsyncs
    assert log.flush("a", 1) == 1
    assert log._opened.log.counters.fsyncs == syncs
    log.close()


def test_a_flush_of_the_log_is_one_of_all_topics() -> None:
    log, ring = sim_log(wal_shards=2)
    names = [f"t{number}" for number in range(8)]
    for name in names:
        log.append(name, ["creates the topic"])
        log.append(name, [f"record of {name}"])
    assert log.flush() == 0
    assert [log.state(name).synced_seq for name in names] == [2] * 8
    log.close()
    assert ring.disk.find("/srv/topics") is not None


def test_a_flush_includes_what_append_soon_has_gathered() -> None:
    log, ring = sim_log()
    log.append("a", ["creates the topic"])
    soon = log.append_soon("a", "gathered")
    assert log.flush("a") == 2
    assert is_durable(ring, b"gathered")
    assert soon.result() == 2
    log.close()


def test_a_flush_includes_what_append_soon_sends_again_one_by_one(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.put_topic("a", cap_records=3, discard="reject")
        log.append("a", ["the first"])
        flushed: list[int] = []

        def gather_and_flush() -> None:
            for number in range(5):
                log.append_soon("a", number)
            flushed.append(log.flush("a"))

        while not log._driver._begin_driving():  # as a thread that drives
            pass
        thread = threading.Thread(target=gather_and_flush)
        thread.start()
        while len(log._driver._inbox) < 2:  # the batch, which is refused as a whole, and the flush
            pass
        log._driver._end_driving()
        thread.join()
        assert log.state("a").head_seq == 3
        assert flushed == [3]


def test_an_awaited_flush_includes_what_append_soon_has_gathered(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", sync_every_ms=None) as log:
        soon = log.append_soon("a", "gathered")
        assert asyncio.run(log.aio.flush("a")) == 1
        assert soon.result() == 1


@pytest.mark.parametrize("topic", ["a", None])
@pytest.mark.parametrize("how", ["nowait", "soon"])
def test_a_flush_includes_appends_that_wait_for_the_format_of_the_directory(how: str, topic: str | None) -> None:
    log, ring = sim_log()
    log.put_topic("a")
    if how == "nowait":
        pending: Any = log.append_nowait("a", [b"the first record of bytes"])
    else:
        pending = log.append_soon("a", b"the first record of bytes")
    assert log.flush(topic) == (0 if topic is None else 1)
    assert is_durable(ring, b"the first record of bytes")
    assert pending.done()
    log.close()


def test_a_flush_includes_an_append_that_creates_its_topic_once_the_directory_has_its_format() -> None:
    log, ring = sim_log()
    log.append_nowait("new", [b"the first record of bytes"])
    assert log.flush("new") == 1
    assert is_durable(ring, b"the first record of bytes")
    log.close()


def test_a_flush_includes_appends_that_wait_for_the_deletion_of_their_topic() -> None:
    log, ring = sim_log()
    log.append("a", ["before"])
    log._driver.submit(log._starts.deleting_topic("a", if_empty=False), lambda _result: None)
    log.append_nowait("a", ["of the next topic"])
    assert log.flush("a") == 1
    assert is_durable(ring, b"of the next topic")
    log.close()


def test_a_flush_includes_appends_that_wait_for_an_expiry_which_makes_room() -> None:
    log, ring = sim_log()
    log.put_topic("a", ttl_ms=1000, cap_records=1, discard="reject")
    log.append("a", ["expires"])
    drive(log, ring, 2000)
    log.append_nowait("a", ["in its place"])
    assert log.flush("a") == 2
    assert is_durable(ring, b"in its place")
    log.close()


def test_a_flush_of_the_log_includes_appends_that_wait_for_changes_of_their_topic() -> None:
    log, ring = sim_log()
    log.put_topic("a", durability="ephemeral", cap_records=2)
    log.append("a", ["in memory", "this, too"])
    log.put_topic("a", durability="disk", cap_records=2)
    log._driver.submit(log._starts.deleting("a", before_seq=2, match=None), lambda _result: None)
    log.append_nowait("a", ["after the delete"])
    log.flush()
    assert is_durable(ring, b"after the delete")
    log.close()


def test_a_flush_includes_appends_that_wait_for_room() -> None:
    log, ring = sim_log(max_unsynced_bytes=100_000, sync_every_ms=None)
    log.append("a", ["first"])
    sync = log._opened.log.shards[0]._sync
    sync.running = True  # as if the disk took its time
    for _ in range(3):
        log.append("a", ["x" * 30_000])
    offer = Offer(_request(log, "y" * 30_000), None)
    log._driver.submit(log._admission.offering(offer), lambda _result: None)
    log._driver.drive_due()
    assert list(log._admission.line) == [offer]
    with pytest.raises(TimeoutError, match="it continues"):
        log.flush("a", timeout=0)
    sync.running = False
    assert log.flush("a") == 5
    assert is_durable(ring, b"y" * 30_000)
    assert not log._admission.line
    log.close()


@pytest.mark.parametrize("lone", [True, False])
def test_a_sync_for_the_bound_of_unsynced_bytes_counts_for_the_append_that_began_it(lone: bool) -> None:
    log, _ring = sim_log(max_unsynced_bytes=20_000, sync_every_ms=None)
    log.append("other", [b"1"])
    log.append("a", [b"1"])
    log.flush()
    if lone:
        log.append("a", [b"x" * 11_000])  # above half of the bound
    else:
        log.append_nowait("a", [b"x" * 11_000]).result()
    while log.stats().unsynced_bytes:
        log._driver.drive_due()
    log.append("other", [b"2"])
    assert 0 < log.stats().unsynced_bytes < 1000
    assert [log.state(name).synced_seq for name in ("a", "other")] == [2, 1]
    log.close()


def test_a_flush_waits_for_no_append_that_began_after_it() -> None:
    held, happened = HeldAppends(), list[str]()
    first = held.hold(lambda _outcome: happened.append("first"))
    second = held.hold(lambda _outcome: happened.append("second"))
    held.when_answered(lambda: happened.append("flushed"))
    third = held.hold(lambda _outcome: happened.append("third"))
    held.when_answered(lambda: happened.append("flushed again"))
    for answer in (second, first, third):
        answer(topics.StorageError("refused"))
    assert happened == ["second", "first", "flushed", "third", "flushed again"]
    assert not held


def test_a_flush_includes_originals_of_copies_in_another_shard() -> None:
    log, ring = sim_log(wal_shards=2)
    shard_of = log._opened.log.shard_of
    names = [f"t{number}" for number in range(16)]
    for name in names:
        log.put_topic(name)
    topics_of = log._engine._core.registry.by_name
    source = next(name for name in names if shard_of(topics_of[name].id) == 0)
    dest = next(name for name in names if shard_of(topics_of[name].id) == 1)
    log.put_router("r", source, dest)
    log.flush()
    log.append(source, ["original 1"])
    log.append(source, ["original 2"])
    assert len(log.page(dest).records) == 2
    assert [is_durable(ring, text) for text in (b"original 1", b"original 2")] == [True, False]
    assert log.state(dest).synced_seq == 1, "the first of a topic is synced, because it reserves seqs"
    assert log.flush(dest) == 2
    assert is_durable(ring, b"original 2")
    assert log.state(dest).synced_seq == 2
    log.close()


def test_a_copy_of_a_synced_original_waits_for_no_other_record_of_its_shard() -> None:
    log, ring = sim_log(wal_shards=2)
    names = [f"t{number}" for number in range(16)]
    for name in names:
        log.put_topic(name)
    by_name = log._engine._core.registry.by_name
    source, beside = [name for name in names if log._opened.log.shard_of(by_name[name].id) == 0][:2]
    dest, beside_dest = [name for name in names if log._opened.log.shard_of(by_name[name].id) == 1][:2]
    log.put_topic(source, durability="fsync")
    log.put_topic(dest, cap_records=1, discard="reject")
    log.put_router("r", source, dest)
    log.append(source, ["fills the destination"])
    log.append(source, ["synced, and copied later"])
    log.flush()
    log.append(beside, ["synced, because it reserves seqs"])
    log.append(beside, ["not synced"])
    log.delete(dest, before_seq=2)
    assert [record.seq for record in log.page(dest).records] == [2]
    assert log.flush(beside_dest) == 0
    assert log.state(dest).synced_seq == 2
    assert log.state(beside).synced_seq == 1
    assert log.flush(dest) == 2
    assert not is_durable(ring, b"not synced")
    log.close()


def test_what_of_a_topic_is_synced_does_not_depend_on_other_topics() -> None:
    log, _ring = sim_log()
    log.append("a", [1])
    log.append("b", [1])
    log.append("a", [2])
    log.flush("a")
    log.append("b", [2])
    assert (log.state("a").synced_seq, log.state("b").synced_seq) == (2, 1)
    log.close()


def test_the_only_caller_of_a_flush_makes_its_sync_and_others_leave_it_to_the_ring() -> None:
    log, ring = sim_log()
    log.append("a", [1])
    (shard,) = log._opened.log.shards
    queued: list[int] = []
    queue_fsync = ring.queue_fsync

    def queue(user_data: int, fd: int, *, data_only: bool) -> None:
        if fd == shard._end.file.stored.fd:  # type: ignore[union-attr]
            queued.append(fd)
        queue_fsync(user_data, fd, data_only=data_only)

    ring.queue_fsync = queue  # type: ignore[method-assign]
    log.append("a", ["by itself"])
    assert log.flush("a") == 2
    assert is_durable(ring, b"by itself")
    assert not queued

    log.append("a", ["beside another"])
    log._driver.submit(log._starts.asking_state("a", touch=False), lambda _state: None)
    log._driver.has_no_waiters = lambda: False  # type: ignore[method-assign]  # as if its thread slept
    log._opened.log.allow_in_place(log._driver.has_no_waiters)
    assert log.flush("a") == 3
    assert is_durable(ring, b"beside another")
    assert len(queued) == 1
    log.close()


def test_a_flush_of_the_only_caller_is_one_sync_and_no_pass_of_the_loop() -> None:
    log, ring = sim_log()
    counters, passes = log._opened.log.counters, log._loop.stats

    def costs(*asked: object) -> tuple[int, int, int]:
        """(what the flush returns, syncs, passes)"""
        syncs, made = counters.fsyncs, passes().passes
        return log.flush(*asked), counters.fsyncs - syncs, passes().passes - made  # type: ignore[arg-type]

    log.append("a", [1])
    log.append("a", ["by itself"])
    assert costs("a") == (2, 1, 0)
    assert is_durable(ring, b"by itself")
    log.append("a", ["another"])
    assert costs("a", 2) == (2, 0, 0)  # it is synced, and the other is not
    assert costs() == (0, 1, 0)
    assert is_durable(ring, b"another")
    assert costs("a") == (3, 0, 0)
    log.close()


def test_a_flush_after_a_sync_that_failed_amid_its_call_does_not_return() -> None:
    log, ring = sim_log()
    log.append("a", ["creates the topic"])
    log.append("a", ["the record"])
    failing: list[int] = []
    ring.sync_now = lambda fd: failing.append(fd) or -errno.EIO  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(topics.LogReadOnlyError, match="a sync of the log failed"):
        log.flush("a")
    assert len(failing) == 1
    assert log.state("a").synced_seq == 1
    assert log.flush("a", 1) == 1
    log.close()


def test_a_flush_beside_a_sync_that_runs_waits_for_one_that_covers_its_record() -> None:
    log, ring = sim_log()
    log.append("a", ["creates the topic"])
    log.append("a", ["covered by the sync that runs"])
    log._engine.begin_sync()
    log.append("a", ["the record"])
    made: list[int] = []
    sync_now = ring.sync_now
    ring.sync_now = lambda fd: made.append(fd) or sync_now(fd)  # type: ignore[method-assign,func-returns-value]
    assert log.flush("a") == 3
    assert is_durable(ring, b"the record")
    log.close()


def test_a_flush_leaves_a_sync_of_many_bytes_to_the_ring_so_that_no_append_waits_for_it() -> None:
    log, ring = sim_log(wal_file_bytes=8 << 20)
    log.append("a", ["x"])
    made: list[int] = []
    sync_now = ring.sync_now
    ring.sync_now = lambda fd: made.append(fd) or sync_now(fd)  # type: ignore[method-assign,func-returns-value]
    log.append("a", [b"x" * 30_000] * 12)
    (shard,) = log._opened.log.shards
    log._loop.run_until(lambda: not shard._batches.sealed)
    assert shard.state.unsynced_bytes > 256 << 10
    log.flush()
    assert not made
    log.append("a", ["x"])
    log.flush()
    assert len(made) == 1
    log.close()


def test_after_a_slow_sync_in_place_the_next_ones_use_the_ring_for_a_second_and_commits_stay_in_place() -> None:
    log, ring = sim_log(commit_in_place_max_us=5000)
    log.append("a", ["creates the topic"])
    sync_now, write_now, made = ring.sync_now, ring.write_now, []

    def slow(fd: int) -> int:
        made.append("sync")
        ring.clock.advance_ns(5_000_001)
        return sync_now(fd)

    def write(fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        made.append("commit")
        return write_now(fd, buffer, offset, dsync=dsync)

    def in_place() -> list[str]:
        made.clear()
        log.append("a", [1])
        log.flush("a")
        return list(made)

    ring.sync_now, ring.write_now = slow, write  # type: ignore[method-assign]
    assert in_place() == ["commit", "sync"]
    assert in_place() == ["commit"]
    ring.clock.advance_ns(1_000_000_000)
    assert in_place() == ["commit", "sync"]
    log.close()


def test_a_flush_that_takes_too_long_goes_on() -> None:
    log, ring = sim_log()
    log.append("a", ["creates the topic"])
    log.append("a", ["the record"])
    with pytest.raises(TimeoutError, match="timeout is 0 s, and the sync has not ended; it continues"):
        log.flush("a", timeout=0)
    log.flush("a")
    assert is_durable(ring, b"the record")
    log.close()


def test_a_flush_after_a_failed_sync_says_so() -> None:
    faults = Faults()
    log, _ring = sim_log(faults=faults)
    log.append("a", ["creates the topic"])
    log.append("a", ["the record"])
    faults.fail("sync", errno.EIO)
    with pytest.raises(topics.LogReadOnlyError):
        log.flush("a")
    assert log.state("a").synced_seq == 1
    with pytest.raises(topics.LogReadOnlyError):
        log.flush()
    log.close()


def test_what_is_only_in_memory_is_not_flushed() -> None:
    log, _ring = sim_log()
    log.put_topic("m", durability="ephemeral")
    log.append("m", [1])
    with pytest.raises(topics.RequestError, match="only in memory: flush a topic of class memory, disk or fsync"):
        log.flush("m")
    log.put_topic("m", durability="disk")
    log.append("m", [2])
    with pytest.raises(topics.RequestError, match="only in memory"):
        log.flush("m")
    assert log.state("m").synced_seq == 0
    log.delete("m", before_seq=2)
    assert log.flush("m") == 2
    log.close()


def test_bad_arguments_of_a_flush_are_refused() -> None:
    log, _ring = sim_log()
    log.append("a", [1])
    for arguments, message in (
        ({"topic": 3}, "topic is 3: use a string"),
        ({"seq": 1}, "seq is 1 without a topic: say whose record it is"),
        ({"topic": "a", "seq": -1}, "seq is -1: use an integer, 0 to"),
        ({"topic": "a", "seq": True}, "seq is True: use an integer"),
        ({"topic": "a", "seq": 1 << 64}, "seq is 18446744073709551616: use an integer, 0 to"),
        ({"topic": "a", "timeout": -1}, "timeout is -1: use a number of seconds"),
        ({"topic": "a", "timeout": 1e300}, "timeout is 1e"),
    ):
        with pytest.raises(topics.UsageError, match=message.replace("+", r"\+")):
            log.flush(**arguments)  # type: ignore[arg-type]
    with pytest.raises(topics.RequestError, match="seq is 2, and topic 'a' has records up to 1"):
        log.flush("a", 2)
    with pytest.raises(topics.RequestError, match="does not exist"):
        log.flush("none")
    log.close()
    with pytest.raises(topics.UsageError, match="closed"):
        log.flush()


def test_a_flush_is_awaited(tmp_path: Path) -> None:
    async def flush(log: Log) -> tuple[int, ...]:
        await log.aio.append("a", [1])
        return tuple(await asyncio.gather(log.aio.flush("a"), log.aio.flush("a", 1), log.aio.flush()))

    with topics.open(tmp_path) as log:
        assert asyncio.run(flush(log)) == (1, 1, 0)


def test_without_a_sync_by_time_a_flush_and_a_file_that_is_full_sync() -> None:
    log, ring = sim_log(sync_every_ms=None, checkpoint_wal_bytes=1 << 30, disk_reserve_bytes=0)
    log.append("a", ["creates the topic, which is synced"])
    log.append("a", ["the record"])
    drive(log, ring, _HOUR_MS // 2)
    assert not is_durable(ring, b"the record")
    log.flush("a")
    assert is_durable(ring, b"the record")
    log.append("a", ["another"])
    log.append("a", ["x" * 300_000])
    drive(log, ring, 1000)
    assert is_durable(ring, b"another")
    assert log.state("a").synced_seq == 3
    log.close()


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_log_says_which_class_topics_have_that_writes_create(tmp_path: Path, durability: str) -> None:
    with topics.open(tmp_path, durability=durability) as log:
        log.append("by-append", [1])
        log.append_soon("by-append-soon", 1).result()
        log.put_topic("by-put")
        found = {state.name: state.config.durability for state in log.topics()}
        assert found == {"by-append": durability, "by-append-soon": durability, "by-put": "disk"}


def count_begun(log: Log) -> Counter[int]:
    """Count from here on the appends that are begun in each pass, by its number."""
    appending, passes = log._admission._appending, Counter[int]()

    def counted(request: AppendRequest) -> Start[AppendResult]:
        passes[log._loop.stats().passes] += 1
        return appending(request)

    log._admission._appending = counted
    return passes


def test_records_that_are_refused_together_are_begun_some_a_pass_and_a_flush_waits_for_all() -> None:
    log, _ring = sim_log()
    log.put_topic("a", cap_records=440, discard="reject")
    passes = count_begun(log)
    soon = [log.append_soon("a", number) for number in range(450)]
    assert log.flush("a") == 440
    assert [each.result() for each in soon[:440]] == list(range(1, 441))
    for each in soon[440:]:
        with pytest.raises(topics.RequestError, match="full"):
            each.result()
    assert sum(passes.values()) == 1 + 450
    assert max(passes.values()) <= 1 + 100
    log.close()
