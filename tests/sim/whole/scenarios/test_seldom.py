"""What chance meets too seldom for seeds to find it, each as the scenario it is; mutants.py breaks the code behind."""

from __future__ import annotations

import contextlib
import errno

import pytest

from tests.contract.world.queue_client import Queue
from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from tests.sim.world.ring_core import LATENCY_NS
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.segments.segment import describe_file

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CHECKPOINT_MS = 1100
_BATCH_AROUND_BYTES = 128
"""A batch of one record in whole blocks has so many bytes around the text, or up to seven fewer."""
_LOSES_ALL = 7
"""A seed with which a power cut leaves nothing that is not synced."""
_FILES = pytest.mark.parametrize(
    ("run_bytes", "path_part"), [(0, "/seg-"), (1 << 20, "/pack-")], ids=["segment", "pack"]
)


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


def test_a_delete_takes_what_was_written_before_it_though_nobody_was_told_of_that_yet() -> None:
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


def test_a_reservation_that_found_no_space_is_made_again_by_the_next_write() -> None:
    """R-DUR-6."""
    for seed in range(8):
        world = SimWorld(seed, sync_every_ms=60_000)
        world.start()
        world.put("a", durability="disk")
        world.fail_storage("write", errno.ENOSPC, path_part="/wal-")
        assert world.request("POST", "/v0/topics/a", {"records": [{"data": 1}]}).status == 500
        world.advance_ms(1100)
        last = world.write("a", 2)["last_seq"]
        world.power_cut()
        world.start()
        assert world.write("a", 3)["first_seq"] > last, f"seed {seed}"
        world.close()


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


def test_jobs_acked_while_their_router_was_blocked_are_forwarded_after_a_power_cut() -> None:
    """R-RTR-18: the frames that a router keeps are synced before the acks that consume the jobs, in whatever shard."""
    for seed in range(6):
        world = SimWorld(seed, wal_shards=4, sync_every_ms=60_000)
        world.start()
        queues = [Queue(world, f"jobs{number}", durability="fsync") for number in range(6)]
        for number in range(6):
            world.put(f"full{number}", cap_records=1, discard="reject", durability="disk")
            world.write(f"full{number}", "before")
            router = {"source": f"jobs{number}", "dest": f"full{number}"}
            assert world.request("PUT", f"/v0/routers/r{number}", router).status == 201
        for queue in queues:
            queue.put("job")
            queue.claim()
            queue.ack(1)
        world.power_cut()
        world.start()
        for number in range(6):
            world.delete(f"full{number}", before_seq=2)
            assert world.data(f"full{number}") == ["job"], (seed, number)
        world.close()


def test_hops_outlive_a_checkpoint_while_a_router_is_blocked() -> None:
    """R-RTR-12, R-RTR-16: a mirror ends after eight, wherever its records were when the log was recycled."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("b", cap_records=1, discard="reject")
    for source, dest in ("ab", "ba"):
        router = {"source": source, "dest": dest, "allow_cycle": True}
        assert world.request("PUT", f"/v0/routers/{source}{dest}", router).status == 201
    world.write("a", 1)
    for _ in range(8):
        world.advance_ms(_CHECKPOINT_MS)
        world.crash_and_start()
        world.delete("b", before_seq=100)
    world.advance_ms(_CHECKPOINT_MS)
    assert (world.state("a")["head_seq"], world.state("b")["head_seq"]) == (5, 4)


def test_seqs_of_a_time_in_class_ephemeral_are_not_given_out_again() -> None:
    """R-SEQ-4, R-CFG-3: nothing of that time is in the log but the change that ended it."""
    world = SimWorld()
    world.start()
    world.put("a", durability="ephemeral")
    last = world.write("a", 1, 2)["last_seq"]
    world.put("a", durability="disk")
    world.crash_and_start()
    assert world.write("a", 3)["first_seq"] == last + 1


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


@pytest.mark.parametrize("copied", [0, 3], ids=["new", "grown"])
@pytest.mark.parametrize("nth", range(1, 5))
def test_what_a_checkpoint_wrote_of_a_segment_before_space_ran_out_is_written_over_by_the_next(
    nth: int, copied: int
) -> None:
    """R-DUR-2, R-DUR-16: nobody was told where it lies."""
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


def test_what_a_killed_checkpoint_left_behind_a_segment_is_no_part_of_it_when_it_is_sealed() -> None:
    """R-REC-1. Nothing more comes into it, so only the start after the kill cuts it back."""
    world = SimWorld(checkpoint_wal_bytes=1, pack_run_bytes=0, segment_max_age_ms=4000)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", "before")
    world.advance_ms(_CHECKPOINT_MS)
    world.write_records("a", [{"data": "left behind", "tag": "gone"}, {"data": "x" * 2000, "tag": "gone"}])
    (segment,) = world._files("/srv/topics/topics")
    while b"left behind" not in world.ring.file_bytes(segment):
        world.ring.stop_at(world.ring.effects + 1)
        with contextlib.suppress(SimStoppedError):
            world.advance_ms(_CHECKPOINT_MS)
    world.crash_and_start()
    world.delete("a", match="gone")
    world.advance_ms(9000)
    assert world.data("a") == ["before"]
    assert world.stop() == 0
    described = describe_file(world.ring.file_bytes(segment), segment)  # as a rebuild reads it
    assert (described.segment.sealed, described.segment.records) == (True, 1)


def _end_of_log(world: SimWorld) -> tuple[str, int]:
    """Path of the file that the log writes to, and where its next batch begins."""
    assert world.server is not None
    file = world.server.engine._core.log.shards[0]._end.file  # type: ignore[union-attr]
    return file.stored.path, file.position
