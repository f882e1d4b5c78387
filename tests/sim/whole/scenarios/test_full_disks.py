"""Disks of any size, filled and emptied by deletes: they take records again, by themselves. Source: R-DUR-16.

More of them, on a machine that has nothing else to do: TOPICS_TEST_FULL_DISKS=90.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection

SEEDS = int(os.environ.get("TOPICS_TEST_FULL_DISKS", "10"))
_KIB = 1 << 10


def _world(rng: random.Random, seed: int) -> SimWorld:
    """With some six log files of a shard besides the reserve, which makes at least one."""
    wal_bytes = rng.choice((64, 128, 256)) * _KIB
    shards = rng.choice((1, 1, 2, 3))
    reserve_bytes = wal_bytes * shards * rng.choice((1, 4, 8))
    low_water_bytes = wal_bytes * rng.choice((0, 0, 1, 4))
    world = SimWorld(
        seed,
        wal_file_bytes=wal_bytes,
        wal_shards=shards,
        wal_spare_files=rng.choice((0, 1, 2)),
        disk_reserve_bytes=reserve_bytes,
        disk_low_water_bytes=low_water_bytes,
        checkpoint_wal_bytes=wal_bytes * rng.choice((1, 4, 16)),
        pack_run_bytes=rng.choice((0, 4 * _KIB, 64 * _KIB)),
        segment_max_events=rng.choice((100, 10_000)),
    )
    world.start()
    spare_bytes = rng.choice((0, 1, 4)) * 512 * _KIB
    world.ring.disk.capacity_bytes = reserve_bytes + low_water_bytes + 6 * shards * wal_bytes + spare_bytes
    return world


def _write(client: Connection, topic: str, texts: list[str]) -> int:
    return client.request("POST", f"/v0/topics/{topic}", {"records": [{"data": text} for text in texts]}).status


def _fill(world: SimWorld, rng: random.Random, topics: list[str]) -> None:
    """Until no write was taken for some seconds."""
    client, size = world.connect(), rng.choice((50, 500, 8000))
    refused = 0
    while refused < 3:
        texts = ["x" * rng.randint(1, size) for _ in range(rng.choice((5, 20)))]
        refused = 0 if _write(client, rng.choice(topics), texts) == 200 else refused + 1
        if refused or rng.random() < 0.02:
            world.advance_ms(1100)


@pytest.mark.parametrize("is_routed", [False, True], ids=["", "routed"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_full_disk_whose_records_are_deleted_takes_others(seed: int, is_routed: bool) -> None:
    rng = random.Random(f"{seed} {is_routed}")
    world = _world(rng, seed)
    topics = [f"t{number}" for number in range(2 if is_routed else rng.choice((1, 3, 20)))]
    for topic in topics:
        world.put(topic, durability=rng.choice(("disk", "fsync")))
    if is_routed:
        world.request("PUT", "/v0/routers/r", {"source": "t0", "dest": "t1"})
    _fill(world, rng, topics[:1] if is_routed else topics)
    if rng.random() < 0.3:
        world.crash_and_start()
    for topic in topics:
        world.delete(topic, before_seq=1 << 40)
        world.advance_ms(rng.choice((0, 1500)))
    world.advance_ms(15_000)
    assert _write(world.connect(), topics[0], ["last"]) == 200
    world.advance_ms(2000)
    assert [row["data"] for row in world.diff(topics[-1] if is_routed else topics[0])["records"]][-1:] == ["last"]


def test_a_start_without_space_for_its_unsynced_tail_syncs_that_where_it_lies() -> None:
    """R-DUR-2, R-DUR-16: the tail is larger than the free space and the reserve."""
    world = SimWorld(wal_file_bytes=256 * _KIB, disk_reserve_bytes=16 * _KIB, sync_every_ms=60_000)
    world.start()
    world.put("a", durability="disk")
    texts = [f"{number} ".ljust(4000, "x") for number in range(40)]
    world.write_singly("a", *texts)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    for _ in range(3):
        world.crash_and_start()
        assert world.data("a") == texts
    world.power_cut()
    world.start()
    assert world.data("a") == texts
    world.delete("a", before_seq=1 << 40)
    world.advance_ms(5000)
    world.write("a", "last")


@pytest.mark.parametrize("reserve_bytes", [64 * _KIB, 192 * _KIB])
def test_deletes_on_a_full_disk_leave_space_for_the_snapshot_that_frees_theirs(reserve_bytes: int) -> None:
    """R-DUR-16: each of many topics has a record in every log file, and the snapshot is as large as the reserve."""
    world = SimWorld(
        wal_file_bytes=64 * _KIB, disk_reserve_bytes=reserve_bytes, checkpoint_wal_bytes=256 * _KIB, pack_run_bytes=4096
    )
    world.start()
    topics = [f"t{number}" for number in range(1000)]
    client = world.connect()
    for topic in topics:
        client.request("PUT", f"/v0/topics/{topic}", {"durability": "disk"})
    world.advance_ms(3000)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    for topic in topics:
        if _write(client, topic, ["x" * 500]) != 200:
            break
    world.crash_and_start()
    client = world.connect()
    for number, topic in enumerate(topics[1:]):
        assert client.request("DELETE", f"/v0/topics/{topic}").status == 200, topic
        if number % 50 == 0:
            world.advance_ms(1100)
    world.delete("t0", before_seq=1 << 40)
    world.advance_ms(5000)
    assert _write(client, "t0", ["last"]) == 200


def test_a_start_that_finds_no_free_block_writes_its_session_over_the_one_before() -> None:
    """R-DUR-16, R-DUR-6: it says what the next start has to know, a kill and a power cut alike."""
    world = SimWorld(wal_file_bytes=64 * _KIB)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", "before")
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    for end in (world.crash, world.power_cut, world.crash):
        end()
        world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
        world.start()
        assert world.ring.boot_id().encode() in world.ring.file_bytes("/srv/topics/session")
        assert world.data("a") == ["before"]


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_disk_that_fills_with_what_a_router_copies_takes_records_again_when_others_are_deleted(shards: int) -> None:
    """R-DUR-16: a log that outgrew what there is space to copy could not be emptied, whatever was deleted behind it."""
    world = SimWorld(
        wal_file_bytes=64 * _KIB, wal_shards=shards, disk_reserve_bytes=64 * _KIB, checkpoint_wal_bytes=1 << 30
    )
    world.start()
    for number in range(5):
        world.put(f"t{number}")
    world.request("PUT", "/v0/routers/r", {"source": "t0", "dest": "t1"})
    client, text = world.connect(), "x" * 5000
    for _ in range(30):
        assert _write(client, "t0", [text]) == 200
        world.advance_ms(20)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 600 * _KIB
    number = 0
    while _write(client, f"t{2 + number % 3}", [text]) == 200:
        world.advance_ms(100)
        number += 1
    for topic in ("t2", "t3", "t4"):
        world.delete(topic, before_seq=1 << 40)
    world.advance_ms(10_000)
    assert _write(client, "t2", ["last"]) == 200
    assert len(world.data("t1")) == 30
