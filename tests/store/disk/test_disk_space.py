"""A full disk, and when it takes appends again."""

from __future__ import annotations

import pytest

from tests.sim.world.sim_disk import SimDisk
from tests.sim.world.sim_ring import SimRing
from tests.store.store_world import StoreWorld, small_config


def has_reserve(world: StoreWorld) -> bool:
    return "reserve" in world.files(".")


def test_appends_resume_once_the_reserve_has_been_made_again() -> None:
    world = StoreWorld(config=small_config(disk_reserve_bytes=1 << 16, disk_low_water_bytes=0)).open()
    space = world.store.log.space
    assert world.run(space.release_reserve())
    assert not has_reserve(world)
    space.note_full()
    assert space.full
    world.loop.run_until(lambda: not space.full)
    assert has_reserve(world)
    assert space.holds_reserve


def test_a_start_below_the_low_water_mark_warns(caplog: pytest.LogCaptureFixture) -> None:
    config = small_config(disk_low_water_bytes=4 << 20)
    world = StoreWorld(SimRing(1, disk=SimDisk(capacity_bytes=3 << 20)), config=config).open()
    assert world.store.log.space.full
    assert "has less than 4194304 bytes free (TOPICS_DISK_LOW_WATER_BYTES): appends are refused" in caplog.text
