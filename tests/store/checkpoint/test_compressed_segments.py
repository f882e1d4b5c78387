"""Segments that are compressed when they move: reads, deletes, damage, rebuilds, and what is refused."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.store.store_world import DIRECTORY, StoreWorld, small_config, text_of
from topics.errors import CorruptError, FormatError, StorageError, UsageError
from topics.loop.files import Files
from topics.store.checkpoint.tiering import Tiering
from topics.store.disk.whole_files import write_new_file
from topics.store.format import compressed_segment
from topics.store.format.compressed_segment import (
    HEADER_BYTES,
    CompressedHeader,
    blocks_of,
    flag_offsets,
    flag_place,
    image_of,
)
from topics.store.format.log_format import SAYS_DELETED
from topics.store.read.file_range import FileRange
from topics.store.repair.rebuild import rebuild
from topics.store.repair.salvage import salvaged_image
from topics.store.repair.verify_directory import VerifyReport, verify
from topics.store.segments.data_files import Segment

COLD = "cold"
TOPIC = "topics/0000000000000001"
FIRST = f"{COLD}/{TOPIC}/seg-{1:020d}.data"


def config(**changes: Any) -> Any:
    settings = {
        "segment_max_events": 1000,
        "segment_max_bytes": 1 << 24,
        "pack_run_bytes": 512,
        "cold_dir": COLD,
        "hot_retain_segments": 0,
        "segment_codec": "zstd",
        "compact_below": 0.0,
    }
    return small_config(**{**settings, **changes})


def filled(records: int = 1000, size: int = 300, **changes: Any) -> StoreWorld:
    """One sealed segment of several blocks in the cold directory."""
    world = StoreWorld(config=config(segment_max_events=records, **changes)).open()
    world.create(1)
    world.append(1, records, size=size)
    world.checkpoint()
    world.passes(40)
    assert world.files(TOPIC) == []
    return world


def verified(world: StoreWorld) -> VerifyReport:
    """The report of a start that does not happen: on a copy of the ring."""
    world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config)
    report: VerifyReport = world.run(verify(world.loop, DIRECTORY, COLD))
    return report


def rebuilt(world: StoreWorld, *, snapshots: bool = True) -> StoreWorld:
    """The next life after a rebuild, with or without the snapshots."""
    if not snapshots:
        for name in world.files("snapshots"):
            world.ring.disk.unlink(f"{DIRECTORY}/snapshots/{name}")
    world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config)
    world.run(rebuild(world.loop, DIRECTORY, COLD))
    return world.next_life()


def test_a_segment_that_moves_is_compressed_and_its_records_are_read_in_any_life() -> None:
    world = filled()
    data = world.ring.file_bytes(FIRST)
    header = CompressedHeader.unpack(data, FIRST)
    assert header.blocks == 6
    assert len(data) < header.image_bytes // 3
    assert b'"format":2' in world.ring.file_bytes(f"{DIRECTORY}/topics.json")
    world.check_every_record()
    world = world.next_life(power_cut=True)
    world.check_every_record()
    assert verified(world).sound


def test_the_flags_of_a_compressed_segment_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GiB of segment has 17 MB of them: written at once, they hold the loop for 30 ms."""
    zeros: list[int] = []
    write_all = Files.write_all

    async def write(self: Files, fd: int, data: Any, offset: int) -> None:
        if offset >= HEADER_BYTES and not any(data):
            zeros.append(len(data))
        await write_all(self, fd, data, offset)

    monkeypatch.setattr(Files, "write_all", write)
    world = filled(checkpoint_bytes_per_pass=4096)
    assert len(zeros) > 1
    assert max(zeros) <= 4096
    assert sum(zeros) == CompressedHeader.unpack(world.ring.file_bytes(FIRST), FIRST).flags_bytes


def test_a_record_larger_than_a_block_is_read_from_all_of_its_blocks() -> None:
    world = filled(4, size=200_000, wal_file_bytes=1 << 20)
    world.check_every_record()


def test_a_read_of_one_record_reads_its_block_and_no_other() -> None:
    world = filled()
    world = world.next_life()
    row = world.topic(1).rows[900]
    world.read(1, 900)
    blocks = world.store.files[row.file_id].blocks
    assert blocks is not None
    covering = blocks.covering(row.offset, row.length)
    assert len(covering) <= 2
    with pytest.raises(CorruptError, match=r"inside a record: .*topics fsck --rebuild"):
        blocks.covering(blocks.header.image_bytes, 1)
    assert covering.start > 3


def test_a_delete_in_a_compressed_segment_survives_a_power_cut_without_the_index() -> None:
    world = filled()
    world.delete(1, [1, 5, 500, 1000])
    world.checkpoint()
    world.ring.disk.unlink(FIRST.replace(".data", ".idx"))
    world = world.next_life(power_cut=True)
    assert set(world.topic(1).rows) == set(range(1, 1001)) - {1, 5, 500, 1000}
    world.check_every_record()
    world.close()
    assert verified(world).sound


def test_each_record_of_a_compressed_segment_has_a_flag_of_its_own() -> None:
    world = filled(400, size=1)
    world.delete(1, list(range(1, 401, 2)))
    world.checkpoint()
    world.ring.disk.unlink(FIRST.replace(".data", ".idx"))
    world = world.next_life()
    assert set(world.topic(1).rows) == set(range(2, 401, 2))


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_rebuild_keeps_a_sound_compressed_segment_and_what_is_deleted_there(snapshots: bool) -> None:
    world = filled()
    world.delete(1, [7, 8])
    world.checkpoint()
    world.close()
    before = world.ring.file_bytes(FIRST)
    world = rebuilt(world, snapshots=snapshots)
    assert set(world.topic(1).rows) == set(range(1, 1001)) - {7, 8}
    world.check_every_record()
    assert world.ring.file_bytes(FIRST) == before


@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_a_rebuild_loses_the_records_of_a_damaged_block_and_no_others(snapshots: bool, index: bool) -> None:
    world = filled()
    deleted = {5, 900}
    world.delete(1, sorted(deleted))
    world.checkpoint()
    world.close()
    blocks = blocks_of(world.ring.file_bytes(FIRST), FIRST)
    begin, _ = blocks.place(range(2, 3))
    block = range(2 * blocks.header.block_bytes, 3 * blocks.header.block_bytes)
    lost = {
        seq
        for seq, row in world.topic(1).rows.items()
        if row.offset < block.stop and row.offset + row.length > block.start
    }
    assert 100 < len(lost) < 250
    world.ring.corrupt_file(FIRST, begin + 20)
    if not index:
        world.ring.disk.unlink(FIRST.replace(".data", ".idx"))
    report = verified(world)
    assert not report.sound
    assert f"the compressed block at byte {begin} is damaged" in report.findings[0].message
    assert report.findings[0].offset == begin
    world = rebuilt(world, snapshots=snapshots)
    assert set(world.topic(1).rows) == set(range(1, 1001)) - lost - deleted
    world.check_every_record()
    world.close()
    assert verified(world).sound


@pytest.mark.parametrize("at", [0, 9, 20, HEADER_BYTES - 1, -1], ids=["magic", "size", "blocks", "checksum", "table"])
def test_a_rebuild_loses_nothing_to_a_flipped_bit_in_the_header_or_the_table(at: int) -> None:
    world = filled()
    world.delete(1, [5])
    world.checkpoint()
    world.close()
    header = CompressedHeader.unpack(world.ring.file_bytes(FIRST), FIRST)
    world.ring.corrupt_file(FIRST, at if at >= 0 else header.table_at + 5)
    assert not verified(world).sound
    world = rebuilt(world)
    assert set(world.topic(1).rows) == set(range(1, 1001)) - {5}
    world.check_every_record()


def test_a_flag_whose_bits_have_flipped_is_reported_and_read_as_what_it_was() -> None:
    world = filled()
    rows = world.topic(1).rows
    places = [flag_place(rows[seq].offset + rows[seq].length - 1) for seq in (10, 20)]
    world.delete(1, [20])
    world.checkpoint()
    for place in places:
        world.ring.corrupt_file(FIRST, place)
    world.ring.disk.unlink(FIRST.replace(".data", ".idx"))
    world.close()
    assert [finding.seq for finding in verified(world).findings] == [10, 20]
    world = world.next_life()
    assert set(world.topic(1).rows) == set(range(1, 1001)) - {20}


def test_a_read_of_a_damaged_block_fails_with_the_place_and_the_remedy() -> None:
    world = filled()
    begin, _ = blocks_of(world.ring.file_bytes(FIRST), FIRST).place(range(0, 1))
    world.ring.corrupt_file(FIRST, begin + 20)
    error = failure(world, 1)
    assert isinstance(error, CorruptError)
    assert str(error).startswith(f"{FIRST}: the compressed block at byte {begin} is damaged: `topics fsck` shows")
    world.read(1, 1000)


def test_a_block_that_states_any_other_size_is_damaged_and_takes_no_memory() -> None:
    world = filled()
    data = bytearray(world.ring.file_bytes(FIRST))
    begin, _ = blocks_of(data, FIRST).place(range(0, 1))
    data[begin + 4] ^= 0x80  # the size of the contents has eight bytes then, those that follow
    world.run(write_new_file(world.loop.files, FIRST, bytes(data)))
    assert f"{FIRST}: the compressed block at byte {begin} is damaged" in str(failure(world, 1))


def failure(world: StoreWorld, seq: int) -> StorageError:
    row = world.topic(1).rows[seq]
    got: list[Any] = []
    world.store.reader.fetch([FileRange(row.file_id, row.offset, row.length)], got.append)
    world.loop.run_until(lambda: bool(got))
    assert isinstance(got[0], StorageError)
    return got[0]


def test_a_read_that_begins_while_the_moved_file_is_still_read_succeeds() -> None:
    world = StoreWorld(config=config()).open()
    world.create(1)
    world.append(1, 1000, size=300)
    world.run(world.store.checkpointer.run(moves=False))
    world.read(1, 5)
    file = world.store.files[world.topic(1).rows[5].file_id]
    file.hold()
    world.checkpoint()
    world.read(1, 5)
    file.release()
    world.passes(100)
    assert world.files(TOPIC) == []
    world.check_every_record()


def test_a_file_that_ends_inside_a_block_is_reported_with_the_remedy() -> None:
    world = filled()
    data = world.ring.file_bytes(FIRST)
    world.run(write_new_file(world.loop.files, FIRST, data[:-100]))
    error = failure(world, 1000)
    assert f"{FIRST} ends at byte {len(data) - 100}, inside a compressed block: `topics fsck` shows" in str(error)
    world.close()
    assert "inside a compressed block" in verified(world).findings[0].message


def test_a_read_that_the_disk_fails_is_an_error_of_that_read() -> None:
    world = filled().next_life()
    world.ring.faults.fail("read", errno.EIO, path_part="/seg-")
    assert "failed" in str(failure(world, 1))
    world.read(1, 1)


def test_a_compressed_segment_of_a_newer_build_is_refused_with_the_remedy() -> None:
    world = filled()
    data = bytearray(world.ring.file_bytes(FIRST))
    data[6] = 7
    with pytest.raises(FormatError, match=r"codec 7; this build knows version 1 and codec 1 \(zstd\): use the version"):
        image_of(bytes(data), FIRST)


@pytest.mark.parametrize("codec", ["zstd", "none"])
@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshots"])
def test_a_rebuild_refuses_a_segment_of_a_newer_version_and_changes_nothing(codec: str, snapshots: bool) -> None:
    world = filled(segment_codec=codec)
    world.create(2)
    world.append(2, 3)
    world.checkpoint()
    data = bytearray(world.ring.file_bytes(FIRST))
    data[4] = 7
    world.run(write_new_file(world.loop.files, FIRST, data))
    if not snapshots:
        for name in world.files("snapshots"):
            world.ring.disk.unlink(f"{DIRECTORY}/snapshots/{name}")
    world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config)
    before = _everything(world)
    with pytest.raises(
        FormatError, match=rf"^{FIRST}: a .*segment of version 7.*: use the version of topics that made"
    ):
        world.run(rebuild(world.loop, DIRECTORY, COLD))
    assert _everything(world) == before


@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshots"])
def test_bytes_after_the_last_block_are_damage_and_a_rebuild_loses_nothing(snapshots: bool) -> None:
    world = filled()
    data = world.ring.file_bytes(FIRST)
    world.run(write_new_file(world.loop.files, FIRST, data + b"x" * 1000))
    (finding,) = verified(world).findings
    assert (finding.path, finding.offset, finding.topic_id) == (FIRST, len(data), 1)
    assert finding.topic == world.topic(1).name
    assert finding.message.startswith("1000 bytes follow the last block")
    world = rebuilt(world, snapshots=snapshots)
    assert len(world.topic(1).rows) == 1000
    world.check_every_record()
    assert verified(world).sound


def _everything(world: StoreWorld) -> dict[str, bytes]:
    """All files of both directories, by path."""
    found: dict[str, bytes] = {}
    waiting = [DIRECTORY, COLD]
    while waiting:
        path = waiting.pop()
        for name in world.ring.disk.list_directory(path):
            inner = f"{path}/{name}"
            try:
                found[inner] = world.ring.file_bytes(inner)
            except (OSError, AssertionError):
                waiting.append(inner)
    return found


def test_a_segment_that_becomes_due_meanwhile_is_not_compressed_below_format_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Age makes one due from one millisecond to the next."""
    due = Tiering.due
    answers: list[list[Segment]] = []

    def due_the_second_time(tiering: Tiering) -> list[Segment]:
        answers.append(due(tiering) if answers else [])
        return answers[-1]

    monkeypatch.setattr(Tiering, "due", due_the_second_time)
    world = StoreWorld(config=config()).open()
    world.create(1)
    world.append(1, 1000, size=300)
    world.checkpoint()
    assert f"seg-{1:020d}.data" in world.files(TOPIC)
    world.checkpoint()
    assert world.ring.file_bytes(FIRST).startswith(b"TPSZ")
    assert b'"format":2' in world.ring.file_bytes(f"{DIRECTORY}/topics.json")


def test_without_the_package_a_start_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    monkeypatch.setattr(compressed_segment, "zstandard", None)
    for codec in ("zstd", "none"):
        with pytest.raises(StorageError, match=r"zstandard: install it by pip install 'topics-log\[zstd\]'"):
            world.next_life(config=config(segment_codec=codec))
    monkeypatch.undo()
    world = world.next_life()
    world.check_every_record()


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UsageError, match="segment_codec is 'lz4': use one of none, zstd"):
        config(segment_codec="lz4")


def test_segments_that_moved_before_stay_as_they_are_and_both_kinds_are_read() -> None:
    world = filled(segment_codec="none")
    plain = world.ring.file_bytes(FIRST)
    world = world.next_life(config=config(segment_max_events=1000))
    world.append(1, 1000, size=300)
    world.checkpoint()
    world.passes(40)
    assert world.ring.file_bytes(FIRST) == plain
    assert world.ring.file_bytes(FIRST.replace(f"{1:020d}", f"{1001:020d}")).startswith(b"TPSZ")
    world = world.next_life(config=config(segment_codec="none"))
    world.check_every_record()


def test_a_compressed_segment_of_which_little_lives_is_written_anew_and_compressed_again() -> None:
    world = filled(compact_below=0.5)
    world.delete(1, list(range(1, 901)))
    world.checkpoint()
    world.append(1, 1)
    world.checkpoint()
    world.passes(40)
    names = [name for name in world.ring.disk.list_directory(f"{COLD}/{TOPIC}") if name.endswith(".data")]
    assert names == [f"seg-{1:020d}-1.data"]
    data = world.ring.file_bytes(f"{COLD}/{TOPIC}/{names[0]}")
    assert text_of(1, 5, 300) not in image_of(data, names[0])
    world = world.next_life()
    assert set(world.topic(1).rows) == set(range(901, 1002))
    world.check_every_record()


def test_a_flipped_bit_anywhere_is_noticed_or_changes_nothing() -> None:
    world = filled(30, size=100)
    world.delete(1, [3, 4])
    world.checkpoint()
    data = world.ring.file_bytes(FIRST)
    image, table_at = image_of(data, FIRST), CompressedHeader.unpack(data, FIRST).table_at
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        if HEADER_BYTES <= at < table_at:
            found = bytearray(image_of(bytes(damaged), FIRST))
            changed = [place for place, (one, two) in enumerate(zip(image, found, strict=True)) if one != two]
            assert changed in ([], [place for place in flag_offsets(image) if flag_place(place) == at])
            assert all(SAYS_DELETED[found[place]] == SAYS_DELETED[image[place]] for place in changed)
            continue
        try:
            if image_of(bytes(damaged), FIRST) == image:
                continue  # a bit of a block without a meaning
            assert at < 4, "its magic"
        except (CorruptError, FormatError):
            pass
        kept, intact = salvaged_image(bytes(damaged), FIRST, 1, [])
        assert not intact
        assert kept in (image, bytes(len(image))), "the only block is there or not"
