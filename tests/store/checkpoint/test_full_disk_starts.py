"""A start on a full disk: a delete needs a server, and the reserve is for that. Source: R-DUR-16."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest

from tests.sim import SimRing
from tests.store.store_world import StoreWorld, small_config
from topics.errors import DiskFullError


@pytest.mark.parametrize("shards", [2, 3, 4])
@pytest.mark.parametrize("reserve_bytes", [1 << 17, 1 << 18])
def test_each_shard_finds_space_for_its_tail(shards: int, reserve_bytes: int) -> None:
    """No shard preallocates files with what the others need, and the note of the session finds a block, too."""
    config = small_config(wal_shards=shards, disk_reserve_bytes=reserve_bytes, wal_spare_files=2, sync_every_ms=60_000)
    world = StoreWorld(config=config).open()
    for topic_id in range(1, 9):
        world.create(topic_id)
        world.append(topic_id, 1, fsync=False)
    ring = world.end(power_cut=False)
    for directory in [f"data/wal/shard-{shard:02d}" for shard in range(shards)]:
        for name in ring.disk.list_directory(directory):
            if not ring.file_bytes(f"{directory}/{name}").strip(b"\0"):
                ring.disk.unlink(f"{directory}/{name}")  # one that is prepared would do
    ring.disk.sync_everything()
    ring.disk.capacity_bytes = ring.disk.used_bytes
    again = StoreWorld(ring, config=config).open()
    again.check_every_record()
    assert all(len(topic.rows) == 1 for topic in again.catalog.topics.values())
    again.next_life(power_cut=True).check_every_record()


@pytest.mark.parametrize("low_water_bytes", [0, 100_000])
@pytest.mark.parametrize("size", [40, 20_000])
def test_a_start_with_other_shards_on_a_full_disk_uses_the_reserve(low_water_bytes: int, size: int) -> None:
    """Its checkpoint gives the reserve back when it finds no space; then there is some, or the log's own is enough."""
    config = small_config(wal_shards=2, disk_reserve_bytes=1 << 19, disk_low_water_bytes=low_water_bytes)
    world = StoreWorld(config=config).open()
    for topic_id in range(1, 9):
        world.create(topic_id)
        world.append(topic_id, 1, size=size)
    ring = world.end(power_cut=False)
    ring.disk.capacity_bytes = ring.disk.used_bytes
    again = StoreWorld(ring, config=replace(config, wal_shards=1)).open()
    again.check_every_record()
    assert not any(name.startswith("wal-") for name in ring.disk.list_directory("data/wal/shard-01"))


def test_without_a_reserve_a_start_takes_the_space_there_is() -> None:
    config = small_config(disk_low_water_bytes=1 << 30)
    world = StoreWorld(config=config).open()
    with world.store.log.use_reserve():
        world.create(1)
    ring = world.end(power_cut=False)
    ring.disk.capacity_bytes = ring.disk.used_bytes + (1 << 20)
    again = StoreWorld(ring, config=config).open()
    assert again.store.log.disk_full
    assert again.topic(1).head == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_log_file_that_is_made_larger_is_not_written_to_meanwhile(seed: int) -> None:
    """It is zeroed: what was acknowledged in it was lost. No writer waits for it any more: that batch has failed."""
    world = StoreWorld(SimRing(seed, shuffle=True)).open()
    world.create(1)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    with pytest.raises(DiskFullError):
        world.append(1, 1, size=100_000)
    world.ring.disk.capacity_bytes = None
    world.loop.run_until(lambda: not world.store.log.disk_full)
    world.store.log.request_rotation()
    acked = world.append(1, 3)
    world.run(world.loop.sleep(1_000_000_000))
    assert list(world.next_life().topic(1).rows) == acked


@pytest.mark.parametrize("reserve_bytes", [0, 1 << 16])
def test_a_reserve_that_is_to_be_smaller_gives_its_space_back(reserve_bytes: int) -> None:
    world = StoreWorld(config=small_config(disk_reserve_bytes=1 << 20)).open()
    used = world.ring.disk.used_bytes
    again = world.next_life(config=small_config(disk_reserve_bytes=reserve_bytes))
    assert again.ring.disk.used_bytes < used - (1 << 19)
    assert ("reserve" in again.files("")) == bool(reserve_bytes)


def test_a_reserve_that_was_removed_by_hand_is_no_error_when_it_is_needed() -> None:
    world = StoreWorld(config=small_config(disk_reserve_bytes=1 << 18)).open()
    world.ring.disk.unlink("data/reserve")
    assert world.run(world.store.log.space.release_reserve())


@pytest.mark.parametrize("seed", range(12))
def test_a_disk_that_has_space_again_during_a_start_does_not_mix_up_the_order_of_log_files(seed: int) -> None:
    """A replay reads them in the order of their numbers, and ends where batches do not follow one another."""
    ring = SimRing(seed, shuffle=True)
    ring.faults.fail("allocate", errno.ENOSPC, path_part="/reserve")
    world = StoreWorld(ring, config=small_config(disk_reserve_bytes=1 << 18)).open()
    world.create(1)
    world.store.log.request_rotation()
    acked = world.append(1, 3)
    assert list(world.next_life().topic(1).rows) == acked


@pytest.mark.parametrize("low_water_bytes", [0, 4096])
def test_a_disk_with_space_for_less_than_a_log_file_is_full_and_stays_full(low_water_bytes: int) -> None:
    """It was full and had space by turns, each second, and took what came in between."""
    world = StoreWorld(config=small_config(disk_reserve_bytes=1 << 16, disk_low_water_bytes=low_water_bytes)).open()
    world.create(1)
    changes: list[bool] = []
    log = world.store.log
    log.space.on_change.append(lambda: changes.append(log.disk_full))
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 30_000
    for _ in range(10):
        with contextlib.suppress(DiskFullError):
            world.append(1, 2, size=10_000)
        world.run(world.loop.sleep(1_100_000_000))
    assert changes == [True]
    world.ring.disk.capacity_bytes += 100_000
    world.run(world.loop.sleep(1_100_000_000))
    assert changes == [True, False]
    world.append(1, 2, size=10_000)
    world.check_every_record()


def test_log_files_prepared_ahead_leave_the_low_water_mark_to_what_frees_space() -> None:
    """A look each second comes late: within one, appends took all there was, and no checkpoint could be written."""
    config = small_config(wal_spare_files=1, disk_low_water_bytes=1 << 18)
    world = StoreWorld(config=config).open()
    world.create(1)
    disk = world.ring.disk
    disk.capacity_bytes = disk.used_bytes + (1 << 20)
    with contextlib.suppress(DiskFullError):
        for _ in range(200):
            world.append(1, 1, size=10_000, fsync=False)
    assert world.store.log.disk_full
    assert disk.capacity_bytes - disk.used_bytes >= 1 << 18
