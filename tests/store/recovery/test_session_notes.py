"""Notes that a process leaves before it ends, and a start that cannot rely on one."""

from __future__ import annotations

import contextlib
import errno

import pytest

from tests.store.store_world import StoreWorld, small_config
from topics.errors import StorageError


def latched(world: StoreWorld) -> None:
    """A sync of the log fails, and what was waiting is done."""
    world.create(1)
    world.append(1, 3, fsync=False)
    world.ring.faults.fail("sync", errno.EIO, path_part="/wal-")
    with contextlib.suppress(StorageError):
        world.append(1, 1)
    world.passes(50)
    assert world.store.log.read_only


def test_a_stop_right_after_a_note_that_failed_writes_it() -> None:
    """R-DUR-6: it would be tried again a second later, when no process is there any more."""
    world = StoreWorld().open()
    world.ring.faults.fail("open", errno.EIO, path_part="/session")
    latched(world)
    world.close()
    assert world.next_life().store.power_lost


def test_a_failed_sync_is_noted_on_a_full_disk_too() -> None:
    """R-DUR-6: in what the reserve held."""
    world = StoreWorld(config=small_config(disk_reserve_bytes=1 << 18)).open()
    world.create(2)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    latched(world)
    world.run(world.loop.sleep(100_000_000))
    world.ring.disk.capacity_bytes = None
    assert world.next_life().store.power_lost


def test_a_kill_finds_the_note_of_a_disk_that_syncs_nothing_any_more() -> None:
    """R-DUR-6: the page cache has it, as it has what the failed syncs covered."""
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 3, fsync=False)
    world.ring.faults.fail("sync", errno.EIO, times=1 << 30)
    with contextlib.suppress(StorageError):
        world.append(1, 1)
    world.run(world.loop.sleep(100_000_000))
    killed = world.end(power_cut=False)
    killed.faults.clear()
    assert StoreWorld(killed).open().store.power_lost


@pytest.mark.parametrize("more_starts", [0, 1, 2])
@pytest.mark.parametrize(
    ("path_part", "nth", "run_bytes"),
    [(".idx", 1, 2048), ("/seg-00000000000000000021.data", 1, 2048), ("/pack-", 2, 1 << 20)],
    ids=["index of a sealed segment", "unsealed segment", "index of a pack"],
)
def test_a_delete_stays_done_whose_flags_a_failed_sync_has_lost_without_a_note_of_it(
    path_part: str, nth: int, run_bytes: int, more_starts: int
) -> None:
    """The page cache shows the flags, and the sync of the next start, which has nothing to write, says that all is
    well. The log's frame of the delete is dropped by the next checkpoint."""
    world = StoreWorld(config=small_config(segment_max_events=20, pack_run_bytes=run_bytes)).open()
    world.create(1)
    world.append(1, 30, size=120)
    world.checkpoint()
    world.delete(1, [2, 25])
    world.ring.faults.fail("sync", errno.EIO, path_part=path_part, nth=nth)
    with pytest.raises(OSError, match="Input/output error"):
        world.run(world.store.checkpointer.run())
    second = world.next_life()  # killed at once
    assert not second.store.power_lost, "nobody noted it"
    for _ in range(more_starts):  # that take a snapshot, as starts that find gaps do, and are killed
        second.run(second.store.checkpointer.snapshots.take(clean=False))
        second = second.next_life()
    second.checkpoint()
    third = second.next_life(power_cut=True)
    assert set(third.topic(1).rows) == set(range(1, 31)) - {2, 25}
