"""Checkpoints that meet a fault, a kill or a rotten record lose nothing, and the next one makes up for them."""

from __future__ import annotations

import contextlib
import errno
import logging

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from topics.store.segments.segment import describe_file

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_LOSES_ALL = 7
"""A seed with which a power cut leaves nothing that is not synced."""


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


def test_segments_in_directories_that_a_killed_checkpoint_made_survive_a_power_cut() -> None:
    """R-DUR-2. A process may be killed before it synced the name of a directory that it made; the next one has to."""
    for effects in range(1, 45):
        seed = effects // 2 % 2
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


def test_a_failed_sync_of_a_checkpoint_is_an_error_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0)
    world.start()
    for name in ("a", "b", "c"):
        world.write(name, name)
    world.fail_storage("sync", errno.EIO, path_part="/seg-", times=3)
    world.advance_ms(1100)
    assert [record.getMessage()[:17] for record in caplog.records] == ["checkpoint failed"], caplog.text


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
    world.fail_storage("write", errno.ENOSPC, path_part="/seg-", nth=2)  # after its header
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


@pytest.mark.parametrize("copied", [0, 3], ids=["new", "grown"])
@pytest.mark.parametrize("nth", range(1, 5))
def test_what_a_checkpoint_wrote_of_a_segment_before_space_ran_out_is_written_over_by_the_next(
    nth: int, copied: int
) -> None:
    """R-DUR-2, R-DUR-16: no answer showed its place."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0, checkpoint_bytes_per_pass=4096)
    world.start()
    world.put("a", durability="fsync")
    texts = [f"{number} ".ljust(3000, "x") for number in range(8)]
    if copied:
        world.write_singly("a", *texts[:copied])
        world.advance_ms(2100)
    world.write_singly("a", *texts[copied:])
    world.fail_storage("write", errno.ENOSPC, path_part="/seg-", nth=nth)
    world.advance_ms(1100)
    assert world.ring.faults.struck["write"] == 1
    world.advance_ms(2200)
    segments = [world.ring.file_bytes(path) for path in world._files("/srv/topics/topics") if path.endswith(".data")]
    assert [sum(data.count(text.encode()) for data in segments) for text in texts] == [1] * 8
    world.power_cut()
    world.start()
    assert world.data("a") == texts


def test_what_a_killed_checkpoint_left_behind_a_segment_is_no_part_of_it_when_it_is_sealed() -> None:
    """R-REC-1. Nothing more comes into it, so only the start after the kill cuts it back."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0, segment_max_age_ms=4000)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", "before")
    world.advance_ms(_CHECKPOINT_MS)
    world.write_records("a", [{"data": "left behind", "tag": "gone"}, {"data": "x" * 2000, "tag": "gone"}])
    (segment,) = world._files("/srv/topics/topics")
    assert world.loop is not None
    while b"left behind" not in world.ring.file_bytes(segment):
        world.loop.run_pass(1_000_000)
    world.crash_and_start()
    world.delete("a", match="gone")
    world.advance_ms(9000)
    assert world.data("a") == ["before"]
    assert world.stop() == 0
    described = describe_file(world.ring.file_bytes(segment), segment)  # as a rebuild reads it
    assert (described.segment.sealed, described.segment.records) == (True, 1)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EINTR, errno.EAGAIN])
@pytest.mark.parametrize("kind", ["open", "sync"])
def test_a_directory_or_file_of_a_checkpoint_that_cannot_be_opened_or_synced_costs_no_record(
    kind: str, error: int
) -> None:
    """R-DUR-1, R-DUR-16: whatever the error, and wherever it comes; a sync that failed latches the log."""
    struck = 0
    for nth in range(1, 8):
        world = SimWorld(_LOSES_ALL, checkpoint_wal_bytes=1)
        world.start()
        world.put("a", durability="fsync")
        world.write("a", 1, 2)
        for path_part in ("/packs", "/snapshots"):
            world.fail_storage(kind, error, nth=nth, path_part=path_part)
        world.advance_ms(_CHECKPOINT_MS)
        struck += world.ring.faults.struck[kind]
        world.heal_storage()
        kept = [1, 2]
        if world.request("POST", "/v0/topics/a", {"records": [{"data": 3}]}).status == 200:
            kept.append(3)
        world.advance_ms(_CHECKPOINT_MS)
        world.power_cut()
        world.start()
        assert world.data("a") == kept, nth
        assert world.write("a", 4)["last_seq"] > len(kept)
        world.close()
    assert struck >= 4
