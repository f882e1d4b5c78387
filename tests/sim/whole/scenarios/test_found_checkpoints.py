"""What the simulation found of checkpoints, each as the scenario it is."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import xxhash

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from tests.sim.world.ring_core import LATENCY_NS
from tests.sim.world.sim_file import SimFile
from topics.store.checkpoint.checkpointer import Checkpointer

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_segments_in_directories_that_a_killed_checkpoint_made_survive_a_power_cut() -> None:
    """R-DUR-2. As above, for the directories of topics, which a checkpoint makes."""
    for effects, seed in itertools.product(range(1, 45), range(2)):
        world = SimWorld(seed, checkpoint_wal_bytes=1, pack_run_bytes=0, wal_file_bytes=64 << 10)
        world.start()
        world.put("a", durability="fsync")
        world.write("a", "kept")
        world.ring.stop_at(world.ring.effects + effects)
        with contextlib.suppress(SimStoppedError):
            world.advance_ms(1100)
        world.crash_and_start()
        world.write("a", "kept, too")
        world.advance_ms(1100)
        world.power_cut()
        world.start()
        assert world.data("a") == ["kept", "kept, too"], f"killed {effects} operations into a checkpoint, seed {seed}"
        world.close()


def test_a_checkpoint_without_descriptors_is_tried_again_and_writes_go_on() -> None:
    """R-DUR-16 is about a disk that fails; too many open files pass."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.write("a", 1)
    world.fail_storage("open", errno.EMFILE, path_part="pack")
    world.advance_ms(1100)
    world.write("a", 2)
    world.fail_storage("open", errno.EMFILE, path_part="pack", nth=2)  # the one before its sync
    world.advance_ms(1100)
    world.write("a", 3)
    world.advance_ms(2000)
    assert world.data("a") == [1, 2, 3]
    assert world.request("GET", "/v0/ready").status == 200


@pytest.mark.parametrize("run_bytes", [0, 1 << 20], ids=["segment", "pack"])
def test_a_topic_may_be_deleted_while_a_checkpoint_makes_the_file_it_goes_to(
    run_bytes: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-REC-1. Files open slowly, so that there is time for it."""
    caplog.set_level(logging.ERROR)
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=run_bytes)
    world.start()
    for name in ("a", "b"):
        world.write(name, name)
    connection = world.connect()
    queue_open = world.ring.queue_open
    asked: list[str] = []

    def delete_first(user_data: int, path: str, flags: int, mode: int) -> None:
        if not asked and ("/pack-" in path or "/seg-" in path):
            asked.append(path)
            for name in ("a", "b"):
                connection.start("DELETE", f"/v0/topics/{name}")
        queue_open(user_data, path, flags, mode)

    monkeypatch.setattr(world.ring, "queue_open", delete_first)
    monkeypatch.setitem(LATENCY_NS, "open", 5_000_000)
    world.advance_ms(1200)
    assert asked
    assert not caplog.records, caplog.records[0].getMessage()
    assert world.request("GET", "/v0/topics/a").status == 404


def test_a_failed_sync_of_a_checkpoint_is_an_error_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0)
    world.start()
    for name in ("a", "b", "c"):
        world.write(name, name)
    world.fail_storage("sync", errno.EIO, path_part="/seg-", times=3)
    world.advance_ms(1100)
    assert [record.getMessage()[:17] for record in caplog.records] == ["checkpoint failed"], caplog.text


@pytest.mark.parametrize(
    ("run_bytes", "path_part", "nth"), [(0, "/seg-", 1), (1 << 20, "/pack-", 2)], ids=["frames", "index of a pack"]
)
def test_a_delete_stays_done_whose_flags_a_failed_sync_has_lost(run_bytes: int, path_part: str, nth: int) -> None:
    """R-DEL-1, R-DUR-8: the page cache goes on showing the flags, so only the disk says that they are missing."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=run_bytes)
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.advance_ms(2100)
    world.delete("a", match="gone")
    world.fail_storage("sync", errno.EIO, path_part=path_part, nth=nth)
    world.advance_ms(1100)
    assert world.ring.faults.struck["sync"] == 1
    world.crash_and_start()
    for number in (4, 5):
        world.crash_and_start()  # one that ends before a checkpoint of its own
        world.write("a", number)
        world.advance_ms(2100)
    world.power_cut()
    world.start()
    assert world.data("a") == [1, 3, 4, 5]


def test_a_wall_clock_that_is_set_back_puts_off_no_checkpoint() -> None:
    world = SimWorld(checkpoint_every_ms=2000, checkpoint_wal_bytes=1 << 30)
    world.start()
    world.write("a", 1)
    before = world.ring.list_directory("/srv/topics/snapshots")
    world.ring.clock.step_wall_ms(-3_600_000)
    world.advance_ms(5000)
    assert world.ring.list_directory("/srv/topics/snapshots") != before


def test_a_wall_clock_that_is_set_ahead_brings_no_checkpoint() -> None:
    world = SimWorld(checkpoint_every_ms=60_000, checkpoint_wal_bytes=1 << 30)
    world.start()
    world.write("a", 1)
    before = world.ring.list_directory("/srv/topics/snapshots")
    world.ring.clock.step_wall_ms(3_600_000)
    world.advance_ms(5000)
    assert world.ring.list_directory("/srv/topics/snapshots") == before


def test_records_of_a_time_in_another_class_leave_the_log_of_a_topic_that_is_ephemeral_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R-CFG-3. Every checkpoint failed, and so did the stop."""
    caplog.set_level(logging.ERROR)
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1)
    world.put("a", durability="ephemeral")
    world.write("a", 2)
    world.advance_ms(2200)
    assert not caplog.records, caplog.text
    assert world.data("a") == [1, 2]
    world.put("a", durability="disk")
    world.write("a", 3)
    world.advance_ms(2200)
    assert not caplog.records, caplog.text
    world.crash_and_start()
    assert world.data("a") in ([1, 3], [1, 2, 3])


def test_a_checkpoint_copies_what_a_router_copied_by_position() -> None:
    """R-RTR-2. The copies say where they lie, as records in memory do."""
    world = SimWorld()
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    assert world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}).status in {200, 201}
    world.write("a", 1, 2, 3)
    world.advance_ms(10)
    assert world.data("b") == [1, 2, 3]
    assert world.stop() == 0
    world.start()
    assert world.data("b") == [1, 2, 3]


@pytest.mark.parametrize("run_bytes", [0, 1 << 20], ids=["segment", "pack"])
def test_a_directory_made_by_a_checkpoint_that_then_found_no_space_survives_a_power_cut(run_bytes: int) -> None:
    """R-DUR-2. The next checkpoint finds it there; its name is not durable for all that."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=run_bytes)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    world.fail_storage("open", errno.ENOSPC, path_part="/pack-" if run_bytes else "/seg-")
    world.advance_ms(1100)
    assert world.ring.faults.struck["open"] == 1
    for number in (2, 3):
        world.write("a", number)
        world.advance_ms(2100)
    world.power_cut()
    world.start()
    assert world.data("a") == [1, 2, 3]


def test_an_empty_segment_that_a_checkpoint_left_is_no_obstacle_after_a_power_cut() -> None:
    """R-DUR-2. Its header was written and not synced, then nothing more could be opened, then what it was for went."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0, segment_max_events=1)
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
        world.write(name, 1)
    world.advance_ms(2100)
    world.write_records("a", [{"data": 2, "tag": "gone"}])
    world.fail_storage("open", errno.EMFILE, path_part="/seg-00000000000000000002", nth=2)  # the first one makes it
    world.advance_ms(1100)
    assert world.ring.faults.struck["open"] == 1
    world.delete("a", match="gone")
    world.write("b", 2)
    world.advance_ms(2100)
    world.power_cut()
    world.start()
    assert (world.data("a"), world.data("b")) == ([1], [1, 2])


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


def _fill(world: SimWorld, write: Callable[[], int], *, pause_ms: int) -> None:
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

    _fill(world, write, pause_ms=100)
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

    _fill(world, write, pause_ms=0)
    for name in "ab":
        world.delete(name, before_seq=1 << 40)
    world.advance_ms(10_000)
    assert write() == 200
    world.settle()
    head = world.state("b")["head_seq"]
    world.crash_and_start()
    assert [row["$seq"] for row in world.diff("b")["records"]] == list(range(head - 19, head + 1))


def test_a_directory_whose_subdirectory_found_no_space_is_synced_once_there_is_some() -> None:
    """R-DUR-2. To the next checkpoint it is nothing new."""
    for seed in range(4):
        world = SimWorld(seed, checkpoint_wal_bytes=1, pack_run_bytes=0)
        world.start()
        world.put("a", durability="fsync")
        world.write("a", 1)
        world.fail_storage("make_directory", errno.ENOSPC, path_part="/topics/topics/")
        world.advance_ms(3200)
        assert world.ring.faults.struck["make_directory"] == 1
        world.power_cut()
        world.start()
        assert world.data("a") == [1], f"seed {seed}"
        world.close()


def test_a_segment_that_was_given_up_empty_takes_nothing_with_it_that_has_its_name_now() -> None:
    """R-DUR-2. No space for its first records, then for nothing at all, and no descriptor for the snapshot."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0, wal_file_bytes=256 << 10)
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    world.write("a", "x" * 60_000)
    world.fail_storage("write", errno.ENOSPC, path_part="/seg-", nth=2)  # behind its header
    world.advance_ms(1100)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 60_000
    world.fail_storage("open", errno.EMFILE, path_part="/snapshot-")
    world.request("POST", "/v0/topics/b", {"records": [{"data": 1}]})
    world.advance_ms(1100)
    assert world.ring.faults.struck == {"write": 1, "open": 1}
    world.ring.disk.capacity_bytes = None
    world.advance_ms(100)
    world.write("b", 2)
    world.advance_ms(2200)
    world.crash_and_start()
    assert world.data("a") == ["x" * 60_000]


def test_a_segment_that_a_snapshot_lists_stays_though_its_first_records_find_no_space() -> None:
    """R-DUR-2. The checkpoint before could write its header only, and the one between nothing at all."""
    world = SimWorld(
        checkpoint_wal_bytes=1,
        pack_run_bytes=0,
        wal_file_bytes=256 << 10,
        segment_max_events=3,
        checkpoint_bytes_per_pass=4096,
    )
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    world.write("a", 1, 2, 3)
    world.advance_ms(2100)
    world.write_singly("a", "x" * 30_000, "y" * 30_000)
    world.fail_storage("write", errno.ENOSPC, path_part="/seg-00000000000000000004", nth=2)
    world.advance_ms(1100)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + 50_000
    world.request("POST", "/v0/topics/b", {"records": [{"data": 1}]})
    world.advance_ms(1100)
    world.ring.disk.capacity_bytes = None
    world.fail_storage("write", errno.ENOSPC, path_part="/seg-00000000000000000004", nth=2)
    world.write("b", 2)
    world.advance_ms(1100)
    assert world.ring.faults.struck["write"] == 2
    world.crash_and_start()
    assert world.data("a") == [1, 2, 3, "x" * 30_000, "y" * 30_000]


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


def test_a_delete_stays_done_whose_flags_a_killed_checkpoint_left_in_the_page_cache() -> None:
    """R-DEL-1: the next start saw the record dead, and its checkpoint gave up the log that says so. Seed 3028013."""
    interrupted = 0
    for effects, seed in itertools.product(range(38, 54), range(2, 6)):
        world = SimWorld(seed, checkpoint_wal_bytes=1)
        world.start()
        world.put("a", durability="fsync")
        world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
        world.advance_ms(2100)
        world.delete("a", match="gone")
        world.ring.stop_at(world.ring.effects + effects)
        with contextlib.suppress(SimStoppedError):
            world.advance_ms(1100)
        pack = world.ring.disk.find("/srv/topics/packs/pack-0000000000000001.data")
        interrupted += isinstance(pack, SimFile) and bool(pack.pending)
        world.crash_and_start()
        world.write("b", 4)
        world.advance_ms(2100)
        world.power_cut()
        world.start()
        assert world.data("a") == [1, 3], f"killed {effects} operations into the time of a checkpoint, seed {seed}"
        world.close()
    assert interrupted, "none was killed between the flag and its sync"


def test_a_cold_directory_that_a_killed_start_made_survives_a_power_cut() -> None:
    """R-DUR-2. Who made it was killed before its name was durable; the next one found it there. Seed 3125287."""
    for effects, seed in itertools.product(range(1, 40), range(2)):
        settings = {"pack_run_bytes": 0, "segment_max_events": 2, "cold_dir": "/srv/cold", "hot_retain_segments": 0}
        world = SimWorld(seed, checkpoint_wal_bytes=1, **settings)
        world.ring.stop_at(effects)
        with contextlib.suppress(SimStoppedError):
            world.start()
        world.crash_and_start()
        world.put("a", durability="fsync")
        world.write("a", 1, 2, 3)
        world.advance_ms(3300)
        world.power_cut()
        world.start()
        assert world.data("a") == [1, 2, 3], f"killed {effects} operations into the first start, seed {seed}"
        world.close()


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_start_with_more_shards_leaves_nothing_in_a_log_that_a_full_disk_keeps(is_refused: bool) -> None:
    """R-DUR-15. Topics lie in other shards from then on, which are replayed in any order; without the space for all
    that the log holds there is no such start, and with as many shards as before there is one."""
    world = SimWorld(wal_shards=2, checkpoint_wal_bytes=1 << 30, checkpoint_every_ms=1 << 40, wal_file_bytes=64 << 10)
    world.start()
    names = "abcdefgh"
    for name in names:
        world.put(name, durability="fsync")
    world.restart()
    for name in names:
        for _ in range(2):
            world.write_records(name, [{"data": "x" * 10_000, "tag": tag} for tag in ("kept", "gone") * 2])
    world.crash()
    disk = world.ring.disk
    disk.capacity_bytes = disk.used_bytes + (800_000 if is_refused else 1_100_000)
    world.config = replace(world.config, wal_shards=3, disk_low_water_bytes=8 << 20)
    assert world.try_to_start() is not is_refused
    if is_refused:
        world.start(wal_shards=2)
    for name in names:
        assert world.delete(name, match="gone")["deleted"] == 4
    world.crash_and_start()
    disk.capacity_bytes = None
    world.advance_ms(3000)
    for name in names:
        world.write(name, "new")
    for shards in (3, 2):
        world.crash()
        world.start(wal_shards=shards)
        assert [world.data(name) for name in names] == [["x" * 10_000] * 4 + ["new"]] * 8
    world.close()


def test_a_start_with_more_shards_that_was_killed_while_it_flagged_deletes_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DUR-15, R-RTR-16. The snapshot before the flags tells of the log of before, so of its number of shards, too."""
    world = SimWorld(wal_shards=2, checkpoint_wal_bytes=1 << 30, checkpoint_every_ms=1 << 40, pack_run_bytes=0)
    world.start()
    for name in "abcdefgh":
        world.put(name, durability="fsync")
    source, dest = "a", "f"
    lies_in = [_shard_of(6, shards) for shards in (2, 3)]
    assert lies_in == [1, 0], "the destination is to move to a shard that is read before its former one"
    assert world.request("PUT", "/v0/routers/r", {"source": source, "dest": dest}).status == 201
    world.write_records(dest, [{"data": 1, "tag": "gone"}, {"data": 2}])
    world.restart()
    world.write(source, 3)
    assert world.data(dest) == [1, 2, 3]
    world.delete(dest, match="gone")
    world.crash()

    def stop(_checkpointer: Checkpointer) -> None:
        raise SimStoppedError("killed between the flags and the snapshot")

    monkeypatch.setattr(Checkpointer, "_drop", stop)
    with pytest.raises(SimStoppedError):
        world.start(wal_shards=3)
    monkeypatch.undo()
    world.crash_and_start()
    world.write(source, 4)
    for _ in range(2):
        assert world.data(dest) == [2, 3, 4]
        world.crash_and_start()
        world.advance_ms(500)
    world.close()


def _shard_of(topic_id: int, shards: int) -> int:
    return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards
