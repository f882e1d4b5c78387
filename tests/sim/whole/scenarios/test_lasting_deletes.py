"""Deletes, evictions and expiries stay done, across checkpoints, failed syncs, kills and power cuts."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from tests.sim.world.ring_core import LATENCY_NS
from tests.sim.world.sim_file import SimFile
from topics.store.checkpoint.delete_flags import DeleteFlags

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_FILES = pytest.mark.parametrize(
    ("run_bytes", "path_part"), [(0, "/seg-"), (1 << 20, "/pack-")], ids=["segment", "pack"]
)


@pytest.mark.parametrize("match", [False, True])
def test_a_record_is_not_taken_by_a_delete_that_came_before_it_and_behind_a_write_that_failed(match: bool) -> None:
    """R-DEL-4, R-SEQ-6. Seed 3071600: the seq of the write that failed was given out again by the next start."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    world.fill_disk()
    failed = world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 300_000, "tag": "t"}]})
    assert failed.status == 500
    world.delete("a", **({"match": "t"} if match else {"before_seq": 100}))
    world.free_disk()
    world.crash_and_start()
    answer = world.write_records("a", [{"data": 2, "tag": "t"}])
    assert answer["first_seq"] > 1
    world.crash_and_start()
    assert world.data("a") == ([1, 2] if match else [2])
    state = world.state("a")
    assert state["earliest_seq"] <= state["head_seq"]


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


@pytest.mark.parametrize(
    ("run_bytes", "path_part", "nth"), [(0, "/seg-", 1), (1 << 20, "/pack-", 2)], ids=["frames", "index of a pack"]
)
def test_a_delete_stays_done_whose_flags_a_failed_sync_has_lost(run_bytes: int, path_part: str, nth: int) -> None:
    """R-DEL-1, R-DUR-8: the page cache continues to show the flags, so only the disk says that they are missing."""
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


def test_a_delete_stays_done_whose_flags_a_killed_checkpoint_left_in_the_page_cache() -> None:
    """R-DEL-1: the next start saw the record dead, and its checkpoint gave up the log that says so. Seed 3028013."""
    interrupted = [effects for effects in range(26, 36) if _is_killed_between_flag_and_sync(effects, seed=0)]
    assert interrupted, "none was killed between the flag and its sync"
    for effects, seed in itertools.product(interrupted, range(1, 10)):  # what a power cut takes depends on the seed
        assert _is_killed_between_flag_and_sync(effects, seed)


def _is_killed_between_flag_and_sync(effects: int, seed: int) -> bool:
    """Kill a checkpoint after so many operations, start again, and cut the power later."""
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
    is_interrupted = isinstance(pack, SimFile) and bool(pack.pending)
    world.crash_and_start()
    world.write("b", 4)
    world.advance_ms(2100)
    world.power_cut()
    world.start()
    assert world.data("a") == [1, 3], f"killed {effects} operations into the time of a checkpoint, seed {seed}"
    world.close()
    return is_interrupted


@_FILES
def test_a_record_deleted_while_a_checkpoint_copies_it_stays_deleted(
    run_bytes: int, path_part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-DEL-1, R-DUR-8: its flag is set by the next checkpoint, which lets the log forget the delete."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=run_bytes)
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    queue_open = world.ring.queue_open
    asked: list[str] = []

    def delete_first(user_data: int, path: str, flags: int, mode: int) -> None:
        if not asked and path_part in path:
            asked.append(path)
            world.connect().start("POST", "/v0/topics/a/delete", {"match": "gone"})
        queue_open(user_data, path, flags, mode)

    with monkeypatch.context() as slowly:
        slowly.setattr(world.ring, "queue_open", delete_first)
        slowly.setitem(LATENCY_NS, "open", 5_000_000)
        world.advance_ms(_CHECKPOINT_MS)
    assert asked
    assert world.data("a") == [1, 3]
    world.write("a", 4)
    world.advance_ms(_CHECKPOINT_MS)
    world.crash_and_start()
    assert world.data("a") == [1, 3, 4]


@_FILES
def test_flags_that_found_no_descriptor_are_set_by_the_next_checkpoint(run_bytes: int, path_part: str) -> None:
    """R-DEL-1, R-DUR-8."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=run_bytes)
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.advance_ms(_CHECKPOINT_MS)
    world.delete("a", match="gone")
    world.fail_storage("open", errno.EMFILE, path_part=path_part)
    world.advance_ms(_CHECKPOINT_MS)
    assert world.ring.faults.struck["open"] == 1
    world.write("a", 4)
    world.advance_ms(_CHECKPOINT_MS)
    world.crash_and_start()
    assert world.data("a") == [1, 3, 4]


def test_what_a_cap_evicted_stays_gone_when_a_crash_follows_the_flags_of_a_checkpoint() -> None:
    """R-CAP-1, R-DUR-8: a replay that misses the flagged record would evict one less."""
    for effects in range(10, 60):
        world = SimWorld(checkpoint_wal_bytes=1)
        world.start()
        world.put("a", durability="fsync", cap_records=3)
        world.write_records("a", [{"data": 1}, {"data": 2}, {"data": 3, "tag": "gone"}])
        world.advance_ms(_CHECKPOINT_MS)
        world.write("a", 4)
        world.delete("a", match="gone")
        world.ring.stop_at(world.ring.effects + effects)
        with contextlib.suppress(SimStoppedError):
            world.advance_ms(_CHECKPOINT_MS)
        world.crash_and_start()
        assert world.data("a") == [2, 4], f"killed {effects} operations into a checkpoint"
        world.close()


def test_a_run_that_was_merged_into_a_segment_is_not_read_again() -> None:
    """R-DEL-1: its pack stays because of others, and knows nothing of later deletes."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=1000)
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
        world.write_records(name, [{"data": 1}, {"data": 2, "tag": "gone"}])
    world.advance_ms(_CHECKPOINT_MS)
    world.write("a", "x" * 2000)
    world.advance_ms(_CHECKPOINT_MS)
    world.delete("a", match="gone")
    world.advance_ms(_CHECKPOINT_MS)
    world.crash_and_start()
    assert world.data("a") == [1, "x" * 2000]
    assert world.data("b") == [1, 2]


def test_a_delete_takes_what_was_written_before_it_though_not_yet_answered() -> None:
    """R-DEL-4: a replay does, so what is shown before a crash and after it would differ."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    writer = world.ask("POST", "/v0/topics/a", {"records": [{"data": 2}]})
    world.advance_us(20)
    deleter = world.ask("POST", "/v0/topics/a/delete", {"before_seq": 1000})
    assert writer.answer().status == 200
    assert deleter.answer().json["deleted"] == 2
    assert world.data("a") == []
    world.crash_and_start()
    assert world.data("a") == []
