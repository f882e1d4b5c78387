"""The state of a store after it was killed, cut off or closed."""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.loop.walk import Walk
from tests.sim.world.sim_disk import SimDirectory
from tests.sim.world.sim_file import SimFile
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.errors import LogReadOnlyError
from topics.store import store_start
from topics.store.format import codec
from topics.store.format.catalog import RowColumns
from topics.store.format.file_table import FileKind, StoredFile
from topics.store.format.log_format import FrameType
from topics.store.recovery import log_replay, recovery
from topics.store.wal.sharded_log import ShardedLog


def test_an_empty_directory_opens_and_reopens() -> None:
    world = StoreWorld().open()
    world = world.next_life()
    assert world.catalog.topics == {}
    assert world.catalog.power_lost is False


def test_everything_is_back_after_a_kill() -> None:
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 5, tag=b"a")
    world.append(1, 3, fsync=False)
    world.append(1, 2, key=b"k")
    before = world.catalog.state()
    world = world.next_life()
    assert world.catalog.state() == before
    assert world.catalog.keys == {(1, b"k"): (9, 2)}
    assert world.catalog.power_lost is False
    world.check_every_record()


def test_a_clean_close_needs_no_log() -> None:
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 200, size=100, tag=b"x")
    world.delete(1, [5, 6, 199, 200])
    before = world.catalog.state()
    world.close()
    world = StoreWorld(world.ring.next_life(power_cut=True), config=world.config).open()
    assert world.catalog.state() == before
    assert world.catalog.power_lost is False
    world.check_every_record()


def test_a_deleted_topic_leaves_no_files_and_its_name_can_be_used_again() -> None:
    world = StoreWorld(config=small_config(wal_shards=2)).open()
    world.create(1, "a")
    world.append(1, 200, size=100)
    world.checkpoint()
    world.drop(1)
    for topic_id in range(2, 8):
        world.create(topic_id, "a")
        world.append(topic_id, 2)
        if topic_id < 7:
            world.drop(topic_id)
    before = world.catalog.state()
    world = world.next_life(power_cut=True)
    assert world.catalog.state() == before
    world.checkpoint()
    assert world.files("topics/0000000000000001") == []


def test_a_power_cut_is_told_from_a_kill_and_reserved_seqs_become_a_gap() -> None:
    world = StoreWorld().open()
    world.create(1)
    world.control(1, FrameType.HEAD_RESERVATION, 0, {"upto": 64})
    world.append(1, 3)
    world.append(1, 3, fsync=False)
    world = world.next_life(power_cut=True)
    assert world.catalog.power_lost is True
    head = max(world.topic(1).rows)
    assert head >= 3
    assert world.topic(1).gaps == [(head + 1, 64)]
    before = world.catalog.state()
    world = world.next_life()
    assert world.catalog.power_lost is False
    assert world.catalog.state() == before


def test_another_shard_count_is_taken_in() -> None:
    world = StoreWorld(config=small_config(wal_shards=4)).open()
    for topic_id in range(1, 9):
        world.create(topic_id)
        world.append(topic_id, 5)
    world.delete(3, [5])
    before = world.catalog.state()
    world = world.next_life(config=small_config(wal_shards=1))
    assert world.catalog.state() == before
    for topic_id in range(1, 9):
        world.append(topic_id, 5)
    before = world.catalog.state()
    world = world.next_life(config=small_config(wal_shards=3))
    assert world.catalog.state() == before
    world.check_every_record()


def test_shards_that_are_no_longer_used_are_emptied_once_and_not_at_every_start() -> None:
    world = StoreWorld(config=small_config(wal_shards=3)).open()
    for topic_id in range(1, 9):
        world.create(topic_id)
        world.append(topic_id, 5)
    world = world.next_life(config=small_config(wal_shards=1))
    snapshots = world.files("snapshots")
    world = world.next_life()
    assert world.files("snapshots") == snapshots
    assert world.files("wal/shard-01") + world.files("wal/shard-02") == []
    world.check_every_record()
    world = world.next_life(config=small_config(wal_shards=3))
    world.append(1, 5)
    world = world.next_life()
    world.check_every_record()


def test_a_seq_above_head_plus_one_is_a_hole() -> None:
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 2)
    world.append(1, 2, first_seq=100)
    world = world.next_life()
    assert sorted(world.topic(1).rows) == [1, 2, 100, 101]
    assert world.topic(1).head == 101


def test_a_file_given_up_behind_a_hole_does_not_end_the_log_when_its_unlink_is_undone() -> None:
    """A power cut took a batch in front of it; recovery unlinked it and continued in a third; the power failed again
    and the name was back. It is after the hole still, but the log continues in the third file."""
    world = StoreWorld(config=small_config(sync_every_ms=60_000)).open()
    world.create(1)
    count = 0
    while len(begun(world)) < 2:
        world.append(1, 1, size=3000, fsync=False)
        count += 1
    first, second = begun(world)
    end = len(bytes(first.live).rstrip(b"\0"))
    for image in (first.live, first.durable):
        image[end - 100 : end] = bytes(100)  # the last batch of the first file
    first.pending.clear()
    behind = bytes(second.live)
    world = world.next_life()
    kept = set(world.topic(1).rows)
    assert kept == set(range(1, len(kept) + 1))
    assert len(kept) < count
    world.append(1, 1)
    world.append(1, 1)
    for image in (second.live, second.durable):
        image[:] = behind
    directory = world.ring.disk.find(f"{DIRECTORY}/wal/shard-00")
    assert isinstance(directory, SimDirectory)
    name = "wal-0000000000000002.log"
    assert name not in directory.live, "it was given up"
    directory.live[name] = directory.durable[name] = second
    world = world.next_life()
    assert set(world.topic(1).rows) == kept | {len(kept) + 1, len(kept) + 2}
    assert name not in world.files("wal/shard-00")


def test_a_log_does_not_begin_in_a_file_that_a_later_one_took_over_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies by position keep such a file. No sync has made it durable, and its batches count no more: a power cut may
    take its first one, and then the beginning of the log was missing."""
    world = StoreWorld(config=small_config(sync_every_ms=60_000)).open()
    world.create(1)
    world.ring.sync_factor = 100_000
    while len(begun(world)) < 2:
        world.append(1, 1, size=3000, fsync=False)
    (shared,) = acked = world.append(1, 1, fsync=False)
    ring = world.end(power_cut=False)
    ring.sync_factor = 1
    second = StoreWorld(ring, config=world.config)

    async def kept(_log: ShardedLog, _file: StoredFile) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr(ShardedLog, "retire", kept)
        patched.setattr(second.catalog, "moved", lambda *_: np.zeros(0, np.uint64))
        second.open()
    assert len(begun(second)) == 3, "the third took over, in front of the second"
    monkeypatch.setattr(second.catalog, "last_shared", lambda _topic_id: shared)
    monkeypatch.setattr(second.ring, "free_bytes", lambda _path: 0)
    second.evict(1, shared - 1)  # of the first file nothing is left
    second.store.checkpointer._met_full_disk = True
    second.checkpoint()
    acked += [seq for _ in range(3) for seq in second.append(1, 1)]
    for file in begun(second)[:2]:
        file.durable[:], file.pending[:] = bytes(len(file.durable)), []
    assert list(second.next_life(power_cut=True).topic(1).rows) == acked


def begun(world: StoreWorld) -> list[SimFile]:
    """Files of the log that were taken into use, oldest first."""
    nodes = [world.ring.disk.find(f"{DIRECTORY}/wal/shard-00/{name}") for name in world.files("wal/shard-00")]
    return [node for node in nodes if isinstance(node, SimFile) and bytes(node.live[:4]).strip(b"\0")]


def test_a_start_whose_own_commit_fails_notes_that_for_the_next_one() -> None:
    """R-DUR-6: what the page cache shows of the log may be lost, whichever write asked for the sync."""
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 3, fsync=False)
    ring = world.end(power_cut=False)
    ring.faults.fail("sync", errno.EIO, path_part="/wal-")
    with pytest.raises(LogReadOnlyError):
        StoreWorld(ring).open()
    assert StoreWorld(ring.next_life(power_cut=False)).open().store.power_lost


def test_a_start_that_cannot_read_does_not_hide_that_the_power_failed_before_the_next_one() -> None:
    """It knows of no snapshot yet when it notes its failure; the newest one is of a graceful stop, a kill ago."""
    world = StoreWorld().open()
    world.create(1)
    world.run(world.store.close())
    ring = world.next_life().end(power_cut=False)
    ring.faults.fail("read", errno.EIO, path_part="/wal-")
    with pytest.raises(OSError, match="Input/output"):
        StoreWorld(ring).open()
    assert StoreWorld(ring.next_life(power_cut=True)).open().store.power_lost


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_zeros_behind_a_segments_frames_whose_sync_failed_are_written_again(error: int) -> None:
    """The page cache shows them all the same, and a footer after them would make what the disk has there durable."""
    world = StoreWorld(config=small_config(pack_run_bytes=0)).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    (path,) = (file.path for file in world.store.files if file.kind is FileKind.SEGMENT)
    ring = world.end(power_cut=False)
    end = len(ring.file_bytes(path))
    file = ring.disk.open(path, os.O_RDWR)
    assert isinstance(file, SimFile)
    ring.disk.write(file, end, b"what a crash left" * 500)
    file.sync(file.order)
    ring.faults.fail("sync", error, path_part=path)
    with pytest.raises(OSError, match=os.strerror(error)):
        StoreWorld(ring).open()
    again = StoreWorld(ring.next_life(power_cut=False)).open()
    assert not again.end(power_cut=True).file_bytes(path)[end:].strip(b"\0")


def test_a_start_with_more_shards_that_was_killed_while_it_flagged_is_made_up_for_by_the_next() -> None:
    """Its snapshot says where the log of one shard begins. A start that took it for one of two would leave what a topic
    did before in one shard and write what it does next to another: nothing says which of the two comes first."""
    world = StoreWorld(config=small_config(wal_shards=1)).open()
    world.create(1)
    world.append(1, 5)
    world.checkpoint()
    world.delete(1, [2])
    two = small_config(wal_shards=2)
    ring = world.end(power_cut=False)
    ring.faults.fail("open", errno.EMFILE, path_part="/packs/pack-", nth=2)  # the first is for its rows
    with pytest.raises(OSError, match="Too many open files"):
        StoreWorld(ring, config=two).open()
    again = StoreWorld(ring.next_life(power_cut=False), config=two).open()
    assert again.store.checkpointer.snapshots.replay.keys() == {0, 1}, "a checkpoint has taken all in"
    again.check_every_record()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_start_that_fails_leaves_nothing_that_goes_on_writing(shards: int) -> None:
    """A program that embeds the library continues, and the next file it opens may get the same descriptor."""
    world = StoreWorld(config=small_config(wal_shards=shards, wal_spare_files=4)).open()
    for topic_id in range(1, 5):
        world.create(topic_id)
        world.append(topic_id, 3, fsync=False)
    ring = world.end(power_cut=False)
    ring.faults.fail("rename", errno.EIO, path_part="/session")
    failing = StoreWorld(ring, config=world.config)
    with pytest.raises(OSError, match="Input/output"):
        failing.open()
    assert ring.open_fds == []
    assert len(ring.list_directory(f"{DIRECTORY}/wal/shard-00")) <= 4, "nobody waits for the files of the next batches"


def test_a_replay_of_many_topics_applies_some_of_them_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of the log may create a hundred thousand topics, and probes are answered meanwhile."""
    monkeypatch.setattr(recovery, "APPLIED_A_PASS", 32)
    world = StoreWorld(
        config=small_config(
            wal_shards=2, wal_file_bytes=1 << 20, checkpoint_wal_bytes=1 << 40, checkpoint_every_ms=1 << 40
        )
    ).open()
    for topic_id in range(1, 201):
        world.create(topic_id)
        world.append(topic_id)
    before = world.catalog.state()
    world = StoreWorld(world.end(power_cut=False), config=world.config)
    applied: Counter[int] = Counter()
    catalog = world.catalog
    apply_control, see_rows = catalog.apply_control, catalog.see_rows

    def count_control(*control: Any) -> None:
        applied[world.loop.passes] += 1
        apply_control(*control)

    def count_rows(topic_id: int, rows: RowColumns) -> None:
        applied[world.loop.passes] += 1
        see_rows(topic_id, rows)

    monkeypatch.setattr(catalog, "apply_control", count_control)
    monkeypatch.setattr(catalog, "see_rows", count_rows)
    world.open()
    assert catalog.state() == before
    assert applied.total() >= 400
    assert max(applied.values()) <= 32


def test_a_start_takes_a_step_of_the_catalog_in_each_pass() -> None:
    """The fake catalog has a topic a step: at the beginning, and at the end."""
    world = StoreWorld().open()
    for topic_id in range(1, 51):
        world.create(topic_id)
        world.append(topic_id)
    world.checkpoint()
    world = StoreWorld(world.end(power_cut=False), config=world.config)
    passes: list[list[int]] = []
    for name in ("restore", "recovered"):
        noted: list[int] = []
        passes.append(noted)
        setattr(world.catalog, name, _noting(getattr(world.catalog, name), noted, world))
    world.open()
    for noted in passes:
        assert len(noted) == 50
        assert len(set(noted)) == 50
    world.check_every_record()


def _noting(method: Any, passes: list[int], world: StoreWorld) -> Any:
    """Return a method that notes the pass of each step."""

    def steps(*args: Any, **options: Any) -> Any:
        walk = Walk(method(*args, **options))
        for _ in walk:
            passes.append(world.loop.passes)
            yield
        return walk.result

    return steps


@pytest.mark.parametrize("are_large", [False, True])
def test_packs_with_many_runs_are_loaded_one_at_a_time(monkeypatch: pytest.MonkeyPatch, are_large: bool) -> None:
    world = StoreWorld().open()
    for number in range(6):
        for topic_id in range(3 * number + 1, 3 * number + 4):
            world.create(topic_id)
            world.append(topic_id)
        world.checkpoint()
    monkeypatch.setattr(recovery, "_MANY_RUNS", 2 if are_large else 3)
    running, most = 0, 0
    load = recovery._load_pack

    async def counted(*args: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await load(*args)
        finally:
            running -= 1

    monkeypatch.setattr(recovery, "_load_pack", counted)
    before = world.catalog.state()
    world = world.next_life()
    assert world.catalog.state() == before
    assert (most == 1) is are_large


def test_the_rows_of_the_rewritten_tail_move_some_topics_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_start, "APPLIED_A_PASS", 32)
    monkeypatch.setattr(log_replay, "TAIL_BYTES_A_PASS", 10 * log_replay.TAIL_BATCH_BYTES)
    world = StoreWorld(
        config=small_config(
            wal_file_bytes=1 << 20, sync_every_ms=60_000, checkpoint_wal_bytes=1 << 40, checkpoint_every_ms=1 << 40
        )
    ).open()
    for topic_id in range(1, 201):
        world.create(topic_id)
    for topic_id in range(1, 201):
        world.append(topic_id, fsync=False)
    before = world.catalog.state()
    world = StoreWorld(world.end(power_cut=False), config=world.config)
    moved: Counter[int] = Counter()
    checked: Counter[int] = Counter()
    move, scan_frames = world.catalog.moved, codec.scan_frames

    def count_moved(*args: Any) -> Any:
        moved[world.loop.passes] += 1
        return move(*args)

    def count_checked(body: bytes) -> Any:
        checked[world.loop.passes] += 1
        return scan_frames(body)

    monkeypatch.setattr(world.catalog, "moved", count_moved)
    monkeypatch.setattr(codec, "scan_frames", count_checked)
    world.open()
    assert world.catalog.state() == before
    assert moved.total() > 64
    assert max(moved.values()) == 32
    assert checked.total() > 60
    assert max(checked.values()) == 10
    world.check_every_record()
