"""One shard on the simulated ring: what is acked when, what a crash leaves, what an error does to the rest."""

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.amount import seeds
from tests.sim.world.faults import FOREVER, Faults
from tests.store.log_world import LogWorld, Write, recover
from topics.errors import DiskFullError, LogReadOnlyError, NoLogFileError
from topics.store.commits.write_batch import Commit
from topics.store.format import codec
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.wal import commit_callbacks
from topics.store.wal.sharded_log import ShardStart


@pytest.fixture(autouse=True)
def _end_all_worlds() -> Iterator[None]:
    yield
    LogWorld.end_all()


def check_readable(world: LogWorld) -> None:
    """Every acked write is where its commit says, whichever way it is read."""
    for write in world.writes:
        if write.acked:
            scan = codec.scan_frames(world.read(write))
            assert scan.frames["seq"].tolist() == write.seqs
            assert set(scan.frames["topic_id"].tolist()) == {write.topic_id}


def test_a_lone_write_goes_at_once_and_is_synced_before_its_ack() -> None:
    world = LogWorld()
    write = world.write()
    world.settle()
    assert write.commit is not None
    assert write.commit.error is None
    assert write.commit.sync_ns > 0
    assert recover(world.crash()).seqs == {1: [1]}


def test_what_arrives_while_a_commit_is_in_flight_is_the_next_batch() -> None:
    world = LogWorld()
    first = world.write()
    world.passes(1)
    second, third = world.write(), world.write(2)
    assert world.log.backlog_bytes > 0
    world.settle()
    assert [write.order for write in (first, second, third)] == [0, 1, 2]
    assert world.log.counters.batches == 2
    assert world.log.counters.frames == 3
    assert second.commit is third.commit
    assert world.log.backlog_bytes == world.log.queue_depth == 0
    check_readable(world)


def answered_in_turns(world: LogWorld, count: int) -> list[Write]:
    """Stage a batch of so many writes, and return them once some were answered."""
    writes = [world.write(topic_id) for topic_id in range(1, count + 1)]
    world.settle(writes[0])
    return writes


@pytest.fixture
def few_answers(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of answers that a pass gives, a small one."""
    monkeypatch.setattr(commit_callbacks, "CALLBACKS_A_PASS", 10)
    return 10


def test_a_pass_gives_some_of_the_answers_to_a_commit_and_the_next_commit_waits_for_all(few_answers: int) -> None:
    """512 topics that were created by writes of one commit were answered in one pass of 36 ms."""
    world = LogWorld()
    writes = answered_in_turns(world, 35)
    later = world.write(99)
    answered = [sum(write.acked for write in writes)]
    while answered[-1] < len(writes):
        assert world.log.counters.batches == 1
        assert world.log.queue_depth == len(writes) - answered[-1] + 1
        assert not world.write_lone(98, 1, pack_rows([RowRecord(b"1")]), fsync=True), "others come first"
        world.passes(1)
        answered.append(sum(write.acked for write in writes))
    assert max(np.diff(answered, prepend=0)) == few_answers
    world.settle(later)
    assert [write.order for write in [*writes, later]] == list(range(36))
    assert world.log.backlog_bytes == world.log.queue_depth == 0
    check_readable(world)


def test_who_waits_for_a_log_waits_for_the_answers_to_its_last_commit(few_answers: int) -> None:
    world = LogWorld()
    writes = answered_in_turns(world, 35)
    flushed: list[bool] = []
    world.log.when_flushed(None, lambda _error: flushed.append(all(write.acked for write in writes)))
    world.loop.run_until(lambda: bool(flushed))
    assert flushed == [True]
    writes = answered_in_turns(world, 35)
    assert not all(write.acked for write in writes)
    world.close()
    assert all(write.acked for write in writes)


def test_a_log_that_fails_amid_answers_gives_the_others_and_then_fails_what_is_staged(few_answers: int) -> None:
    world = LogWorld()
    writes = answered_in_turns(world, 35)
    later = world.write(99)
    world.log.latch("no")
    assert later.commit is None, "its topic's operations are decided in their order"
    world.settle()
    assert all(write.acked for write in writes)
    assert isinstance(later.error, LogReadOnlyError)
    world.close()


def test_callbacks_that_wait_only_for_what_was_staged_before_them_take_turns_too(few_answers: int) -> None:
    """Where nothing was staged all of them ran in one pass."""
    world = LogWorld()
    world.settle(world.write())
    ended: list[int] = []
    for number in range(35):
        world.log.when_committed(1, False, lambda _commit, number=number: ended.append(number))  # type: ignore[misc]
    seen = [0]
    while seen[-1] < 35:
        world.passes(1)
        seen.append(len(ended))
    assert max(np.diff(seen)) == few_answers
    assert ended == list(range(35))


def test_a_callback_that_counts_as_several_takes_their_turns(few_answers: int) -> None:
    """The writes of five passes to 8,192 topics each were published, or failed, in one pass."""
    world = LogWorld()
    world.settle(world.write())
    ended: list[int] = []
    for number in range(7):
        done = partial(_note, ended, number)
        world.log.when_committed(1, False, done, 4)
    seen = [0]
    while seen[-1] < 7:
        world.passes(1)
        seen.append(len(ended))
    assert max(np.diff(seen)) == 3, "10 parts"
    assert ended == list(range(7))
    world.close()


def _note(ended: list[int], number: int, _commit: Commit) -> None:
    ended.append(number)


def fails_in_turns(world: LogWorld, writes: list[Write], few: int) -> None:
    """Check that writes that have begun to fail do so by `few` a pass, and in their order."""
    failed = [sum(write.commit is not None for write in writes)]
    assert 0 < failed[0] <= few, "it has begun, with some of them"
    while failed[-1] < len(writes):
        assert world.log.queue_depth == len(writes) - failed[-1]
        world.passes(1)
        failed.append(sum(write.commit is not None for write in writes))
    assert max(np.diff(failed)) == few
    assert [write.order - writes[0].order for write in writes] == list(range(len(writes)))


def test_a_log_that_fails_answers_what_is_staged_so_many_a_pass(few_answers: int) -> None:
    """Thousands of writes that waited for a full or broken disk were failed in one pass."""
    world = LogWorld()
    writes = [world.write(topic_id) for topic_id in range(1, 36)]
    world.log.latch("no")
    fails_in_turns(world, writes, few_answers)
    assert all(isinstance(write.error, LogReadOnlyError) for write in writes)
    world.close()


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_commit_that_fails_and_what_is_staged_on_it_fail_so_many_a_pass(few_answers: int, kind: str) -> None:
    faults = Faults()
    world = LogWorld(faults=faults, config=lambda config: replace(config, commit="link", commit_in_place_max_us=0))
    world.settle(world.write(99))
    faults.fail(kind, errno.EIO, path_part="wal-")
    writes = [world.write(topic_id) for topic_id in range(1, 26)]
    world.passes(1)
    writes += [world.write(topic_id) for topic_id in range(1, 26)]
    world.loop.run_until(lambda: writes[0].commit is not None)
    fails_in_turns(world, writes, few_answers)
    assert all(isinstance(write.error, LogReadOnlyError) for write in writes)
    world.close()


@pytest.mark.parametrize("staged", [False, True])
def test_what_is_staged_between_the_turns_of_writes_that_fail_fails_after_them(few_answers: int, staged: bool) -> None:
    """It may build on a write that has not failed yet."""
    faults = Faults()
    world = LogWorld(faults=faults, config=lambda config: replace(config, commit_in_place_max_us=0))
    world.settle(world.write(99))
    faults.fail("write", errno.ENOSPC, path_part="wal-")
    writes = [world.write(topic_id) for topic_id in range(1, 16)]
    if staged:
        world.passes(1)
    writes += [world.write(topic_id) for topic_id in range(16, 36)]
    world.loop.run_until(lambda: writes[16].commit is not None)
    assert isinstance(writes[16].error, DiskFullError)
    assert writes[-1].commit is None
    ended: list[bool] = []

    def on_delete(commit: Commit) -> None:
        assert isinstance(commit.error, DiskFullError)
        ended.append(all(write.commit is not None for write in writes))

    with world.log.use_reserve():
        world.log.stage_control(35, 5, 1, 1, b"{}")
        world.log.when_committed(35, True, on_delete)
    world.settle()
    assert ended == [True]
    answers: list[Commit] = []
    with world.log.use_reserve():
        world.log.stage_control(99, 5, 1, 1, b"{}")
        world.log.when_committed(99, True, answers.append)
    world.advance(1000)
    assert [commit.error for commit in answers] == [None], "the log goes on in another file"


def test_who_closes_a_log_that_has_failed_waits_for_the_answers_to_all(few_answers: int) -> None:
    world = LogWorld()
    writes = [world.write(topic_id) for topic_id in range(1, 36)]
    world.log.latch("no")
    assert any(write.commit is None for write in writes)
    world.close()
    assert all(isinstance(write.error, LogReadOnlyError) for write in writes)


def test_callers_of_the_library_get_all_failures_in_the_pass_that_they_wait_in(few_answers: int) -> None:
    world = LogWorld()
    world.log.commit_in_place()
    writes = [world.write(topic_id) for topic_id in range(1, 36)]
    world.log.latch("no")
    assert all(isinstance(write.error, LogReadOnlyError) for write in writes)


def test_what_is_staged_fails_after_the_batch_in_flight_if_there_is_no_next_file() -> None:
    """It failed at once, before what precedes it in its topic was decided."""
    world = LogWorld(config=lambda config: replace(config, commit_in_place_max_us=0))
    world.settle(world.write(99))
    first = world.write()
    world.passes(1)
    second = world.write()
    world.log.shards[0]._on_no_file(DiskFullError("no space"))
    assert second.commit is None
    world.settle()
    assert first.acked
    assert isinstance(second.error, DiskFullError)
    assert first.order < second.order
    world.close()


def test_callers_of_the_library_get_all_answers_in_the_pass_that_they_wait_in(few_answers: int) -> None:
    world = LogWorld()
    world.log.commit_in_place()
    assert all(write.acked for write in answered_in_turns(world, 35))


def test_a_disk_write_is_acked_unsynced_and_synced_in_the_background() -> None:
    world = LogWorld()
    write = world.write(fsync=False)
    world.settle()
    assert write.commit is not None
    assert write.commit.sync_ns == 0
    assert world.log.counters.fsyncs == 0
    world.advance(world.config.sync_every_ms + 1)
    assert world.log.counters.fsyncs == 1
    assert recover(world.crash()).seqs == {1: [1]}


@pytest.mark.parametrize("setting", ["auto", "link", "direct", "dsync"])
def test_every_primitive_syncs_what_precedes_it(setting: str) -> None:
    world = LogWorld(config=lambda config: replace(config, commit=setting))
    for fsync in (True, False, True, True, False, False, True):
        world.write(fsync=fsync)
        world.settle()
    world.write(count=700, bytes_each=200)
    world.settle()
    disk = world.crash()
    assert recover(disk).seqs == {1: list(range(1, 708))}


def test_where_o_direct_does_not_work_commits_are_linked() -> None:
    world = LogWorld()
    world.close()
    world.ring.disk.direct_block_bytes = 0
    again = LogWorld(disk=world.ring.disk, start=ShardStart(5, 0))
    again.write()
    again.settle()
    check_readable(again)


def test_rotation_goes_on_in_the_next_file_and_old_records_stay_readable() -> None:
    world = LogWorld()
    for _ in range(60):
        world.write(count=20, bytes_each=1000, fsync=random.Random(1).random() < 0.5)
        world.settle()
    assert world.log.counters.rotations >= 4
    assert len(world.log.left_files()) == world.log.counters.rotations
    check_readable(world)
    world.close()
    assert recover(world.crash("kill")).seqs == {1: list(range(1, 1201))}


def test_the_file_of_a_batch_that_is_larger_than_one_is_not_zeroed_first() -> None:
    """Zeros would cost as much again as its bytes, and the batch waits."""
    world = LogWorld()
    world.settle(world.write())
    world.loop.run_until(lambda: not world.log.shards[0].preallocation.preparing)
    world.settle(world.write(count=5, bytes_each=100_000, fsync=False))
    current = world.log.shards[0]._end.file
    assert current is not None
    assert current.size > world.config.wal_file_bytes
    assert not current.stored.zeroed
    world.close()
    assert recover(world.crash()).seqs[1] == list(range(1, 7))


def test_a_batch_larger_than_a_file_gets_one_of_its_own() -> None:
    world = LogWorld()
    world.write()
    world.settle()
    big = world.write(count=5, bytes_each=100_000)
    after = world.write()
    world.settle()
    world.write()
    world.settle()
    assert big.acked
    assert after.acked
    check_readable(world)
    world.close()
    assert recover(world.crash("kill")).seqs == {1: list(range(1, 9))}


def test_a_sync_in_the_next_file_waits_for_the_sync_of_the_last_one() -> None:
    for seed in range(30):
        world = LogWorld(seed, shuffle=True)
        for number in range(30):
            world.write(count=10, bytes_each=1000, fsync=False)
            if number % 7 == 0:
                world.passes(3)
        synced = world.write(fsync=True)
        world.settle(synced)
        recovered = recover(world.crash())
        assert recovered.seqs[1] == list(range(1, len(recovered.seqs[1]) + 1)), f"seed {seed}"
        assert set(synced.seqs) <= set(recovered.seqs[1]), f"seed {seed}"


def test_a_left_file_is_recycled_and_its_old_batches_never_parse() -> None:
    world = LogWorld()
    while world.log.counters.rotations < 2:
        world.write(count=20, bytes_each=1000)
        world.settle()
    kept = len(world.writes)
    world.loop.run_task(world.log.retire(world.log.left_files()[0]))
    names = world.ring.list_directory("data/wal/shard-00")
    assert sum(name.startswith("spare-") for name in names) == 1
    while world.log.counters.rotations < 5:
        world.write(count=20, bytes_each=1000)
        world.settle()
    assert not any(name.startswith("spare-") for name in world.ring.list_directory("data/wal/shard-00"))
    world.writes[:kept] = []
    check_readable(world)


def test_a_left_file_that_a_reader_holds_is_deleted_at_once_and_read_until_the_reader_leaves() -> None:
    world = LogWorld()
    while world.log.counters.rotations < 2:
        world.write(count=20, bytes_each=1000)
        world.settle()
    oldest = world.log.left_files()[0]
    before = world.loop.run_task(world.loop.files.read(oldest.fd, oldest.size, 0))
    oldest.hold()
    world.loop.run_task(world.log.retire(oldest))
    names = world.ring.list_directory("data/wal/shard-00")
    assert not any(name.startswith("spare-") or oldest.path.endswith(name) for name in names)
    assert oldest not in world.log.left_files()
    while world.log.counters.rotations < 5:
        world.write(count=20, bytes_each=1000)
        world.settle()
    assert world.loop.run_task(world.loop.files.read(oldest.fd, oldest.size, 0)) == before
    oldest.release()
    world.passes(2)
    assert world.table.get(oldest.file_id) is None


def test_a_wait_without_anything_staged_ends_when_what_was_before_is_durable() -> None:
    world = LogWorld()
    answers: list[str] = []
    world.log.when_committed(1, True, lambda commit: answers.append("empty"))
    world.passes(2)
    assert answers == ["empty"]
    world.write(fsync=False)
    world.settle()
    world.log.when_committed(1, False, lambda commit: answers.append("written"))
    world.passes(2)
    assert answers == ["empty", "written"]
    world.log.when_committed(1, True, lambda commit: answers.append("synced"))
    world.loop.run_until(lambda: len(answers) == 3)
    assert world.log.counters.fsyncs == 1


def test_who_waits_for_stable_storage_holds_up_no_commit() -> None:
    world = LogWorld()
    told: list[int] = []
    for number in range(3):
        world.write(fsync=False)
        world.settle()
        world.log.when_durable(1, lambda _error, number=number: told.append(number))  # type: ignore[misc]
        world.settle(world.write(fsync=False))
    world.advance(world.config.sync_every_ms // 2)
    assert told == [0, 1, 2]
    assert recover(world.crash()).seqs[1][:5] == [1, 2, 3, 4, 5]


def test_what_is_durable_already_is_told_at_once_and_by_a_commit_that_syncs() -> None:
    world = LogWorld()
    told: list[int] = []
    world.settle(world.write())
    world.log.when_durable(1, lambda _error: told.append(0))
    assert told == [0]


def test_flushes_at_the_same_time_share_a_sync() -> None:
    world = LogWorld()
    told: list[int] = []
    for number in range(64):
        world.write(fsync=False)
        world.log.when_flushed(1, lambda _error, number=number: told.append(number))  # type: ignore[misc]
        if not number:
            world.settle()
    world.loop.run_until(lambda: len(told) == 64)
    assert told == list(range(64))
    assert world.log.counters.fsyncs == 2
    assert recover(world.crash()).seqs[1] == list(range(1, 65))


def test_a_flush_covers_what_the_pass_commits_in_which_it_was_asked_for() -> None:
    world = LogWorld()
    told: list[object] = []
    world.settle(world.write(fsync=False))

    def ask() -> None:
        world.log.when_flushed(1, told.append)
        world.write(fsync=False)
        world.log.when_flushed(1, told.append)

    world.log.commit_in_place()
    world.loop.call_soon(ask)
    world.loop.run_until(lambda: len(told) == 2)
    assert world.log.counters.fsyncs == 1
    assert recover(world.crash()).seqs[1] == [1, 2]


def test_a_flush_waits_for_what_is_staged_and_for_every_file_that_was_left() -> None:
    world = LogWorld()
    told: list[object] = []
    for _ in range(30):
        world.settle(world.write(count=20, bytes_each=1000, fsync=False))
    last = world.write(count=20, bytes_each=1000, fsync=False)
    world.log.when_flushed(None, told.append)
    world.loop.run_until(lambda: bool(told))
    assert told == [None]
    assert last.acked
    assert world.log.counters.rotations >= 2
    assert recover(world.crash()).seqs == {1: list(range(1, 621))}


def test_bytes_that_are_not_synced_are_never_more_than_the_bound() -> None:
    """R-DUR-18."""
    for bound in (1, 3000, 40_000):
        world = LogWorld(config=lambda config, bound=bound: replace(config, max_unsynced_bytes=bound))
        (shard,) = world.log.shards
        for count in (1, 5, 3, 40, 1, 1, 30, 30, 2):
            write = world.write(count=count, bytes_each=400, fsync=False)
            world.settle(write)
            assert write.acked
            assert shard.state.unsynced_bytes <= bound
        assert len(recover(world.crash()).seqs[1]) >= 113 - bound // 400


def test_a_sync_of_a_file_that_was_left_says_nothing_of_the_bytes_after_it() -> None:
    """Also one that begins late, after another sync: the next file has batches by then."""
    world = LogWorld(config=lambda config: replace(config, sync_every_ms=1))
    world.ring.slow_ns["sync"] = 2_000_000
    (shard,) = world.log.shards
    seen: list[int] = []
    for _ in range(60):
        world.settle(world.write(count=20, bytes_each=1000, fsync=False))
        left = len(shard._batches.sealed)
        if left and shard._batches.written > shard._batches.sealed[-1].last_batch_no + 1:
            world.loop.run_until(lambda: not shard._batches.sealed)
            assert shard.state.unsynced, "there are batches in the next file"
            seen.append(shard.state.unsynced_bytes)
    assert seen
    assert min(seen) > 20_000


def test_who_waits_for_stable_storage_gets_the_error_of_a_failed_sync() -> None:
    faults = Faults()
    world = LogWorld(faults=faults)
    told: list[object] = []
    world.settle(world.write(fsync=False))
    faults.fail("sync", errno.EIO)
    world.log.when_flushed(1, told.append)
    world.log.when_durable(1, told.append)
    world.loop.run_until(lambda: len(told) == 2)
    world.log.when_flushed(1, told.append)
    assert [type(error) for error in told] == [LogReadOnlyError] * 3


def test_short_writes_are_finished_before_anything_else() -> None:
    for seed, keep in enumerate((0, 1, 511, 4096, 4096, 4096, 5000, 8192, 8192, 12288)):
        for fsync in (True, False):
            faults = Faults()
            world = LogWorld(seed, faults=faults)
            world.write()
            world.settle()
            faults.shorten("write", keep, times=2)
            world.write(count=50, bytes_each=500, fsync=fsync)
            world.settle()
            world.write()
            world.settle()
            assert all(write.acked for write in world.writes), f"keep {keep}"
            assert faults.struck["write"] == 2
            assert recover(world.crash()).seqs == {1: list(range(1, 53))}


def test_however_many_commits_were_interrupted_once_the_next_one_may_be_too() -> None:
    faults = Faults()
    world = LogWorld(faults=faults)
    for _ in range(100):
        faults.shorten("write", 0, path_part="/wal-")
        world.write()
        world.settle()
    assert faults.struck["write"] == 100
    assert all(write.acked for write in world.writes)


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("fsync", [True, False])
def test_an_io_error_latches_the_log_and_is_never_tried_again(kind: str, fsync: bool) -> None:
    faults = Faults()
    world = LogWorld(faults=faults, config=lambda config: replace(config, commit="link", commit_in_place_max_us=0))
    before = world.write()
    world.settle()
    faults.fail(kind, errno.EIO, path_part="wal-")
    failing = world.write(fsync=fsync)
    world.passes(1)
    behind = world.write()
    world.settle()
    world.advance(world.config.sync_every_ms + 1)
    assert before.acked
    if fsync or kind == "write":
        assert isinstance(failing.error, LogReadOnlyError)
    else:
        assert failing.acked, "it waits for no sync"
    assert isinstance(behind.error, LogReadOnlyError)
    assert world.log.read_only
    syncs = faults.seen["sync"]
    with pytest.raises(LogReadOnlyError, match="read-only"):
        world.write()
    with pytest.raises(LogReadOnlyError), world.log.use_reserve():
        world.write()
    world.advance(3 * world.config.sync_every_ms)
    assert faults.seen["sync"] == syncs, "nobody syncs after a failed sync"
    world.writes = [write for write in (before, failing, behind) if write.acked]
    check_readable(world)
    world.close()


def test_a_failed_background_sync_takes_back_no_ack_but_ends_writing() -> None:
    faults = Faults()
    world = LogWorld(faults=faults)
    acked = world.write(fsync=False)
    world.settle()
    faults.fail("sync", errno.EIO)
    world.advance(world.config.sync_every_ms + 1)
    assert acked.acked
    assert world.log.read_only
    with pytest.raises(LogReadOnlyError):
        world.write()


def test_callbacks_staged_behind_a_failure_fail_in_order() -> None:
    faults = Faults()
    world = LogWorld(faults=faults)
    faults.fail("write", errno.EIO, path_part="wal-")
    writes = [world.write()]
    world.passes(1)
    writes += [world.write(), world.write(2, fsync=False)]
    answers: list[Commit] = []
    world.log.when_committed(3, True, answers.append)
    world.settle()
    assert [write.order for write in writes] == [0, 1, 2]
    assert all(isinstance(write.error, LogReadOnlyError) for write in writes)
    assert isinstance(answers[0].error, LogReadOnlyError)


def test_no_space_for_a_write_fails_it_and_the_log_goes_on_in_another_file() -> None:
    for fsync in (True, False):
        faults = Faults()
        world = LogWorld(faults=faults, config=lambda config: replace(config, commit_in_place_max_us=0))
        world.write(fsync=False)
        world.settle()
        faults.fail("write", errno.ENOSPC, path_part="wal-")
        failing = world.write(fsync=fsync)
        world.passes(1)
        behind = world.write()
        world.settle()
        assert isinstance(failing.error, DiskFullError)
        assert isinstance(behind.error, DiskFullError)
        assert world.log.disk_full
        assert not world.log.read_only
        world.advance(3000)
        assert not world.log.disk_full, "it heals by itself"
        world.writes = [write for write in world.writes if write.acked]
        again = world.write()
        assert again.seqs == [2]
        world.settle()
        check_readable(world)
        recovered = recover(world.crash())
        assert recovered.seqs == {1: [1, 2]}
        assert not recovered.torn_middle


def test_a_full_disk_refuses_appends_takes_deletes_from_the_reserve_and_heals() -> None:
    world = LogWorld(config=lambda config: replace(config, disk_reserve_bytes=128 * 1024, wal_file_bytes=128 * 1024))
    disk = world.ring.disk
    world.write()
    world.settle()
    disk.capacity_bytes = disk._used + 32 * 1024
    world.advance(1)
    refused = 0
    for _ in range(40):
        try:
            world.write(count=10, bytes_each=1000)
        except DiskFullError:
            refused += 1
        world.settle()
    assert refused > 0
    assert world.log.disk_full
    answers: list[Commit] = []
    for number in range(20):
        with world.log.use_reserve():
            world.log.stage_control(1, 5, number, 1, b"{}" * 500)
            world.log.when_committed(1, True, answers.append)
        world.advance(20)
    assert [commit.error for commit in answers] == [None] * 20
    with pytest.raises(DiskFullError):
        world.write()
    disk.capacity_bytes = None
    world.advance(2500)
    assert not world.log.disk_full
    last = world.write()
    world.settle()
    assert last.acked
    assert "reserve" in world.ring.list_directory("data")
    check_readable(world)


def test_without_space_even_for_the_reserve_a_delete_is_told_so() -> None:
    faults = Faults()
    world = LogWorld(faults=faults, config=lambda config: replace(config, wal_file_bytes=64 * 1024))
    world.advance(1)
    faults.fail("allocate", errno.ENOSPC, times=FOREVER)
    writes = []
    for _ in range(30):
        with world.log.use_reserve():
            writes.append(world.write(count=5, bytes_each=1000))
        world.settle()
    assert isinstance(writes[-1].error, DiskFullError)
    assert not world.log.read_only


@pytest.mark.parametrize("cut", ["power", "kill"])
def test_no_acked_sync_is_lost_at_any_moment(cut: str) -> None:
    """Goal: R-DUR-2, R-DUR-3. Method: random writes of both classes, stopped after a random number of passes."""
    for seed in seeds(75):
        rng = random.Random(seed)
        setting = rng.choice(["auto", "link", "direct", "dsync"])
        world = LogWorld(
            seed,
            shuffle=True,
            config=lambda config, setting=setting: replace(config, commit=setting, sync_every_ms=2),
        )
        for _ in range(rng.randint(1, 60)):
            for _ in range(rng.randint(0, 4)):
                world.write(
                    rng.randint(1, 3),
                    rng.randint(1, 8),
                    fsync=rng.random() < 0.4,
                    bytes_each=rng.choice([20, 900, 6000]),
                )
            world.loop.run_pass(rng.choice([0, 50_000, 2_000_000]))
        recovered = recover(world.crash(cut))
        LogWorld.worlds.clear()
        assert not recovered.torn_middle, f"seed {seed}"
        for topic_id in (1, 2, 3):
            found = recovered.seqs.get(topic_id, [])
            assert found == list(range(1, len(found) + 1)), f"seed {seed}: a prefix"
            whole: set[int] = set()
            for write in world.writes:
                if write.topic_id != topic_id:
                    continue
                present = set(write.seqs) & set(found)
                assert not present or len(present) == len(write.seqs), f"seed {seed}: all or none of a request"
                whole |= present
                if write.acked and (write.fsync or cut == "kill"):
                    assert present, f"seed {seed}: acked {write.seqs} of topic {topic_id} is lost"
            assert set(found) == whole


def test_a_log_opens_on_a_full_disk_and_takes_what_frees_space() -> None:
    world = LogWorld(config=lambda config: replace(config, disk_reserve_bytes=128 * 1024))
    world.write()
    world.settle()
    world.advance(100)
    disk = world.crash("kill")
    disk.capacity_bytes = disk._used
    again = LogWorld(1, disk=disk, start=ShardStart(9, 1), config=lambda _: world.config)
    assert again.log.disk_full
    with pytest.raises(DiskFullError):
        again.write()
    with again.log.use_reserve():
        delete = again.write()
    again.settle()
    assert delete.acked
    check_readable(again)


def test_running_out_of_descriptors_delays_the_next_file_and_nothing_else() -> None:
    faults = Faults()
    world = LogWorld(faults=faults)
    faults.fail("open", errno.EMFILE, times=5)
    while world.log.counters.rotations < 3:
        world.write(count=20, bytes_each=1000)
        world.settle()
    assert all(write.acked for write in world.writes)
    assert faults.struck["open"] == 5


def test_a_batch_that_finds_no_descriptor_for_a_second_is_refused_with_that_reason_and_is_not_there() -> None:
    """R-DUR-16."""
    faults = Faults()
    world = LogWorld(faults=faults)
    faults.fail("open", errno.EMFILE, times=1 << 30)
    while not world.writes or world.writes[-1].error is None:
        world.write(count=20, bytes_each=1000)
        world.settle()
    refused = world.writes[-1]
    assert isinstance(refused.error, NoLogFileError)
    assert refused.error.detail == {"reason": "no_log_file"}
    faults.clear()
    world.write()
    world.settle()
    assert world.writes[-1].acked
    check_readable(world)


def test_a_graceful_end_loses_nothing_and_the_next_start_goes_on() -> None:
    world = LogWorld()
    for _ in range(5):
        world.write(fsync=False)
    world.close()
    recovered = recover(world.crash())
    assert recovered.seqs == {1: [1, 2, 3, 4, 5]}
    start = ShardStart(recovered.next_file_no, recovered.batches)
    again = LogWorld(1, disk=world.ring.disk, start=start)
    again.write(2)
    again.settle()
    assert recover(again.crash()).seqs == {1: [1, 2, 3, 4, 5], 2: [1]}
