"""What a rebuild keeps: all that counted and is sound, and nothing that had gone."""

from __future__ import annotations

import copy
import errno
import os

import pytest

from tests.sim import SimRing
from tests.sim.file import SimFile
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.config import Config
from topics.loop import Loop
from topics.store.fsck import verify
from topics.store.rebuild import Rebuilt, rebuild
from topics.store.segment_format import FOOTER_BYTES, SegmentHeader

IN_PACKS = small_config(pack_run_bytes=1 << 20)
with_and_without_snapshots = pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshots"])


def ended(world: StoreWorld) -> SimRing:
    """Closed after a start of its own, so that nothing lies in the log."""
    world.close()
    again = StoreWorld(world.ring.next_life(power_cut=False), config=world.config).open()
    again.close()
    return again.ring.next_life(power_cut=False)


def drop(ring: SimRing, *directories: str) -> None:
    """Removes the files in these directories."""
    for directory in directories:
        for name in ring.disk.list_directory(f"{DIRECTORY}/{directory}"):
            ring.disk.unlink(f"{DIRECTORY}/{directory}/{name}")


def write(ring: SimRing, path: str, data: bytes) -> None:
    """Over the beginning of a file, which is made when it is missing."""
    file = ring.disk.open(path, os.O_RDWR | os.O_CREAT)
    assert isinstance(file, SimFile)
    ring.disk.write(file, 0, data)


def rebuilt(ring: SimRing, config: Config, *, snapshots: bool = True) -> tuple[StoreWorld, Rebuilt]:
    if not snapshots:
        drop(ring, "snapshots")
    loop = Loop(ring, ring.clock)
    result = loop.run_task(rebuild(loop, DIRECTORY))
    assert [finding for finding in loop.run_task(verify(loop, DIRECTORY)).findings if not finding.is_index] == []
    world = StoreWorld(ring, config=config).open()
    world.check_every_record()
    return world, result


def place(world: StoreWorld, topic_id: int, seq: int) -> tuple[str, int]:
    """Path of the file that a record lies in, and its offset there."""
    row = world.topic(topic_id).rows[seq]
    return world.store.files[row.file_id].path, row.offset


# --- which files count -----------------------------------------------------------------------------------------------
@with_and_without_snapshots
def test_log_files_left_over_from_a_checkpoint_that_was_killed_do_not_end_the_log(snapshots: bool) -> None:
    """R-DUR-1. They lie below the replay's start under names of the log, and some are used again: a hole."""
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
    with pytest.raises(OSError, match="Input/output error"):
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
    """Sealing failed behind the index, so the segment stays open and deletes are flagged in its frames alone."""
    config = small_config(pack_run_bytes=0, segment_max_events=4)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 4)
    world.ring.faults.fail("open", errno.EMFILE, path_part="1.data", nth=3)  # header, frames, then the footer
    with pytest.raises(OSError, match="Too many open files"):
        world.checkpoint()
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    again, _ = rebuilt(ended(world), config, snapshots=snapshots)
    assert list(again.topic(1).rows) == [1, 4]


def test_what_a_checkpoint_that_failed_left_in_a_segment_is_no_part_of_it_when_it_is_sealed_for_its_age() -> None:
    config = small_config(pack_run_bytes=0, checkpoint_bytes_per_pass=1, segment_max_age_ms=60_000)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.append(1, 4, size=3000)
    world.ring.faults.fail("write", errno.ENOSPC, path_part="/seg-", nth=4)
    with pytest.raises(OSError, match="No space"):
        world.checkpoint()
    world.delete(1, [4, 5, 6, 7])
    world.checkpoint()
    world.ring.clock.step_wall_ms(3_600_000)
    world.checkpoint()
    ring = ended(world)
    (path,) = (f"{DIRECTORY}/topics/{1:016x}/{name}" for name in world.files(f"topics/{1:016x}") if ".data" in name)
    data = ring.file_bytes(path)
    assert b"1/5/" not in data
    ring.corrupt_file(path, len(data) - FOOTER_BYTES)
    ring.corrupt_file(path, len(data) - FOOTER_BYTES + 60)  # nothing says any more where the frames end
    again, _ = rebuilt(ring, config, snapshots=False)
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


# --- what is left of a damaged file ----------------------------------------------------------------------------------
@with_and_without_snapshots
def test_deleted_records_stay_deleted_in_a_pack_that_is_mended(snapshots: bool) -> None:
    world = StoreWorld(config=IN_PACKS).open()
    for topic_id in (1, 2):
        world.create(topic_id)
        world.append(topic_id, 4)
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    path, offset = place(world, 2, 3)
    ring = ended(world)
    ring.corrupt_file(path, offset + 60)
    again, result = rebuilt(ring, IN_PACKS, snapshots=snapshots)
    assert {topic_id: list(topic.rows) for topic_id, topic in again.catalog.topics.items()} == {1: [1, 4], 2: [1, 2, 4]}
    assert (len(result.set_aside), result.records) == (1, 7)
    assert list(again.next_life(power_cut=True).topic(1).rows) == [1, 4]


@with_and_without_snapshots
def test_a_tag_that_looks_like_the_beginning_of_a_run_does_not_make_a_pack_a_damaged_one(snapshots: bool) -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 4, tag=b"TPRN-7")
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    again, result = rebuilt(ended(world), IN_PACKS, snapshots=snapshots)
    assert list(again.topic(1).rows) == [1, 4]
    assert result.set_aside == []


@with_and_without_snapshots
def test_a_mended_segment_goes_on_saying_what_its_footer_said(snapshots: bool) -> None:
    """Records below a floor that the header does not know of stay gone."""
    config = small_config(pack_run_bytes=0, segment_max_events=5)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.evict(1, 2)
    world.append(1, 2)
    world.checkpoint()
    path, offset = place(world, 1, 4)
    ring = ended(world)
    ring.corrupt_file(path, offset + 60)
    again, _ = rebuilt(ring, config, snapshots=snapshots)
    assert list(again.topic(1).rows) == [3, 5]
    assert b'"floor": 2' in SegmentHeader.unpack(again.ring.file_bytes(path), path).description


@with_and_without_snapshots
@pytest.mark.parametrize("kind", ["segment", "pack", "run"])
def test_a_bit_that_flips_in_a_header_costs_nothing(kind: str, snapshots: bool) -> None:
    config = small_config(pack_run_bytes=0) if kind == "segment" else IN_PACKS
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 50)
    world.checkpoint()
    path, first = place(world, 1, 1)
    begin, size = {"segment": (0, 100), "pack": (0, 32), "run": (4096, first - 4096)}[kind]
    ring = ended(world)
    for at in range(begin, begin + size, 11 if kind == "run" else 3):
        if kind == "segment" and 48 <= at < 56:
            continue  # where the frames begin and padding: no part of what is read
        damaged = SimRing(0, disk=copy.deepcopy(ring.disk))
        damaged.corrupt_file(path, at, 1 << at % 8)
        again, result = rebuilt(damaged, config, snapshots=snapshots)
        assert len(again.topic(1).rows) == 50, at
        assert result.records == 50, at


@with_and_without_snapshots
def test_a_segment_whose_header_is_lost_keeps_its_records(snapshots: bool) -> None:
    """By its footer, or by what the snapshot says of it."""
    config = small_config(pack_run_bytes=0, segment_max_events=50)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 60)
    world.checkpoint()
    sealed, tail = place(world, 1, 1)[0], place(world, 1, 60)[0]
    ring = ended(world)
    write(ring, sealed, bytes(4096))
    if snapshots:
        write(ring, tail, bytes(4096))
    again, _ = rebuilt(ring, config, snapshots=snapshots)
    assert len(again.topic(1).rows) == 60


@pytest.mark.parametrize("at", range(4))
def test_a_bit_that_flips_in_the_length_of_a_record_costs_that_record_alone(at: int) -> None:
    """Without an index, too, that says where the next one lies."""
    config = small_config(pack_run_bytes=0)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 50)
    world.checkpoint()
    path, offset = place(world, 1, 20)
    ring = ended(world)
    ring.corrupt_file(path, offset + at, 0x10)
    again, _ = rebuilt(ring, config)
    assert sorted(again.topic(1).rows) == [seq for seq in range(1, 51) if seq != 20]


def test_a_damaged_log_costs_nothing_that_the_snapshot_knows() -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.create(2)
    world.append(2, 2)
    world.configure(1, "later")
    path, _ = place(world, 2, 1)
    world.run(world.store.checkpointer.take_snapshot(clean=False))
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
