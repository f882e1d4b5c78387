"""Checkpoints as a whole: when one begins, what it leaves, and what becomes of one that fails."""

from __future__ import annotations

import errno
import os
from collections import Counter

import pytest

from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.errors import StorageError
from topics.store.checkpoint.segment_copy import SegmentCopy
from topics.store.layouts.snapshot_format import SnapshotFile
from topics.store.segments.store_part import StorePart, unpack_store_part

_S = 1_000_000_000
_NEVER = {"checkpoint_wal_bytes": 1 << 30, "checkpoint_every_ms": 1 << 40}
"""No checkpoint begins by itself."""


def written(**changes: int) -> StoreWorld:
    """A topic with a hundred records in the log."""
    world = StoreWorld(config=small_config(**{**_NEVER, **changes})).open()
    world.create(1)
    for _ in range(10):
        world.append(1, 10, size=300)
    return world


def snapshot_of(world: StoreWorld) -> StorePart:
    """The store's part of the newest snapshot."""
    path = f"{DIRECTORY}/snapshots/{max(world.files('snapshots'))}"
    return unpack_store_part(SnapshotFile.unpack(world.ring.file_bytes(path), path).store)


def wait_s(world: StoreWorld, seconds: float) -> None:
    world.run(world.loop.sleep(int(seconds * _S)))


def done(world: StoreWorld) -> int:
    """Checkpoints that have ended well."""
    return world.store.checkpointer.counters.done


# --- what one leaves --------------------------------------------------------------------------------------------------
def test_a_checkpoint_moves_records_out_of_the_log_and_frees_it() -> None:
    world = StoreWorld().open()
    world.create(1)
    for _ in range(30):
        world.append(1, 10, size=300)
    world.checkpoint()
    assert world.store.checkpointer.counters.copied_rows == 300
    world.check_every_record()
    before = world.catalog.state()
    kinds = {world.store.files[row.file_id].kind.name for row in world.topic(1).rows.values()}
    assert kinds == {"SEGMENT"}
    world = world.next_life()
    assert world.catalog.state() == before
    world.check_every_record()


def test_deleted_records_stay_deleted_when_the_log_is_gone() -> None:
    world = StoreWorld().open()
    world.create(1)
    world.create(2)
    world.append(1, 250, size=100)
    world.append(2, 10)
    world.checkpoint()
    world.delete(1, [1, 50, 101, 250])
    world.delete(2, [3, 10])
    world.checkpoint()
    world.checkpoint()
    before = world.catalog.state()
    world = world.next_life(power_cut=True)
    assert world.catalog.state() == before
    world.check_every_record()


def test_what_lies_below_the_floor_is_dropped() -> None:
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 450, size=100)
    world.checkpoint()
    segments = world.files("topics/0000000000000001")
    world.evict(1, 320)
    world.checkpoint()
    assert len(world.files("topics/0000000000000001")) < len(segments)
    before = world.catalog.state()
    world = world.next_life()
    assert world.catalog.state() == before
    world.check_every_record()


def test_a_checkpoint_that_waits_for_the_last_one_does_not_begin_behind_it() -> None:
    """It would write to descriptors that are closed by then, and into a directory that another process has."""
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 5)
    before = world.store.checkpointer.snapshot_number
    closing = world.loop.spawn(world.store.close(), "close")
    while world.store.checkpointer._running is None:
        world.passes(1)
    late = world.loop.spawn(world.store.checkpointer.run(), "checkpoint")
    world.loop.run_until(lambda: closing.done and late.done)
    late.result()
    assert world.store.checkpointer.snapshot_number == before + 2, "the two copies of one snapshot"


def test_a_checkpoint_looks_for_what_is_dead_a_few_topics_a_pass() -> None:
    world = StoreWorld(config=small_config(checkpoint_us_per_pass=1000)).open()
    for topic_id in range(1, 21):
        world.create(topic_id)
        world.append(topic_id)
    world.checkpoint()
    lowest_live_seq = world.catalog.lowest_live_seq
    looked_at: Counter[int] = Counter()

    def look(topic_id: int) -> int:
        looked_at[world.loop.stats().passes] += 1
        world.ring.clock.advance_ns(400_000)
        return lowest_live_seq(topic_id)

    world.catalog.lowest_live_seq = look  # type: ignore[method-assign]
    world.append(1)
    world.checkpoint()
    assert looked_at.total() == 20
    assert max(looked_at.values()) <= 3
    world.check_every_record()


def test_the_snapshot_lists_what_is_in_use_and_begins_the_replay_behind_what_was_copied() -> None:
    world = written()
    world.create(2)
    world.append(2, 3)
    world.checkpoint()
    part = snapshot_of(world)
    assert sorted(f"topics/{1:016x}/{name}" for name in world.files(f"topics/{1:016x}") if name.endswith("data")) == [
        segment.path for segment in part.segments
    ]
    assert [f"packs/{name}" for name in world.files("packs")] == [pack.path for pack in part.packs]
    assert [run.topic_id for pack in part.packs for run in pack.runs.values()] == [2]
    first = f"wal-{part.replay[0].file_no:016d}.log"
    log_files = [name for name in world.files("wal/shard-00") if name.startswith("wal-")]
    assert min(log_files) == first
    assert not any(file.live_rows for file in world.store.files.of_log())


def test_a_snapshot_names_the_files_whose_delete_flags_it_does_not_know_to_be_durable() -> None:
    """A start after a kill cannot believe what the page cache shows of their flags."""
    world = written(pack_run_bytes=0)
    world.checkpoint()
    world.delete(1, [2])
    path = next(segment.path for segment in snapshot_of(world).segments if segment.first_seq == 1)
    world.ring.faults.fail("open", errno.EMFILE, path_part=path)
    with pytest.raises(OSError, match="Too many open files"):
        world.checkpoint()
    assert snapshot_of(world).flagging == [path]
    world.checkpoint()
    assert snapshot_of(world).flagging == []
    assert 2 not in world.next_life(power_cut=True).topic(1).rows


def test_the_last_checkpoint_before_a_close_says_that_nothing_is_in_the_log_alone() -> None:
    world = written()
    world.checkpoint()
    assert not snapshot_of(world).clean
    world.append(1, 5)
    world.close()
    assert snapshot_of(world).clean


# --- when one begins --------------------------------------------------------------------------------------------------
def test_a_checkpoint_begins_once_the_log_has_grown_by_so_many_bytes() -> None:
    world = written(checkpoint_wal_bytes=300_000)
    wait_s(world, 5)
    assert done(world) == 0
    for _ in range(30):
        world.append(1, 10, size=1000)
    wait_s(world, 2)
    assert done(world) == 1
    wait_s(world, 20)
    assert done(world) == 1, "the log has not grown since"


def test_a_checkpoint_begins_after_so_much_time_if_there_is_anything_new() -> None:
    world = written(checkpoint_every_ms=5000)
    wait_s(world, 6)
    assert done(world) == 1
    wait_s(world, 30)
    assert done(world) == 1, "nothing has been written since"
    world.append(1)
    wait_s(world, 2)
    assert done(world) == 2, "the time had passed"
    world.append(1)
    wait_s(world, 3)
    assert done(world) == 2
    wait_s(world, 3)
    assert done(world) == 3


def test_no_checkpoint_begins_by_itself_after_a_stop() -> None:
    world = written(checkpoint_every_ms=5000)
    world.store.checkpointer.stop()
    wait_s(world, 20)
    world.run(world.store.checkpointer.run())
    assert done(world) == 0


def test_a_checkpoint_that_is_asked_for_while_one_runs_comes_after_it() -> None:
    world = written()
    first, second = (world.loop.spawn(world.store.checkpointer.run(), "checkpoint") for _ in range(2))
    world.loop.run_until(lambda: first.done)
    assert (done(world), second.done) == (1, False)
    world.loop.run_until(lambda: second.done)
    assert done(world) == 2
    world.check_every_record()


# --- one that fails ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_a_lack_of_space_or_of_descriptors_passes(error: int) -> None:
    world = written()
    world.ring.faults.fail("open", error, path_part="/seg-")
    with pytest.raises(OSError, match=os.strerror(error)):
        world.checkpoint()
    counters = world.store.checkpointer.counters
    assert (counters.done, counters.failed, bool(counters.error)) == (0, 1, True)
    assert not world.store.log.read_only
    world.append(1)
    world.checkpoint()
    assert (counters.done, counters.failed, counters.error) == (1, 1, "")
    world.check_every_record()


@pytest.mark.parametrize(("kind", "path_part"), [("write", "/seg-"), ("sync", "/seg-"), ("write", "/snapshot-")])
def test_another_error_of_the_disk_ends_the_log_and_costs_no_record(kind: str, path_part: str) -> None:
    world = written()
    world.ring.faults.fail(kind, errno.EIO, path_part=path_part)
    with pytest.raises(OSError, match="Input/output error|a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only
    again = world.next_life(power_cut=True)
    assert list(again.topic(1).rows) == list(range(1, 101))
    again.check_every_record()


def test_a_snapshot_that_failed_leaves_the_log_that_it_would_have_replaced() -> None:
    world = written()
    log_files = set(world.files("wal/shard-00"))
    world.ring.faults.fail("open", errno.EMFILE, path_part="/snapshot-")
    with pytest.raises(OSError, match="Too many open files"):
        world.checkpoint()
    assert log_files <= set(world.files("wal/shard-00"))
    world.next_life(power_cut=True).check_every_record()


# --- what is reported -------------------------------------------------------------------------------------------------
def test_the_end_is_reported_when_the_snapshot_is_there() -> None:
    world = written()
    told: list[tuple[bool, int]] = []
    checkpointer = world.store.checkpointer
    before = checkpointer.snapshot_number
    world.run(checkpointer.run(on_shown=lambda is_whole: told.append((is_whole, checkpointer.snapshot_number))))
    assert told == [(True, checkpointer.snapshot_number)]
    assert checkpointer.snapshot_number > before


def test_records_that_had_to_stay_in_the_log_are_reported() -> None:
    """On a full disk: there is no space for copies of all of them."""
    world = written(wal_spare_files=0)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 16_000
    world.store.log.space.note_full()
    told: list[bool] = []
    world.run(world.store.checkpointer.run(on_shown=told.append))
    assert told == [False]
    assert any(file.live_rows for file in world.store.files.of_log())
    world.next_life().check_every_record()


def test_a_checkpoint_that_has_to_be_whole_fails_where_there_is_no_space_for_that() -> None:
    """A start with another number of shards leaves nothing in the log of before."""
    world = written(wal_spare_files=0)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 16_000
    world.store.log.space.note_full()
    with pytest.raises((OSError, StorageError)):
        world.run(world.store.checkpointer.run(whole=True))
    assert done(world) == 0
    world.next_life().check_every_record()


@pytest.mark.parametrize("error", [errno.EINTR, errno.EAGAIN])
def test_a_write_of_a_delete_flag_that_did_nothing_is_repeated(error: int) -> None:
    """It fails neither the checkpoint nor the log, and the delete is durable."""
    world = StoreWorld(config=small_config(segment_max_events=20, pack_run_bytes=2048)).open()
    world.create(1)
    world.append(1, 30, size=120)
    world.checkpoint()
    world.delete(1, [2, 5, 9])
    world.ring.faults.fail("write", error, nth=2, times=3, path_part="/seg-00000000000000000001.data")
    world.checkpoint()
    assert world.ring.faults.struck
    assert not world.store.log.read_only
    after = world.next_life(power_cut=True)
    assert set(after.topic(1).rows) == set(range(1, 31)) - {2, 5, 9}


# --- how much of the loop it takes -----------------------------------------------------------------------------------
def test_a_checkpoint_rests_longer_the_shorter_the_log_is() -> None:
    mib = 1 << 20
    world = StoreWorld(config=small_config(checkpoint_wal_bytes=4 * mib, max_log_bytes=16 * mib)).open()
    share, bound = world.store.checkpointer._rest_share, world.store.checkpointer._log.bound
    shares = []
    for size in (0, 4, 5, 6, 8, 16):
        bound.bytes = size * mib
        shares.append(share())
    assert shares == [8, 8, 5, 2, 2, 2]
    bound.bytes = 0
    world.store.checkpointer._met_full_disk = True
    assert share() == 2


def test_a_checkpoint_fills_two_segments_side_by_side_until_it_is_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a worker of the kernel, and two of these leave a machine of two cores to its clients."""
    mib = 1 << 20
    running: set[SegmentCopy] = set()
    most: list[int] = []
    fill = SegmentCopy.fill

    async def filled(copy: SegmentCopy) -> SegmentCopy:
        running.add(copy)
        most[-1] = max(most[-1], len(running))
        try:
            return await fill(copy)
        finally:
            running.remove(copy)

    monkeypatch.setattr(SegmentCopy, "fill", filled)
    for size in (0, 4, 5, 6):
        config = small_config(
            checkpoint_wal_bytes=4 * mib, max_log_bytes=16 * mib, segment_max_events=20, segment_bulk=1
        )
        world = StoreWorld(config=config).open()
        world.create(1)
        for _ in range(20):
            world.append(1, 20, size=120)
        world.store.checkpointer._log.bound.bytes = size * mib
        most.append(0)
        world.checkpoint()
    assert most == [2, 2, 2, 8]
    world.store.checkpointer._log.bound.bytes = 0
    world.store.checkpointer.stop()
    assert world.store.checkpointer._segments_at_a_time() == 8, "no other work runs beside it"


def test_without_a_bound_of_the_log_a_checkpoint_is_urgent_once_another_is_due() -> None:
    mib = 1 << 20
    world = StoreWorld(config=small_config(checkpoint_wal_bytes=4 * mib, max_log_bytes=0)).open()
    bound = world.store.checkpointer._log.bound
    bound.bytes = 5 * mib
    assert world.store.checkpointer._rest_share() == 5
    bound.bytes = 8 * mib
    assert world.store.checkpointer._rest_share() == 2


def test_the_rate_that_delays_commits_leaves_out_the_time_that_a_calm_checkpoint_gives_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = written()
    checkpointer = world.store.checkpointer
    flag_deleted = checkpointer.steps.flag_deleted
    measured: list[int] = []

    async def slow() -> None:
        await world.loop.sleep(7 * _S)
        checkpointer._turns.given_ns += 5 * _S
        await flag_deleted()

    monkeypatch.setattr(checkpointer.steps, "flag_deleted", slow)
    monkeypatch.setattr(checkpointer._log.bound, "on_checkpoint", lambda _size, took_ns: measured.append(took_ns))
    world.checkpoint()
    assert [took_ns // _S for took_ns in measured] == [2]


def test_a_checkpoint_without_a_descriptor_gets_those_of_files_that_are_not_read_now() -> None:
    """Appends waited for it for ever: files that were read before kept theirs."""
    world = StoreWorld(config=small_config(pack_run_bytes=0, hot_tail_bytes=0)).open()
    for topic_id in range(1, 6):
        world.create(topic_id)
        world.append(topic_id, 3)
    world.checkpoint()
    world.check_every_record()
    world.append(1, 3)
    core = world.ring._core
    core.fd_limit = max(core.fds) + 1
    with pytest.raises((OSError, StorageError)):
        world.checkpoint()
    world.checkpoint()
    core.fd_limit = 1024
    world.check_every_record()
