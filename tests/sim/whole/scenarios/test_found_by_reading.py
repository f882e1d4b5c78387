"""What readers of the code found before a seed did, each as the scenario it is."""

from __future__ import annotations

import errno
import logging

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from topics.store.checkpoint.delete_flags import DeleteFlags

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("stops", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize(
    ("kind", "path_part", "nth"),
    [("open", "/seg-", 2), ("write", "/seg-", 3), ("write", ".idx", 1), ("open", "/seg-00000000000000000005", 1)],
    ids=["opening the segment", "a later write to it", "sealing it", "the next segment"],
)
def test_a_delete_stays_done_whose_record_was_merged_by_a_checkpoint_that_failed(
    kind: str, path_part: str, nth: int, stops: bool
) -> None:
    """R-DEL-1: a part of a run lay in a segment, the run stayed listed, and its rows won at the next start."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=2000, segment_max_events=2, checkpoint_bytes_per_pass=1)
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": 1, "tag": "gone"}, {"data": 2}, {"data": 3}, {"data": 4}])
    world.advance_ms(1100)
    assert world.ring.list_directory("/srv/topics/packs")
    world.write("a", "x" * 3000)
    world.fail_storage(kind, errno.EMFILE if kind == "open" else errno.ENOSPC, path_part=path_part, nth=nth)
    world.advance_ms(1100)
    assert world.ring.faults.struck[kind] == 1
    world.delete("a", match="gone")
    world.advance_ms(3300)
    world.write("a", 6)
    world.advance_ms(3300)
    if stops:
        assert world.stop() == 0
        world.start()
    else:
        world.crash_and_start()
    assert world.data("a") == [2, 3, 4, "x" * 3000, 6]


@pytest.mark.parametrize("bytes_more", [3000, 10], ids=["into a segment", "into a run"])
def test_a_record_that_rots_in_a_pack_holds_up_no_checkpoint(bytes_more: int, caplog: pytest.LogCaptureFixture) -> None:
    """It costs that record at most: the log is recycled, others are copied, and a stop is a good one."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=2000)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", "rotten-one", "sound")
    world.advance_ms(2100)
    (path,) = [f"/srv/topics/packs/{name}" for name in world.ring.list_directory("/srv/topics/packs")]
    world.ring.corrupt_file(path, world.ring.file_bytes(path).find(b"rotten-one"))
    caplog.set_level(logging.CRITICAL)
    for _ in range(10):
        world.write("a", "x" * bytes_more)
        world.write("b", "y" * 20_000)
        world.advance_ms(1100)
    assert len([name for name in world.ring.list_directory("/srv/topics/wal/shard-00") if name[:4] == "wal-"]) <= 2
    assert world.data("a", 2) == ["x" * bytes_more] * 10
    assert world.stop() == 0
    world.start()
    assert world.data("a", 2) == ["x" * bytes_more] * 10


def test_a_cold_directory_that_cannot_be_reached_fails_a_checkpoint_and_not_the_log() -> None:
    """R-DUR-16: nothing was written there, so nothing is unknown."""
    world = SimWorld(
        checkpoint_wal_bytes=1, pack_run_bytes=0, segment_max_events=2, cold_dir="/srv/cold", hot_retain_segments=0
    )
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": 1, "tag": "gone"}, {"data": 2}, {"data": 3}])
    world.advance_ms(3300)
    world.delete("a", match="gone")
    world.fail_storage("open", errno.EIO, path_part="/srv/cold/")
    world.advance_ms(1100)
    assert world.ring.faults.struck["open"] == 1
    assert world.request("GET", "/v0/ready").status == 200
    world.write("a", 4)
    world.advance_ms(3300)
    world.power_cut()
    world.start()
    assert world.data("a") == [2, 3, 4]


def test_segments_go_to_the_cold_directory_with_the_smallest_pieces_there_are() -> None:
    world = SimWorld(
        checkpoint_wal_bytes=1,
        pack_run_bytes=0,
        segment_max_events=2,
        cold_dir="/srv/cold",
        hot_retain_segments=0,
        checkpoint_bytes_per_pass=0,
    )
    world.start()
    world.write("a", 1, 2, 3)
    world.advance_ms(2100)
    assert len(world.ring.list_directory("/srv/cold/topics/0000000000000001")) == 2
    assert world.stop() == 0


def test_a_log_file_made_of_a_reserve_of_any_size_is_whole_for_the_next_start() -> None:
    world = SimWorld(
        checkpoint_wal_bytes=1 << 30,
        checkpoint_every_ms=1 << 40,
        disk_reserve_bytes=200_000,
        disk_low_water_bytes=1,
        wal_file_bytes=64 << 10,
    )
    world.start()
    world.put("a", durability="fsync")
    tags = [f"t{number}".ljust(200, "-") for number in range(400)]
    world.write_records("a", [{"data": tag[:4], "tag": tag} for tag in tags])
    world.advance_ms(500)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes
    while world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 8000}]}).status == 200:
        pass
    directory = "/srv/topics/wal/shard-00"
    deleted = 0
    while min(world.ring.file_size(f"{directory}/{name}") for name in world.ring.list_directory(directory)) >= 64 << 10:
        world.delete("a", match=tags[deleted])
        deleted += 1
    world.ring.disk.capacity_bytes = None
    world.crash_and_start()
    assert world.data("a")[: 400 - deleted] == [tag[:4] for tag in tags[deleted:]]


def test_a_power_cut_in_a_start_with_fewer_shards_brings_back_no_deleted_record_beside_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DUR-3: the snapshot before the flags knew of a delete that lay in the page cache of a shard of before."""

    def stop(_flagging: DeleteFlags, _deletions: object) -> None:
        raise SimStoppedError("stopped before the flags are set")

    for seed in range(8):
        world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, checkpoint_wal_bytes=1 << 30)
        world.start()
        for name in "ab":
            world.put(name, durability="disk")
        for name in "ab":  # one of them in each shard
            world.write_records(name, [{"data": 1, "tag": "gone"}, {"data": 2}])
        world.restart()
        for name in "ab":
            world.write(name, 3)
            world.delete(name, match="gone")
            world.write(name, 4)
        world.crash()
        with monkeypatch.context() as stopped:
            stopped.setattr(DeleteFlags, "flag", stop)
            with pytest.raises(SimStoppedError):
                world.start(wal_shards=1)
        world.power_cut()
        world.start()
        assert [world.data(name) for name in "ab"] == [[2, 3, 4]] * 2, f"seed {seed}"
        world.close()


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
    """R-DUR-16: the last one, of no topics, told what it takes; copies took the reserve before deletes could."""
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
    """R-DUR-16: somebody else took some of the space that was given back; the rest has room for a delete of all."""
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
