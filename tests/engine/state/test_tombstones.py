"""Tombstones over floors and interior gaps, as pure values."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from topics.engine.state.tombstones import enter
from topics.engine.values.results import Tombstone
from topics.store.format.floors import CRASH, GAPS_A_BLOCK, TRIM, TTL, Floors, Gap, Gaps


def nothing_lives(_seq: int) -> int:
    return 0


def lost(gap_from: int, gap_to: int, reason: str) -> Tombstone:
    return Tombstone(gap_from, gap_to, reason, gap_to - gap_from + 1, gap_to + 1, 20)


@pytest.fixture
def floors() -> Floors:
    """Lost to caps up to 3; seqs 8 .. 10 lost in a crash, above live records."""
    floors = Floors()
    floors.raise_to(cap=3)
    floors.add_gap(Gap(8, 10, CRASH))
    return floors


@pytest.mark.parametrize(
    ("from_seq", "entry"),
    [
        (0, (lost(1, 3, "cap"), 3, 7)),
        (2, (lost(3, 3, "cap"), 3, 7)),
        (3, (None, 3, 7)),
        (6, (None, 6, 7)),
        (7, (lost(8, 10, "crash"), 10, 20)),
        (9, (lost(10, 10, "crash"), 10, 20)),
        (10, (None, 10, 20)),
        (20, (None, 20, 20)),
        (21, (Tombstone(1, 20, "recreated", 20, 5, 20), 4, 7)),
    ],
)
def test_a_read_is_told_of_one_loss_and_stops_before_the_next(
    floors: Floors, from_seq: int, entry: tuple[Tombstone | None, int, int]
) -> None:
    """R-TRIM-3."""
    assert enter(floors, from_seq, head=20, earliest=5, next_live=nothing_lives) == entry


def test_a_gap_with_nothing_live_below_becomes_part_of_the_floor(floors: Floors) -> None:
    """R-TRIM-2."""
    floors.settle_gaps(7)
    assert floors.gaps
    floors.settle_gaps(11)
    assert not floors.gaps
    assert (floors.lost, floors.crash, floors.trim) == (10, 10, 0)
    assert enter(floors, 5, head=20, earliest=11, next_live=nothing_lives).tombstone == lost(6, 10, "crash")
    assert enter(floors, 0, head=20, earliest=11, next_live=nothing_lives).tombstone == lost(1, 10, "cap")


def test_no_mark_decreases(floors: Floors) -> None:
    """R-FLOOR-5."""
    floors.raise_to(cap=1, ttl=2, deleted=9)
    assert (floors.cap, floors.ttl, floors.lost, floors.dead_through) == (3, 2, 3, 9)


def test_the_reason_names_what_reaches_into_the_gap(floors: Floors) -> None:
    """R-TOMB-3."""
    floors.raise_to(ttl=2, trim=5, crash=5)
    assert [floors.reason(gap_from) for gap_from in (1, 3, 4)] == ["mixed", "cap", TRIM]


def test_gaps_that_adjoin_are_one_and_known_ones_are_not_added_again(floors: Floors) -> None:
    floors.add_gap(Gap(11, 12, CRASH))
    floors.add_gap(Gap(9, 12, CRASH))
    assert list(floors.gaps) == [Gap(8, 12, CRASH)]
    floors.add_gap(Gap(15, 16, TRIM))
    assert len(floors.gaps) == 2


class CountedGap(Gap):
    """Counts how often gaps are looked at."""

    looked_at = 0

    @property
    def last(self) -> int:  # type: ignore[override]
        CountedGap.looked_at += 1
        return self[1]


@pytest.mark.parametrize("told", [False, True])
def test_a_read_does_not_look_at_all_gaps_there_are(told: bool) -> None:
    """A source that loses records in every burst leaves one for each of its router's steps."""
    floors = Floors()
    for first in range(10, 100_000, 10):
        floors.add_gap(CountedGap(first, first + 1, TRIM))
    CountedGap.looked_at = 0
    entry = enter(floors, 90_009 if told else 90_005, head=200_000, earliest=1, next_live=nothing_lives)
    assert entry.stop == (90_019 if told else 90_009)
    assert (entry.tombstone and entry.tombstone.gap_to) == (90_011 if told else None)
    assert CountedGap.looked_at < 30
    floors.settle_gaps(99_000)
    assert (floors.lost, len(floors.gaps)) == (99_001, 99)


@pytest.mark.parametrize("rows", [3, 200, 5000])
def test_which_rows_were_lost_takes_no_more_looks_than_there_are_rows(rows: int) -> None:
    floors, rng = Floors(), random.Random(rows)
    floors.raise_to(ttl=4)
    for first in range(10, 10_000, 10):
        floors.add_gap(CountedGap(first, first + 1, TTL if first % 20 else CRASH))
    seqs = np.array(sorted(rng.sample(range(1, 10_100), rows)), np.uint64)
    CountedGap.looked_at = 0
    told = floors.expired_among(seqs)
    assert CountedGap.looked_at <= min(rows, 999) + 30
    assert told.tolist() == [seq <= 4 or (10 <= seq < 10_000 and seq % 20 in (10, 11)) for seq in seqs.tolist()]


def test_very_many_holes_that_settle_raise_each_mark_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And come back to the caller, who frees them in steps."""
    floors, raised = Floors(), list[dict[str, int]]()
    raise_to = Floors.raise_to
    monkeypatch.setattr(Floors, "raise_to", lambda self, **marks: (raised.append(marks), raise_to(self, **marks)))
    for first in range(10, 10_000, 10):
        floors.add_gap(Gap(first, first + 1, CRASH if first < 30 else TRIM if first < 5000 else TTL))
    settled = floors.settle_gaps(9000)
    assert (sum(map(len, settled)), len(floors.gaps)) == (900, 99)
    assert max(map(len, settled)) <= GAPS_A_BLOCK
    assert len(raised) == 3
    assert (floors.crash, floors.trim, floors.ttl, floors.lost) == (21, 4991, 9001, 9001)
    assert floors.settle_gaps(9000) == []


class Life(NamedTuple):
    """One life of a topic with the seqs 1 .. 40: what happens to them, in this order."""

    gone: list[set[int]]
    """Seqs that die together: of odd positions expired, of even ones deleted."""
    others: list[int]
    """Seqs of a gap of another reason, consecutive."""


@st.composite
def lives(draw: st.DrawFn) -> Life:
    first = draw(st.integers(1, 40))
    others = list(range(first, first + draw(st.integers(0, 4))))
    left = set(range(1, 41)) - set(others)
    gone = draw(st.lists(st.sets(st.sampled_from(sorted(left)), max_size=12), max_size=8))
    return Life(gone, others)


@given(lives(), st.sampled_from((2, 4, GAPS_A_BLOCK)), st.booleans())
def test_holes_are_told_as_a_list_of_all_seqs_says(life: Life, a_block: int, sweeps: bool) -> None:
    """R-RTTL-4, R-RTTL-5: whatever dies in which order, and however often a frame is replayed."""
    with pytest.MonkeyPatch.context() as small:
        small.setattr("topics.store.format.floors.GAPS_A_BLOCK", a_block)
        if sweeps:
            small.setattr("topics.store.format.floors._SWEPT_MOST", 2)
        _check_holes(life)


class _Live:
    """The live seqs of a set, which may change."""

    def __init__(self, seqs: set[int]) -> None:
        self._seqs = seqs

    def next_live(self, seq: int) -> int:
        return min((each for each in self._seqs if each >= seq), default=0)

    def alive(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.array([seq in self._seqs for seq in seqs.tolist()], np.bool_)


def _check_holes(life: Life) -> None:
    floors, alive, expired = Floors(), set(range(1, 41)) - set(life.others), set[int]()

    records = _Live(alive)
    next_live = records.next_live
    if life.others:
        floors.add_gap(Gap(life.others[0], life.others[-1], TRIM))
    for number, seqs in enumerate(life.gone):
        if number % 2:
            dying = sorted(seqs & alive)
            expired |= set(dying)
            alive -= seqs
            for _ in range(2):
                floors.open_holes(dying, records)
        alive -= seqs
        earliest = next_live(1) or 41
        floors.settle_gaps(earliest)
        assert floors.ttl == max([0, *(seq for seq in expired if seq < earliest)])
        assert all(below.last < above.first for below, above in pairwise(floors.gaps))
        for cursor in range(floors.lost, 41):
            live = next_live(cursor + 1) or 41
            others = [seq for seq in life.others if cursor < seq <= 40] if floors.gaps else []
            holes = [seq for seq in expired if cursor < seq < min([live, *others])]
            entry = enter(floors, cursor, 40, earliest, next_live)
            if holes:
                assert entry.tombstone == Tombstone(
                    cursor + 1, max(holes), TTL, max(holes) - cursor, max(holes) + 1, 40
                )
            else:
                assert entry.tombstone is None or entry.tombstone.reason == TRIM
            later = [seq for seq in expired if seq > entry.cursor]
            assert not later or entry.stop < min(later)


def test_a_replay_raises_the_mark_for_what_expired_below_a_delete() -> None:
    """R-RTTL-6, R-DUR-8: an old cursor still gets the reason."""
    floors = Floors()
    floors.raise_to(deleted=10)
    floors.open_holes([2, 4, 12, 13], _Live({11, 14}))
    assert (floors.ttl, floors.lost, list(floors.gaps)) == (4, 4, [Gap(12, 13, TTL)])


def test_gaps_above_a_seq_are_told_once_though_they_grew_into_one() -> None:
    floors = Floors()
    for gap in (Gap(2, 2, TTL), Gap(4, 6, TTL), Gap(8, 9, CRASH)):
        floors.add_gap(gap)
    assert floors.gaps.ending_above(0, 2) == [Gap(2, 2, TTL), Gap(4, 6, TTL)]
    assert floors.gaps.ending_above(4, 9) == [Gap(5, 6, TTL), Gap(8, 9, CRASH)]
    assert floors.gaps.ending_above(6, 9) == [Gap(8, 9, CRASH)]
    assert floors.gaps.ending_above(9, 9) == []


class Looks:
    """Counts the questions for live records; the odd seqs live."""

    def __init__(self) -> None:
        self.count = 0

    def next_live(self, seq: int) -> int:
        self.count += 1
        return seq | 1

    def alive(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
        self.count += 1
        return (seqs & np.uint64(1)).astype(np.bool_)


@pytest.mark.parametrize("holes", [3000, 100_000])
def test_an_expiry_copies_no_more_gaps_of_a_topic_with_very_many(holes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holes are spread over all of them, and each block is a list of its own."""
    floors, rng, copied, looks = Floors(), random.Random(holes), 0, Looks()
    floors.gaps = Gaps([Gap(4 * number, 4 * number, TTL) for number in range(1, holes)])
    replace = Gaps._replace

    def counting(gaps: Gaps, start: int, end: int, some: list[Gap]) -> None:
        nonlocal copied
        copied += len(some)
        replace(gaps, start, end, some)

    monkeypatch.setattr(Gaps, "_replace", counting)
    seqs = sorted(4 * number + 2 for number in rng.sample(range(holes), 1024))
    floors.open_holes(seqs, looks)
    assert len(floors.gaps) == holes - 1 + 1024
    assert [gap.first for gap in floors.gaps] == sorted([*seqs, *range(4, 4 * holes, 4)])
    assert copied <= 4 * GAPS_A_BLOCK, "blocks that were divided, and gaps that are examined"
    assert looks.count == 3, "a few for all, not one for each record: 1,024 took a pass of 20 ms"


def test_holes_of_very_many_blocks_become_one_and_are_freed_by_the_block() -> None:
    floors = Floors()
    floors.gaps = Gaps([Gap(2 * number, 2 * number, TTL) for number in range(1, 50_000)])
    floors.add_gap(Gap(100_000, 100_001, CRASH))
    assert floors.hole_after(100, lambda seq: 0 if seq > 90_001 else max(seq, 90_001)) == 90_000
    first, second = floors.gaps.ending_above(100, 2)
    assert (first, second) == (Gap(102, 90_000, TTL), Gap(90_002, 90_002, TTL))
    assert len(floors.gaps) == 50 + 1 + 4999 + 1 == len(list(floors.gaps))
    assert floors.hole_after(200, nothing_lives) == 99_998
    assert list(floors.gaps)[50:] == [Gap(102, 99_998, TTL), Gap(100_000, 100_001, CRASH)]
    freed = floors.settle_gaps(0)
    assert max(map(len, freed)) <= GAPS_A_BLOCK
    assert sum(map(len, freed)) >= 49_000


class Known(NamedTuple):
    """Gaps as a plain list, and questions about them."""

    gaps: list[Gap]
    seqs: list[int]


@st.composite
def knowns(draw: st.DrawFn) -> Known:
    gaps, seq = list[Gap](), 0
    for _ in range(draw(st.integers(0, 30))):
        first = seq + draw(st.integers(1, 4))
        seq = first + draw(st.integers(0, 3))
        gaps.append(Gap(first, seq, draw(st.sampled_from((TTL, TTL, CRASH)))))
    return Known(gaps, draw(st.lists(st.integers(0, seq + 3), min_size=2, max_size=2).map(sorted)))


@given(knowns(), st.integers(0, 40))
def test_gaps_in_blocks_are_found_as_in_one_list(known: Known, most: int) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr("topics.store.format.floors.GAPS_A_BLOCK", 4)
        after, last = known.seqs
        gaps = Gaps(known.gaps)
        assert list(gaps) == known.gaps
        assert len(gaps) == len(known.gaps)
        assert gaps.last == (known.gaps[-1] if known.gaps else None)
        above = [Gap(max(gap.first, after + 1), gap.last, gap.reason) for gap in known.gaps if gap.last > after]
        assert gaps.ending_above(after, most) == above[:most]
        assert gaps.count_between(after, last) == sum(gap.first <= last for gap in above) * (last > after)
        for seq in range(last + 2):
            assert gaps.at(seq) == next((gap for gap in known.gaps if gap.first <= seq <= gap.last), None)
        begun = [gap for gap in known.gaps if gap.first <= last]
        assert gaps.take_beginning_through(last) == {gap.reason: gap.last for gap in begun}
        assert list(gaps) == known.gaps[len(begun) :]
        assert len(gaps) == len(known.gaps) - len(begun)
        assert [gap for some in gaps.give_gone() for gap in some] == begun
