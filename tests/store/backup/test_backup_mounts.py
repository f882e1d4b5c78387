"""A disk on which backups were made, and which is not mounted any more."""

from __future__ import annotations

import errno

import pytest

from tests.sim.world.sim_disk import SimDirectory
from tests.store.backup.test_write_backup import ROOT, begun, filled, finished
from tests.store.store_world import StoreWorld
from topics.errors import StorageError
from topics.store.backup.backup_manifest import backup_names
from topics.store.backup.backup_mounts import MOUNTS_NAME


def put_at(world: StoreWorld, name: str, directory: SimDirectory) -> None:
    """Have a directory be there, as after a mount or the end of one."""
    root = world.ring.disk.root
    root.live[name] = root.durable[name] = directory


def backup(world: StoreWorld, root: str = ROOT) -> None:
    finished(world, begun(world, root))


def disk() -> SimDirectory:
    made = SimDirectory()
    made.device = 7
    return made


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("below", ["", "/hourly"])
def test_a_backup_waits_for_its_disk(below: str, restarts: bool) -> None:
    """It was made in the directory below the mount point: a copy of all files, which the disk hides later."""
    world = filled()
    put_at(world, ROOT, mounted := disk())
    backup(world, f"{ROOT}{below}")
    before = backup_names(world.loop.files, f"{ROOT}{below}")
    if restarts:
        world.close()
        world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config).open()
        mounted = world.ring.disk.find(ROOT)  # type: ignore[assignment]  # it is a directory
    put_at(world, ROOT, empty := SimDirectory())
    with pytest.raises(
        StorageError, match=rf"{ROOT}, for the backup in .*, was the mount point of a disk, and is none: "
    ):
        backup(world, f"{ROOT}{below}")
    assert empty.live == {}
    put_at(world, ROOT, mounted)
    backup(world, f"{ROOT}{below}")
    assert len(backup_names(world.loop.files, f"{ROOT}{below}")) == len(before) + 1


def test_another_directory_takes_backups_without_the_disk() -> None:
    world = filled()
    put_at(world, ROOT, disk())
    backup(world)
    put_at(world, ROOT, SimDirectory())
    backup(world, "elsewhere")
    world.run(world.loop.files.unlink(f"{world.config.data_dir}/{MOUNTS_NAME}"))
    backup(world)


def test_a_backup_is_there_also_if_its_disk_cannot_be_noted() -> None:
    world = filled()
    put_at(world, ROOT, disk())
    world.ring.faults.fail("open", errno.ENOSPC, path_part=f"{MOUNTS_NAME}.tmp")
    backup(world)
    assert len(backup_names(world.loop.files, ROOT)) == 1
