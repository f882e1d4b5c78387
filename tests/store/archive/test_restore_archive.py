"""Restores of an archive to any time: equal to what was there, or refused."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.sim.world.sim_file import SimFile
from tests.store.archive.archive_world import (
    ARCHIVE,
    ArchiveRun,
    archive_config,
    archived,
    filled,
    grow,
    held,
    restored,
    wait,
)
from tests.store.store_world import StoreWorld
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import Hole
from topics.store.archive.restore_point import END, check_outside
from topics.store.archive.timelines import find_timelines
from topics.store.archive.verify_archive import verify_timelines
from topics.store.format.log_format import BATCH_MAGIC


def written() -> tuple[StoreWorld, list[int]]:
    """A log whose record n was the newest one at time n of the list, over several files."""
    world = StoreWorld(config=archive_config(archive_every_ms=50)).open()
    world.create(1)
    wait(world, 500)
    times = []
    for number in range(1, 41):
        world.append(1, 1, size=3000)
        if number % 8 == 0:
            world.checkpoint()
        wait(world, 1)
        times.append(world.ring.clock.now_ms() - 1)
        wait(world, 4)
    archived(world)
    return world, times


def bytes_of(world: StoreWorld, path: str) -> bytearray:
    file = world.ring.disk.find(path)
    assert isinstance(file, SimFile)
    return file.live


@pytest.mark.parametrize("seed", range(8))
def test_a_restore_is_what_was_there_or_is_refused(seed: int) -> None:
    assert ArchiveRun(seed).run().restored


def test_each_time_leads_to_the_records_of_that_time() -> None:
    world, times = written()
    for number in (1, 7, 8, 9, 23, 40):
        assert held(restored(world, times[number - 1])) == {1: list(range(1, number + 1))}


def test_a_time_before_and_one_after_are_refused_with_the_bounds() -> None:
    world, times = written()
    with pytest.raises(UsageError, match="the archive begins at 2023-11-14T22:13:20"):
        restored(world, 1)
    with pytest.raises(UsageError, match=r"is not in the archive: name 2023-11-14T22:13:2\d\.\d+Z or earlier"):
        restored(world, times[-1] + 1_000_000)


@pytest.mark.parametrize(
    ("to_ms", "named"),
    [
        (None, "name 1970-01-01T00:00:01.000Z or earlier$"),
        (3000, "name 1970-01-01T00:00:01.000Z or earlier, or 1970-01-01T00:00:03.000Z or later$"),
    ],
)
def test_a_time_in_a_hole_is_refused_with_its_bounds(to_ms: int | None, named: str) -> None:
    hole = Hole(1000, to_ms)
    check_outside(hole, 1000)
    if to_ms is not None:
        check_outside(hole, to_ms)
    with pytest.raises(UsageError, match=f"^at is 1970-01-01T00:00:02.000Z, which is not in the archive: {named}"):
        check_outside(hole, 2000)


def test_each_damaged_log_file_is_named_and_no_other() -> None:
    """The first damage hid all that came after it, and the file before a damaged one was named."""
    world = filled(archive_base_every_ms=0)
    grow(world, 12)
    archived(world)
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    sound = world.run(verify_timelines(world.loop, [timeline]))
    last_no = timeline.note.shards[0].file_no
    flipped = [3, 4, 6, last_no - 1]
    assert len(set(flipped)) == 4
    for number in flipped:
        bytes_of(world, f"{timeline.path}/log/shard-00/wal-{number:016x}.log")[5000] ^= 1
    again = StoreWorld(world.ring.next_life(power_cut=False))
    damaged = again.run(verify_timelines(again.loop, [timeline]))
    assert [[finding for finding in damaged.findings if f"wal-{n:016x}.log" in finding[:99]] for n in flipped] == [
        [finding] for finding in damaged.findings
    ]
    assert damaged.files == sound.files


def test_the_end_has_what_was_written_right_before_the_log_was_closed() -> None:
    world, _times = written()
    world.append(1, 1)
    world.close()
    assert held(restored(world, END)) == {1: list(range(1, 42))}


def test_what_was_copied_after_the_note_may_be_cut_off_and_is_not_in_a_restore_of_the_end() -> None:
    world, _times = written()
    world.ring.faults.fail("rename", errno.EIO, path_part="archive.json", times=1 << 30)
    world.append(1, 2, size=3000)
    wait(world, 500)
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    end = timeline.note.shards[0]
    data = bytes_of(world, f"{timeline.path}/log/shard-00/wal-{end.file_no:016x}.log")
    assert len(data) > end.size
    data[-4096:] = bytes(4096)
    assert held(restored(world, END)) == {1: list(range(1, 41))}


def test_damage_of_the_log_is_found_by_a_restore_over_it_and_by_a_verification() -> None:
    world, times = written()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    sound = world.run(verify_timelines(world.loop, [timeline]))
    assert sound.findings == []
    assert sound.records >= 40
    path = f"{timeline.path}/log/shard-00/wal-0000000000000003.log"
    bytes_of(world, path)[5000] ^= 1
    with pytest.raises(CorruptError, match="wal-0000000000000003"):
        restored(world, times[-1])
    assert held(restored(world, times[3])) == {1: [1, 2, 3, 4]}
    again = StoreWorld(world.ring.next_life(power_cut=False))
    damaged = again.run(verify_timelines(again.loop, [timeline]))
    assert damaged.findings
    assert "wal-0000000000000003.log" in damaged.findings[0]


def _remove(world: StoreWorld, path: str) -> None:
    world.run(world.loop.files.unlink(path))


def _empty(world: StoreWorld, path: str) -> None:
    del bytes_of(world, path)[:]


def _zero_the_header(world: StoreWorld, path: str) -> None:
    bytes_of(world, path)[:4096] = bytes(4096)


def _zero_the_first_batch(world: StoreWorld, path: str) -> None:
    bytes_of(world, path)[4096:4160] = bytes(64)


def _cut_in_half(world: StoreWorld, path: str) -> None:
    live = bytes_of(world, path)
    del live[len(live) // 2 & -4096 :]


def _spoil_the_last_magic(world: StoreWorld, path: str) -> None:
    live = bytes_of(world, path)
    live[live.rindex(BATCH_MAGIC)] ^= 1


@pytest.mark.parametrize(
    "damage", [_remove, _empty, _zero_the_header, _zero_the_first_batch, _cut_in_half, _spoil_the_last_magic]
)
def test_a_restore_over_damage_at_the_end_of_the_log_is_refused(damage: Callable[[StoreWorld, str], None]) -> None:
    world, times = written()
    world.append(1, 1, size=3000)
    world.append(1, 1)
    world.close()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    directory = f"{timeline.path}/log/shard-00"
    damage(world, f"{directory}/{max(world.loop.files.list_directory(directory))}")
    with pytest.raises(CorruptError, match=r"of the log is damaged or missing, and \d+ were archived"):
        restored(world, END)
    assert held(restored(world, times[8])) == {1: list(range(1, 10))}


def test_a_time_after_which_a_shard_has_no_sound_batch_is_refused_unless_it_had_none() -> None:
    world, times = written()
    world.close()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    directory = f"{timeline.path}/log/shard-00"
    for name in sorted(world.loop.files.list_directory(directory))[3:]:
        _remove(world, f"{directory}/{name}")
    with pytest.raises(CorruptError, match="of the log is damaged or missing"):
        restored(world, times[30])


def test_a_base_that_is_damaged_is_replaced_by_an_older_one_and_reported() -> None:
    world = StoreWorld(config=archive_config(archive_base_every_ms=200)).open()
    world.create(1)
    for _ in range(8):
        world.append(1, 2)
        wait(world, 100)
    archived(world)
    world.close()
    world = StoreWorld(world.ring.next_life(power_cut=False))
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert len(timeline.bases) >= 3
    bytes_of(world, f"{timeline.bases[-1].path}/backup.json")[30] ^= 1
    _remove(world, f"{timeline.bases[-2].path}/backup.json")
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    assert world.run(verify_timelines(world.loop, [timeline])).findings[:2] == timeline.findings
    (missing, damaged) = timeline.findings
    assert "backup.json is missing" in missing
    assert "backup.json does not match its checksum. Use another backup" in damaged
    assert held(restored(world, END)) == {1: list(range(1, 17))}


@pytest.mark.parametrize("text", [b"{}", b'{"version":1,"upto_ms":1,"shards":{},"holes":[]}'])
def test_a_note_that_is_damaged_is_refused_and_never_taken_for_another_one(text: bytes) -> None:
    world, _times = written()
    world.close()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    bytes_of(world, f"{timeline.path}/archive.json")[:] = text
    with pytest.raises(CorruptError, match=r"archive\.json does not match its checksum\. Name another timeline"):
        world.run(find_timelines(world.loop, ARCHIVE))
