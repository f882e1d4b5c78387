"""Jobs that are not claimable yet, because their records have a delay. None of them was leased.

A claim skips them by runs of seqs, and delays that end are taken a thousand a look, so that no pass
of the loop depends on their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from topics.engine.index.seq_times import SeqTimes

_A_LOOK = 1024
"""Most jobs that one call returns."""


class HeldBack:
    """The delayed jobs of one queue, by seq."""

    __slots__ = ("_runs", "dues")

    def __init__(self) -> None:
        self.dues = SeqTimes()
        """The times (ms) from which on the jobs are claimable."""
        self._runs: deque[tuple[int, int]] = deque()
        """Runs of seqs, (first, last), whose jobs were held back when the cursor was below them."""

    def add(self, seqs: Sequence[int], dues: Sequence[int]) -> None:
        """Hold back jobs, whose seqs ascend and are above all others.

        dues: when each of them is due (ms).
        """
        self.dues.add(seqs, dues)
        runs = self._runs
        first = last = 0
        if runs:
            first, last = runs.pop()
        for seq in seqs:
            if seq != last + 1:
                if last:
                    runs.append((first, last))
                first = seq
            last = seq
        if last:
            runs.append((first, last))

    def take_due(self, now_ms: int) -> list[int]:
        """Return seqs of jobs whose delay has ended: those that ended first, at most a thousand."""
        found = self.dues.take(now_ms, _A_LOOK)
        self.dues.discard(found)
        return found

    def free_after(self, cursor: int, head: int) -> tuple[int, int]:
        """Return the first bounds (after, upto) from the cursor on without jobs held back."""
        runs = self._runs
        while runs and runs[0][0] <= cursor + 1:
            cursor = max(cursor, runs.popleft()[1])
        return cursor, runs[0][0] - 1 if runs else head

    def recovered(self, is_live: Callable[[int], bool], leased: Iterable[int]) -> None:
        """Build the runs after a recovery filled `dues`, without jobs that are gone or were leased.

        is_live: whether the record of a seq is there. leased: seqs.
        """
        self.dues.discard(leased)
        noted = self.dues
        self.dues = SeqTimes()
        live = list(filter(is_live, noted.seqs()))
        self.add(live, list(map(noted.get, live)))
