"""Floors and gaps: the records a topic has lost, as its snapshots store it.

`lost` is the involuntary floor L. A fifth mark joins the contract's four: `crash`, for a crash gap
whose older records are all gone, as `trim` is for a trim gap. The engine reports losses to readers
(`engine/state/tombstones.py`); `files/` does so from the files only.

Source: R-FLOOR, R-TOMB, R-TRIM, R-DUR-6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CRASH = "crash"
TRIM = "source_trim"
TTL = "ttl"
_MARKS = {CRASH: "crash", TRIM: "trim", TTL: "ttl"}
"""The mark that a gap of each reason raises in the end."""
_SWEPT_MOST = 2048
"""Most gaps that one call examines for holes that have become one."""
NextLive = Callable[[int], int]
"""Returns the lowest live seq that is at least the given one; 0 without one."""


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


class Floors:
    """The highest lost seqs by reason; none of them ever decreases."""

    __slots__ = ("_swept", "cap", "crash", "deleted", "gaps", "lost", "trim", "ttl")

    def __init__(self) -> None:
        self.cap = 0
        self.ttl = 0
        self.trim = 0
        self.crash = 0
        self.deleted = 0
        """The highest seq deleted by a prefix delete, which is voluntary."""
        self.lost = 0
        self.gaps: list[Gap] = []
        """Interior gaps, ascending; adjoining ones have different reasons.

        There may be very many. Neighbouring holes (reason TTL) have live records between them, or
        had them when they were last examined.
        """
        self._swept = 0
        """The position in `gaps` up to which holes were examined last."""

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
        add_gap(self.gaps, gap)

    def settle_gaps(self, earliest: int) -> list[Gap]:
        """Turn gaps with no live record below them into floors (R-TRIM-2). `earliest` is E.

        Returns them, perhaps very many, for the caller to free in steps.
        """
        if self.gaps and self.gaps[0].first <= earliest:
            settled = bisect_right(self.gaps, earliest, key=_first)
            if 2 * settled > len(self.gaps):  # What is copied is what is fewer.
                gone, self.gaps = self.gaps, self.gaps[settled:]
                del gone[settled:]
            else:
                gone = self.gaps[:settled]
                del self.gaps[:settled]
            last: dict[str, int] = {}
            for gap in reversed(gone):
                if gap.reason not in last:
                    last[gap.reason] = gap.last
            for reason, through in last.items():
                self.raise_to(**{_MARKS[reason]: through})
            return gone
        return []

    def gaps_after(self, seq: int, most: int) -> list[Gap]:
        """Return the first `most` gaps above a seq; one that has the seq begins after it."""
        gaps = self.gaps
        at = bisect_right(gaps, seq, key=_last)
        some = gaps[at : at + most]
        if some and some[0].first <= seq:
            some[0] = Gap(seq + 1, some[0].last, some[0].reason)
        return some

    def open_holes(self, seqs: Sequence[int], next_live: NextLive) -> None:
        """Note records that have expired, ascending; those that are in a gap already stay there."""
        gaps = self.gaps
        found: list[Gap] = []
        first = bisect_right(seqs, self.dead_through)
        if first:
            self.raise_to(ttl=seqs[first - 1])
        if first == len(seqs):
            return
        start = at = max(bisect_right(gaps, seqs[first], key=_first) - 1, 0)
        for seq in seqs[first:]:
            place = bisect_left(gaps, (seq + 1,), at)  # without a key, which takes far longer
            found += gaps[at:place]
            at = place
            if not found or found[-1].last < seq:
                _add(found, Gap(seq, seq, TTL), next_live)
                if at < len(gaps) and _are_one(found[-1], gaps[at], next_live):
                    _add(found, gaps[at], next_live)
                    at += 1
        gaps[start:at] = found
        if len(self.gaps) > _SWEPT_MOST // 2:
            self._sweep(next_live)

    def _sweep(self, next_live: NextLive) -> None:
        """Make holes one between which all records have gone, among some gaps, in turn."""
        start = self._swept if self._swept < len(self.gaps) else 0
        some = self.gaps[start : start + _SWEPT_MOST]
        joined: list[Gap] = []
        for gap in some:
            _add(joined, gap, next_live)
        self.gaps[start : start + len(some)] = joined
        self._swept = start + len(joined)

    def hole_at(self, at: int, cursor: int, next_live: NextLive) -> int:
        """Return the last expired seq above `cursor` before the next live record; 0 without one.

        It is one hole from then on. at: position of the first gap that ends above the cursor.
        """
        gaps, live, end = self.gaps, next_live(cursor + 1), at
        while end < len(gaps) and gaps[end].reason == TTL and (not live or gaps[end].first < live):
            end += 1
        if end == at:
            return 0
        gaps[at:end] = [Gap(gaps[at].first, gaps[end - 1].last, TTL)]
        return gaps[at].last

    def expired_among(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of these seqs (ascending) were lost, and not deleted: in floors or holes."""
        told = seqs <= np.uint64(self.lost)
        gaps = self.gaps
        if gaps and len(seqs):
            begin = bisect_left(gaps, int(seqs[0]), key=_last)
            end = bisect_right(gaps, int(seqs[-1]), key=_first)
            if end - begin > len(seqs):  # few rows, far apart
                for row, seq in enumerate(seqs.tolist()):
                    at = bisect_left(gaps, (seq + 1,), begin, end) - 1
                    told[row] |= at >= begin and gaps[at].last >= seq and gaps[at].reason == TTL
                return told
            for gap in gaps[begin:end]:
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


def _add(gaps: list[Gap], gap: Gap, next_live: NextLive) -> None:
    """Add a gap after the others, or make it one with the last."""
    if gaps and _are_one(gaps[-1], gap, next_live):
        gaps[-1] = Gap(gaps[-1].first, gap.last, TTL)
    else:
        gaps.append(gap)


def _first(gap: Gap) -> int:
    return gap.first


def _last(gap: Gap) -> int:
    return gap.last
