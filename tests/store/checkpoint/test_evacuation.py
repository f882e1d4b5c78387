"""Records that a checkpoint copies out of the log, and their destinations."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.sim.world.faults import Fault
from tests.store.store_world import StoreWorld, small_config
from topics.errors import CorruptError
from topics.store.checkpoint import evacuation, pack_copy
from topics.store.checkpoint.copy_context import CopyContext
from topics.store.checkpoint.evacuation import RUNS_MAX
from topics.store.disk.whole_files import FileCalls
from topics.store.format.file_table import FileKind
from topics.store.format.log_format import FrameType

_NEVER = {"checkpoint_wal_bytes": 1 << 30, "checkpoint_every_ms": 1 << 40}
"""No checkpoint begins by itself."""


def begun(**changes: int) -> StoreWorld:
    """Topics 1 and 2, without records."""
    world = StoreWorld(config=small_config(**{**_NEVER, **changes})).open()
    world.create(1)
    world.create(2)
    return world


def kinds(world: StoreWorld, topic_id: int) -> list[FileKind]:
    """Where each record of a topic is, in the order of their seqs."""
    return [world.store.files[row.file_id].kind for _, row in sorted(world.topic(topic_id).rows.items())]


def test_small_topics_share_a_pack_and_many_runs_are_merged() -> None:
    world = StoreWorld().open()
    for topic_id in range(1, 6):
        world.create(topic_id)
    for turn in range(20):
        for topic_id in range(1, 6):
            world.append(topic_id, 2, tag=b"t%d" % (turn % 3))
        world.checkpoint()
        assert len(world.store.checkpointer.steps._manifest.runs.get(1, ())) <= 8
    world.check_every_record()
    assert len(world.files("packs")) <= 8
    assert world.files("topics") == []
    before = world.catalog.state()
    world = world.next_life()
    assert world.catalog.state() == before
    world.check_every_record()


def test_records_damaged_in_the_log_are_not_copied_into_a_segment() -> None:
    world = StoreWorld(config=small_config(hot_tail_bytes=0)).open()
    world.create(1)
    world.append(1, 3)
    world.append(1, 2)
    row = world.topic(1).rows[2]
    world = world.next_life()
    row = world.topic(1).rows[2]
    world.ring.corrupt_file(world.store.files[row.file_id].path, row.offset + 60)
    with pytest.raises(CorruptError, match="topic 1, seq 2"):
        world.checkpoint()
    assert world.store.checkpointer.counters.error
    assert not world.store.log.read_only


def test_few_bytes_of_a_topic_go_into_a_pack_and_many_into_a_segment() -> None:
    world = begun(pack_run_bytes=2000)
    world.append(1, 3)
    world.append(2, 10, size=300)
    world.checkpoint()
    assert (kinds(world, 1), kinds(world, 2)) == ([FileKind.PACK] * 3, [FileKind.SEGMENT] * 10)
    world.next_life(power_cut=True).check_every_record()


def test_a_topic_that_has_a_segment_gets_no_runs_beside_it() -> None:
    world = begun(pack_run_bytes=2000)
    world.append(1, 10, size=300)
    world.checkpoint()
    world.append(1, 1)
    world.checkpoint()
    assert kinds(world, 1) == [FileKind.SEGMENT] * 11
    assert world.files("packs") == []


def test_runs_go_into_the_first_segment_of_their_topic_and_their_packs_go() -> None:
    world = begun(pack_run_bytes=2000)
    for _ in range(3):
        world.append(1, 1, size=500)
        world.checkpoint()
    assert kinds(world, 1) == [FileKind.PACK] * 3
    world.append(1, 1, size=2000)
    world.checkpoint()
    assert kinds(world, 1) == [FileKind.SEGMENT] * 4
    assert world.files("packs") == []
    world.next_life(power_cut=True).check_every_record()


def test_runs_that_are_many_become_one_run() -> None:
    world = begun(pack_run_bytes=1 << 20)
    for _ in range(RUNS_MAX - 1):
        world.append(1, 1)
        world.checkpoint()
    assert len(world.files("packs")) == RUNS_MAX - 1
    world.append(1, 1)
    world.checkpoint()
    assert len(world.files("packs")) == 1
    assert kinds(world, 1) == [FileKind.PACK] * RUNS_MAX
    world.next_life(power_cut=True).check_every_record()


def test_records_for_a_pack_are_read_some_in_a_pass() -> None:
    """Also in the last checkpoint, which rests for single passes: signals and a watchdog wait for it."""
    for clean in (False, True):
        world = StoreWorld(config=small_config(**_NEVER, checkpoint_us_per_pass=1000)).open()
        world.catalog.few_together = False
        for topic_id in range(1, 301):
            world.create(topic_id)
            world.append(topic_id)
        looked_at: Counter[int] = Counter()
        find = world.store.reader.find

        def look(piece: Any, world: StoreWorld = world, looked_at: Counter[int] = looked_at, find: Any = find) -> Any:
            looked_at[world.loop.stats().passes] += 1
            world.ring.clock.advance_ns(100_000)
            return find(piece)

        world.store.reader.find = look  # type: ignore[method-assign]
        if clean:
            world.run(world.store.close())
        else:
            world.checkpoint()
        assert looked_at.total() >= 300
        assert max(looked_at.values()) <= pack_copy._READS_A_STEP


@pytest.mark.parametrize(("together", "packs"), [(False, 3), (True, 2)])
def test_a_pack_ends_when_it_has_many_rows(together: bool, packs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index, which has the tags of all of them, is made in one step."""
    monkeypatch.setattr(pack_copy, "ROWS_A_PACK", 10)
    world = begun(checkpoint_topics_per_pass=2)
    world.catalog.few_together = together
    for topic_id in range(3, 8):
        world.create(topic_id)
    for topic_id in range(1, 8):
        world.append(topic_id, 4, tag=b"t%d" % topic_id)
    world.checkpoint()
    assert len(world.files("packs")) == packs
    world.check_every_record()
    world.next_life().check_every_record()


def test_a_deleted_record_is_not_copied() -> None:
    world = begun()
    world.append(1, 5)
    world.delete(1, [2, 4])
    world.checkpoint()
    assert world.store.checkpointer.counters.copied_rows == 3
    world.next_life(power_cut=True).check_every_record()


def test_a_topic_of_which_nothing_is_in_the_log_is_left_where_it_is() -> None:
    world = begun()
    world.append(1, 5)
    world.append(2, 5)
    world.checkpoint()
    places = dict(world.topic(1).rows)
    world.append(2, 5)
    world.checkpoint()
    assert world.topic(1).rows == places
    assert world.store.checkpointer.counters.copied_rows == 15


def test_every_file_that_was_written_is_synced_before_the_snapshot_that_lists_it() -> None:
    world = begun(pack_run_bytes=2000, segment_max_events=4)
    world.append(1, 3)
    world.append(2, 10, size=300)
    take, seen = world.ring.faults.take, list[tuple[str, str]]()

    def watch(kind: str, path: str = "", *, is_held: bool = False) -> Fault | None:
        seen.append((kind, path))
        return take(kind, path, is_held=is_held)

    world.ring.faults.take = watch  # type: ignore[method-assign]
    world.checkpoint()
    snapshot = next(at for at, (_, path) in enumerate(seen) if "/snapshot-" in path)
    files = {path for kind, path in seen[:snapshot] if kind == "write" and ("/seg-" in path or "/pack-" in path)}
    assert len(files) == 1 + 3 + 2, "a pack, three segments, the indexes of two that are full"
    for file in files:
        of_file = [kind for kind, path in seen[:snapshot] if path == file and kind in ("write", "sync")]
        assert of_file[-1] == "sync", file


def test_the_syncs_of_many_files_are_begun_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a file a topic, and making the syncs of all of them took as long as a pass may."""
    world = begun(pack_run_bytes=1)
    for topic_id in range(3, 33):
        world.create(topic_id)
        world.append(topic_id)
    begins = ends = most = 0
    sync_file = evacuation.sync_file

    def begin(files: FileCalls, path: str) -> Coroutine[Any, Any, None]:
        nonlocal begins, most
        begins += 1
        most = max(most, begins - ends)
        return end(sync_file(files, path))

    async def end(sync: Coroutine[Any, Any, None]) -> None:
        nonlocal ends
        await sync
        ends += 1

    monkeypatch.setattr(evacuation, "sync_file", begin)
    monkeypatch.setattr(evacuation, "_SYNCS_IN_FLIGHT", 4)
    world.checkpoint()
    assert (begins, ends, most) == (30, 30, 4)


def test_a_segment_that_does_not_fill_is_sealed_when_it_is_old() -> None:
    world = begun(pack_run_bytes=100, segment_max_age_ms=5000)
    world.append(1, 5)
    world.checkpoint()
    index = f"seg-{1:020d}.idx"
    world.run(world.loop.sleep(4_000_000_000))
    world.checkpoint()
    assert index not in world.files(f"topics/{1:016x}")
    world.run(world.loop.sleep(2_000_000_000))
    world.checkpoint()
    assert index in world.files(f"topics/{1:016x}")
    world.append(1, 2)
    world.checkpoint()
    assert len([name for name in world.files(f"topics/{1:016x}") if name.endswith(".data")]) == 2
    world.next_life(power_cut=True).check_every_record()


@pytest.mark.parametrize("path_part", ["/pack-", "/seg-"])
def test_records_whose_copies_found_no_space_are_read_in_the_log(path_part: str) -> None:
    world = begun(pack_run_bytes=2000)
    world.append(1, 3)
    world.append(2, 10, size=300)
    world.ring.faults.fail("write", errno.ENOSPC, path_part=path_part)
    with pytest.raises(OSError, match="No space left"):
        world.checkpoint()
    assert kinds(world, 1 if path_part == "/pack-" else 2).count(FileKind.WAL) in (3, 10)
    world.check_every_record()
    world.checkpoint()
    world.checkpoint()
    assert FileKind.WAL not in kinds(world, 1) + kinds(world, 2)
    world.next_life(power_cut=True).check_every_record()


def test_the_topics_of_a_pack_take_turns_with_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what describes a topic was counted as time, so that a stop had passes of 65 ms."""
    world = StoreWorld(config=small_config(**_NEVER, checkpoint_us_per_pass=1000)).open()
    world.catalog.few_together = False
    for topic_id in range(1, 41):
        world.create(topic_id)
        world.append(topic_id, 2)
    checked: Counter[int] = Counter()
    announced: Counter[int] = Counter()
    check, announce = pack_copy._checked, CopyContext.announce

    def slow_check(*arguments: Any) -> Any:
        checked[world.loop.stats().passes] += 1
        world.ring.clock.advance_ns(400_000)
        return check(*arguments)

    def slow_announce(*arguments: Any) -> None:
        announced[world.loop.stats().passes] += 1
        world.ring.clock.advance_ns(400_000)
        announce(*arguments)

    monkeypatch.setattr(pack_copy, "_checked", slow_check)
    monkeypatch.setattr(CopyContext, "announce", slow_announce)
    world.checkpoint()
    assert checked.total() == announced.total() == 40
    assert max(checked.values()) <= 3
    assert max(announced.values()) <= 3
    world.check_every_record()


# --- topics with few rows ---------------------------------------------------------------------------------------------
def few(count: int = 40, **changes: int) -> StoreWorld:
    """Topics from 1 on, with one to three records each."""
    world = StoreWorld(config=small_config(**{**_NEVER, **changes})).open()
    for topic_id in range(1, count + 1):
        world.create(topic_id)
        world.append(topic_id, 1 + topic_id % 3, tag=b"t%d" % topic_id if topic_id % 4 == 0 else None)
    return world


def test_topics_with_few_rows_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = few()
    monkeypatch.setattr(world.catalog, "rows_in_files", None)
    world.checkpoint()
    assert world.store.checkpointer.counters.copied_rows == sum(1 + topic_id % 3 for topic_id in range(1, 41))
    assert len(world.files("packs")) == 1
    monkeypatch.undo()
    world.check_every_record()
    before = world.catalog.state()
    world = world.next_life(power_cut=True)
    assert world.catalog.state() == before
    world.check_every_record()


def test_topics_that_have_few_rows_and_others_share_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    world = few(8)
    world.delete(1, [1])
    world.append(5, 5, size=1200)  # too many bytes
    world.checkpoint()
    for topic_id in (1, 2, 3):
        world.append(topic_id, 2)
    world.delete(3, [1])
    world.append(6, 1, size=9000)  # a segment
    world.checkpoint()
    world.append(6, 1)
    world.checkpoint()
    assert kinds(world, 6)[-1] is FileKind.SEGMENT
    world.check_every_record()
    world.next_life(power_cut=True).check_every_record()


def test_a_damaged_record_of_a_topic_with_few_rows_is_named() -> None:
    world = few(hot_tail_bytes=0).next_life()
    row = world.topic(20).rows[2]
    world.ring.corrupt_file(world.store.files[row.file_id].path, row.offset + 60)
    with pytest.raises(CorruptError, match="topic 20, seq 2"):
        world.checkpoint()
    assert not world.store.log.read_only


def test_rows_far_apart_are_read_one_by_one() -> None:
    world = few(3, hot_tail_bytes=0)
    world.create(9)
    for _ in range(4):
        world.append(9, 8, size=900)
    world.append(1)
    sizes: list[int] = []
    find = world.store.reader.find
    world.store.reader.find = lambda piece: (sizes.append(piece.length), find(piece))[1]  # type: ignore[method-assign]
    world.checkpoint()
    assert max(sizes[:4]) < 500
    world.check_every_record()


@pytest.mark.parametrize("change", ["delete", "drop"])
def test_a_topic_that_changes_while_it_is_copied_with_others_is_flagged(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = few()
    announce = CopyContext.announce_few

    def changed(*arguments: Any) -> None:
        world.catalog.kill(7, [1]) if change == "delete" else world.catalog.drop_topic(7)
        announce(*arguments)

    monkeypatch.setattr(CopyContext, "announce_few", changed)
    world.checkpoint()
    monkeypatch.undo()
    world.check_every_record()
    if change == "delete":
        world.control(7, FrameType.DELETE_RECORDS, 0, {"seqs": [1], "upto": 2})
    world.next_life().check_every_record()


def test_topics_with_few_rows_take_turns_with_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    world = few(1200, checkpoint_us_per_pass=1000)
    checked: Counter[int] = Counter()
    announced: Counter[int] = Counter()
    check, announce = pack_copy.checked_runs, CopyContext.announce_few

    def slow_check(some: Any, frames: Any) -> Any:
        checked[world.loop.stats().passes] += len(some.counts)
        world.ring.clock.advance_ns(1_000_000)
        return check(some, frames)

    def slow_announce(context: CopyContext, some: Any, *others: Any) -> None:
        announced[world.loop.stats().passes] += len(some.counts)
        world.ring.clock.advance_ns(1_000_000)
        announce(context, some, *others)

    monkeypatch.setattr(pack_copy, "checked_runs", slow_check)
    monkeypatch.setattr(CopyContext, "announce_few", slow_announce)
    world.checkpoint()
    assert checked.total() == announced.total() == 1200
    assert max(checked.values()) <= 256
    assert max(announced.values()) <= 256
    world.check_every_record()
