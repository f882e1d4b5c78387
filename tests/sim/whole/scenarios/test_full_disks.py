"""Disks of any size, filled and emptied by deletes: they take records again, by themselves. Source: R-DUR-16.

More of them, on a machine that has nothing else to do: TOPICS_TEST_TIMES=23.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from tests.amount import seeds
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100

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
@pytest.mark.parametrize("seed", seeds(4))
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
    """R-DUR-16: a log that outgrew what there is space to copy could not be emptied, whatever was deleted after it."""
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


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("left", [0, 4096, 20_000])
def test_a_start_on_a_full_disk_uses_the_reserve(left: int, power_cut: bool) -> None:
    """R-DUR-16: a delete needs a server."""
    world = SimWorld(checkpoint_wal_bytes=1, disk_reserve_bytes=64 << 10)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1, 2, 3)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + left
    if power_cut:
        world.power_cut()
        world.start()
    else:
        world.crash_and_start()
    assert world.data("a") == [1, 2, 3]
    world.delete("a", before_seq=2)
    world.crash_and_start()
    assert world.data("a") == [2, 3]
    world.ring.disk.capacity_bytes = None
    world.advance_ms(2500)
    world.write("a", 4)
    assert world.data("a") == [2, 3, 4]


def test_a_snapshot_that_finds_no_space_leaves_what_there_is_to_deletes() -> None:
    """R-DUR-16: the part of it that had filled the disk, and the reserve's space with it, stayed there."""
    world = SimWorld(checkpoint_every_ms=5000, wal_file_bytes=64 << 10, disk_reserve_bytes=128 << 10)
    world.start()
    names = [f"{number:03d}".ljust(100, "x") for number in range(700)]
    for name in ["a", *names]:
        world.put(name)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    while world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 8000}]}).status == 200:
        pass
    world.advance_ms(3000)
    for name in names:
        world.drop(name)
    world.advance_ms(10_000)
    world.write("a", "on")


@pytest.mark.parametrize("copies", [1.2, 1.8])
def test_a_full_disk_with_space_for_one_copy_of_a_snapshot_heals(copies: float) -> None:
    """R-DUR-16: the first copy was there, the second found no space, and then neither did."""
    world = SimWorld(checkpoint_wal_bytes=1 << 30, wal_file_bytes=64 << 10, disk_low_water_bytes=512 << 10)
    world.start()
    for number in range(100):
        world.put(f"{number:03d}".ljust(100, "x"), durability="fsync")
    world.put("a", durability="fsync")
    world.restart()
    for _ in range(40):
        world.write("a", "x" * 20_000)
    disk = world.ring.disk
    snapshots = world.ring.list_directory("/srv/topics/snapshots")
    size = world.ring.file_size(f"/srv/topics/snapshots/{snapshots[0]}")
    disk.capacity_bytes = disk.used_bytes + int(copies * size)
    world.advance_ms(1100)
    world.delete("a", before_seq=1 << 40)
    world.advance_ms(5000)
    world.write("a", "on")
    world.power_cut()
    world.start()
    assert world.data("a") == ["on"]


def test_copies_leave_space_for_a_snapshot_of_all_topics_made_since_the_last_one() -> None:
    """R-DUR-16: the last one, of no topics, showed what it takes; copies took the reserve before deletes could."""
    world = SimWorld(checkpoint_wal_bytes=1 << 30, wal_file_bytes=64 << 10, disk_reserve_bytes=128 << 10)
    world.start()
    names = [f"{number:03d}".ljust(100, "x") for number in range(400)]
    for name in ["a", *names]:
        world.put(name)
    for at in range(0, 200, 50):
        world.write_records("a", [{"data": 1, "tag": str(at + number).ljust(250, "x")} for number in range(50)])
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    while world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 9000}]}).status == 200:
        pass
    world.advance_ms(5000)
    for number, name in enumerate(names):
        world.drop(name)
        if number % 50 == 0:
            world.advance_ms(1100)
    world.advance_ms(61_000)
    world.write("a", "on")


def test_a_delete_makes_do_with_less_than_a_part_of_the_reserve() -> None:
    """R-DUR-16: another program took some of the space that was given back; the rest has room for a delete of all."""
    world = SimWorld(checkpoint_wal_bytes=1 << 30, wal_file_bytes=64 << 10, disk_reserve_bytes=64 << 10)
    world.start()
    world.put("a", durability="fsync")
    tags = [f"{number:03d}".ljust(250, "x") for number in range(200)]
    for at in range(0, 200, 50):
        world.write_records("a", [{"data": 1, "tag": tag} for tag in tags[at : at + 50]])
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    while world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 2000}]}).status == 200:
        pass
    world.ring.disk.capacity_bytes -= 52 << 10
    log_files = world.ring.list_directory("/srv/topics/wal/shard-00")
    for tag in tags:
        world.delete("a", match=tag)
        if world.ring.list_directory("/srv/topics/wal/shard-00") != log_files:
            break
    world.delete("a", before_seq=1 << 40)
    world.advance_ms(3000)
    world.write("a", "on")
    world.power_cut()
    world.start()
    assert world.data("a") == ["on"]


def test_files_given_up_by_a_checkpoint_whose_snapshot_failed_go_with_the_next_one() -> None:
    """R-DUR-16: a full disk heals by itself, so what is deleted has to leave it without a restart."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    world.advance_ms(1100)
    segments = world.ring.list_directory("/srv/topics/topics/0000000000000001")
    assert segments
    world.delete("a", before_seq=2)
    world.fail_storage("open", errno.EMFILE, path_part="/snapshot-")
    world.advance_ms(1100)
    assert world.ring.faults.struck["open"] == 1
    world.write("a", 2)
    world.advance_ms(2100)
    assert not set(segments) & set(world.ring.list_directory("/srv/topics/topics/0000000000000001"))


def _fill_by(world: SimWorld, write: Callable[[], int], *, pause_ms: int) -> None:
    """Until none of three writes was taken, some seconds apart. write: the status of one more."""
    refused = 0
    while refused < 3:
        refused = 0 if write() == 200 else refused + 1
        world.advance_ms(2000 if refused else pause_ms)


@pytest.mark.parametrize(
    ("low_water_bytes", "reserve_bytes", "over_bytes"),
    [(0, 1 << 20, 2 << 20), (0, 8 << 20, 2 << 20), (256 << 10, 256 << 10, 0), (1 << 20, 2 << 20, 1 << 19)],
    ids=["a reserve that takes all there is", "a large one", "a mark just above which there is space", "a large mark"],
)
def test_a_full_disk_whose_records_are_all_deleted_takes_others(
    low_water_bytes: int, reserve_bytes: int, over_bytes: int
) -> None:
    """R-DUR-16. over_bytes: of the disk, above what an empty log, the reserve and the mark take."""
    world = SimWorld(
        wal_file_bytes=256 << 10,
        checkpoint_wal_bytes=1 << 20,
        disk_low_water_bytes=low_water_bytes,
        disk_reserve_bytes=reserve_bytes,
    )
    world.start()
    used_bytes = world.ring.disk.used_bytes
    world.ring.disk.capacity_bytes = used_bytes + (256 << 10) + low_water_bytes * 9 // 8 + over_bytes
    client = world.connect()

    def write() -> int:
        return client.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 20_000}]}).status

    _fill_by(world, write, pause_ms=100)
    world.delete("a", before_seq=1 << 40)
    world.advance_ms(30_000)
    assert write() == 200


@pytest.mark.parametrize("shards", [1, 2])
def test_a_full_disk_heals_though_routers_have_made_two_records_of_each_frame(shards: int) -> None:
    """R-DUR-16. Each of them is copied: a checkpoint that took no account of that left no space for its snapshot."""
    world = SimWorld(
        wal_file_bytes=128 << 10,
        wal_shards=shards,
        checkpoint_wal_bytes=4 << 20,
        pack_run_bytes=64 << 10,
        disk_low_water_bytes=128 << 10,
        disk_reserve_bytes=512 << 10,
    )
    world.start()
    world.ring.disk.capacity_bytes = 3456 << 10
    world.put("a")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    client = world.connect()

    def write() -> int:
        return client.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 25}] * 20}).status

    _fill_by(world, write, pause_ms=0)
    for name in "ab":
        world.delete(name, before_seq=1 << 40)
    world.advance_ms(10_000)
    assert write() == 200
    world.settle()
    head = world.state("b")["head_seq"]
    world.crash_and_start()
    assert [row["$seq"] for row in world.diff("b")["records"]] == list(range(head - 19, head + 1))


def test_a_disk_that_has_no_inode_for_the_next_log_file_heals_like_one_that_is_full() -> None:
    """R-DUR-16: an error of lacking space when a file gets its name does not end the log."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.fail_storage("open", errno.ENOSPC, path_part="/prepare-", times=3)
    for number in range(12):
        world.request("POST", "/v0/topics/a", {"records": [{"data": number}]})
        world.advance_ms(1100)
    assert world.ring.faults.struck["open"] == 3
    assert world.write("a", "on")["last_seq"] > 0


@pytest.mark.parametrize("space_bytes", [20_000, 60_000, 100_000])
def test_a_checkpoint_that_has_space_for_few_log_files_leaves_the_others_to_the_replay(space_bytes: int) -> None:
    """R-DUR-2, R-DUR-16."""
    world = SimWorld(checkpoint_wal_bytes=1 << 30, wal_file_bytes=64 << 10, pack_run_bytes=0)
    world.start()
    texts = [f"{number} ".ljust(12_000, "x") for number in range(30)]
    world.put("a", durability="fsync")
    world.write_singly("a", *texts[:12])
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + space_bytes
    wrote = 12
    while world.request("POST", "/v0/topics/a", {"records": [{"data": texts[wrote]}]}).status == 200:
        wrote += 1
    world.advance_ms(1500)
    world.crash()
    world.free_disk()
    world.start()
    assert world.data("a") == texts[:wrote]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(
    ("path_part", "nth"),
    [
        ("/topics/topics/", 3),
        ("/topics/topics/", 4),
        ("/topics/packs", 2),
        ("/topics/packs", 3),
        ("/wal-", 1),
        ("/shard-00", 1),
    ],
)
def test_a_file_that_cannot_be_opened_for_want_of_space_is_a_full_disk(path_part: str, nth: int, number: int) -> None:
    """R-DUR-16: also one that is opened to be synced. A sync that fails is another thing."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=1000, wal_file_bytes=64 << 10, wal_spare_files=0)
    world.start()
    world.put("a", durability="fsync")
    world.put("b", durability="fsync")
    world.fail_storage("open", number, path_part=path_part, nth=nth)
    world.write("a", "x" * 2000)
    world.write("b", 1)
    world.advance_ms(_CHECKPOINT_MS)
    world.write("a", "y" * 2000)
    world.advance_ms(5 * _CHECKPOINT_MS)
    assert world.ring.faults.struck["open"] == 1
    world.write("a", "z")
    world.power_cut()
    world.start()
    assert [text[:1] for text in world.data("a")] == ["x", "y", "z"]
    assert world.data("b") == [1]
