"""Records that count in a rebuild: all that counted before, and nothing removed."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
from dataclasses import replace

import pytest

from tests.sim import SimRing, SimStoppedError
from tests.sim.world.sim_disk import SimDirectory
from tests.sim.world.sim_file import SimFile
from tests.store.repair.rebuilding import IN_PACKS, drop, ended, place, rebuilt, with_and_without_snapshots, write
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.loop import Loop
from topics.store.checkpoint.evacuation import RUNS_MAX
from topics.store.format.log_format import BLOCK_BYTES, FrameType
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.pack_format import RunHeader
from topics.store.layouts.segment_format import SEGMENT_FOOTER_MAGIC
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import verify
from topics.store.segments.snapshot_files import load_snapshot

STAYING = replace(IN_PACKS, compact_below=0.0)
"""No pack is written anew."""
SEGMENTS = f"topics/{1:016x}"


@with_and_without_snapshots
def test_log_files_left_over_from_a_checkpoint_that_was_killed_do_not_end_the_log(snapshots: bool) -> None:
    """R-DUR-1. They are below the replay's start under names of the log, and some are used again: a hole."""
    config = small_config(checkpoint_wal_bytes=1 << 40)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.create(2, "gone")
    world.append(2, 3)
    for _ in range(20):
        world.append(1, 1, size=15_000)

    async def killed(file: object) -> None:
        raise OSError(errno.EMFILE, "killed here")

    world.store.log.retire = killed  # type: ignore[method-assign]
    with pytest.raises(OSError, match="killed here"):
        world.checkpoint()
    world = world.next_life()
    world.drop(2)
    world.append(1, 1)
    world.checkpoint()
    acked = world.append(1, 3)
    again, result = rebuilt(world.end(power_cut=False), config, snapshots=snapshots)
    assert list(again.topic(1).rows)[-3:] == acked
    assert sorted(again.catalog.topics) == [1]
    assert result.set_aside == []


@with_and_without_snapshots
def test_a_merge_of_runs_that_was_killed_half_way_takes_nothing_from_them(snapshots: bool) -> None:
    """Its segment is there, with the first of the records."""
    config = small_config(pack_run_bytes=2000, segment_max_events=2, checkpoint_bytes_per_pass=1)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 4)
    world.checkpoint()
    world.append(1, 1, size=3000)
    world.ring.faults.fail("write", errno.EMFILE, path_part="/seg-", nth=4)  # header, two frames
    world.ring.faults.fail("unlink", errno.EIO, path_part="/seg-")
    with pytest.raises(OSError, match="Too many open files"):
        world.checkpoint()
    (name,) = world.files(f"topics/{1:016x}")
    assert b"1/2/" in world.ring.file_bytes(f"{DIRECTORY}/topics/{1:016x}/{name}")
    again, _ = rebuilt(world.end(power_cut=False), config, snapshots=snapshots)
    assert list(again.topic(1).rows) == [1, 2, 3, 4, 5]


@with_and_without_snapshots
def test_what_was_merged_into_segments_is_taken_from_them_and_deleted_records_stay_deleted(snapshots: bool) -> None:
    """The runs are still there, in a pack that another topic needs, and do not know of the delete."""
    config = small_config(pack_run_bytes=2000, segment_max_events=2)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.create(2)
    world.append(1, 4)
    world.append(2, 1)
    world.checkpoint()
    world.append(1, 1, size=3000)
    world.checkpoint()
    world.delete(1, [2])
    world.checkpoint()
    again, _ = rebuilt(ended(world), config, snapshots=snapshots)
    assert list(again.topic(1).rows) == [1, 3, 4, 5]
    assert list(again.topic(2).rows) == [1]


def test_topics_that_are_gone_and_records_below_a_floor_stay_gone_though_a_pack_still_has_them() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    for topic_id, name in ((1, "deleted"), (2, "kept"), (3, "emptied")):
        world.create(topic_id, name)
        world.append(topic_id, 3)
    world.checkpoint()
    world.drop(1)
    world.evict(3, 3)
    world.checkpoint()
    world.append(2, 1)
    world.checkpoint()
    path, offset = place(world, 2, 4)
    ring = ended(world)
    ring.corrupt_file(path, offset + 60)
    again, result = rebuilt(ring, IN_PACKS)
    assert {topic_id: list(topic.rows) for topic_id, topic in again.catalog.topics.items()} == {2: [1, 2, 3], 3: []}
    assert (again.topic(3).head, again.topic(2).head) == (3, 4)
    assert len(result.set_aside) == 1


def with_dropped_runs(world: StoreWorld) -> StoreWorld:
    """Topic 2 is all that is left of the first pack.

    Topic 1 was deleted. The runs of topic 3 became one in a pack of its own, where a record was deleted, and then all.
    """
    for topic_id in (1, 2, 3):
        world.create(topic_id)
        world.append(topic_id, 3)
    world.checkpoint()
    for _ in range(RUNS_MAX):
        world.append(3, 1)
        world.checkpoint()
    world.drop(1)
    world.delete(3, [2])
    return world


def test_runs_dropped_from_a_pack_that_others_share_stay_gone_without_a_snapshot() -> None:
    world = with_dropped_runs(StoreWorld(config=STAYING).open())
    world.checkpoint()
    world.evict(3, 3 + RUNS_MAX)
    world.checkpoint()
    (name,) = world.files("packs")
    again, result = rebuilt(ended(world), STAYING, snapshots=False)
    assert {topic_id: list(topic.rows) for topic_id, topic in again.catalog.topics.items()} == {
        1: [],
        2: [1, 2, 3],
        3: [],
    }
    assert result.set_aside == []
    again.checkpoint()
    assert again.files("packs") == [name]
    third, _ = rebuilt(ended(again), STAYING, snapshots=False)
    assert list(third.topic(2).rows) == [1, 2, 3]
    assert list(third.topic(3).rows) == []


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_before_the_flags_of_dropped_runs_leaves_them_to_the_next_checkpoint(power_cut: bool) -> None:
    world = with_dropped_runs(StoreWorld(config=STAYING).open())
    world.ring.faults.fail("open", errno.EMFILE, path_part="packs/pack-0000000000000001")
    with pytest.raises(OSError, match="Too many open files"):
        world.checkpoint()
    world = world.next_life(power_cut=power_cut)
    world.checkpoint()
    ring = world.end(power_cut=True)
    again, _ = rebuilt(ring, STAYING, snapshots=False)
    assert {topic_id: list(topic.rows) for topic_id, topic in again.catalog.topics.items()} == {
        1: [],
        2: [1, 2, 3],
        3: [1, *range(3, 4 + RUNS_MAX)],
    }


def test_a_dropped_run_that_is_damaged_is_flagged_as_far_as_it_is_sound() -> None:
    world = StoreWorld(config=STAYING).open()
    for topic_id in (1, 2):
        world.create(topic_id)
        world.append(topic_id, 3)
    world.checkpoint()
    path, offset = place(world, 1, 2)
    world.ring.corrupt_file(path, offset + 60)
    world.drop(1)
    world.checkpoint()
    assert world.store.checkpointer.counters.error == ""
    again, _ = rebuilt(ended(world), STAYING, snapshots=False)
    assert (list(again.topic(1).rows), list(again.topic(2).rows)) == ([3], [1, 2, 3])


@pytest.mark.parametrize("damaged", ["the header of the run", "the table of the pack"])
def test_a_dropped_run_that_is_not_found_is_reported(damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    world = StoreWorld(config=STAYING).open()
    for topic_id in (1, 2):
        world.create(topic_id)
        world.append(topic_id, 3)
    world.checkpoint()
    path, _ = place(world, 1, 2)
    if damaged == "the header of the run":
        found = RunHeader.unpack(world.ring.file_bytes(path)[BLOCK_BYTES:], path)
        file = world.ring.disk.open(path, os.O_RDWR)
        assert isinstance(file, SimFile)
        world.ring.disk.write(file, BLOCK_BYTES, found._replace(epoch=7).pack())
    world.drop(1)
    if damaged == "the table of the pack":
        world.store.checkpointer.steps._manifest.packs[1].dropped.append(2)
    world.checkpoint()
    assert "records that are no longer in use stay without delete flags" in caplog.text
    assert ("epoch 0000000000000007" if damaged == "the header of the run" else "lacks some") in caplog.text


def test_seqs_of_deleted_records_are_not_given_out_again_when_only_a_segment_tells_of_them() -> None:
    """Its description is of the time when it was begun, and no record lives that is as new as the last one."""
    world = StoreWorld(config=small_config(pack_run_bytes=0)).open()
    world.create(1)
    world.append(1, 4)
    world.checkpoint()
    world.append(1, 4)
    world.checkpoint()
    world.delete(1, [7, 8])
    world.checkpoint()
    ring = world.end(power_cut=False)
    drop(ring, "snapshots", "wal/shard-00")
    again, _ = rebuilt(ring, world.config)
    assert again.append(1, 1) == [9]


@with_and_without_snapshots
def test_an_index_that_is_older_than_the_deletes_of_its_segment_is_not_believed(snapshots: bool) -> None:
    """Sealing failed after the index, so the segment stays open and deletes are only flagged in its frames."""
    config = small_config(pack_run_bytes=0, segment_max_events=4)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 2)
    world.checkpoint()
    world.append(1, 2)
    world.ring.faults.fail("write", errno.ENOSPC, path_part="1.data", nth=2)  # frames, then the footer
    with pytest.raises(OSError, match="No space left"):
        world.checkpoint()
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    again, _ = rebuilt(ended(world), config, snapshots=snapshots)
    assert list(again.topic(1).rows) == [1, 4]


FAILING = small_config(pack_run_bytes=0, checkpoint_bytes_per_pass=1, segment_max_age_ms=60_000)


def sealed_after_a_failed_checkpoint(*, deleted: list[int]) -> StoreWorld:
    """The failed one wrote frames of records that are deleted before the next one, which seals the segment."""
    world = StoreWorld(config=FAILING).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.append(1, 4, size=3000)
    world.ring.faults.fail("write", errno.ENOSPC, path_part="/seg-", nth=4)
    with pytest.raises(OSError, match="No space"):
        world.checkpoint()
    world.delete(1, deleted)
    world.checkpoint()  # makes do with little space: no new log file
    world.ring.clock.step_wall_ms(3_600_000)
    world.checkpoint()
    assert [name for name in world.files(SEGMENTS) if name.endswith(".idx")], "sealed"
    return world


def test_what_a_checkpoint_that_failed_left_in_a_segment_is_no_part_of_it_when_the_next_one_writes_less() -> None:
    """R-DEL-1. The frames of two deleted records follow its last one."""
    ring = sealed_after_a_failed_checkpoint(deleted=[5, 6, 7]).end(power_cut=False)
    drop(ring, "wal/shard-00")
    again, _ = rebuilt(ring, FAILING, snapshots=False)
    assert list(again.topic(1).rows) == [1, 2, 3, 4]


def test_what_a_checkpoint_that_failed_left_in_a_segment_is_no_part_of_it_when_it_is_sealed_for_its_age() -> None:
    world = sealed_after_a_failed_checkpoint(deleted=[4, 5, 6, 7])
    ring = ended(world)
    (path,) = (f"{DIRECTORY}/{SEGMENTS}/{name}" for name in world.files(SEGMENTS) if ".data" in name)
    data = ring.file_bytes(path)
    assert b"1/5/" not in data
    ring.corrupt_file(path, len(data) - FOOTER_BYTES)
    ring.corrupt_file(path, len(data) - FOOTER_BYTES + 60)  # nothing says any more where the frames end
    again, _ = rebuilt(ring, FAILING, snapshots=False)
    assert list(again.topic(1).rows) == [1, 2, 3]


def test_a_snapshot_that_came_back_with_a_power_cut_is_not_believed_once_its_log_is_gone() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    older = {name: world.ring.file_bytes(f"{DIRECTORY}/snapshots/{name}") for name in world.files("snapshots")}
    world.append(1, 3)
    world.checkpoint()
    world.checkpoint()
    ring = world.end(power_cut=False)
    for name in world.files("snapshots"):
        ring.corrupt_file(f"{DIRECTORY}/snapshots/{name}", 100)
    for name, data in older.items():
        write(ring, f"{DIRECTORY}/snapshots/{name}", data)
    again, _ = rebuilt(ring, IN_PACKS)
    assert list(again.topic(1).rows) == [1, 2, 3, 4, 5, 6]


def test_a_damaged_log_costs_nothing_that_the_snapshot_knows() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.create(2)
    world.append(2, 2)
    world.configure(1, "later")
    path, _ = place(world, 2, 1)
    world.run(world.store.checkpointer.snapshots.take(clean=False))
    world.append(2, 1)
    ring = world.end(power_cut=False)
    ring.corrupt_file(path, 4096 + 70)
    again, result = rebuilt(ring, IN_PACKS)
    assert (again.topic(1).config, again.topic(2).head, list(again.topic(1).rows)) == ("later", 2, [1, 2, 3])
    assert len(result.set_aside) >= 1
    assert again.append(2, 1) == [3]
    assert sorted(again.next_life(power_cut=True).topic(2).rows) == [3]


def test_a_bit_that_flips_in_the_header_of_a_log_file_costs_nothing() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.append(1, 3)
    path, _ = place(world, 1, 4)
    ring = world.end(power_cut=False)
    for at in range(0, 64, 5):
        damaged = SimRing(0, disk=copy.deepcopy(ring.disk))
        damaged.corrupt_file(path, at, 1 << at % 8)
        again, _ = rebuilt(damaged, IN_PACKS)
        assert list(again.topic(1).rows) == [1, 2, 3, 4, 5, 6], at


def test_a_log_file_whose_header_is_lost_ends_the_log() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.append(1, 3)
    path, _ = place(world, 1, 4)
    ring = world.end(power_cut=False)
    write(ring, path, b"what is this?")
    again, result = rebuilt(ring, IN_PACKS)
    assert list(again.topic(1).rows) == [1, 2, 3]
    assert any(path.rpartition("/")[2] in copied for copied in result.set_aside)


def test_a_log_file_that_is_missing_where_the_log_begins_leaves_what_lies_behind_it() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.append(1, 1)
    path, _ = place(world, 1, 4)
    ring = world.end(power_cut=False)
    ring.disk.unlink(path)
    again, _ = rebuilt(ring, IN_PACKS)
    assert list(again.topic(1).rows) == [1, 2, 3]
    again.append(1, 1)
    assert list(again.next_life(power_cut=True).topic(1).rows)[:3] == [1, 2, 3]


def test_a_rebuild_knows_that_the_log_of_a_shard_whose_directory_is_gone_was_given_up() -> None:
    """R-SEQ: what was given out there since the snapshot is not known, and must not be given out again."""
    world = StoreWorld(config=small_config(wal_shards=2)).open()
    assert world.store.log.shard_of(2) == 1
    world.create(2)
    world.control(2, FrameType.HEAD_RESERVATION, 0, {"upto": 64})
    world.checkpoint()
    world.append(2, 5)
    ring = world.end(power_cut=False)
    wal = ring.disk.find(f"{DIRECTORY}/wal")
    assert isinstance(wal, SimDirectory)
    for names in (wal.live, wal.durable):
        del names["shard-01"]
    loop = Loop(ring, ring.clock)
    loop.run_task(rebuild(loop, DIRECTORY))
    found = loop.run_task(load_snapshot(loop.files, DIRECTORY))
    assert found is not None
    assert found.store.log_cut
    assert StoreWorld(ring, config=world.config).open().topic(2).gaps == [(1, 64)]


def test_half_a_footer_behind_a_segment_that_still_grows_is_what_a_crash_left_and_no_damage() -> None:
    world = StoreWorld(config=small_config(pack_run_bytes=0)).open()
    world.create(1)
    acked = world.append(1, 3)
    world.checkpoint()
    path, _ = place(world, 1, 1)
    ring = world.end(power_cut=False)
    data = ring.file_bytes(path)
    write(ring, path, data + bytes(4096 - FOOTER_BYTES) + SEGMENT_FOOTER_MAGIC + b"torn".ljust(FOOTER_BYTES - 4))
    loop = Loop(ring, ring.clock)
    assert loop.run_task(verify(loop, DIRECTORY)).sound
    again, result = rebuilt(ring.next_life(power_cut=False), world.config)
    assert result.set_aside == []
    assert list(again.topic(1).rows) == acked


@pytest.mark.parametrize("run_bytes", [0, 1 << 20], ids=["segments", "packs"])
def test_a_power_cut_amid_a_checkpoint_costs_nothing_though_no_snapshot_is_left(run_bytes: int) -> None:
    """R-DUR-1. What the checkpoint had not synced has holes, and the log still has what was in them."""
    config = small_config(pack_run_bytes=run_bytes, checkpoint_bytes_per_pass=2000, checkpoint_wal_bytes=1 << 40)
    cuts = 0
    for effects in range(3, 120, 6):
        world = StoreWorld(config=config, seed=2).open()
        for topic_id in (1, 2, 3):
            world.create(topic_id)
            world.append(topic_id, 4, size=300)
        world.checkpoint()
        world.delete(1, [2])
        for topic_id in (1, 2, 3) * 3:
            world.append(topic_id, 4, size=900)
        world.delete(2, [3, 7])
        live = {topic_id: sorted(world.topic(topic_id).rows) for topic_id in (1, 2, 3)}
        world.ring.stop_at(world.ring.effects + effects)
        with contextlib.suppress(SimStoppedError):
            world.checkpoint()
            break
        cuts += 1
        again, _ = rebuilt(world.end(power_cut=True), config, snapshots=False)
        assert {topic_id: sorted(again.topic(topic_id).rows) for topic_id in (1, 2, 3)} == live, effects
        again.append(1, 1)
    assert cuts > 8


def test_a_topic_is_as_the_file_states_it_that_was_written_last() -> None:
    """The file of the highest seqs won, also if one of lower seqs had been written anew later."""
    config = small_config(segment_max_events=10, segment_bulk=1, pack_run_bytes=256)
    world = StoreWorld(config=config).open()
    world.create(1)
    for _ in range(2):
        world.append(1, 10, size=100)
        world.checkpoint()
    world.ring.clock.advance_ns(1_000_000_000)
    world.configure(1, "changed")
    world.delete(1, list(range(2, 10)))
    world.checkpoint()
    world.passes(60)
    assert f"seg-{1:020d}-1.data" in world.files(SEGMENTS)
    again, _ = rebuilt(ended(world), config, snapshots=False)
    assert again.topic(1).config == "changed"
    assert list(again.topic(1).rows) == [1, *range(10, 21)]


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_damaged_session_note_is_no_power_cut_if_a_snapshot_states_the_boot(power_cut: bool) -> None:
    """Reserved seqs, which were never written, were reported as lost."""
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    path, offset = place(world, 1, 2)
    world.append(1, 2)
    ring = world.end(power_cut=power_cut)
    ring.corrupt_file(path, offset + 60)
    write(ring, f"{DIRECTORY}/session", b"?")
    again, _ = rebuilt(ring, world.config)
    assert again.catalog.power_lost is power_cut


def test_without_a_snapshot_seqs_of_a_log_that_was_cut_count_as_given_out() -> None:
    """They were given out again, to other records, and the cut ones were not reported."""
    world = StoreWorld().open()
    world.create(1)
    for _ in range(9):
        world.append(1)
    name = world.files("wal/shard-00")[0]
    path = f"{DIRECTORY}/wal/shard-00/{name}"
    _, offset = place(world, 1, 5)
    ring = world.end(power_cut=False)
    ring.corrupt_file(path, offset + 20)
    again, _ = rebuilt(ring, world.config, snapshots=False)
    assert list(again.topic(1).rows) == [1, 2, 3, 4]
    assert again.catalog.power_lost
