"""The log over its shards, on the simulated ring."""

import errno
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.sim.world.faults import Faults
from tests.store.log_world import LogWorld, recover
from topics.errors import LogReadOnlyError
from topics.store.commits.write_batch import Commit
from topics.store.format.rows import RowRecord, pack_rows


@pytest.fixture(autouse=True)
def _end_all_worlds() -> Iterator[None]:
    yield
    LogWorld.end_all()


def two_shards(faults: Faults | None = None) -> LogWorld:
    return LogWorld(faults=faults, config=lambda config: replace(config, wal_shards=2))


def test_each_topic_lies_in_one_shard_and_all_shards_are_used() -> None:
    world = two_shards()
    for topic_id in range(20):
        world.write(topic_id, 2)
        world.write(topic_id)
    world.settle()
    assert {world.log.shard_of(topic_id) for topic_id in range(20)} == {0, 1}
    disk = world.crash()
    found = [recover(disk, shard).seqs for shard in (0, 1)]
    for topic_id in range(20):
        shard = world.log.shard_of(topic_id)
        assert found[shard][topic_id] == [1, 2, 3]
        assert topic_id not in found[1 - shard]


def test_an_io_error_in_one_shard_ends_writing_in_all() -> None:
    faults = Faults()
    world = two_shards(faults)
    topics = {world.log.shard_of(topic_id): topic_id for topic_id in range(20)}
    faults.fail("write", errno.EIO, path_part="shard-01/wal-")
    failing = world.write(topics[1])
    world.passes(1)
    other = world.write(topics[0])
    world.settle()
    assert isinstance(failing.error, LogReadOnlyError)
    assert other.commit is not None
    with pytest.raises(LogReadOnlyError):
        world.write(topics[0])
    assert "shard-01" in world.log.read_only


def test_a_backlog_over_its_bound_is_told_and_counted() -> None:
    world = LogWorld(config=lambda config: replace(config, max_backlog_bytes=10_000))
    assert not world.log.is_backlogged()
    world.write(count=10, bytes_each=1000)
    assert world.log.is_backlogged()
    assert world.log.counters.submit_full == 1
    world.settle()
    assert not world.log.is_backlogged()


def test_a_backlog_is_cut_into_batches_while_the_disk_is_slow() -> None:
    world = LogWorld(config=lambda config: replace(config, wal_file_bytes=16 << 20))
    world.write()
    for _ in range(4):
        world.write(count=60, bytes_each=100_000)
        world.loop.run_pass(0)
    world.settle()
    assert world.log.counters.batches >= 2
    assert [write.order for write in world.writes] == [0, 1, 2, 3, 4]
    assert recover(world.crash()).seqs == {1: list(range(1, 242))}


def test_a_commit_window_gathers_what_comes_soon_after_a_commit_and_lets_a_lone_write_go() -> None:
    world = LogWorld(config=lambda config: replace(config, commit_window_us=1000))
    first = world.write()
    started = world.ring.clock.monotonic_ns()
    world.passes(1)
    world.settle(first)
    assert world.ring.clock.monotonic_ns() - started < 500_000
    for _ in range(5):
        world.write()
        world.loop.run_pass(20_000)
    world.settle()
    assert world.log.counters.batches == 2
    world.log.set_commit_window(0)
    world.write()
    world.passes(1)
    world.settle()
    assert world.log.counters.batches == 3


def test_counters_count_frames_batches_syncs_and_bytes() -> None:
    world = LogWorld()
    world.write(count=3)
    world.log.stage_control(1, 5, 1, 1, b"{}")
    world.settle()
    counters = world.log.counters
    assert (counters.frames, counters.batches, counters.fsyncs) == (4, 1, 1)
    assert counters.bytes_written == 64 + 3 * 81 + 63
    assert sum(counters.fsync_buckets) == counters.fsyncs
    assert counters.fsync_us_sum > 0
    assert counters.queue_depth_peak == 1


def test_lengths_stay_true_however_many_requests_follow() -> None:
    world = LogWorld(config=lambda config: replace(config, max_backlog_bytes=1 << 30))
    framed = []
    for number in range(60):
        rows = pack_rows([RowRecord(b"1" * (1 + number))] * (1000 if number % 7 else 20_000))
        framed.append((number, world.log.stage_records(1, 1, 1, rows, fsync=False)))
    start = 0
    for number, staged in framed:
        assert staged.start == start
        assert np.all(staged.lengths == 62 + number)
        start += int(staged.lengths.sum())


def test_frames_may_be_staged_as_they_are() -> None:
    world = LogWorld()
    first = world.write(count=2)
    world.settle()
    answers: list[Commit] = []
    start = world.log.shards[0].staging.stage_frames(world.read(first), 2)
    world.log.when_committed(1, True, answers.append)
    world.loop.run_until(lambda: bool(answers))
    assert start == 0
    assert recover(world.crash()).seqs == {1: [1, 2, 1, 2]}


def test_draining_waits_for_what_is_staged_and_for_its_sync() -> None:
    world = LogWorld()
    world.write(fsync=False)
    world.loop.run_task(world.log.drain())
    assert recover(world.crash()).seqs == {1: [1]}


def test_draining_ends_with_the_answer_to_who_asked_about_what_was_committed_before() -> None:
    """Nothing is written for such a question, so no completion follows that would wake the drain."""
    world = LogWorld()
    world.settle(world.write())
    world.advance(100)  # a file ahead is prepared
    answers: list[Commit] = []
    world.log.when_committed(1, True, answers.append)
    drain = world.loop.spawn(world.log.drain())
    world.passes(5)
    assert [commit.error for commit in answers] == [None]
    assert drain.done
