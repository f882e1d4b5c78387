"""Seqs in an archive: the record that ends a restore, and those that no restore gives out again."""

from __future__ import annotations

import errno
from collections import Counter
from copy import deepcopy

import msgspec
import pytest

from tests.sim.world.sim_disk import SimDirectory
from tests.sim.world.sim_file import SimFile
from tests.store.archive.archive_world import (
    ARCHIVE,
    after_many_batches,
    archive_config,
    archived,
    filled,
    grow,
    held,
    wait,
)
from tests.store.store_world import StoreWorld, small_config
from topics.engine.recovery.archived_seqs import known_seqs, point_of_record
from topics.engine.recovery.known_seqs import IdAndHead
from topics.store.archive.archive_note import ShardEnd
from topics.store.archive.archive_retention import remove_old
from topics.store.archive.restore_archive import copy_point, with_ends
from topics.store.archive.restore_point import END, RestorePoint, point_at
from topics.store.archive.timelines import Timeline, find_timelines
from topics.store.archive.unbroken_log import log_spans
from topics.store.archive.verify_archive import verify_timelines
from topics.store.format.log_format import BATCH_MAGIC, wal_file_no


def only_timeline(world: StoreWorld) -> Timeline:
    (timeline,) = world.run(find_timelines(world.loop, ARCHIVE))
    return timeline


def seqs_known(world: StoreWorld, timelines: list[Timeline], point: RestorePoint) -> dict[int, int]:
    """By topic id, the highest seq that the log states; nothing of the heads of bases."""
    known, damage = world.run(known_seqs(world.loop, timelines, [point], lambda _base: {}))
    assert not damage
    return known.by_id


def with_a_clock_set_back() -> tuple[StoreWorld, int]:
    """An archive with the bases A, B of an hour later, and C of the time of A. Return a seq between A and B."""
    world = filled(archive_base_every_ms=60_000)
    world.ring.clock.step_wall_ms(3_600_000)
    world.append(1, 50, size=1500)
    (wanted,) = world.append(1, 1)
    grow(world)
    archived(world)
    wait(world, 2000)
    world.append(1, 5)
    world.ring.clock.step_wall_ms(-3_600_000)
    grow(world)
    wait(world, 3000)
    archived(world)
    return world, wanted


def test_a_record_before_a_clock_was_set_back_is_found() -> None:
    """The base after it is not the next one by its time, and the files before that have later times."""
    world, wanted = with_a_clock_set_back()
    timeline = only_timeline(world)
    first, ahead, last = (span.base for span in log_spans(timeline))
    assert timeline.bases == [first, ahead, last], "names are in the order in which bases were made"
    assert ahead.manifest.taken_ms > last.manifest.taken_ms

    def heads_of(base: str) -> dict[str, IdAndHead]:
        return {"t1": IdAndHead(1, 10 if base == first.path else 10_000)}

    point = world.run(point_of_record(world.loop, [timeline], "t1", wanted, heads_of))
    assert point.base == first
    made = StoreWorld(world.ring.next_life(power_cut=False), config=small_config(data_dir="new"))
    made.run(copy_point(made.loop, point, "new"))
    assert held(made.open()) == {1: list(range(1, wanted + 1))}


def test_a_record_is_the_end_also_if_a_start_has_joined_its_batch_with_later_ones() -> None:
    """The restore had what was written after it, too, up to the kill before that start."""
    world = after_many_batches()
    head = world.topic(1).head
    world = world.next_life()
    world.append(1, 1)
    archived(world)
    timeline = only_timeline(world)
    heads = {"t1": IdAndHead(1, 10)}
    for wanted in (head - 20, head - 1, head, head + 1):
        world = StoreWorld(world.ring.next_life(power_cut=False), config=small_config(data_dir=f"to-{wanted}"))
        point = world.run(point_of_record(world.loop, [timeline], "t1", wanted, lambda _base: heads))
        world.run(copy_point(world.loop, point, f"to-{wanted}"))
        assert held(world.open()) == {1: list(range(1, wanted + 1))}


def test_retention_after_a_clock_was_set_back_leaves_no_base_whose_log_it_removed() -> None:
    world, _wanted = with_a_clock_set_back()
    timeline = only_timeline(world)
    world.run(remove_old(world.loop, timeline.path, log_spans(timeline)[-1].base.manifest.taken_ms))
    timeline = only_timeline(world)
    assert len(timeline.bases) == 1
    assert world.run(verify_timelines(world.loop, [timeline])).findings == []


def test_seqs_after_a_record_are_known_also_if_the_clock_was_set_back_after_them() -> None:
    """Files that were begun later have earlier times then."""
    world = filled(archive_base_every_ms=0)
    world.create(2)
    world.ring.clock.step_wall_ms(3_600_000)
    (wanted,) = world.append(1, 1)
    world.ring.clock.step_wall_ms(10_000)
    world.append(2, 30)
    world.ring.clock.step_wall_ms(-3_610_000)
    grow(world)
    archived(world)
    timeline = only_timeline(world)
    assert timeline.note.shards[0].file_no > 2
    heads = {"t1": IdAndHead(1, 10)}
    point = world.run(point_of_record(world.loop, [timeline], "t1", wanted, lambda _base: heads))
    assert seqs_known(world, [timeline], point)[2] == 30
    assert seqs_known(world, [timeline._replace(path=f"{ARCHIVE}/../{timeline.path}")], point)[2] == 30


def test_seqs_are_looked_for_also_where_no_file_that_the_note_states_is_left() -> None:
    """A restore then refuses it with the missing file. What a step has copied and not noted is there."""
    world = filled()
    world.append(1, 5)
    archived(world)
    timeline = only_timeline(world)
    unnoted = timeline._replace(note=msgspec.structs.replace(timeline.note, shards={0: ShardEnd(0, 0, 0)}))
    point = world.run(with_ends(world.loop, RestorePoint(unnoted, timeline.bases[0], END)))
    assert seqs_known(world, [unnoted], point)[1] == 15


def test_what_a_server_is_about_to_copy_is_no_damage() -> None:
    """A restore beside it reported as damaged what the note does not state yet."""
    world = filled(archive_base_every_ms=0)
    world.ring.faults.fail("rename", errno.EIO, path_part="archive.json", times=1 << 30)
    for _ in range(3):
        world.append(1, 2, size=3000)
    wait(world, 1000)
    world = StoreWorld(world.ring.next_life(power_cut=False))
    timeline = only_timeline(world)
    end = timeline.note.shards[0]
    node = world.ring.disk.find(f"{timeline.path}/log/shard-00/wal-{end.file_no:016x}.log")
    assert isinstance(node, SimFile)
    unnoted = node.live.index(BATCH_MAGIC, end.size)
    assert node.live.count(BATCH_MAGIC, unnoted) > 1
    node.live[unnoted] ^= 1
    point = world.run(with_ends(world.loop, point_at([timeline], END)))
    assert seqs_known(world, [timeline], point) == {}


@pytest.mark.parametrize(("call", "nth"), [("file_size", 1), ("open", 1), ("open", 3)])
def test_a_file_that_a_server_removes_meanwhile_is_no_error(
    call: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that failed removes what it had copied: a restore ended with a path that is not there."""
    world = filled(archive_base_every_ms=0)
    world.ring.faults.fail("rename", errno.EIO, path_part="archive.json", times=1 << 30)
    world.append(1, 40, size=3000)
    wait(world, 1000)
    world = StoreWorld(world.ring.next_life(power_cut=False))
    timeline = only_timeline(world)
    directory = f"{timeline.path}/log/shard-00"
    names = sorted(world.ring.disk.list_directory(directory))
    last = f"{directory}/{names[-1]}"
    assert (wal_file_no(names[-1]) or 0) > timeline.note.shards[0].file_no
    asks = getattr(world.loop.files, call)
    asked: list[str] = []

    def remove_and_ask(path: str, *rest: int) -> object:
        if path == last:
            asked.append(path)
            if len(asked) == nth:
                world.ring.disk.unlink(path)
        return asks(path, *rest)

    monkeypatch.setattr(world.loop.files, call, remove_and_ask)
    point = world.run(with_ends(world.loop, point_at([timeline], END)))
    seqs_known(world, [timeline], point)
    assert len(asked) >= nth


def test_seqs_of_another_timeline_are_known_from_its_first_base_on() -> None:
    """Its newest base has nothing of a topic that was deleted before."""
    world = filled(archive_base_every_ms=500)
    world.append(1, 20)
    archived(world)
    world.drop(1)
    world.create(2)
    world.append(2, 1)
    wait(world, 3000)
    other = only_timeline(world)
    assert len(other.bases) > 1
    restored = RestorePoint(other._replace(path=f"{ARCHIVE}/another"), other.bases[0], END)
    assert seqs_known(world, [other], restored) == {1: 30, 2: 1}


def test_what_a_restore_leaves_out_is_read_once_for_its_end_and_once_for_its_seqs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end was looked for twice."""
    world = StoreWorld(config=archive_config(archive_base_every_ms=0)).open()
    world.create(1)
    wait(world, 500)
    at = archived(world)
    wait(world, 1000)
    grow(world)
    archived(world)
    timeline = only_timeline(world)
    opened: Counter[str] = Counter()
    open_file = world.loop.files.open

    async def count(path: str, flags: int, mode: int = 0o600) -> int:
        opened[path] += 1
        return await open_file(path, flags, mode)

    point = point_at([timeline], at)
    monkeypatch.setattr(world.loop.files, "open", count)
    point = world.run(with_ends(world.loop, point))
    assert seqs_known(world, [timeline], point)[1] == 80
    world.run(copy_point(world.loop, point, "new"))
    newest = max(path for path in opened if path.startswith(f"{timeline.path}/log/"))
    # Surveys for the end, the seqs and the copy read its header, and a scan opens it twice.
    assert opened[newest] == 3 + 1 + 2


def test_the_logs_of_other_servers_are_not_read_and_those_of_copies_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is known by a topic that it has in common with the log, or with a copy of that."""
    world = filled()
    own = only_timeline(world)
    topics = {"copy of copy": "b", "copy": "ab", "other": "c", "other's": "c", "damaged note": "d"}
    archive = world.ring.disk.find(ARCHIVE)
    assert isinstance(archive, SimDirectory)
    archive.live |= {name: deepcopy(world.ring.disk.find(own.path)) for name in topics}

    def beside(name: str) -> Timeline:
        line = "" if name == "damaged note" else f"line of {name}"
        note, base = msgspec.structs.replace(own.note, line=line), own.bases[0]._replace(path=name)
        return own._replace(path=f"{ARCHIVE}/{name}", note=note, bases=[base])

    def heads_of(base: str) -> dict[str, IdAndHead]:
        return {name: IdAndHead(1, 10) for name in topics.get(base, "a")}

    point = world.run(with_ends(world.loop, point_at([own], END)))
    read: set[str] = set()
    open_file = world.loop.files.open

    async def note_read(path: str, flags: int, mode: int = 0o600) -> int:
        read.add(path.split("/")[1])
        return await open_file(path, flags, mode)

    monkeypatch.setattr(world.loop.files, "open", note_read)
    world.run(known_seqs(world.loop, [own, *map(beside, topics)], [point], heads_of))
    assert read == {own.path.split("/")[1], "copy", "copy of copy", "damaged note"}
