"""Restores of an archive to any time: equal to what was there, or refused."""

from __future__ import annotations

import pytest

from tests.store.archive.archive_world import ARCHIVE, ArchiveRun, archive_config, archived, held, restored, wait
from tests.store.store_world import StoreWorld
from topics.errors import CorruptError, UsageError
from topics.store.archive.restore_archive import END, find_timelines
from topics.store.archive.verify_archive import verify_timelines


def written() -> tuple[StoreWorld, list[int]]:
    """A log whose record n was the newest one at time n of the list, over several files."""
    world = StoreWorld(config=archive_config()).open()
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


def test_the_end_has_what_was_written_right_before_the_log_was_closed() -> None:
    world, _times = written()
    world.append(1, 1)
    world.close()
    assert held(restored(world, END)) == {1: list(range(1, 42))}


def test_damage_of_the_log_is_found_by_a_restore_over_it_and_by_a_verification() -> None:
    world, times = written()
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    sound = world.run(verify_timelines(world.loop, [timeline]))
    assert sound.findings == []
    assert sound.frames >= 40
    path = f"{timeline.path}/log/shard-00/wal-0000000000000003.log"
    file = world.ring.disk.find(path)
    file.live[5000] ^= 1  # type: ignore[union-attr]
    with pytest.raises(CorruptError, match="wal-0000000000000003"):
        restored(world, times[-1])
    assert held(restored(world, times[3])) == {1: [1, 2, 3, 4]}
    again = StoreWorld(world.ring.next_life(power_cut=False))
    damaged = again.run(verify_timelines(again.loop, [timeline]))
    assert damaged.findings
    assert "wal-0000000000000003.log" in damaged.findings[0]
