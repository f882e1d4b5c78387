"""The hops of a topic's records and holes: how often each was forwarded. Source: R-RTR-12.

A record written directly has no hops.
"""

from __future__ import annotations

from bisect import bisect_left

Run = tuple[int, int, int]
"""First and last seq of adjacent records or holes, and their hops (at least 1)."""


class Hops:
    """The hops of seqs that some router may still forward; `forget` drops the rest."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []
        """The runs, ascending and disjoint."""

    def add(self, first: int, last: int, hops: int) -> None:
        """Add a run above all so far.

        Known seqs change nothing, because a log may be replayed.
        """
        runs = self.runs
        if runs and first <= runs[-1][1]:
            return
        if runs and runs[-1][1] + 1 == first and runs[-1][2] == hops:
            runs[-1] = (runs[-1][0], last, hops)
        else:
            runs.append((first, last, hops))

    def of(self, seq: int) -> int:
        at = bisect_left(self.runs, seq, key=_last)
        return self.runs[at][2] if at < len(self.runs) and self.runs[at][0] <= seq else 0

    def within(self, first: int, last: int) -> list[Run]:
        """Return all seqs of a range as runs, including those with 0 hops."""
        found: list[Run] = []
        for at in range(bisect_left(self.runs, first, key=_last), len(self.runs)):
            begin, end, hops = self.runs[at]
            if begin > last:
                break
            if begin > first:
                found.append((first, begin - 1, 0))
            found.append((max(first, begin), min(last, end), hops))
            first = end + 1
        if first <= last:
            found.append((first, last, 0))
        return found

    def forget(self, upto: int) -> None:
        """Drop the hops up to this seq, which no router needs."""
        if self.runs and self.runs[0][1] <= upto:
            del self.runs[: bisect_left(self.runs, upto + 1, key=_last)]


def _last(run: Run) -> int:
    return run[1]
