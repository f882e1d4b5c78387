"""Floors and gaps: the records a topic has lost, as its snapshots store it.

`lost` is the involuntary floor L. A fifth mark joins the contract's four: `crash`, for a crash gap
whose older records are all gone, as `trim` is for a trim gap. The engine reports losses to readers
(`engine/state/tombstones.py`); `files/` does so from the files only.

Source: R-FLOOR, R-TOMB, R-TRIM, R-DUR-6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.tuples import make_tuple

CRASH = "crash"
TRIM = "source_trim"
TTL = "ttl"
_MARKS = {CRASH: "crash", TRIM: "trim", TTL: "ttl"}
"""The mark that a gap of each reason raises in the end."""
_SWEPT_MOST = 2048
"""Most gaps that one call examines for holes that have become one."""
GAPS_A_BLOCK = 512
"""Most gaps of a block, which is copied whole at most."""
NextLive = Callable[[int], int]
"""Returns the lowest live seq that is at least the given one; 0 without one."""


class LiveSeqs(Protocol):
    """The live records of a topic."""

    def next_live(self, seq: int) -> int:
        """Do as `NextLive`."""

    def alive(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of these seqs (ascending) are live, shape (n,)."""


class Gap(NamedTuple):
    """An interior gap: seqs first .. last, below which there are live records.

    They were never materialized; with the reason TTL it is a hole of records that expired.
    """

    first: int
    last: int
    reason: str


def add_gap(gaps: list[Gap], gap: Gap) -> None:
    """Add a gap that does not begin below the last one.

    A gap that adjoins or overlaps the last with the same reason extends it; a gap inside it changes
    nothing. Gaps with different reasons stay separate, so that no more is reported as lost in a
    crash than was (R-DUR-6).
    """
    last = gaps[-1] if gaps else None
    if last is None or gap.first > last.last + 1:
        gaps.append(gap)
    elif gap.last > last.last and gap.reason == last.reason:
        gaps[-1] = Gap(last.first, gap.last, last.reason)
    elif gap.last > last.last:
        gaps.append(Gap(last.last + 1, gap.last, gap.reason))


class _Block:
    """Some neighbouring gaps, at least one."""

    __slots__ = ("gaps", "reasons")

    def __init__(self, gaps: list[Gap]) -> None:
        self.gaps = gaps
        self.reasons = {gap.reason for gap in gaps}
        """Reasons of the gaps, and perhaps of some that are gone."""


class Gaps:
    """Gaps, ascending, in blocks: no step on them takes long, however many there are.

    Neighbouring holes (reason TTL) have live records between them, or had them when they were last
    examined. Other adjoining gaps have different reasons.
    """

    __slots__ = ("_blocks", "_count", "_firsts", "_gone", "_swept", "_unswept")

    def __init__(self, gaps: Sequence[Gap] = ()) -> None:
        """gaps: ascending."""
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        """For each block a seq that is above the block before, and not above its first gap."""
        self._count = len(gaps)
        self._swept = 0
        """The number of the block up to which holes were examined last."""
        self._unswept = 0
        """Holes that were opened since."""
        self._gone: list[list[Gap]] = []
        """Gaps that were taken out by the block."""
        self._replace(0, 0, gaps)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Gap]:
        return chain.from_iterable([block.gaps for block in self._blocks])

    @property
    def last(self) -> Gap | None:
        return self._blocks[-1].gaps[-1] if self._blocks else None

    def ending_above(self, seq: int, most: int) -> list[Gap]:
        """Return the first `most` gaps that end above a seq; one with the seq begins after it."""
        number, at = self._place(seq)
        found: list[Gap] = []
        while number < len(self._blocks) and len(found) < most:
            found += self._blocks[number].gaps[at : at + most - len(found)]
            number, at = number + 1, 0
        if found and found[0].first <= seq:
            found[0] = Gap(seq + 1, found[0].last, found[0].reason)
        return found

    def count_between(self, after: int, last: int) -> int:
        """Return the number of gaps that have one of the seqs after < seq <= last."""
        number, at = self._place(after)
        upto = self._block_of(last)
        if last <= after or number == len(self._blocks) or number > upto:
            return 0
        whole = sum([len(block.gaps) for block in self._blocks[number:upto]])
        return whole + _begun(self._blocks[upto].gaps, last) - at

    def at(self, seq: int) -> Gap | None:
        """Return the gap that a seq is in."""
        number, at = self._place(seq - 1)
        gap = self._blocks[number].gaps[at] if number < len(self._blocks) else None
        return gap if gap is not None and gap.first <= seq else None

    def _block_of(self, seq: int) -> int:
        """Return the number of the last block that may have gaps which begin up to a seq."""
        return max(bisect_right(self._firsts, seq) - 1, 0)

    def _place(self, seq: int) -> tuple[int, int]:
        """Return the number of a block, and the position in it of the first gap that ends above."""
        if not self._blocks:
            return 0, 0
        number = self._block_of(seq)
        gaps = self._blocks[number].gaps
        at = _begun(gaps, seq)
        if at and gaps[at - 1].last > seq:
            at -= 1
        return (number, at) if at < len(gaps) else (number + 1, 0)

    # --- changes -----------------------------------------------------------------------------------------------------
    def add(self, gap: Gap) -> None:
        """Add a gap, as the function `add_gap` does."""
        if not self._blocks:
            self._replace(0, 0, [gap])
            self._count = 1
            return
        block = self._blocks[-1]
        before = len(block.gaps)
        add_gap(block.gaps, gap)
        block.reasons.add(gap.reason)
        self._count += len(block.gaps) - before
        if len(block.gaps) > GAPS_A_BLOCK:
            self._divide(len(self._blocks) - 1)

    def _divide(self, number: int) -> None:
        """Divide a block that has become too large."""
        self._replace(number, number + 1, self._blocks[number].gaps)

    def _replace(self, start: int, end: int, gaps: Sequence[Gap]) -> None:
        """Put gaps in the place of the blocks start <= number < end."""
        size = GAPS_A_BLOCK // 2
        blocks = [_Block(list(gaps[at : at + size])) for at in range(0, len(gaps), size)]
        firsts = [block.gaps[0].first for block in blocks]
        if firsts and start < end:
            firsts[0] = self._firsts[start]
        self._blocks[start:end] = blocks
        self._firsts[start:end] = firsts

    def take_beginning_through(self, seq: int) -> dict[str, int]:
        """Take out the gaps that begin up to a seq; return the last seq of them by reason."""
        if not self._blocks or self._blocks[0].gaps[0].first > seq:
            return {}
        number = self._block_of(seq)
        gone = self._blocks[:number]
        del self._blocks[:number], self._firsts[:number]
        self._swept = max(self._swept - number, 0)
        gaps = self._blocks[0].gaps
        if begun := _begun(gaps, seq):
            gone.append(_Block(gaps[:begun]))
            del gaps[:begun]
            if not gaps:
                del self._blocks[0], self._firsts[0]
        last: dict[str, int] = {}
        for block in reversed(gone):
            for reason in block.reasons - last.keys():
                found = next((gap.last for gap in reversed(block.gaps) if gap.reason == reason), 0)
                if found:
                    last[reason] = found
        self._count -= sum([len(block.gaps) for block in gone])
        self._gone += [block.gaps for block in gone]
        return last

    def give_gone(self) -> list[list[Gap]]:
        """Return the gaps that were taken out, often very many, for the caller to free in steps."""
        gone, self._gone = self._gone, []
        return gone

    def open_holes(self, seqs: Sequence[int], live: LiveSeqs) -> None:
        """Note records that have expired, ascending, unless they are in a gap already.

        Those between two live records are holes of their own: a few calls find all of these.
        """
        if not seqs:
            return
        expired = np.array(seqs, np.uint64)
        lone = live.alive(expired - np.uint64(1)) & live.alive(expired + np.uint64(1))
        for seq, is_lone in zip(seqs, lone.tolist(), strict=True):
            self._open_hole(seq, None if is_lone else live.next_live)
        self._note_opened(len(seqs), live)

    def _open_hole(self, seq: int, next_live: NextLive | None) -> None:
        """Note a record that has expired. next_live: None if both of its neighbours live."""
        if not self._blocks:
            self.add(Gap(seq, seq, TTL))
            return
        number = max(bisect_right(self._firsts, seq) - 1, 0)
        block = self._blocks[number]
        gaps = block.gaps
        start = end = at = bisect_left(gaps, (seq + 1,))
        first = last = seq
        if at:
            begin, end_below, reason = gaps[at - 1]
            if end_below >= seq:
                return
            if next_live and reason == TTL and (end_below + 1 == seq or not 0 < next_live(end_below + 1) < seq):
                first, start = begin, at - 1
        if next_live and at < len(gaps):
            begin, end_above, reason = gaps[at]
            if reason == TTL and (seq + 1 == begin or not 0 < next_live(seq + 1) < begin):
                last, end = end_above, at + 1
        hole = make_tuple(Gap, (first, last, TTL))
        if start < end:
            gaps[start:end] = (hole,)
            self._count += 1 - (end - start)
            return
        gaps.insert(at, hole)
        self._count += 1
        if not at:
            self._firsts[number] = min(self._firsts[number], seq)
        block.reasons.add(TTL)
        if len(gaps) > GAPS_A_BLOCK:
            self._divide(number)

    def _note_opened(self, holes: int, live: LiveSeqs) -> None:
        """Make holes one between which all records have gone, among some gaps, in turn.

        holes: so many were opened. Twice as many are examined, so that there are never many more
        than live records.
        """
        self._unswept += holes
        if 2 * self._unswept < _SWEPT_MOST:
            return
        self._unswept = 0
        start = end = self._swept if self._swept < len(self._blocks) else 0
        gaps: list[Gap] = []
        while end < len(self._blocks) and len(gaps) < _SWEPT_MOST:
            gaps += self._blocks[end].gaps
            end += 1
        joined = _joined(gaps, live)
        if len(joined) < len(gaps):
            blocks = len(self._blocks)
            self._replace(start, end, joined)
            self._count -= len(gaps) - len(joined)
            end += len(self._blocks) - blocks
        self._swept = end

    def join_after(self, seq: int, live: int) -> int:
        """Make one hole of those that begin below the seq `live` (0: any), from the first above.

        It is the first that ends above `seq`. Returns: the last seq of the hole; 0 without one.
        """
        number, start = self._place(seq)
        if number == len(self._blocks):
            return 0
        block = self._blocks[number]
        gaps, at = block.gaps, start
        while at < len(gaps) and _is_below(gaps[at], live):
            at += 1
        if at == start:
            return 0
        hole = Gap(gaps[start].first, gaps[at - 1].last, TTL)
        if at == len(gaps):
            hole = Gap(hole.first, self._take_holes(number + 1, live) or hole.last, TTL)
        gaps[start:at] = (hole,)
        self._count -= at - start - 1
        return hole.last

    def _take_holes(self, number: int, live: int) -> int:
        """Take out the holes below the seq `live` (0: any) from the beginning of a block on.

        Returns: the last seq of the last one; 0 if there is none.
        """
        blocks, end, last = self._blocks, number, 0
        while end < len(blocks) and len(blocks[end].reasons) == 1 and _is_below(blocks[end].gaps[-1], live):
            last = blocks[end].gaps[-1].last
            end += 1
        taken = [block.gaps for block in blocks[number:end]]
        if end < len(blocks):
            gaps, at = blocks[end].gaps, 0
            while at < len(gaps) and _is_below(gaps[at], live):
                last = gaps[at].last
                at += 1
            if at == len(gaps):
                end += 1
                taken.append(gaps)
            else:
                del gaps[:at]
                self._firsts[end] = gaps[0].first
                self._count -= at
        del self._blocks[number:end], self._firsts[number:end]
        self._count -= sum(map(len, taken))
        self._gone += taken
        return last


class Floors:
    """The highest lost seqs by reason; none of them ever decreases."""

    __slots__ = ("cap", "crash", "deleted", "gaps", "lost", "trim", "ttl")

    def __init__(self) -> None:
        self.cap = 0
        self.ttl = 0
        self.trim = 0
        self.crash = 0
        self.deleted = 0
        """The highest seq deleted by a prefix delete, which is voluntary."""
        self.lost = 0
        self.gaps = Gaps()
        """Interior gaps."""

    @property
    def dead_through(self) -> int:
        """The seq up to which no record is live."""
        return max(self.lost, self.deleted)

    def raise_to(self, *, cap: int = 0, ttl: int = 0, trim: int = 0, crash: int = 0, deleted: int = 0) -> None:
        """Raise marks to these values; lower values change nothing (R-FLOOR-5)."""
        self.cap = max(self.cap, cap)
        self.ttl = max(self.ttl, ttl)
        self.trim = max(self.trim, trim)
        self.crash = max(self.crash, crash)
        self.deleted = max(self.deleted, deleted)
        self.lost = max(self.cap, self.ttl, self.trim, self.crash)

    def add_gap(self, gap: Gap) -> None:
        """Add a gap, as the function `add_gap` does."""
        self.gaps.add(gap)

    def settle_gaps(self, earliest: int) -> list[list[Gap]]:
        """Turn gaps with no live record below them into floors (R-TRIM-2). `earliest` is E.

        Returns: as `Gaps.give_gone`.
        """
        for reason, through in self.gaps.take_beginning_through(earliest).items():
            self.raise_to(**{_MARKS[reason]: through})
        return self.gaps.give_gone()

    def open_holes(self, seqs: Sequence[int], live: LiveSeqs) -> None:
        """Note records that have expired, ascending; those that are in a gap already stay there."""
        first = bisect_right(seqs, self.dead_through)
        if first:
            self.raise_to(ttl=seqs[first - 1])
        self.gaps.open_holes(seqs[first:], live)

    def hole_after(self, cursor: int, next_live: NextLive) -> int:
        """Return the last expired seq above `cursor` before the next live record; 0 without one.

        It is one hole from then on.
        """
        return self.gaps.join_after(cursor, next_live(cursor + 1))

    def expired_among(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of these seqs (ascending) were lost, and not deleted: in floors or holes."""
        told = seqs <= np.uint64(self.lost)
        if not self.gaps or not len(seqs):
            return told
        last = int(seqs[-1])
        here = self.gaps.ending_above(int(seqs[0]) - 1, len(seqs) + 1)
        if len(here) > len(seqs) and here[-1].first <= last:  # few rows, far apart
            for row, seq in enumerate(seqs.tolist()):
                gap = self.gaps.at(seq)
                told[row] |= gap is not None and gap.reason == TTL
            return told
        for gap in here:
            low, high = np.searchsorted(seqs, np.array([gap.first, gap.last + 1], np.uint64)).tolist()
            told[low:high] |= gap.reason == TTL
        return told

    def reason(self, gap_from: int) -> str:
        """Return the reason to report for a loss that begins at `gap_from` (R-TOMB-3)."""
        by_cap, by_ttl = self.cap >= gap_from, self.ttl >= gap_from
        if by_cap and by_ttl:
            return "mixed"
        if by_cap or by_ttl:
            return "cap" if by_cap else "ttl"
        return CRASH if self.crash >= gap_from and self.trim < gap_from else TRIM


def _are_one(below: Gap, above: Gap, next_live: NextLive) -> bool:
    """Return whether two neighbours are holes without a live record between them."""
    if not (below.reason == TTL == above.reason):
        return False
    live = next_live(below.last + 1) if above.first > below.last + 1 else 0
    return not live or live >= above.first


def _joined(gaps: list[Gap], live: LiveSeqs) -> list[Gap]:
    """Return the gaps, with holes as one between which there is no live record."""
    lasts = np.fromiter(map(itemgetter(1), gaps), np.uint64, len(gaps))
    is_apart = live.alive(lasts + np.uint64(1))
    if is_apart[:-1].all():
        return gaps
    joined = gaps[:1]
    for gap, apart in zip(gaps[1:], is_apart.tolist(), strict=False):
        if apart or not _are_one(joined[-1], gap, live.next_live):
            joined.append(gap)
        else:
            joined[-1] = Gap(joined[-1].first, gap.last, TTL)
    return joined


def _begun(gaps: list[Gap], seq: int) -> int:
    """Return how many of these gaps begin up to a seq."""
    return bisect_left(gaps, (seq + 1,))  # without a key, which takes far longer


def _is_below(gap: Gap, live: int) -> bool:
    """Return whether a gap is a hole that begins below the seq `live` (0: any)."""
    return gap.reason == TTL and (not live or gap.first < live)
