"""A topic's records on their way into several segments at a time."""

from __future__ import annotations

import errno
import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.world.faults import Fault
from tests.sim.world.sim_file import SimFile
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.loop.loop import PassEnd
from topics.store.disk import whole_files
from topics.store.format.log_format import FrameType
from topics.store.layouts.segment_format import SegmentHeader
from topics.store.segments.segment import read_footer

SEGMENTS = "topics/0000000000000001"
CONFIG = small_config(pack_run_bytes=0, segment_max_events=4)


def written(count: int = 20) -> StoreWorld:
    world = StoreWorld(config=CONFIG).open()
    world.create(1)
    for _ in range(count // 2):
        world.append(1, 2)
    return world


def path_part(first_seq: int) -> str:
    return f"{first_seq:020d}.data"


def listed(world: StoreWorld) -> list[tuple[int, int, bool]]:
    """First and last seq of each segment of the topic, and whether it is sealed."""
    segments = world.store.checkpointer.steps._manifest.segments.get(1, [])
    return [(segment.first_seq, segment.last_seq, segment.sealed) for segment in segments]


def check_after_a_power_cut(world: StoreWorld, count: int = 20) -> None:
    world.check_every_record()
    again = world.next_life(power_cut=True)
    assert list(again.topic(1).rows) == list(range(1, count + 1))
    again.check_every_record()


def test_a_segment_is_begun_while_those_before_it_are_written() -> None:
    world = written()
    take, seen = world.ring.faults.take, list[tuple[str, str]]()

    def watch(kind: str, path: str = "", *, is_held: bool = False) -> Fault | None:
        seen.append((kind, path.rpartition("/")[2]))
        return take(kind, path, is_held=is_held)

    world.ring.faults.take = watch  # type: ignore[method-assign]
    world.checkpoint()
    first_is_ended = seen.index(("write", f"seg-{1:020d}.idx"))
    assert seen.index(("write", f"seg-{path_part(5)}")) < first_is_ended
    assert listed(world) == [(first, first + 3, True) for first in (1, 5, 9, 13, 17)]
    check_after_a_power_cut(world)


def test_a_long_description_is_written_a_bounded_number_of_bytes_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a million holes, 23 MB, was joined for the header and the footer, and each was one write."""
    monkeypatch.setattr(whole_files, "_JOINED_BYTES_MAX", 4096)
    world = written(4)
    pieces = [b'{"name": "t", "config": {}, "head": 4, "floor": 0, "more": [', *[b'"%0990d",' % 0] * 60, b"0]}"]
    monkeypatch.setattr(world.catalog, "describe", lambda topic_id: iter(pieces))
    written_bytes, queue = Counter[int](), world.ring.queue_write

    def watch(user_data: int, fd: int, buffer: Any, offset: int, **options: Any) -> None:
        if any(buffer):  # others zero the next file of the log
            written_bytes[world.loop.passes] += memoryview(buffer).nbytes
        queue(user_data, fd, buffer, offset, **options)

    monkeypatch.setattr(world.ring, "queue_write", watch)
    world.checkpoint()
    path = f"{SEGMENTS}/seg-{path_part(1)}"
    data = world.ring.file_bytes(f"{DIRECTORY}/{path}")
    description = b"".join(pieces)
    assert listed(world) == [(1, 4, True)]
    assert SegmentHeader.unpack(data, path).description == read_footer(data, path).description == description
    assert sum(written_bytes.values()) > 2 * len(description) > 100_000
    assert max(written_bytes.values()) <= 3 * 4096
    check_after_a_power_cut(world, 4)


def test_what_is_left_for_the_last_segment_waits_in_it_for_the_next_checkpoint() -> None:
    world = written(18)
    world.checkpoint()
    assert listed(world)[-1] == (17, 18, False)
    for _ in range(2):
        world.append(1, 3)
    world.checkpoint()
    assert listed(world)[-2:] == [(17, 20, True), (21, 24, True)]
    check_after_a_power_cut(world, 24)


def test_segments_before_one_that_failed_count_and_those_behind_it_never_were() -> None:
    world = written()
    world.ring.faults.fail("write", errno.ENOSPC, path_part=path_part(9))
    with pytest.raises(OSError, match="No space left"):
        world.checkpoint()
    assert listed(world) == [(1, 4, True), (5, 8, True)]
    assert sorted(name for name in world.files(SEGMENTS)) == sorted(
        f"seg-{first:020d}.{kind}" for first in (1, 5) for kind in ("data", "idx")
    )
    world.check_every_record()
    world.checkpoint()
    world.checkpoint()
    assert listed(world) == [(first, first + 3, True) for first in (1, 5, 9, 13, 17)]
    check_after_a_power_cut(world)


def test_a_disk_that_fails_behind_one_that_is_full_stops_the_log() -> None:
    world = written()
    world.ring.faults.fail("write", errno.ENOSPC, path_part=path_part(1))
    world.ring.faults.fail("sync", errno.EIO, path_part=path_part(5))
    with pytest.raises(OSError, match="a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only
    check_after_a_power_cut(world)


def test_a_disk_that_fails_behind_a_record_that_cannot_be_read_stops_the_log() -> None:
    """Else the next checkpoint would sync the same file again, and that would succeed."""
    world = written().next_life()
    world.ring.faults.fail("read", errno.EIO, path_part="wal-")
    world.ring.faults.fail("sync", errno.EIO, path_part=path_part(5))
    with pytest.raises(OSError, match="a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only


def test_a_sync_that_finds_no_space_is_not_tried_again() -> None:
    world = written()
    world.ring.faults.fail("sync", errno.ENOSPC, path_part=path_part(5))
    with pytest.raises(OSError, match="a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only


def test_a_disk_that_fails_and_has_no_space_to_remove_the_segment_stops_the_log() -> None:
    """The error raised is that of the sync, not that of the removal."""
    world = written()
    world.ring.faults.fail("sync", errno.EIO, path_part=path_part(5))
    world.ring.faults.fail("unlink", errno.ENOSPC, path_part="seg-", times=2)
    with pytest.raises(OSError, match="a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only
    check_after_a_power_cut(world)


def test_a_copy_that_was_given_up_and_cannot_be_removed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = written()
    world.ring.faults.fail("write", errno.ENOSPC, path_part=path_part(9))
    world.ring.faults.fail("unlink", errno.EIO, path_part="seg-")
    with pytest.raises(OSError, match="No space left"):
        world.checkpoint()
    (said,) = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    assert "Input/output error" in said
    assert "the next start removes it" in said
    check_after_a_power_cut(world)


def test_zeros_behind_a_tail_whose_sync_finds_no_space_are_not_believed() -> None:
    """The page cache shows them from then on, whatever the disk has."""
    world = written(18)
    world.checkpoint()
    world.append(1, 2)
    world.ring.faults.fail("write", errno.ENOSPC, path_part=f"seg-{17:020d}.idx")
    with pytest.raises(OSError, match="No space left"):
        world.checkpoint()
    world.ring.faults.fail("sync", errno.ENOSPC, path_part=path_part(17))
    with pytest.raises(OSError, match="a sync failed"):
        world.checkpoint()
    assert world.store.log.read_only
    check_after_a_power_cut(world)


def test_each_footer_tells_of_all_records_so_far() -> None:
    world = written(18)
    world.checkpoint()
    world.append(1, 2)
    world.checkpoint()
    totals = []
    for first in (1, 5, 9, 13, 17):
        file = world.ring.disk.find(f"{DIRECTORY}/{SEGMENTS}/seg-{path_part(first)}")
        assert isinstance(file, SimFile)
        footer = read_footer(bytes(file.live), "")
        assert footer is not None
        totals.append((footer.total_records, footer.total_size, footer.size))
    assert [records for records, _, _ in totals] == [4, 8, 12, 16, 20]
    assert [size for _, size, _ in totals] == list(itertools.accumulate(size for _, _, size in totals))


@pytest.mark.parametrize("passes", range(1, 40, 3))
def test_a_topic_that_goes_while_its_segments_are_written_leaves_none(passes: int) -> None:
    world = written()
    run = world.loop.spawn(world.store.checkpointer.run())
    while not world.files(SEGMENTS):
        world.passes(1)
    world.passes(passes)
    world.order += 1
    world.store.log.stage_control(1, FrameType.TOPIC_DELETE, world.order, 0, b"{}")
    world.catalog.apply_control(FrameType.TOPIC_DELETE, 1, world.order, 0, b"{}")
    world.loop.run_until(lambda: run.done and not world.files(SEGMENTS))
    assert not listed(world)
    again = world.next_life(power_cut=True)
    assert 1 not in again.catalog.topics


def test_a_segment_that_one_checkpoint_begins_and_fills_takes_more_than_one_that_grows() -> None:
    """Less than that stays unsealed, and is sealed at `segment_max_events` as before."""
    world = StoreWorld(config=replace(CONFIG, segment_bulk=3)).open()
    world.create(1)
    world.append(1, 26)
    world.checkpoint()
    assert listed(world) == [(1, 12, True), (13, 24, True), (25, 26, False)]
    world.append(1, 5)
    world.checkpoint()
    assert listed(world)[2:] == [(25, 28, True), (29, 31, False)]
    world.append(1, 9)
    world.checkpoint()
    assert listed(world)[3:] == [(29, 32, True), (33, 40, True)]
    check_after_a_power_cut(world, 40)


def test_segments_that_are_ready_at_once_are_settled_with_others_in_between() -> None:
    """Telling the catalog of a large segment takes milliseconds."""
    world = written(28)
    passes, told = [0], list[int]()
    moved = world.catalog.moved

    def count() -> None:
        passes[0] += 1

    def slow(*columns: Any) -> Any:
        told.append(passes[0])
        world.ring.clock.advance_ns(3_000_000)
        return moved(*columns)

    world.loop.on_pass_end(count, PassEnd.LAST)
    world.catalog.moved = slow  # type: ignore[method-assign]
    world.checkpoint()
    assert len(set(told)) == len(told) == 7
    check_after_a_power_cut(world, 28)


def test_without_an_age_a_segment_stays_unsealed_until_it_is_full() -> None:
    world = StoreWorld(config=replace(CONFIG, segment_max_age_ms=0, segment_max_events=1000)).open()
    world.create(1)
    for _ in range(3):
        world.append(1, 20, size=200)
        world.ring.clock.advance_ns(1_000_000_000)
        world.checkpoint()
    assert [segment.sealed for segment in world.store.checkpointer.steps._manifest.segments[1]] == [False]


def test_segments_that_are_filled_side_by_side_take_turns_at_copies_from_memory() -> None:
    """Eight of them, a mebibyte each, would make one long pass."""
    world = StoreWorld(
        config=small_config(
            pack_run_bytes=0, checkpoint_us_per_pass=1000, checkpoint_wal_bytes=1 << 30, checkpoint_every_ms=1 << 40
        )
    ).open()
    for topic_id in range(1, 9):
        world.create(topic_id)
        world.append(topic_id, 3)
    looked_at: Counter[int] = Counter()
    find = world.store.reader.find

    def look(piece: Any) -> Any:
        looked_at[world.loop.stats().passes] += 1
        world.ring.clock.advance_ns(400_000)
        return find(piece)

    world.store.reader.find = look  # type: ignore[method-assign]
    world.checkpoint()
    assert looked_at.total() >= 8
    assert max(looked_at.values()) <= 3
    world.check_every_record()
