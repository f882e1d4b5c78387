"""The manifest: which segments and packs are in use, what they hold of a topic, and what a snapshot keeps of that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.loop.walk import Walk
from topics.common.id_blocks import IDS_A_BLOCK
from topics.store.layouts.directory_names import COLD, HOT
from topics.store.segments import manifest as manifest_module
from topics.store.segments import store_part as part_module
from topics.store.segments.data_files import Pack, PackRun, Segment
from topics.store.segments.manifest import Manifest
from topics.store.segments.store_part import (
    PackedFiles,
    ReplayStart,
    StorePart,
    pack_store_part,
    unpack_in_steps,
    unpack_store_part,
)


def segment(first: int, last: int, *, topic_id: int = 1, sealed: bool = True, tier: int = HOT) -> Segment:
    """A segment of ten bytes a record; its file's id is its first seq."""
    records = last - first + 1
    return Segment(topic_id, first, last, records, 4096, 10 * records, 7, 0, sealed=sealed, tier=tier, file_id=first)


def pack(number: int, *runs: tuple[int, int, int], file_id: int = 0) -> Pack:
    """runs: (topic id, first seq, last seq), in the order of the run table."""
    return Pack(number, 7, 8192, {row: PackRun(*run, row) for row, run in enumerate(runs)}, file_id=file_id)


def part_of(manifest: Manifest) -> StorePart:
    return StorePart({0: ReplayStart(3)}, list(manifest.all_segments()), list(manifest.packs.values()), "boot", 1)


def firsts(manifest: Manifest, topic_id: int = 1) -> list[int]:
    return [each.first_seq for each in manifest.segments.get(topic_id, [])]


def runs_of(manifest: Manifest, topic_id: int) -> list[tuple[int, int]]:
    """(pack number, first seq) of each run."""
    return [(held.number, run.first_seq) for held, run in manifest.runs.get(topic_id, [])]


# --- segments ---------------------------------------------------------------------------------------------------------
def test_only_the_last_segment_may_grow_and_only_while_it_is_not_sealed() -> None:
    manifest = Manifest()
    assert manifest.tail(1) is None
    manifest.add_segment(segment(1, 4))
    assert manifest.tail(1) is None
    manifest.add_segment(segment(5, 6, sealed=False))
    tail = manifest.tail(1)
    assert tail is not None
    assert tail.first_seq == 5
    manifest.replace_tail(segment(5, 9))
    assert manifest.tail(1) is None
    assert [each.last_seq for each in manifest.segments[1]] == [4, 9]
    with pytest.raises(AssertionError, match="sealed"):
        manifest.replace_tail(segment(5, 10))


def test_a_segment_below_one_that_is_listed_is_refused() -> None:
    manifest = Manifest()
    manifest.add_segment(segment(5, 8))
    for first in (3, 8):
        with pytest.raises(AssertionError, match="in order"):
            manifest.add_segment(segment(first, first))
    manifest.add_segment(segment(9, 9))
    assert firsts(manifest) == [5, 9]


def test_totals_of_sealed_segments_leave_the_tail_out() -> None:
    manifest = Manifest()
    assert manifest.sealed_totals(1) == (0, 0)
    manifest.add_segment(segment(1, 4))
    manifest.add_segment(segment(5, 6))
    manifest.add_segment(segment(7, 9, sealed=False))
    assert manifest.sealed_totals(1) == (6, 60)
    assert manifest.sealed_totals(1).plus(3, 30) == (9, 90)


def test_a_topic_whose_last_segment_is_dropped_is_not_listed_any_more() -> None:
    manifest = Manifest()
    first, second = segment(1, 4), segment(5, 8)
    manifest.add_segment(first)
    manifest.add_segment(second)
    manifest.drop_segment(first)
    assert (firsts(manifest), set(manifest.topic_ids())) == ([5], {1})
    manifest.drop_segment(second)
    assert (firsts(manifest), list(manifest.topic_ids()), list(manifest.all_segments())) == ([], [], [])


# --- packs ------------------------------------------------------------------------------------------------------------
def test_runs_are_dropped_by_pack_and_row_or_all_at_once() -> None:
    manifest = Manifest()
    for number in (1, 2, 3):
        manifest.add_pack(pack(number, (1, 10 * number, 10 * number + 5), (2, number, number)))
    manifest.drop_runs(1, {(1, 0), (3, 0), (9, 0)})
    assert (runs_of(manifest, 1), runs_of(manifest, 2)) == ([(2, 20)], [(1, 1), (2, 2), (3, 3)])
    assert [sorted(each.runs) for each in manifest.packs.values()] == [[1], [0, 1], [1]]
    manifest.drop_runs(2)
    assert list(manifest.topic_ids()) == [1]
    assert [sorted(each.runs) for each in manifest.packs.values()] == [[], [0], []]
    manifest.drop_runs(3)


def test_the_number_of_a_pack_is_not_given_out_again() -> None:
    manifest = Manifest()
    assert manifest.next_pack == 1
    manifest.add_pack(pack(7))
    manifest.add_pack(pack(3))
    del manifest.packs[7]
    assert manifest.next_pack == 8


# --- both -------------------------------------------------------------------------------------------------------------
def test_the_highest_copied_seq_is_that_of_the_last_segment_or_run() -> None:
    manifest = Manifest()
    assert manifest.copied_upto(1) == 0
    manifest.add_pack(pack(1, (1, 2, 6), (2, 1, 3)))
    assert (manifest.copied_upto(1), manifest.copied_upto(2)) == (6, 3)
    manifest.add_segment(segment(7, 9))
    manifest.add_segment(segment(10, 15, sealed=False))
    assert manifest.copied_upto(1) == 15
    manifest.drop_segment(manifest.segments[1][0])
    manifest.drop_segment(manifest.segments[1][0])
    assert manifest.copied_upto(1) == 6


def test_paths_are_those_of_a_tier_and_packs_are_never_cold() -> None:
    manifest = Manifest()
    manifest.add_segment(segment(1, 4, tier=COLD))
    manifest.add_segment(segment(5, 8))
    manifest.add_pack(pack(2, (3, 1, 1)))
    directory = "topics/0000000000000001"
    assert manifest.paths(COLD) == {f"{directory}/seg-00000000000000000001.data"}
    assert manifest.paths(HOT) == {f"{directory}/seg-00000000000000000005.data", "packs/pack-0000000000000002.data"}


def test_paths_of_files_leave_out_those_that_are_not_in_use() -> None:
    manifest = Manifest()
    manifest.add_segment(segment(1, 4))
    manifest.add_segment(segment(5, 8))
    manifest.add_pack(pack(2, (3, 1, 1), file_id=90))
    assert manifest.paths_of({5, 90, 17}) == [segment(5, 8).path, "packs/pack-0000000000000002.data"]
    assert manifest.paths_of(set()) == []


# --- in a snapshot ----------------------------------------------------------------------------------------------------
def test_a_manifest_is_what_its_snapshot_lists_in_whatever_order() -> None:
    """A pack with a higher number may hold lower seqs: runs that were merged are written again."""
    listed = [segment(5, 8, sealed=False), segment(1, 4), segment(1, 2, topic_id=2)]
    packs = [pack(3, (3, 1, 5)), pack(2, (3, 6, 9), (4, 1, 1))]
    manifest = Manifest.of(StorePart({}, listed, packs, "boot", 1))
    assert (firsts(manifest), firsts(manifest, 2)) == ([1, 5], [1])
    assert runs_of(manifest, 3) == [(3, 1), (2, 6)]
    assert (manifest.next_pack, manifest.copied_upto(3)) == (4, 9)


def test_file_numbers_of_this_process_mean_nothing_in_a_snapshot() -> None:
    manifest = Manifest()
    manifest.add_segment(segment(1, 4, tier=COLD))
    manifest.add_segment(segment(5, 8, sealed=False))
    manifest.add_pack(pack(2, (3, 1, 5), file_id=12))
    part = part_of(manifest)
    again = unpack_store_part(pack_store_part(part))
    assert [each.file_id for each in (*again.segments, *again.packs)] == [0, 0, 0]
    for each in (*part.segments, *part.packs):
        each.file_id = 0
    assert again == part


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"replay":{},"segments":[{}],"packs":[],"boot":"","shards":1}'])
def test_a_part_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        unpack_store_part(data)


def test_files_that_are_encoded_some_at_a_time_are_the_same_json() -> None:
    segments, packs = [segment(1, 4), segment(5, 8)], [Pack(3, 7, 100, {0: PackRun(9, 1, 2, 0)}), Pack(4, 7, 100, {})]
    part = StorePart({0: ReplayStart(3)}, segments, packs, "boot", 1, clean=True)
    files = PackedFiles()
    files.add_segments(segments[:1])
    files.add_segments([])
    files.add_segments(segments[1:])
    for each in packs:
        files.add_pack(each)
    rest = StorePart({0: ReplayStart(3)}, [], [], "boot", 1, clean=True)
    assert b"".join(files.packed_with(rest)) == pack_store_part(part)
    none = StorePart({}, [], [], "boot", 1)
    assert b"".join(PackedFiles().packed_with(none)) == pack_store_part(none)


def test_very_many_files_are_neither_one_piece_nor_very_many() -> None:
    """They were joined to one text and that was copied three times: 49 ms with a million runs."""
    files, segments = PackedFiles(), [segment(1, 4, topic_id=topic_id) for topic_id in range(1, 3001)]
    for each in segments:
        files.add_segments([each])
    pieces = files.packed_with(StorePart({}, [], [], "boot", 1))
    assert b"".join(pieces) == pack_store_part(StorePart({}, segments, [], "boot", 1))
    assert len(pieces) < 20
    assert max(map(len, pieces)) < 100_000


def test_topics_with_files_are_named_once_each_while_files_are_dropped() -> None:
    manifest, count = Manifest(), 3 * IDS_A_BLOCK
    manifest.add_pack(Pack(1, 7, 100, {row: PackRun(row, 1, 1, row) for row in range(count)}))
    seen = []
    for topic_id in manifest.topic_ids():
        seen.append(topic_id)
        manifest.drop_runs(topic_id)
        if not seen[1:]:  # no list of all was made: those of a later block are not seen
            for gone in range(2 * IDS_A_BLOCK, count):
                manifest.drop_runs(gone)
    assert seen == list(range(2 * IDS_A_BLOCK))


def test_a_manifest_is_decoded_and_built_some_files_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (manifest_module, part_module):
        monkeypatch.setattr(module, "FILES_A_STEP", 10)
    packs = [pack(number, *((100 * number + at, 1, 9) for at in range(35))) for number in range(1, 4)]
    segments = [segment(10, 19, topic_id=topic_id) for topic_id in range(1, 96)]
    decoding = Walk(unpack_in_steps(pack_store_part(StorePart({}, segments, packs, "boot", 1))))
    steps = len(list(decoding))
    part = decoding.result
    assert (len(part.segments), part.packs, steps) == (95, packs, 9 + 3)
    taken = [0]

    class Counted(dict[int, PackRun]):
        def values(self) -> Any:
            for run in super().values():
                taken[-1] += 1
                yield run

    for each in part.packs:
        each.runs = Counted(each.runs)
    building = Walk(Manifest.of_steps(part))
    for _ in building:
        taken.append(0)
    found = building.result
    assert (sum(taken), max(taken)) == (105, 10)
    assert runs_of(found, 134) == [(1, 1)]
    assert len(list(found.all_segments())) == 95
    assert dict(found.all_copied) == {topic_id: found.copied_upto(topic_id) for topic_id in found.topic_ids()}
    assert (len(found.all_copied), found.all_copied.get(7), found.all_copied.get(10_000, 0)) == (200, 19, 0)
