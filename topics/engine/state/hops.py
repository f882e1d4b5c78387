"""How many hops records and holes of a topic have behind them; those written directly have none. Source: R-RTR-12."""

from __future__ import annotations

from bisect import bisect_left

Run = tuple[int, int, int]
"""First and last seq of neighbouring records or holes, and their hops (at least 1)."""


class Hops:
    """Kept for what some router may still forward: `forget` drops the rest."""

    __slots__ = ("runs",)

    def __init__(self, runs: list[Run] | None = None) -> None:
        self.runs: list[Run] = runs or []
        """Ascending, apart from each other."""

    def add(self, first: int, last: int, hops: int) -> None:
        """Seqs above all so far; those that are known already change nothing (a log is replayed)."""
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
        """All seqs of a range, those written directly too, as runs."""
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
        """No router needs what lies at or below this seq."""
        if self.runs and self.runs[0][1] <= upto:
            del self.runs[: bisect_left(self.runs, upto + 1, key=_last)]


def _last(run: Run) -> int:
    return run[1]
