"""The share of a volume that the log takes: little at first, more as it proves busy, bounded on a small one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim import SimRing
from tests.store.store_world import DIRECTORY, StoreWorld
from topics.config import Config
from topics.errors import StorageError
from topics.store.disk.log_sizes import START_BYTES, LogSizes

_MIB = 1 << 20
_LOGS = f"{DIRECTORY}/wal/shard-00"


def opened(*, volume_bytes: int | None = None, ring: SimRing | None = None, **changes: object) -> StoreWorld:
    ring = ring or SimRing(0)
    ring.disk.capacity_bytes = volume_bytes
    settings = {"hot_tail_bytes": 8 * _MIB, "sync_every_ms": 10, **changes}
    return StoreWorld(ring, config=replace(Config(data_dir=DIRECTORY), **settings)).open()  # type: ignore[arg-type]


def fill(world: StoreWorld, mib: int) -> None:
    for _ in range(mib):
        world.append(1, 1, size=_MIB)


def log_sizes(world: StoreWorld) -> list[int]:
    """Bytes of each file of the log, in the order of their numbers, spares left out."""
    names = sorted(name for name in world.ring.list_directory(_LOGS) if name.endswith(".log"))
    return [world.ring.file_size(f"{_LOGS}/{name}") for name in names]


def seconds(world: StoreWorld, count: int) -> None:
    until = world.ring.clock.monotonic_ns() + count * 1_000_000_000
    world.loop.run_until(lambda: world.ring.clock.monotonic_ns() >= until)


def test_a_new_directory_takes_less_than_1_mib_however_large_the_volume_is() -> None:
    world = opened()
    seconds(world, 3)
    assert 0 < world.ring.disk.used_bytes < _MIB


def test_files_grow_while_they_are_filled_and_the_reserve_with_them() -> None:
    world = opened(checkpoint_wal_bytes=1 << 30, checkpoint_every_ms=1 << 30, wal_file_bytes=32 * _MIB)
    world.create(1)
    for _ in range(16 * 37):
        world.append(1, 1, size=_MIB // 16)
    seconds(world, 3)
    assert log_sizes(world) == [size * START_BYTES for size in (1, 1, 8, 8, 64, 64, 128, 128)]
    assert world.ring.file_size(f"{DIRECTORY}/reserve") == world.config.disk_reserve_bytes == 16 * _MIB
    again = opened(ring=world.end(power_cut=True), wal_file_bytes=32 * _MIB)
    again.check_every_record()
    assert again.store.log.sizes.file == 32 * _MIB, "what one life has found another need not find again"
    assert again.ring.file_size(f"{DIRECTORY}/reserve") == 16 * _MIB


def test_files_that_checkpoints_leave_before_they_are_full_do_not_grow() -> None:
    world = opened()
    world.create(1)
    for _ in range(20):
        world.append(1, 10)
        world.checkpoint()
    seconds(world, 3)
    assert set(log_sizes(world)) == {START_BYTES}
    assert world.ring.file_size(f"{DIRECTORY}/reserve") == START_BYTES


def test_files_that_the_log_has_outgrown_do_not_stay() -> None:
    world = opened(wal_file_bytes=32 * _MIB)
    world.create(1)
    world.append(1, 1)
    world.checkpoint()
    fill(world, 30)
    world.checkpoint()
    seconds(world, 3)
    sizes = {world.ring.file_size(f"{_LOGS}/{name}") // _MIB for name in world.ring.list_directory(_LOGS)}
    assert sizes == {32}


def test_a_reserve_that_is_needed_while_it_grows_is_given_away() -> None:
    world = opened(checkpoint_wal_bytes=1 << 30)
    world.create(1)
    space = world.store.log.space
    world.store.log.sizes.on_filled(16 * _MIB)
    world.loop.spawn(space._grow_reserve(16 * _MIB), "reserve")
    world.loop.run_pass(0)
    assert world.run(space.release_reserve())
    seconds(world, 2)
    assert not space.has_reserve
    assert not space.holds_reserve
    assert "reserve" not in world.ring.list_directory(DIRECTORY)
    assert space.reserve_bytes == START_BYTES


@pytest.mark.parametrize(
    ("volume", "most"), [(64, (2, 1, 4, 4, 16, 2)), (256, (8, 4, 16, 16, 32, 8)), (8192, (64, 16, 64, 256, 1024, 64))]
)
def test_a_small_volume_bounds_what_the_settings_allow(volume: int, most: tuple[int, ...]) -> None:
    sizes = LogSizes(Config(), volume * _MIB)
    found = sizes.file_max, sizes.reserve_max, sizes.low_water, sizes.checkpoint, sizes.log_max, sizes.segment_max
    assert tuple(size // _MIB for size in found) == most


def test_what_is_switched_off_stays_off_on_a_small_volume() -> None:
    sizes = LogSizes(replace(Config(), disk_reserve_bytes=0, disk_low_water_bytes=0, max_log_bytes=0), 64 * _MIB)
    assert (sizes.reserve, sizes.low_water, sizes.log_max) == (0, 0, 0)


def test_a_volume_that_does_not_tell_its_size_leaves_the_settings_as_they_are() -> None:
    config, sizes = Config(), LogSizes(Config(), 0)
    found = sizes.file_max, sizes.reserve_max, sizes.low_water, sizes.checkpoint, sizes.log_max, sizes.segment_max
    assert found == (
        config.wal_file_bytes,
        config.disk_reserve_bytes,
        config.disk_low_water_bytes,
        config.checkpoint_wal_bytes,
        config.max_log_bytes,
        config.segment_max_bytes,
    )


def test_64_mib_hold_24_mib_of_records_through_kills() -> None:
    world = opened(volume_bytes=64 * _MIB)
    world.create(1)
    for _ in range(4):
        for _ in range(6):
            fill(world, 1)
            seconds(world, 2)  # time for a checkpoint that is due
        assert not world.store.log.disk_full
        world = opened(ring=world.end(power_cut=True), volume_bytes=64 * _MIB)
    world.check_every_record()
    assert len(world.catalog.topics[1].rows) == 24


def test_spares_may_be_dropped_while_one_that_the_log_has_outgrown_goes() -> None:
    world = opened(checkpoint_wal_bytes=1 << 30)
    world.create(1)
    world.append(1, 1)
    world.checkpoint()
    seconds(world, 3)
    log = world.store.log
    (directory,) = log._directories
    assert not directory.needs_space, "the checkpoint has left a spare of the first size"
    log.sizes.on_filled(START_BYTES)
    found: list[object] = []

    async def look() -> None:
        found.append(await directory._spare_for(log.sizes.file))

    world.loop.spawn(look(), "look")
    world.loop.run_pass(0)
    world.run(log.drop_spares())
    seconds(world, 1)
    assert found == [None]
    assert directory.needs_space
    assert not directory._spares, "what is gone is no spare"


def test_what_is_deleted_of_a_volume_that_one_topic_has_filled_is_free_again() -> None:
    """All of it was in one segment, and there was no space to copy what was left."""
    world = opened(volume_bytes=64 * _MIB)
    world.create(1)
    for _ in range(200):
        try:
            world.append(1, 1, size=_MIB // 4)
        except StorageError:
            break
        seconds(world, 1)
    assert world.store.log.disk_full
    rows = sorted(world.catalog.topics[1].rows)
    assert len(rows) > 120, "30 MiB"
    with world.store.log.use_reserve():
        world.delete(1, [seq for seq in rows if seq % 2])
    seconds(world, 10)
    assert not world.store.log.disk_full
    for _ in range(40):  # 10 MiB, where there were 25 more
        world.append(1, 1, size=_MIB // 4)
        seconds(world, 1)
    world.check_every_record()
