"""Common parts of the tests of a rebuild: how a life ends, and what is opened after it."""

from __future__ import annotations

import os

import pytest

from tests.sim import SimRing
from tests.sim.world.sim_file import SimFile
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.config import Config
from topics.loop import Loop
from topics.store.repair.rebuild import Rebuilt, rebuild
from topics.store.repair.verify_directory import verify

IN_PACKS = small_config(pack_run_bytes=1 << 20)
with_and_without_snapshots = pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshots"])


def ended(world: StoreWorld) -> SimRing:
    """Closed after a start of its own, so that nothing is in the log."""
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
    """Path of the file that holds a record, and its offset there."""
    row = world.topic(topic_id).rows[seq]
    return world.store.files[row.file_id].path, row.offset
