"""Starts after a kill, with another number of shards, or on recycled log files show what the life before showed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
import xxhash

from tests.amount import stride
from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from topics.store.checkpoint.checkpoint_steps import CheckpointSteps
from topics.store.format.log_format import BLOCK_BYTES

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_BATCH_AROUND_BYTES = 128
"""A batch of one record in whole blocks has so many bytes around the text, or up to seven fewer."""
_LOSES_ALL = 7
"""A seed with which a power cut leaves nothing that is not synced."""


def test_a_first_start_killed_anywhere_leaves_no_directory_that_a_power_cut_takes_later() -> None:
    """R-DUR-2. The process that made a directory may be killed before it synced its name; the next one has to."""
    for effects in range(1, 40):
        seed = effects // 2 % 2
        world = SimWorld(seed)
        world.ring.stop_at(effects)
        with contextlib.suppress(SimStoppedError):
            world.start()
        world.crash_and_start()
        world.put("a", durability="fsync")
        world.write("a", "kept")
        world.power_cut()
        world.start()
        assert world.data("a") == ["kept"], f"killed after {effects} operations, seed {seed}"
        world.close()


def test_a_second_start_that_a_power_cut_ends_leaves_no_directory_that_a_third_refuses() -> None:
    """R-LIFE-9. The first was killed before the name of its marker was durable, and the cut takes that name."""
    for effects in range(10, 16):
        for later in range(1, 16, stride(1)):
            world = SimWorld(effects + later, cold_dir="/srv/cold")
            world.ring.stop_at(effects)
            with contextlib.suppress(SimStoppedError):
                world.start()
            world.crash()
            world.ring.stop_at(later)
            with contextlib.suppress(SimStoppedError):
                world.start()
            world.power_cut()
            world.start()
            world.close()


def test_a_record_that_a_killed_start_with_other_shards_copied_is_copied_once() -> None:
    """R-DUR-13, R-DUR-15: `count`, `bytes`. The snapshot before the flags lists the copy, and the log has it, too."""
    for effects in range(60, 160, stride(4)):
        world = SimWorld(wal_shards=4, sync_every_ms=60_000, pack_run_bytes=0)
        world.start()
        world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}])
        world.stop()
        world.start()
        world.delete("a", match="gone")
        world.write("a", 3)
        world.crash()
        world.ring.stop_at(effects)
        with contextlib.suppress(SimStoppedError):
            world.start(wal_shards=1)
        world.crash()
        world.start(wal_shards=4)
        world.crash_and_start()
        assert world.data("a") == [1, 3]
        assert world.state("a")["count"] == 2, f"killed {effects} operations into a start"
        world.close()


def test_a_spare_log_file_never_gets_the_number_back_under_which_it_was_written() -> None:
    """With false confirmations a power cut takes the snapshot it was given up for: a second start must show what the
    first did. Seed 7800049 of ones with more faults than usual."""
    world = SimWorld(checkpoint_wal_bytes=1 << 30)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    world.crash()
    directory = "/srv/topics/wal/shard-00"
    used = "wal-0000000000000001.log"
    for name in world.ring.list_directory(directory):
        if name != used:
            world.ring.disk.unlink(f"{directory}/{name}")
    world.ring.disk.rename(f"{directory}/{used}", f"{directory}/spare-{used[4:]}")
    for _ in range(3):
        world.start()
        assert world.request("GET", "/v0/topics/a").status == 404
        world.crash()


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


def test_a_cold_directory_that_a_killed_start_made_survives_a_power_cut() -> None:
    """R-DUR-2. Who made it was killed before its name was durable; the next one found it there. Seed 3125287."""
    for effects in range(1, 40):
        seed = effects // 2 % 2
        settings: Any = {
            "pack_run_bytes": 0,
            "segment_max_events": 2,
            "cold_dir": "/srv/cold",
            "hot_retain_segments": 0,
        }
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
    """R-DUR-15. Topics are in other shards from then on, which are replayed in any order; without the space for all
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


def _shard_of(topic_id: int, shards: int) -> int:
    return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards


def test_a_start_with_more_shards_that_was_killed_while_it_flagged_deletes_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DUR-15, R-RTR-16. The snapshot before the flags states the log of before, so of its number of shards, too."""
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

    def stop(_steps: CheckpointSteps) -> None:
        raise SimStoppedError("killed between the flags and the snapshot")

    monkeypatch.setattr(CheckpointSteps, "drop", stop)
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


def test_a_start_after_a_power_cut_may_be_killed_anywhere_and_no_seq_comes_again() -> None:
    """R-DUR-6: the start after it finds the same boot, and has to know of the gap all the same."""
    for effects in range(40, 90):
        world = SimWorld(_LOSES_ALL, sync_every_ms=60_000)
        world.start()
        world.put("a", durability="disk")
        world.write("a", 1)  # synced with the reservation
        last = world.write("a", 2, 3)["last_seq"]
        world.power_cut()
        world.ring.stop_at(effects)
        with contextlib.suppress(SimStoppedError):
            world.start()
        world.crash_and_start()
        assert world.data("a") == [1]
        assert world.write("a", 4)["first_seq"] > last, f"killed after {effects} operations"
        assert world.diff("a", 1)["tombstone"]["reason"] == "crash", f"killed after {effects} operations"
        world.close()


def _end_of_log(world: SimWorld) -> tuple[str, int]:
    """Path of the file that the log writes to, and where its next batch begins."""
    assert world.server is not None
    file = world.server.engine._core.log.shards[0]._end.file  # type: ignore[union-attr]
    return file.stored.path, file.position


def test_batches_of_a_recycled_log_file_are_not_taken_for_what_follows_its_last_one() -> None:
    """R-DUR-1. In both its uses they fill whole blocks, so an old one begins where recovery looks for the next."""
    world = SimWorld(checkpoint_wal_bytes=1, wal_file_bytes=64 << 10)
    world.start()
    world.put("a", durability="fsync")
    for cycle in range(4):  # a file, the one made ahead of it, the spare beside both, and the first again
        world.write("a", "is copied")
        world.advance_ms(_CHECKPOINT_MS)
        for _ in range(2 if cycle == 3 else 3):
            path, end = _end_of_log(world)
            world.write("a", str(cycle).ljust(-end % BLOCK_BYTES + BLOCK_BYTES - _BATCH_AROUND_BYTES))
        if cycle == 0:
            world.write("b", "of the first use")
            world.advance_ms(1)
        elif cycle == 1:
            world.drop("b")
    path, end = _end_of_log(world)
    assert end % BLOCK_BYTES == 0
    assert world.ring.file_bytes(path)[end : end + 4] == world.ring.file_bytes(path)[BLOCK_BYTES : BLOCK_BYTES + 4]
    found = world.data("a")
    world.crash_and_start()
    assert world.data("a") == found
    assert world.request("GET", "/v0/topics/b").status == 404
