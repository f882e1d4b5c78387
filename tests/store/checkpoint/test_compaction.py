"""Segments and packs written anew without their deleted records: when, with what, and what a crash leaves."""

from __future__ import annotations

import contextlib
import errno
from typing import Any

import pytest

from tests.store.store_world import DIRECTORY, StoreWorld, small_config, text_of
from topics.store.checkpoint import compaction
from topics.store.disk.whole_files import write_new_file
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import verify

TOPIC = "topics/0000000000000001"


def config(**changes: Any) -> Any:
    return small_config(**{"segment_max_events": 10, "segment_bulk": 1, "pack_run_bytes": 256, **changes})


def filled(**changes: Any) -> StoreWorld:
    """Four sealed segments of ten records."""
    world = StoreWorld(config=config(**changes)).open()
    world.create(1)
    for _ in range(4):
        world.append(1, 10, size=100)
        world.checkpoint()
    return world


def segments(world: StoreWorld) -> list[str]:
    world.passes(60)
    return [name for name in world.files(TOPIC) if name.endswith(".data")]


def without(world: StoreWorld, *kept: int) -> None:
    """Delete all records but these, and take a checkpoint."""
    world.delete(1, sorted(set(world.topic(1).rows) - set(kept)))
    world.checkpoint()


def format_of(world: StoreWorld) -> bytes:
    return world.ring.file_bytes(f"{DIRECTORY}/topics.json")


def test_a_segment_of_which_little_lives_is_written_anew_and_the_old_file_goes() -> None:
    world = filled()
    world.delete(1, [12, 13, 14, 15, 16, 17, 18, 19])
    world.checkpoint()
    assert segments(world) == [
        f"seg-{1:020d}.data",
        f"seg-{11:020d}-1.data",
        f"seg-{21:020d}.data",
        f"seg-{31:020d}.data",
    ]
    world.check_every_record()
    world = world.next_life(power_cut=True)
    assert set(world.topic(1).rows) == set(range(1, 41)) - set(range(12, 20))
    world.check_every_record()


def test_nothing_is_written_anew_of_which_enough_lives() -> None:
    world = filled(compact_below=0.25)
    world.delete(1, [2, 3, 4, 5, 6, 7])
    world.checkpoint()
    world.checkpoint()
    assert f"seg-{1:020d}.data" in segments(world)
    assert b'"format":1' in format_of(world)


def test_at_zero_deleted_records_keep_their_space() -> None:
    world = filled(compact_below=0.0)
    without(world, 1, 11)
    world.checkpoint()
    assert segments(world)[:2] == [f"seg-{1:020d}.data", f"seg-{11:020d}.data"]


def test_neighbours_of_which_little_lives_become_one_segment() -> None:
    world = filled()
    without(world, 1, 12, 23, 34)
    assert segments(world) == [f"seg-{1:020d}-1.data"]
    world.append(1, 10, size=100)
    without(world, 12, 41)
    world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}-2.data"
    world = world.next_life()
    assert set(world.topic(1).rows) == {12, 41}
    world.check_every_record()


@pytest.mark.parametrize("setting", [1.0, 0.5], ids=["from the start", "set later"])
def test_the_bytes_of_a_deleted_record_are_in_no_file_afterwards(setting: float) -> None:
    world = filled(compact_below=setting, checkpoint_wal_bytes=1 << 20)
    if setting < 1:
        assert any(name.startswith("spare-") for name in world.files("wal/shard-00"))
        world = world.next_life(config=config(compact_below=1.0, checkpoint_wal_bytes=1 << 20))
    world.append(1, 40, size=100)
    world.checkpoint()
    text = text_of(1, 75, 100)
    assert text in everything(world)
    world.delete(1, [75])
    world.checkpoint()
    world.passes(60)
    assert text not in everything(world)
    world.check_every_record()


def everything(world: StoreWorld) -> bytes:
    """All bytes of the directory."""
    found = []
    for directory in (".", TOPIC, "packs", "snapshots", "wal/shard-00"):
        for name in world.files(directory):
            with contextlib.suppress(OSError, AssertionError):  # a directory
                found.append(world.ring.file_bytes(f"{DIRECTORY}/{directory}/{name}"))
    return b"".join(found)


def test_a_file_that_still_loses_records_waits_until_it_rests_or_hardly_anything_lives() -> None:
    world = filled()
    world.delete(1, [1, 2, 3, 4, 5, 6])
    world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}.data", "others may be deleted soon"
    world.delete(1, [7])
    world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}.data"
    world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}-1.data", "none was since the last checkpoint"
    world.delete(1, [11, 12, 13, 14, 15, 16, 17, 18])
    world.checkpoint()
    assert segments(world)[1] == f"seg-{11:020d}-1.data", "less than a quarter lives"


def test_what_exceeds_the_bytes_of_one_checkpoint_is_written_anew_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a file that exceeds them by itself: no checkpoint would have room for it."""
    monkeypatch.setattr(compaction, "_BYTES_A_CHECKPOINT", 100)
    world = filled()
    without(world, 1, 21, *range(31, 41))
    assert segments(world) == [f"seg-{1:020d}-1.data", f"seg-{21:020d}.data", f"seg-{31:020d}.data"]
    world.checkpoint()
    assert f"seg-{21:020d}-1.data" in segments(world)
    world.check_every_record()


def test_a_log_in_which_nothing_happens_takes_the_checkpoint_that_a_file_waits_for() -> None:
    world = filled(checkpoint_every_ms=5000)
    world.delete(1, [1, 2, 3, 4, 5, 6])
    world.checkpoint()
    world.loop.run_until(lambda: segments(world)[0] == f"seg-{1:020d}-1.data")


@pytest.mark.parametrize("settings", [{}, {"cold_dir": "cold", "hot_retain_segments": 0}], ids=["hot", "cold"])
def test_what_is_deleted_in_a_segment_written_anew_stays_deleted(settings: dict[str, Any]) -> None:
    world = filled(**settings)
    without(world, 1, 2, 3)
    world.delete(1, [2])
    world.checkpoint()
    world = world.next_life(power_cut=True)
    assert set(world.topic(1).rows) == {1, 3}
    world.check_every_record()


def test_a_segment_in_the_cold_directory_is_written_anew_and_moves_there_again() -> None:
    world = filled(cold_dir="cold", hot_retain_segments=0)
    without(world, 1, 2)
    world.checkpoint()
    world.passes(60)
    assert segments(world) == []
    names = world.ring.disk.list_directory(f"cold/{TOPIC}")
    assert [name for name in names if name.endswith(".data")] == [f"seg-{1:020d}-1.data"]
    world = world.next_life()
    world.check_every_record()
    world.close()
    world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config)
    assert world.run(verify(world.loop, DIRECTORY, "cold")).sound


def test_a_record_deleted_while_its_segment_is_written_anew_stays_deleted() -> None:
    world = filled()
    world.delete(1, list(range(1, 9)))
    checkpoint = world.loop.spawn(world.store.checkpointer.run())
    world.loop.run_until(lambda: f"seg-{1:020d}-1.data" in world.files(TOPIC))
    world.delete(1, [9])
    world.loop.run_until(lambda: checkpoint.done)
    world.checkpoint()
    world = world.next_life(power_cut=True)
    assert set(world.topic(1).rows) == set(range(10, 41))
    world.check_every_record()


def test_a_damaged_segment_stays_as_it_is_and_the_checkpoint_succeeds() -> None:
    world = filled()
    row = world.topic(1).rows[9]
    world.ring.corrupt_file(f"{DIRECTORY}/{TOPIC}/seg-{1:020d}.data", row.offset + 60)
    without(world, 9, 19)
    assert segments(world) == [f"seg-{1:020d}.data", f"seg-{11:020d}.data"], "they were to become one"
    assert not world.store.log.read_only
    assert world.store.checkpointer.counters.error == ""


def test_without_space_for_it_nothing_is_written_anew_and_the_log_continues() -> None:
    world = filled()
    world.delete(1, list(range(1, 9)))
    world.ring.faults.fail("write", errno.ENOSPC, path_part="-1.data")
    with pytest.raises(OSError, match="No space"):
        world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}.data"
    world.append(1, 1)
    world.checkpoint()
    world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}-1.data"
    world.check_every_record()


def test_the_directory_gets_its_new_format_before_a_segment_is_written_anew() -> None:
    world = filled()
    assert b'"format":1' in format_of(world)
    world.ring.faults.fail("rename", errno.EIO, path_part="topics.json")
    world.delete(1, list(range(1, 9)))
    with pytest.raises(Exception, match="could not be raised"):
        world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}.data"
    world.checkpoint()
    assert segments(world)[0] == f"seg-{1:020d}-1.data"
    assert b'"format":2' in format_of(world)


def test_a_small_unsealed_segment_of_which_little_lives_is_sealed_by_age_and_written_anew() -> None:
    world = StoreWorld(config=config(segment_max_age_ms=1000, pack_run_bytes=600)).open()
    world.create(1)
    world.append(1, 5, size=100)
    world.checkpoint()
    assert segments(world) == [f"seg-{1:020d}.data"]
    world.delete(1, [2, 3, 4, 5])
    world.ring.clock.advance_ns(2_000_000_000)
    world.checkpoint()
    assert segments(world) == [f"seg-{1:020d}-1.data"]
    world.check_every_record()


def packed(**changes: Any) -> StoreWorld:
    """A pack with two records of each of twenty topics."""
    world = StoreWorld(config=config(pack_run_bytes=1 << 16, **changes)).open()
    for topic_id in range(1, 21):
        world.create(topic_id)
        world.append(topic_id, 2, size=100)
    world.checkpoint()
    assert world.files("packs") == ["pack-0000000000000001.data"]
    return world


def test_a_pack_of_which_little_lives_is_written_anew() -> None:
    world = packed()
    for topic_id in range(1, 17):
        world.delete(topic_id, [1, 2])
    world.checkpoint()
    world.passes(60)
    assert world.files("packs") == ["pack-0000000000000002.data"]
    world.check_every_record()
    world = world.next_life(power_cut=True)
    assert [len(world.topic(topic_id).rows) for topic_id in range(15, 19)] == [0, 0, 2, 2]
    world.check_every_record()
    world.delete(17, [1])
    world.append(17, 1)
    world.checkpoint()
    world = world.next_life(power_cut=True)
    assert set(world.topic(17).rows) == {2, 3}


def test_the_runs_that_a_topic_has_in_other_packs_go_with_it_in_their_order() -> None:
    world = packed()
    world.append(20, 3, size=100)
    world.checkpoint()
    for topic_id in range(1, 17):
        world.delete(topic_id, [1, 2])
    world.checkpoint()
    world.passes(60)
    assert world.files("packs") == ["pack-0000000000000003.data"]
    world = world.next_life()
    assert list(world.topic(20).rows) == [1, 2, 3, 4, 5]
    world.check_every_record()


def test_a_damaged_pack_stays_as_it_is() -> None:
    world = packed()
    for topic_id in range(1, 17):
        world.delete(topic_id, [1, 2])
    row = world.topic(18).rows[1]
    world.ring.corrupt_file(f"{DIRECTORY}/packs/pack-0000000000000001.data", row.offset + 60)
    world.checkpoint()
    world.passes(60)
    assert "pack-0000000000000001.data" in world.files("packs")
    assert len(world.topic(18).rows) == 2
    assert world.store.checkpointer.counters.error == ""


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "not written to its end"])
def test_a_rebuild_takes_one_of_an_old_segment_and_the_one_that_was_to_replace_it(whole: bool) -> None:
    """A crash left both, and no snapshot: only the new one is known to lack what was deleted since."""
    world = filled()
    world.delete(1, list(range(1, 9)))
    old, new = (f"{DIRECTORY}/{TOPIC}/seg-{1:020d}{again}.data" for again in ("", "-1"))
    before = world.ring.file_bytes(old)
    world.checkpoint()
    world.close()
    for name in world.files("snapshots"):
        world.ring.disk.unlink(f"{DIRECTORY}/snapshots/{name}")
    world = StoreWorld(world.ring.next_life(power_cut=False), config=world.config)
    after = world.ring.file_bytes(new)
    world.run(write_new_file(world.loop.files, old, before))
    world.run(write_new_file(world.loop.files, new, after if whole else after[:-200]))
    world.run(rebuild(world.loop, DIRECTORY, ""))
    world = world.next_life()
    expected = set(range(9, 41)) if whole else set(range(1, 41))
    assert set(world.topic(1).rows) == expected
    world.check_every_record()
