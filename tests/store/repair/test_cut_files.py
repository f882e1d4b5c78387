"""Files that were cut short: a rebuild ends, and keeps every record before the cut."""

from __future__ import annotations

import copy
from pathlib import PurePosixPath

import pytest

from tests.amount import stride
from tests.sim import SimRing
from tests.store.repair.rebuilding import IN_PACKS, ended, place, rebuilt, with_and_without_snapshots
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.errors import CorruptError
from topics.loop import Loop
from topics.store.format.log_format import BLOCK_BYTES, WAL_HEADER_BYTES
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.repair import rebuild_log
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import verify
from topics.store.segments.snapshot_files import load_snapshot


def cut_to(ring: SimRing, path: str, size: int) -> SimRing:
    """Return a copy of `ring` whose file at `path` ends after `size` bytes."""
    cut = SimRing(0, disk=copy.deepcopy(ring.disk))
    cut.put_file(path, ring.file_bytes(path)[:size])
    return cut


@with_and_without_snapshots
def test_a_log_file_that_was_cut_short_anywhere_keeps_the_records_before_the_cut(snapshots: bool) -> None:
    world = StoreWorld().open()
    world.create(1)
    stored = world.append(1, 3)
    world.checkpoint()
    for _ in range(6):
        world.append(1, 1, size=900)
    path, _ = place(world, 1, 4)
    ends = {seq: row.offset + row.length for seq, row in world.topic(1).rows.items() if seq not in stored}
    ring = world.end(power_cut=False)
    size = len(ring.file_bytes(path))
    last = max(ends.values())
    sizes = [size - 1, size - 7, size - BLOCK_BYTES + 1, last + 1, last - 20, BLOCK_BYTES + 1, WAL_HEADER_BYTES, 30, 0]
    sizes += range(last - last % BLOCK_BYTES + 1, last, stride(509))
    for kept in sizes:
        again, result = rebuilt(cut_to(ring, path, kept), world.config, snapshots=snapshots)
        left = stored + [seq for seq, end in ends.items() if end <= kept]
        assert list(again.topic(1).rows) == left, kept
        assert [copied.endswith(PurePosixPath(path).name) for copied in result.set_aside] == [True], kept
        assert again.append(1, 1) > left[-1:], kept


@pytest.mark.parametrize(("missing", "kept"), [("zeros", [1, 2, 3]), ("a record", [1])])
def test_a_cut_in_the_middle_of_the_log_costs_what_follows_it_only_if_a_record_is_missing(
    missing: str, kept: list[int]
) -> None:
    world = StoreWorld(config=small_config(checkpoint_wal_bytes=1 << 40)).open()
    world.create(1)
    world.append(1, 1)
    world.append(1, 1)
    path, offset = place(world, 1, 2)
    world.store.log.request_rotation()
    world.append(1, 1)
    assert place(world, 1, 3)[0] != path
    ring = world.end(power_cut=False)
    size = len(ring.file_bytes(path)) - 7 if missing == "zeros" else offset + 20
    again, _ = rebuilt(cut_to(ring, path, size), world.config)
    assert list(again.topic(1).rows) == kept


def test_a_log_that_was_cut_short_is_sound_after_one_rebuild_which_states_that_records_may_be_missing() -> None:
    """R-SEQ: their seqs must not be given out again."""
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 3)
    path, _ = place(world, 1, 3)
    ring = world.end(power_cut=False)
    ring = cut_to(ring, path, len(ring.file_bytes(path)) - 7)
    loop = Loop(ring, ring.clock)
    assert not loop.run_task(verify(loop, DIRECTORY)).sound
    assert len(loop.run_task(rebuild(loop, DIRECTORY)).set_aside) == 1
    assert loop.run_task(verify(loop, DIRECTORY)).sound
    found = loop.run_task(load_snapshot(loop.files, DIRECTORY))
    assert found is not None
    assert found.store.log_cut
    assert loop.run_task(rebuild(loop, DIRECTORY)).set_aside == []


@with_and_without_snapshots
@pytest.mark.parametrize("missing", [1, FOOTER_BYTES, FOOTER_BYTES + 1, "index"])
def test_a_pack_whose_end_was_cut_off_is_sound_after_a_rebuild(missing: int | str, snapshots: bool) -> None:
    """Its runs are whole. A start derives the index, and does not write it."""
    world = StoreWorld(config=IN_PACKS).open()
    for topic_id in (1, 2):
        world.create(topic_id)
        world.append(topic_id, 4)
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    path, _ = place(world, 1, 1)
    last = world.topic(2).rows[4]
    ring = ended(world)
    data = ring.file_bytes(path)
    ring = cut_to(ring, path, len(data) - missing if isinstance(missing, int) else last.offset + last.length)
    again, result = rebuilt(ring, IN_PACKS, snapshots=snapshots)
    assert {topic_id: list(topic.rows) for topic_id, topic in again.catalog.topics.items()} == {
        1: [1, 4],
        2: [1, 2, 3, 4],
    }
    assert (result.records, [PurePosixPath(copied).name for copied in result.set_aside]) == (
        8,
        [f"packs-{PurePosixPath(path).name}"],
    )
    again.append(2, 1)
    again.checkpoint()
    ring = ended(again)
    loop = Loop(ring, ring.clock)
    assert loop.run_task(verify(loop, DIRECTORY)).findings == []


def test_a_rebuild_that_changes_nothing_ends_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage is reported after the end of the only file. The rebuild did not end."""
    world = StoreWorld().open()
    world.create(1)
    world.append(1, 3)
    path, _ = place(world, 1, 3)
    ring = world.end(power_cut=False)
    for name in ring.disk.list_directory(str(PurePosixPath(path).parent)):
        if name != PurePosixPath(path).name:
            ring.disk.unlink(str(PurePosixPath(path).with_name(name)))
    rounds = 0

    async def refused(*_: object) -> None:
        nonlocal rounds
        rounds += 1
        assert rounds < 9, "it does not end"
        raise CorruptError("damaged", {"path": path, "offset": len(ring.file_bytes(path))})

    monkeypatch.setattr(rebuild_log, "replay_shard", refused)
    loop = Loop(ring, ring.clock)
    with pytest.raises(CorruptError, match="damaged"):
        loop.run_task(rebuild(loop, DIRECTORY))
