"""Commits that end inside the end of a pass: the same promises, and nothing staged is ever left without a pass.

The simulator's wait fails when nothing will ever happen, so whatever is staged and forgotten shows as a stall.
"""

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from typing_extensions import Buffer

from tests.engine.harness import records
from tests.engine.real_world import RealWorld
from tests.sim import Faults, SimStoppedError
from tests.sim.world.ring_core import LATENCY_NS
from tests.store.log_world import DIRECTORY, LogWorld, recover
from topics.errors import DiskFullError, LogReadOnlyError
from topics.loop.loop import PassEnd
from topics.store.commits.write_batch import Commit
from topics.store.format._codec import ffi
from topics.store.format.log_format import shard_directory
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.in_memory.hot_tail import HotTail, TailBuffer


@pytest.fixture(autouse=True)
def _end_all_worlds() -> Iterator[None]:
    yield
    LogWorld.end_all()


def in_place(seed: int = 0, **options: object) -> LogWorld:
    world = LogWorld(seed, **options)  # type: ignore[arg-type]
    world.log.commit_in_place()
    return world


def is_owed_a_pass(world: LogWorld) -> bool:
    """Return whether something is staged that only a pass without a cause would write."""
    shard = world.log.shards[0]
    commits = shard._commitment.batch is not None
    held = commits or shard._window_timer is not None or shard._sync.running or shard.preallocation.preparing
    return not shard.staging.is_empty and not held and world.loop.ns_until_work() != 0


def test_a_write_is_answered_within_the_pass_it_was_staged_for() -> None:
    world = in_place()
    for fsync in (True, False, True):
        write = world.write(fsync=fsync)
        assert not write.acked
        world.passes(1)
        if not write.acked:  # after unsynced bytes it takes the linked pair, through the ring
            assert fsync
            world.settle(write)
    assert world.log.backlog_bytes == 0


def test_a_turn_of_the_loop_is_enough_and_asks_the_ring_for_nothing() -> None:
    world = in_place()
    world.write()
    world.advance(2000)  # the next log file is ready
    passes = world.loop.stats().passes
    write = world.write()
    world.loop.turn()
    assert write.acked
    assert world.loop.stats().passes == passes


@pytest.mark.parametrize("stages_more", [False, True])
def test_a_pass_with_a_commit_in_place_ends_once_unless_its_callbacks_stage_more(stages_more: bool) -> None:
    world = LogWorld()
    world.settle(world.write(fsync=False))
    world.advance(2000)  # the next log file is ready
    ends: list[int] = []
    world.loop.on_pass_end(lambda: ends.append(world.loop.stats().passes), PassEnd.WAITERS)
    write = world.write(fsync=False)
    if stages_more:
        world.log.when_committed(write.topic_id, False, lambda _commit: ends.append(-1) or world.write(fsync=False))
    world.passes(1)
    assert write.acked
    assert world.log.counters.in_place
    assert [number > 0 for number in ends] == ([True, False, True] if stages_more else [True])
    assert all(each.acked for each in world.writes)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_callbacks_stage_is_committed_without_being_asked_again(seed: int) -> None:
    rng = random.Random(seed)
    world = in_place(seed, shuffle=True)
    world.write()
    world.advance(2000)  # the next log file is ready
    left = 60

    def stage() -> None:
        nonlocal left
        left -= 1
        fsync = rng.random() < 0.3
        write = world.write(fsync=fsync, count=rng.choice((1, 1, 40)), bytes_each=rng.choice((20, 300)))

        def then(commit: Commit) -> None:
            assert commit.error is None
            for _ in range(rng.choice((0, 1, 2))):
                if left > 0:
                    stage()

        world.log.when_committed(write.topic_id, fsync, then)

    while left > 0:
        stage()
        for _ in range(rng.randrange(3)):
            world.loop.run_pass(0)
            assert not is_owed_a_pass(world)
    world.settle()
    world.close()
    assert all(write.acked for write in world.writes)


@pytest.mark.parametrize("effect", range(1, 40, 3))
@pytest.mark.parametrize("cut", ["kill", "power"])
def test_a_crash_anywhere_keeps_what_was_acknowledged(effect: int, cut: str) -> None:
    world = in_place()
    world.ring.stop_at(world.ring.effects + effect)
    try:
        for number in range(20):
            world.write(fsync=number % 3 == 0)
            world.passes(1)
    except SimStoppedError:
        pass
    acked = {seq for write in world.writes if write.acked and (write.fsync or cut == "kill") for seq in write.seqs}
    assert acked <= set(recover(world.crash(cut)).seqs.get(1, ()))


def files_of(world: LogWorld) -> dict[str, bool]:
    """Names of the log's files, and whether they were zeroed first."""
    return {file.path.rsplit("/", 1)[1]: file.zeroed for file in world.table}


def fill_file(world: LogWorld, *, fsync: bool) -> None:
    rotations = world.log.counters.rotations
    while world.log.counters.rotations == rotations:
        world.settle(world.write(count=4, bytes_each=900, fsync=fsync))
    world.advance(2000)


def test_where_no_writer_waits_for_syncs_files_are_not_written_twice() -> None:
    world = in_place()
    fill_file(world, fsync=False)
    fill_file(world, fsync=False)
    fill_file(world, fsync=True)
    fill_file(world, fsync=True)
    assert list(files_of(world).values()) == [True, True, False, False, True, True]
    world.close()
    assert recover(world.crash()).seqs[1] == [seq for write in world.writes for seq in write.seqs]


@pytest.mark.parametrize("fsync", [True, False])
def test_a_server_zeroes_no_file_behind_one_that_was_filled_with_bare_writes(fsync: bool) -> None:
    world = LogWorld()
    for _ in range(3):
        fill_file(world, fsync=fsync)
    assert list(files_of(world).values()) == [True, True, fsync, fsync, fsync]


def test_a_file_behind_one_that_callers_flushed_often_is_zeroed() -> None:
    """Its syncs then have no metadata to write."""
    world = in_place()
    told: list[object] = []
    for number in range(70):
        world.settle(world.write(fsync=False))
        world.loop.call_soon(partial(world.log.when_flushed, 1, told.append))
        world.loop.run_until(lambda number=number: len(told) == number + 1)  # type: ignore[misc]
    for _ in range(2):
        fill_file(world, fsync=False)
    assert list(files_of(world).values())[:3] == [True, True, True]


def test_a_server_zeroes_the_file_behind_one_that_was_left_before_it_was_filled() -> None:
    world = LogWorld()
    for _ in range(3):
        world.settle(world.write(fsync=False))
        world.log.request_rotation()
        world.advance(2000)
    world.settle(world.write(fsync=False))
    world.advance(2000)
    assert all(files_of(world).values())


def test_a_file_without_zeros_is_used_again_only_if_it_was_filled() -> None:
    world = in_place()
    for _ in range(3):
        fill_file(world, fsync=False)
    world.settle(world.write(fsync=False))
    world.log.request_rotation()
    world.settle(world.write(fsync=False))
    world.advance(2000)
    left = [file for file in world.log.left_files() if not file.zeroed]
    assert len(left) == 2
    for file in left:
        world.loop.run_task(world.log.retire(file))
    spares = [
        name for name in world.ring.list_directory(f"{DIRECTORY}/{shard_directory(0)}") if name.startswith("spare-")
    ]
    assert len(spares) == 1


def test_an_end_leaves_no_prepared_file_that_only_looks_zeroed() -> None:
    world = in_place()
    for _ in range(2):
        fill_file(world, fsync=False)
    prepared = [file.path for file in world.table if not file.zeroed and not file.active and not file.size]
    assert len(prepared) == 1
    world.close()
    with pytest.raises(FileNotFoundError):
        world.ring.file_size(prepared[0])


def test_an_io_error_latches_the_log_and_fails_all_waiters() -> None:
    faults = Faults()
    world = in_place(faults=faults)
    world.write()
    world.settle()
    faults.fail("write", errno.EIO)
    write = world.write()
    world.settle()
    assert isinstance(write.error, LogReadOnlyError)
    with pytest.raises(LogReadOnlyError):
        world.write()


def test_a_full_disk_fails_the_batch_and_the_log_goes_on() -> None:
    faults = Faults()
    world = in_place(faults=faults)
    world.write()
    world.settle()
    faults.fail("write", errno.ENOSPC)
    write = world.write()
    world.settle()
    assert isinstance(write.error, DiskFullError)


def test_the_rest_of_a_short_write_follows_at_once() -> None:
    faults = Faults()
    world = in_place(faults=faults)
    world.write(fsync=False)
    world.settle()
    faults.shorten("write", 4096)
    write = world.write(count=100, bytes_each=200, fsync=False)
    world.settle()
    assert write.acked
    assert recover(world.crash("kill")).seqs[1] == list(range(1, 102))


def test_an_engine_whose_commits_end_in_place_wakes_its_readers_and_closes() -> None:
    world = RealWorld()
    world.real_store.log.commit_in_place()
    world.put("t", durability="fsync")
    for number in range(30):
        poll = world.start_diff(number, wait_ms=20_000)
        world.append(number)
        world.real_loop.run_pass(0)
        assert len(world.wait(poll).records) > 0
    world.checkpoint()
    world.restart(graceful=True)
    assert world.seqs() == list(range(1, 31))


def test_a_reader_that_waits_gets_what_a_server_commits_in_place_in_the_same_pass() -> None:
    world = RealWorld()
    world.put("t", durability="disk")
    world.append(0)
    world.advance_ms(2000)  # the next log file is ready
    for number in range(1, 5):
        poll, write = world.start_diff(number, wait_ms=20_000), world.start_append(records(number))
        world.real_loop.run_pass(0)
        assert write.given
        assert poll.given
        assert len(poll.get().records) > 0
    assert world.real_store.log.counters.in_place >= 4


class OneSender(LogWorld):
    """A log whose loop has one connection that sends, if `one_sender` is set."""

    def __init__(self, **options: object) -> None:
        super().__init__(config=lambda config: replace(config, **options))  # type: ignore[arg-type]
        self.one_sender = False
        self.loop.has_one_sender = lambda: self.one_sender  # type: ignore[method-assign]
        self.write()
        self.advance(2000)  # all is synced, the next log file is ready
        self.one_sender = True

    def is_answered_at_once(self, *, fsync: bool = True, writes: int = 1) -> bool:
        made = [self.write(fsync=fsync) for _ in range(writes)]
        self.passes(1)
        at_once = all(write.acked for write in made)
        self.settle()
        return at_once


@pytest.mark.parametrize("fsync", [True, False])
def test_a_lone_write_of_the_only_sender_is_committed_in_place(fsync: bool) -> None:
    world = OneSender()
    assert world.is_answered_at_once(fsync=fsync)
    assert world.log.counters.in_place == 1


def test_a_file_system_that_takes_a_block_at_a_time_makes_a_large_commit_in_place_slow_and_no_deeper() -> None:
    world = OneSender(wal_file_bytes=4 << 20)
    world.one_sender = False
    world.write(fsync=False)
    world.settle()
    world.ring.faults.shorten("write", 4096, times=1 << 30, path_part="/wal-")
    large = world.write(fsync=False, count=10, bytes_each=100_000)
    world.settle()
    assert large.acked
    world.ring.faults.clear()
    assert recover(world.crash("kill")).seqs[1] == list(range(1, 13))


def test_several_writes_of_a_pass_or_of_several_connections_begin_through_the_ring() -> None:
    world = OneSender()
    assert not world.is_answered_at_once(writes=2)
    world.one_sender = False
    assert not world.is_answered_at_once()
    world.one_sender = True
    assert world.is_answered_at_once()


def groups_in_place(world: OneSender, *, slower: bool = False, reads: int = 0, groups: int = 40) -> int:
    """Commit synced groups of two writes; return how many of them were made in place.

    slower: a sync that the thread waits for takes longer than one through the ring.
    reads: requests that are answered at once beside the two writes.
    """
    world.one_sender = False
    write_now = world.ring.write_now

    def timed(fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        world.ring.sync_factor = 10 if slower else 1
        res = write_now(fd, buffer, offset, dsync=dsync)
        world.ring.sync_factor = 1
        return res

    world.ring.write_now = timed  # type: ignore[method-assign]
    before = world.log.counters.in_place
    for _ in range(groups):
        world.loop._traffic.answered_at_once += reads
        world.is_answered_at_once(writes=2)
        world.settle()
    return world.log.counters.in_place - before


def test_synced_groups_are_committed_in_place_where_that_proves_faster() -> None:
    """Half of a client's wait was for the turns of a worker of the kernel."""
    assert groups_in_place(OneSender()) >= 40 - 4
    assert groups_in_place(OneSender(), slower=True) <= 4


def test_a_pass_waits_for_the_sync_of_one_group() -> None:
    """Callbacks may stage a group each, which would be made in the same pass."""
    world = OneSender()
    groups_in_place(world)
    rounds: list[int] = []

    def stage(_commit: object = None) -> None:
        rounds.append(world.loop.stats().passes)
        if len(rounds) < 10:
            _first, second = world.write(), world.write()
            world.log.when_committed(second.topic_id, True, stage)

    stage()
    world.loop.run_until(lambda: len(rounds) == 10)
    assert max(rounds.count(number) for number in rounds) <= 2, "the end of one through the ring, and one in place"


def test_synced_groups_of_several_shards_or_beside_callers_are_never_committed_in_place() -> None:
    """A sync that the thread waits for would hold up those of the other shards and logs."""
    assert groups_in_place(OneSender(wal_shards=2)) == 0
    world = OneSender()
    world.log.commit_in_place()
    for shard in world.log.shards:
        shard.state.set_exclusive(None)
    assert groups_in_place(world) == 0


def test_synced_groups_beside_reads_are_not_committed_in_place() -> None:
    """A read waited for the syncs of other clients' writes."""
    assert groups_in_place(OneSender(), reads=1) == 0


def test_no_lone_write_is_committed_in_place_where_that_is_switched_off() -> None:
    world = OneSender(commit_in_place_max_us=0)
    assert not world.is_answered_at_once()


def test_after_a_commit_in_place_that_took_long_the_next_ones_go_through_the_ring_for_a_second() -> None:
    world = OneSender(commit_in_place_max_us=5000)
    write_now = world.ring.write_now

    def slow(fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        world.ring.clock.advance_ns(took_ns)
        return write_now(fd, buffer, offset, dsync=dsync)

    world.ring.write_now = slow  # type: ignore[method-assign]
    took_ns = 5_000_000 - LATENCY_NS["sync"]
    assert world.is_answered_at_once()
    took_ns += 1
    assert world.is_answered_at_once()
    assert not world.is_answered_at_once()
    world.advance(990)
    assert not world.is_answered_at_once()
    world.advance(20)
    assert world.is_answered_at_once()


def test_writes_without_a_sync_waiter_are_committed_in_place_while_a_sync_runs_until_one_took_long() -> None:
    world = OneSender(commit_in_place_max_us=5000)
    world.one_sender = False
    write_now = world.ring.write_now

    def slow(fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        world.ring.clock.advance_ns(5_000_001)
        return write_now(fd, buffer, offset, dsync=dsync)

    def is_answered_beside_a_sync() -> bool:
        world.write(fsync=False)
        world.settle()
        sync = world.log.shards[0]._sync
        sync.start()
        assert sync.running
        return world.is_answered_at_once(fsync=False, writes=2)

    assert is_answered_beside_a_sync()
    world.advance(2000)
    world.write(fsync=False)
    world.settle()
    world.log.shards[0]._sync.start()
    world.ring.write_now = slow  # type: ignore[method-assign]
    assert world.is_answered_at_once(fsync=False)
    world.ring.write_now = write_now  # type: ignore[method-assign]
    world.advance(1001)
    assert world.is_answered_at_once(fsync=False, writes=2)
    assert not is_answered_beside_a_sync()
    world.advance(60_000)
    assert is_answered_beside_a_sync()


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("fsync", [True, False])
def test_a_lone_write_of_many_records_is_one_submission_in_the_peak_of_the_queue(fsync: bool, exclusive: bool) -> None:
    world = OneSender()
    if exclusive:
        world.log.commit_in_place()
    if not fsync:
        world.settle(world.write(fsync=False))  # a sync is planned
    rows = pack_rows([RowRecord(b"1")] * 100)
    assert world.write_lone(1, 3, rows, fsync=fsync)
    assert world.log.counters.queue_depth_peak == 1


@pytest.mark.parametrize("has_callers", [False, True])
def test_a_lone_write_after_a_sync_plans_the_next_one_unless_callers_drive_the_loop(has_callers: bool) -> None:
    """The first one after each sync took the general way. A caller's thread sets timers in passes only."""
    world = OneSender()
    if has_callers:
        world.log.commit_in_place()
    assert world.write_lone(1, 3, pack_rows([RowRecord(b"1")]), fsync=False) != has_callers
    assert (world.log.unsynced_bytes == 0) == has_callers
    world.advance(2000)
    assert world.log.unsynced_bytes == 0


def test_a_lone_write_returns_the_memory_of_a_very_large_batch() -> None:
    """It stayed with the shard until its end, 4 GiB at most, and 32 bytes for each row."""
    world = OneSender(hot_tail_bytes=24 << 20, wal_file_bytes=128 << 20)
    world.log.commit_in_place()
    staging = world.log.shards[0].staging
    while world.log.shards[0].state.room < 32 << 20:  # log files grow as they are filled
        world.settle(world.write(fsync=False, bytes_each=5 << 20))

    def write(first_seq: int, size: int) -> None:
        rows = pack_rows([RowRecord(b"1" * size, tag=b"copied")])
        assert world.write_lone(1, first_seq, rows, fsync=False)

    write(31, 5 << 20)
    grown = staging.filling
    assert 5 << 20 < grown.room < 6 << 20
    write(32, 5 << 20)
    assert staging.filling is grown, "new memory would cost more than the write"
    write(33, 7 << 20)
    assert staging.filling.room < 1 << 20
    world.settle(world.write(fsync=False, count=50_000))
    assert ffi.sizeof(staging._placed) < 1 << 20


def test_without_being_asked_commits_are_left_to_the_ring() -> None:
    world = LogWorld()
    write = world.write()
    world.passes(1)
    assert not write.acked
    world.settle()
    assert write.acked


@pytest.mark.parametrize("lone", [True, False])
def test_an_exception_amid_a_write_in_place_fails_the_batch_and_latches_the_log(lone: bool) -> None:
    """Which of its bytes the disk has is unknown; the batch would be in flight for ever otherwise."""
    world = OneSender()

    def broken(fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        raise MemoryError("in the middle")

    world.ring.write_now = broken  # type: ignore[method-assign]
    if lone:
        assert not world.write_lone(1, 2, pack_rows([RowRecord(b"1")]), fsync=True)
    else:
        write = world.write()
        world.settle(write)
        assert isinstance(write.error, LogReadOnlyError)
    assert world.log.backlog_bytes == 0
    with pytest.raises(LogReadOnlyError, match="in the middle"):
        world.write()


@pytest.mark.parametrize("lone", [True, False])
def test_a_batch_for_which_there_is_no_memory_keeps_its_place_and_a_lone_write_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, lone: bool
) -> None:
    world = OneSender()
    chunk_at, row = HotTail.chunk_at, pack_rows([RowRecord(b"1")])

    def no_memory(*_args: object, **_more: object) -> TailBuffer:
        monkeypatch.setattr(HotTail, "chunk_at", chunk_at)
        raise MemoryError("for a chunk")

    monkeypatch.setattr(HotTail, "chunk_at", no_memory)
    if lone:
        with pytest.raises(MemoryError):
            world.write_lone(1, 2, row, fsync=True)
    else:
        write = world.write()
        with pytest.raises(MemoryError):
            world.passes(1)
        world.settle(write)
        assert write.acked
    assert world.log.backlog_bytes == 0
    assert world.write_lone(1, 2 if lone else 3, row, fsync=True)
    assert recover(world.crash("power")).seqs[1] == ([1, 2] if lone else [1, 2, 3])
