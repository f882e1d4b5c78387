"""Floors and gaps: the records a topic has lost, as its snapshots store it.

`lost` is the involuntary floor L. A fifth mark joins the contract's four: `crash`, for a crash gap
whose older records are all gone, as `trim` is for a trim gap. The engine reports losses to readers
(`engine/state/losses.py`); `files/` does so from the files only. Source: R-FLOOR, R-TOMB, R-TRIM,
R-DUR-6.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

CRASH = "crash"
TRIM = "source_trim"


class Gap(NamedTuple):
    """An interior gap: seqs first ..

    last, below which there are live records, were never materialized.
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

    __slots__ = ("cap", "crash", "deleted", "gaps", "lost", "trim", "ttl")

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

        There may be very many.
        """

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

    def settle_gaps(self, earliest: int) -> None:
        """Turn gaps with no live record below them into floors (R-TRIM-2). `earliest` is E."""
        if self.gaps and self.gaps[0].first <= earliest:
            settled = bisect_right(self.gaps, earliest, key=_first)
            for gap in self.gaps[:settled]:
                self.raise_to(**{"crash" if gap.reason == CRASH else "trim": gap.last})
            del self.gaps[:settled]

    def reason(self, gap_from: int) -> str:
        """Return the reason to report for a loss that begins at `gap_from` (R-TOMB-3)."""
        by_cap, by_ttl = self.cap >= gap_from, self.ttl >= gap_from
        if by_cap and by_ttl:
            return "mixed"
        if by_cap or by_ttl:
            return "cap" if by_cap else "ttl"
        return CRASH if self.crash >= gap_from and self.trim < gap_from else TRIM


def _first(gap: Gap) -> int:
    return gap.first
