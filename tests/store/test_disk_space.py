"""A full disk, and when it takes appends again."""

from __future__ import annotations

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
