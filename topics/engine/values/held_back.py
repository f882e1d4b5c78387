"""Jobs that are not claimable yet, because their records have a delay. None of them was leased.

Each costs an entry of a dict and of a heap. A claim skips them by runs of seqs, and delays that end
are taken from the heap, a thousand a look, so that no pass of the loop depends on their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

_A_LOOK = 1024
"""Most delays that end in one look."""
_STALE_MIN = 1024
"""Entries of jobs that are gone are dropped once there are this many more than twice the others."""


class HeldBack:
    """The delayed jobs of one queue, by seq."""

    __slots__ = ("_by_due", "_runs", "dues")

    def __init__(self) -> None:
        self.dues: dict[int, int] = {}
        """By seq, ascending, the time from which on a job is claimable, ms."""
        self._by_due: list[tuple[int, int]] = []
        """Heap of (due, seq)."""
        self._runs: deque[tuple[int, int]] = deque()
        """Runs of seqs, (first, last), whose jobs were held back when the cursor was below them."""

    def add(self, jobs: Sequence[tuple[int, int]]) -> None:
        """Hold back jobs, (seq, due), whose seqs ascend and are above all others."""
        dues, by_due, runs = self.dues, self._by_due, self._runs
        for seq, due in jobs:
            dues[seq] = due
            heappush(by_due, (due, seq))
        first = last = 0
        if runs:
            first, last = runs.pop()
        for seq, _due in jobs:
            if seq != last + 1:
                if last:
                    runs.append((first, last))
                first = seq
            last = seq
        if last:
            runs.append((first, last))

    def next_due(self) -> int | None:
        """Return the time (ms) from which on the next job may be claimable, None for never."""
        return self._by_due[0][0] if self._by_due else None

    def take_due(self, now_ms: int) -> list[int]:
        """Return seqs of jobs whose delay has ended: those that ended first, at most a thousand."""
        by_due, dues = self._by_due, self.dues
        found: list[int] = []
        for _ in range(_A_LOOK):
            if not by_due or by_due[0][0] > now_ms:
                break
            _due, seq = heappop(by_due)
            if dues.pop(seq, 0):
                found.append(seq)
        return found

    def free_after(self, cursor: int, head: int) -> tuple[int, int]:
        """Return the first bounds (after, upto) from the cursor on without jobs held back."""
        runs = self._runs
        while runs and runs[0][0] <= cursor + 1:
            cursor = max(cursor, runs.popleft()[1])
        return cursor, runs[0][0] - 1 if runs else head

    def discard(self, seqs: Iterable[int]) -> None:
        """Drop jobs whose records are gone."""
        for seq in seqs:
            self.dues.pop(seq, None)
        self._drop_stale()

    def drop_through(self, dead: int) -> None:
        """Drop jobs up to this seq, whose records are gone."""
        gone = []
        for seq in self.dues:
            if seq > dead:
                break
            gone.append(seq)
        if gone:
            self.discard(gone)

    def _drop_stale(self) -> None:
        if len(self._by_due) > 2 * len(self.dues) + _STALE_MIN:
            self._by_due = [(due, seq) for seq, due in self.dues.items()]
            heapify(self._by_due)

    def recovered(self, is_live: Callable[[int], bool], leased: Iterable[int]) -> None:
        """Enter what was put into `dues` in a recovery, without jobs that are gone or were leased.

        is_live: whether the record of a seq is there. leased: seqs.
        """
        for seq in leased:
            self.dues.pop(seq, None)
        found, self.dues = sorted(self.dues.items()), {}
        self.add([(seq, due) for seq, due in found if is_live(seq)])
