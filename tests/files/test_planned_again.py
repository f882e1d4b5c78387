"""Pieces whose files have moved, were merged or are gone by the time they are read, one case after the other."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.harness import Answer
from tests.files.files_world import COLD, HOT, FilesWorld, Seen, seen_of
from tests.sim.world.sim_file import SimFile
from topics.errors import CorruptError, StorageError
from topics.files import COLUMNS, Directory, TopicGoneError, read_pieces
from topics.files.deleted import deleted_seqs


def numbers(seen: Seen) -> list[int]:
    return [record[0] for record in seen.records]


def planned(world: FilesWorld, name: str = "big") -> Any:
    """Reads the pieces as they are planned now, when it is called: the paths that are opened, and what is seen."""
    directory: Directory = world.directory()
    pieces = directory.topics[name].pieces
    calls = world.calls

    def read(**options: Any) -> tuple[list[str], Seen]:
        options = {"columns": COLUMNS, "calls": calls, **options}
        seen = seen_of(list(read_pieces(directory.location, pieces, **options)))
        assert calls.descriptors == 0
        return calls.opened, seen

    return read


def filled(count: int = 45, *, seed: int = 3) -> FilesWorld:
    """A world whose topic `big` has so many records in files."""
    world = FilesWorld(seed, pack_run_bytes=0)
    world.append(*range(count), name="big", tag="a")
    world.checkpoint()
    return world


def test_a_segment_that_moved_to_the_cold_directory_is_read_there() -> None:
    world = filled()
    before = planned(world)
    world.append(*range(40), name="big")
    for _ in range(2):  # two sealed ones stay, and the first moves; then nothing lists it where it was
        world.checkpoint()
    opened, seen = before()
    assert numbers(seen) == list(range(1, 46))
    assert any(path.startswith(f"{COLD}/") for path in opened)
    assert not any("snapshots" in path for path in opened), "nothing had to be planned again"


def test_a_pack_that_was_merged_is_planned_again_and_no_record_comes_twice() -> None:
    world = FilesWorld(3, pack_run_bytes=5000)
    reads = []
    for round_ in range(12):
        world.append(round_, name="small")
        world.checkpoint()
        reads.append((round_ + 1, planned(world, "small")))
    again = 0
    for count, read in reads:
        opened, seen = read()
        assert numbers(seen) == list(range(1, count + 1))
        again += any("snapshots" in path for path in opened)
    assert again, "packs were merged since"


def test_a_run_that_was_dropped_from_a_pack_that_stays_is_read_where_it_was_planned() -> None:
    """Its frames are flagged for a rebuild without a snapshot; they are no deleted records to a reader."""
    world = FilesWorld(3, pack_run_bytes=5000, compact_below=0.0)
    world.append(0, name="other")
    world.append(0, name="small")
    world.checkpoint()
    read = planned(world, "small")
    (piece,) = world.directory().topics["small"].pieces
    for number in range(1, 12):
        world.append(number, name="small")
        world.checkpoint()
    merged = world.directory().topics["small"].pieces[0]
    assert (merged.path, merged.first_seq) != (piece.path, piece.first_seq)
    opened, seen = read()
    assert numbers(seen) == [1]
    assert not any("snapshots" in path for path in opened), "nothing had to be planned again"


@pytest.mark.parametrize("dropped", [True, False])
def test_flags_of_a_run_are_deletes_only_if_the_run_is_in_use(dropped: bool) -> None:
    """Without a sound index the frames of a dropped run, all flagged, read as deleted records: a silent loss."""
    world = FilesWorld(3, pack_run_bytes=5000, compact_below=0.0)
    world.append(0, name="other")
    world.append(0, name="small", tag="deleted")
    world.append(1, 2, name="small")
    world.checkpoint()
    read = planned(world, "small")
    directory = world.directory()
    (piece,) = directory.topics["small"].pieces
    world.delete(match="deleted", name="small")
    for number in range(3, 15 if dropped else 5):
        world.append(number, name="small")
        world.checkpoint()
    assert (piece in world.directory().topics["small"].whole_pieces) is not dropped
    path = f"{HOT}/{piece.path}"
    world.ring.corrupt_file(path, len(world.ring.file_bytes(path)) - 20)
    deleted = deleted_seqs(directory.location, piece, calls=world.calls)
    opened, seen = read()
    assert numbers(seen) == [2, 3]
    assert any("snapshots" in path for path in opened)
    assert (deleted if deleted is None else deleted.tolist()) == (None if dropped else [1])


def test_a_pack_that_is_only_begun_under_a_number_that_came_again_is_not_the_pieces() -> None:
    """A power cut leaves such files; the newest snapshot knows where the records are."""
    world = FilesWorld(3, pack_run_bytes=5000)
    world.append(1, 2, name="small")
    world.checkpoint()
    pack, read = world.directory().topics["small"].pieces[0].path, planned(world, "small")
    for _ in range(12):
        world.append(3, name="small")
        world.checkpoint()
    assert world.directory().topics["small"].pieces[0].path != pack
    world.ring.disk.open(f"{HOT}/{pack}", os.O_RDWR | os.O_CREAT)
    assert numbers(read()[1]) == [1, 2]


def test_what_a_cap_took_meanwhile_is_told_and_what_was_deleted_is_not() -> None:
    capped, deleted = filled(), filled()
    reads = planned(capped), planned(deleted)
    capped.put("big", cap_records=25)
    deleted.delete(before_seq=21, name="big")
    for world in (capped, deleted):
        world.append(*range(40), name="big")
        world.checkpoint()
        world.checkpoint()  # gives files up that the snapshot before had
    told, silent = reads[0]()[1], reads[1]()[1]
    assert told.losses == [(1, 20, "cap"), (21, 40, "cap")]
    assert numbers(told) == list(range(41, 46)), "their file is still there"
    assert not silent.losses
    assert numbers(silent) == list(range(21, 46))


def test_a_topic_of_which_all_is_deleted_meanwhile_reads_as_empty() -> None:
    """Its files end before the piece does then, and that is no older copy of the directory."""
    world = filled()
    read = planned(world)
    world.delete(match="a", name="big")
    for _ in range(3):
        world.checkpoint()
    assert world.directory().topics["big"].head < 45
    assert read()[1] == Seen([], [])


def test_a_topic_that_is_deleted_or_made_again_meanwhile_says_so() -> None:
    for again in (False, True):
        world = filled()
        read = planned(world)
        gone = Answer()
        world.engine.delete_topic("big", if_empty=False, done=gone)
        world.wait(gone)
        if again:
            world.append(*range(90), name="big")
        for _ in range(3):
            world.checkpoint()
        if again:
            seen = read()[1]
            assert {why for _first, _last, why in seen.losses} == {"recreated"}
            assert not seen.records
        else:
            with pytest.raises(TopicGoneError, match="topic big was deleted while it was read"):
                read()


def test_a_file_that_the_newest_snapshot_lists_and_that_is_missing_is_damage() -> None:
    world = filled()
    piece = world.directory().topics["big"].pieces[0]
    read = planned(world)
    world.ring.disk.unlink(f"{HOT}/{piece.path}")
    world.ring.disk.unlink(f"{HOT}/{piece.path.replace('.data', '.idx')}")
    with pytest.raises(CorruptError, match="lists it, and it is missing or another file") as error:
        read()
    assert error.value.detail == {"path": piece.path, "offset": -1, "topic": "big", "seq": 1}


def test_another_file_of_the_same_name_is_not_the_pieces() -> None:
    ours, theirs = filled(), filled(seed=4)
    read = planned(ours)
    path = f"{HOT}/{ours.directory().topics['big'].pieces[0].path}"
    for name in (path, path.replace(".data", ".idx")):
        file, other = ours.ring.disk.find(name), theirs.ring.disk.find(name)
        assert isinstance(file, SimFile)
        assert isinstance(other, SimFile)
        file.live[:] = other.live
    with pytest.raises(CorruptError, match="lists it, and it is missing or another file"):
        read()


def test_an_older_copy_put_in_the_directorys_place_is_told() -> None:
    newer, older = filled(60), filled(30, seed=4)
    directory = newer.directory()
    incarnation = older.directory().topics["big"].incarnation
    pieces = [replace(piece, incarnation=incarnation) for piece in directory.topics["big"].pieces]
    with pytest.raises(StorageError, match="check that no older copy of the directory was restored"):
        list(read_pieces(directory.location, pieces, columns=["seq"], calls=older.calls))


def test_after_a_stop_too_files_answer_for_what_they_hold_and_for_nothing_above_it() -> None:
    """Records of class `ephemeral` that a restart forgets were in no file: a reader does not pass it unasked."""
    world = filled()
    world.put("big", durability="ephemeral")
    world.append(1, 2, 3, name="big")
    world.restart(graceful=True)
    directory = world.directory()
    assert directory.clean
    assert (directory.topics["big"].head, directory.topics["big"].seen_head) == (45, 48)
