"""Damage is found where it is; a directory is rebuilt from its segments."""

from __future__ import annotations

import copy
import os
import random

import pytest

from tests.sim import SimRing
from tests.store.repair.rebuilding import drop
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.loop import Loop
from topics.store.format import codec
from topics.store.format.log_format import DELETED, DELETED_LIVE, WAL_FIRST_BATCH_OFFSET
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import FLAGS_OFFSET_PER_ROW, INDEX_HEADER_BYTES, IndexHeader
from topics.store.layouts.segment_format import SEGMENT_FOOTER_MAGIC
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import VerifyReport, verify
from topics.store.segments.pack import scan_runs
from topics.store.segments.segment import read_footer

SEGMENTS = f"{DIRECTORY}/topics/0000000000000001"


def filled() -> StoreWorld:
    """Sealed segments, an unsealed one, a pack, and a log after them."""
    world = StoreWorld(config=small_config(segment_max_events=40, pack_run_bytes=4096)).open()
    for topic_id in (1, 2, 3):
        world.create(topic_id)
        world.configure(topic_id, f"config {topic_id}")
    world.append(1, 100, size=80, tag=b"a")
    world.append(2, 5, tag=b"b")
    world.append(3, 5)
    world.checkpoint()
    world.delete(1, [3, 50])
    world.delete(2, [2])
    world.evict(1, 10)
    world.checkpoint()
    world.append(1, 5)
    world.append(3, 1)
    return world


def check(ring: SimRing) -> VerifyReport:
    loop = Loop(ring, ring.clock)
    return loop.run_task(verify(loop, DIRECTORY))


def test_a_sound_directory_has_no_findings() -> None:
    world = filled()
    report = check(world.end(power_cut=False))
    assert report.findings == []
    assert (report.snapshots, report.segments, report.packs, report.records) == (2, 3, 1, 110)
    assert report.log_batches > 0


def test_what_a_crash_left_half_written_in_a_file_that_no_snapshot_lists_is_no_damage() -> None:
    ring = filled().end(power_cut=False)
    for path in (f"{SEGMENTS}/seg-{999:020d}.data", f"{DIRECTORY}/packs/pack-{9:016x}.data"):
        ring.disk.open(path, os.O_CREAT | os.O_RDWR)
    report = check(ring)
    assert report.findings == []
    assert len([note for note in report.notes if "no snapshot lists it" in note]) == 2


def data_files(ring: SimRing) -> list[str]:
    names = [f"{SEGMENTS}/{name}" for name in ring.disk.list_directory(SEGMENTS)]
    names += [f"{DIRECTORY}/packs/{name}" for name in ring.disk.list_directory(f"{DIRECTORY}/packs")]
    return names + [f"{DIRECTORY}/snapshots/{name}" for name in ring.disk.list_directory(f"{DIRECTORY}/snapshots")]


def test_every_flipped_bit_that_matters_is_found_with_its_path() -> None:
    ring = filled().end(power_cut=False)
    rng = random.Random(5)
    found = 0
    for path in data_files(ring):
        data = ring.file_bytes(path)
        for at in rng.sample([i for i, byte in enumerate(data) if byte], 12):
            ring.corrupt_file(path, at)
            report = check(ring)
            ring.corrupt_file(path, at)
            assert {finding.path for finding in report.findings} == {path}, (at, data[at])
            found += 1
    assert found == 12 * len(data_files(ring))
    assert check(ring).sound


@pytest.mark.parametrize("bit", range(8))
def test_a_bit_that_flips_in_a_flag_of_a_record_is_found_and_neither_hides_nor_revives_it(bit: int) -> None:
    """R-DUR-2. Two flags a record, in the frame and in the index, and no checksum covers either."""
    for segment_max_events, name in ((40, "seg-00000000000000000001.data"), (40, "seg-00000000000000000001.idx"),
                                     (1000, "seg-00000000000000000001.data")):  # fmt: skip
        world = StoreWorld(config=small_config(segment_max_events=segment_max_events, pack_run_bytes=0)).open()
        world.create(1)
        world.append(1, 50, size=10)
        world.checkpoint()
        world.delete(1, [3])
        world.checkpoint()
        ring = world.end(power_cut=False)
        path = f"{SEGMENTS}/{name}"
        data = ring.file_bytes(path)
        if name.endswith(".idx"):
            header, _ = IndexHeader.unpack(data, path)
            places = [INDEX_HEADER_BYTES + FLAGS_OFFSET_PER_ROW * header.rows + row for row in (2, 3)]
        else:
            frames = codec.scan_frames(memoryview(data)[4096:], base=4096).frames
            places = [int(row["offset"] + row["length"] - 1) for row in frames[2:4]]
            assert [data[at] for at in places] == [DELETED, DELETED_LIVE]
        for at in places:
            ring.corrupt_file(path, at, 1 << bit)
            assert [finding.path for finding in check(ring).findings] == [path], (name, at)
            opened = StoreWorld(SimRing(0, disk=copy.deepcopy(ring.disk)), config=world.config).open()
            assert sorted(opened.topic(1).rows) == [1, 2, *range(4, 51)], (name, at)
            ring.corrupt_file(path, at, 1 << bit)


@pytest.mark.parametrize("at", range(4))
def test_bits_of_a_footers_mark_that_flip_are_found_and_the_footer_is_read_all_the_same(at: int) -> None:
    world = filled()
    ring = world.end(power_cut=False)
    path = f"{SEGMENTS}/seg-00000000000000000001.data"
    data = ring.file_bytes(path)
    begin = len(data) - FOOTER_BYTES
    assert data[begin : begin + 4] == SEGMENT_FOOTER_MAGIC
    for bit in range(8):
        ring.corrupt_file(path, begin + at, 1 << bit)
        (finding,) = check(ring).findings
        assert (finding.path, finding.offset, finding.topic_id, finding.is_index) == (path, begin, 1, True)
        assert read_footer(ring.file_bytes(path), path) == read_footer(data, path)
        ring.corrupt_file(path, begin + at, 1 << bit)


def test_bits_of_the_mark_of_a_run_that_flip_are_found_also_if_none_of_its_records_is_live() -> None:
    """The snapshot lists no run without live records, and runs are read up to the first one without its mark."""
    world = filled()
    world.delete(3, [*range(1, 7)])
    world.checkpoint()
    ring = world.end(power_cut=False)
    path = f"{DIRECTORY}/packs/pack-0000000000000001.data"
    runs = scan_runs(ring.file_bytes(path), path)
    assert runs[-1].header.topic_id == 3
    for at in range(4):
        ring.corrupt_file(path, runs[-1].position + at)
        (finding,) = check(ring).findings
        assert (finding.path, finding.offset, finding.topic_id, finding.seq) == (path, runs[-1].position, 3, 1)
        ring.corrupt_file(path, runs[-1].position + at)


def test_a_sealed_segment_without_a_footer_is_damaged() -> None:
    ring = filled().end(power_cut=False)
    path = f"{SEGMENTS}/seg-00000000000000000001.data"
    begin = len(ring.file_bytes(path)) - FOOTER_BYTES
    for at in (begin, begin + 60):
        ring.corrupt_file(path, at)
    assert [finding.path for finding in check(ring).findings] == [path]
    assert read_footer(ring.file_bytes(path), path) is None


def test_a_damaged_record_is_named_by_topic_and_seq() -> None:
    world = filled()
    offset = world.topic(1).rows[20].offset
    ring = world.end(power_cut=False)
    ring.corrupt_file(f"{SEGMENTS}/seg-00000000000000000001.data", offset + 60)
    (finding,) = check(ring).findings
    assert (finding.topic_id, finding.seq, finding.offset) == (1, 20, offset)


def test_damage_in_the_log_is_found() -> None:
    world = filled()
    path = world.store.files[world.topic(1).rows[101].file_id].path
    ring = world.end(power_cut=False)
    ring.corrupt_file(path, WAL_FIRST_BATCH_OFFSET + 70)
    assert [finding.path for finding in check(ring).findings] == [path]


def rebuilt(ring: SimRing) -> StoreWorld:
    loop = Loop(ring, ring.clock)
    loop.run_task(rebuild(loop, DIRECTORY))
    return StoreWorld(ring, config=small_config()).open()


@pytest.mark.parametrize("with_log", [True, False])
def test_a_directory_is_rebuilt_from_segments_alone(with_log: bool) -> None:
    world = filled()
    if not with_log:
        world.checkpoint()
    before = world.catalog.state()
    ring = world.end(power_cut=False)
    drop(ring, "snapshots", *([] if with_log else ["wal/shard-00"]))
    world = rebuilt(ring)
    for topic_id, (name, config, head, floor, _, rows) in before.items():  # type: ignore[misc]
        topic = world.topic(topic_id)
        assert (topic.name, topic.config, topic.head) == (name, config, head)
        assert {seq for seq in topic.rows if seq > floor} == set(rows), topic_id
    world.check_every_record()
    again = world.next_life(power_cut=True)
    again.check_every_record()


def test_a_damaged_segment_loses_only_the_damaged_record_and_is_kept_aside() -> None:
    world = filled()
    world.checkpoint()
    row = world.topic(1).rows[20]
    before = set(world.topic(1).rows)
    ring = world.end(power_cut=False)
    ring.corrupt_file(f"{SEGMENTS}/seg-00000000000000000001.data", row.offset + 60)
    world = rebuilt(ring)
    assert set(world.topic(1).rows) - set(range(1, 11)) == before - {20}
    world.check_every_record()
    (aside,) = [name for name in world.files("") if name.startswith("set-aside")]
    assert world.files(aside) == ["topics-0000000000000001-seg-00000000000000000001.data"]


def test_a_damaged_log_is_kept_up_to_the_damage() -> None:
    world = filled()
    for _ in range(5):
        world.append(3, 1)
    ring = world.end(power_cut=False)
    row = world.topic(3).rows[9]
    path = next(file.path for file in world.store.files if file.file_id == row.file_id)
    ring.corrupt_file(path, row.offset + 55)
    world = rebuilt(ring)
    assert sorted(world.topic(3).rows) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert world.next_life().topic(3).rows.keys() == world.topic(3).rows.keys()


def test_a_marker_that_stops_the_start_is_found() -> None:
    ring = filled().end(power_cut=False)
    path = f"{DIRECTORY}/topics.json"
    for name in (b'"format":', b'"cores":'):
        at = ring.file_bytes(path).index(name) + len(name)
        ring.corrupt_file(path, at, 0x08)
        assert [finding.path for finding in check(ring).findings] == [path]
        ring.corrupt_file(path, at, 0x08)
    assert check(ring).sound
