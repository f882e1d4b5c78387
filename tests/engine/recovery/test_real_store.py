"""The engine on the real store: what the fake one cannot show. Everything on simulated time, disk and power."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.amount import seeds, stride
from tests.engine.harness import records
from tests.engine.real_world import RealWorld
from topics.errors import LogReadOnlyError


def test_a_kill_loses_nothing_of_any_logged_class() -> None:
    """R-DUR-13."""
    world = RealWorld()
    for name in ("memory", "disk", "fsync"):
        world.put(name, durability=name, cap_records=4)
        world.append(*range(6), name=name, tag="x")
        world.delete(before_seq=4, match="x", name=name)
    before = [world.state(name)._replace(last_write_ts=None) for name in ("memory", "disk", "fsync")]
    world.restart()
    after = [world.state(name) for name in ("memory", "disk", "fsync")]
    assert after[0].incarnation != before[0].incarnation
    assert [after[0]._replace(incarnation=before[0].incarnation), *after[1:]] == before
    assert world.seqs(0, "disk") == [4, 5, 6]


def test_a_power_cut_never_gives_a_seq_twice() -> None:
    """R-DUR-6."""
    world = RealWorld()
    world.append(1)
    acknowledged = world.append(2, 3).last_seq
    world.restart(power_lost=True)
    assert world.append(4).first_seq > acknowledged
    assert 1 in world.seqs(0)
    gap = world.state().head_seq - 1
    result = world.diff(2)
    assert result.tombstone is None or result.tombstone.reason == "crash"
    assert result.tombstone is None or result.tombstone.gap_to == gap


def test_after_a_graceful_stop_and_a_reboot_the_head_is_exact() -> None:
    """R-DUR-6."""
    world = RealWorld()
    world.append(1, 2, 3)
    world.delete(before_seq=4)
    world.put("e", durability="ephemeral")
    world.append(1, 2, name="e")
    world.restart(graceful=True, power_lost=True)
    assert (world.state().head_seq, world.state().count) == (3, 0)
    assert (world.state("e").head_seq, world.state("e").count) == (2, 0)
    assert world.append(4).first_seq == 4


@pytest.mark.parametrize("seed", seeds(6))
def test_after_a_power_cut_a_disk_topic_is_a_prefix_and_the_rest_is_told(seed: int) -> None:
    """R-DUR-3, R-DUR-6: every seq is delivered or covered by a tombstone; none is given twice; all over again."""
    chance = random.Random(seed)
    world = RealWorld(seed)
    written: dict[int, object] = {}
    acknowledged = 0
    for _ in range(3):
        for step in range(chance.randrange(1, 12)):
            values = [f"{seed}-{step}-{n}" for n in range(chance.choice((1, 3, 200)))]
            result = world.append(*values)
            assert result.first_seq > acknowledged
            acknowledged = result.last_seq
            written.update(zip(range(result.first_seq, result.last_seq + 1), values, strict=True))
            if chance.random() < 0.2:
                world.advance_ms(1500)  # a background sync
            if chance.random() < 0.2:
                world.checkpoint()
        unacknowledged = world.start_append(records("lost", "lost"))
        world.restart(power_lost=True)
        assert not unacknowledged.given
        cursor, told, survivors = 0, 0, {}
        while True:
            result = world.diff(cursor, limit=500)
            for record in msgspec.json.decode(b"[" + result.records + b"]"):
                survivors[record["$seq"]] = record["data"]
            if result.tombstone is not None:
                assert (result.tombstone.reason, result.tombstone.gap_from) == ("crash", cursor + 1)
                assert not any(cursor < seq <= result.tombstone.gap_to for seq in survivors)
                told += result.tombstone.missed_estimate
            cursor = result.next_from_seq
            if result.caught_up:
                break
        assert len(survivors) + told == cursor
        assert survivors.items() <= written.items()
        assert cursor >= acknowledged
        state = world.state()
        assert state.count == len(survivors)
        written = survivors


def test_fsync_records_and_keys_survive_a_power_cut() -> None:
    """R-DUR-2."""
    world = RealWorld()
    world.put(durability="fsync")
    world.append(1, 2, key=b"k")
    world.restart(power_lost=True)
    again = world.append(1, 2, key=b"k")
    assert (again.deduped, again.first_seq, again.last_seq) == (True, 1, 2)
    assert world.seqs() == [1, 2]


def test_reads_go_on_from_segments_and_packs_after_checkpoints() -> None:
    world = RealWorld(hot_tail_bytes=32768)
    for number in range(40):
        world.append(*({"n": number, "pad": "x" * 100} for _ in range(20)), tag=f"t{number % 4}")
        if number % 10 == 9:
            world.delete(match=f"t{number % 4}")
            world.checkpoint()
    assert world.state().count == 440
    world.restart()
    assert world.state().count == 440
    cursor, seen = 0, []
    while True:
        result = world.diff(cursor, limit=100, include_tags=True)
        seen.append(result.count)
        cursor = result.next_from_seq
        if result.caught_up:
            break
    assert sum(seen) == 440
    world.checkpoint()
    assert sum(file.live_rows for file in world.store.files) == 440


def test_a_change_of_the_shard_count_keeps_everything() -> None:
    """R-DUR-15."""
    world = RealWorld(wal_shards=3)
    for number in range(6):
        world.append(number, number, name=f"t{number}", tag="a")
    world.delete(before_seq=2, match="a", name="t0")
    world.config = type(world.config)(**{**_fields(world), "wal_shards": 1})
    world.restart()
    assert [world.state(f"t{number}").count for number in range(6)] == [1, 2, 2, 2, 2, 2]
    world.restart()
    assert world.seqs(0, "t0") == [2]


def _fields(world: RealWorld) -> dict[str, object]:
    return {name: getattr(world.config, name) for name in world.config.__slots__}


def test_delete_recreate_and_crash_with_two_shards_keeps_the_new_instance() -> None:
    world = RealWorld(wal_shards=2)
    for _ in range(4):
        world.put(durability="fsync")
        world.append("old")
        world.delete_topic()
    world.put(durability="fsync")
    world.append("new")
    world.restart(power_lost=True)
    assert [record["data"] for record in world.read()] == ["new"]


def test_an_io_error_latches_the_log_and_reads_go_on() -> None:
    """R-DUR-16."""
    world = RealWorld()
    world.append(1)
    world.real_store.log.write_latch.latch("a test")
    answer = world.start_append(records(2))
    with pytest.raises(LogReadOnlyError):
        world.wait(answer)
    assert world.seqs() == [1]


def test_a_long_poll_wakes_in_the_pass_of_the_commit() -> None:
    world = RealWorld()
    world.append(1)
    poll = world.start_diff(1, wait_ms=5000)
    world.start_append(records(2))
    assert world.wait(poll).count == 1
    poll = world.start_diff(2, wait_ms=50)
    assert world.wait(poll).caught_up


@pytest.mark.parametrize("old_in", ["segment", "pack"])
def test_a_checkpoint_killed_after_any_pass_keeps_what_a_cap_took_lost(old_in: str) -> None:
    """R-DUR-8: records deleted since must not be missing from the replay that works the eviction out again."""
    every = stride(3)
    passes = 0 if old_in == "segment" else every // 2
    ended = False
    while not ended:
        world = RealWorld(pack_run_bytes=0 if old_in == "segment" else 1 << 20)
        world.put(cap_records=20)
        world.append(*range(15), tag="old")
        world.append(*range(5), tag="new")
        world.checkpoint()
        world.append(*range(15), tag="old")
        world.delete(match="new")
        before = world.state()._replace(last_write_ts=None)
        checkpoint = world.real_loop.spawn(world.real_store.checkpointer.run())
        for _ in range(passes):
            if not checkpoint.done:
                world.real_loop.run_pass(None)
        ended = checkpoint.done
        world.restart()
        assert world.state()._replace(last_write_ts=None) == before, f"killed after pass {passes}"
        tombstone = world.diff().tombstone
        assert tombstone is not None, f"killed after pass {passes}"
        assert (tombstone.gap_to, tombstone.reason) == (15, "cap"), f"killed after pass {passes}"
        passes += every
    assert passes > 10


def test_a_session_file_that_is_no_text_counts_as_none() -> None:
    world = RealWorld()
    world.append(1)
    world.ring.corrupt_file("data/session", 10, 0x80)
    world.restart()
    assert world.seqs() == [1]


def test_a_file_that_is_given_up_under_a_reader_is_removed_after_it_and_not_prefetched() -> None:
    world = RealWorld(hot_tail_bytes=0, segment_max_events=20)
    world.put()
    for number in range(20):
        world.append(*[[number, at, "x" * 200] for at in range(10)])
    world.checkpoint()
    world.diff(0, limit=3)
    world.ring.slow_ns["read"] = 50_000_000
    answer = world.start_diff(100, limit=3)
    world.real_loop.run_pass(0)
    (read,) = (file for file in world.real_store.files if file.readers and not file.active)
    # of the same file, so that a window would begin with its end
    other = world.start_diff(103, limit=3)
    world.delete_topic()
    world.checkpoint()
    world.until(lambda: answer.given and other.given)
    world.advance_ms(1000)
    assert world.real_store.files.get(read.file_id) is None
    with pytest.raises(FileNotFoundError):
        world.ring.file_size(read.path)
