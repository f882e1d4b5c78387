"""Records that expire by themselves: when each of a topic's records with a `ttl_ms` does.

Records are noted in runs of at most a thousand, each ascending by its end, and a heap holds the
first end of each run. Most records go to the last run, because most ends ascend. A look takes a
bounded number of ends, so no pass of the loop depends on how many there are. Source: R-RTTL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.index import Index

_A_LOOK = 1024
"""Most ends that a look takes."""
_RUN_MOST = 1024
_STALE_MIN = 1024
"""Records that died otherwise are dropped once this many more are noted than twice the live
ones.
"""


class Expiries:
    """The ends of one topic's records: the last time (ms) at which each is not expired."""

    __slots__ = ("_anew", "_held", "_index", "_next_run", "_order", "_runs", "ends")

    def __init__(self, index: Index) -> None:
        self._index = index
        self.ends: dict[int, int] = {}
        """By seq, of records that may be live."""
        self._runs: dict[int, deque[tuple[int, int]]] = {}
        """Runs of (end, seq), by number, none empty."""
        self._order: list[tuple[int, int]] = []
        """Heap of (first end, number) of all runs."""
        self._next_run = 0
        self._held: list[int] = []
        """Heap of seqs that have ended, and that a named reader held at that time."""
        self._anew = False
        """Whether the runs are being built anew, without records that are gone."""

    def add(self, ends: Sequence[tuple[int, int]]) -> None:
        """Note records, (seq, end)."""
        self.ends.update(ends)
        for start in range(0, len(ends), _RUN_MOST):
            self._add_run(sorted([(end, seq) for seq, end in ends[start : start + _RUN_MOST]]))
        if len(self.ends) > 2 * self._index.live + _STALE_MIN and not self._anew:
            self._anew = True
            self._index.usage.reclaim.run(self._build_anew())

    def _add_run(self, run: list[tuple[int, int]]) -> None:
        last = self._runs.get(self._next_run - 1)
        if last is not None and last[-1] <= run[0] and len(last) + len(run) <= _RUN_MOST:
            last.extend(run)
            return
        self._runs[self._next_run] = deque(run)
        heappush(self._order, (run[0][0], self._next_run))
        self._next_run += 1

    def _build_anew(self) -> Iterator[None]:
        """Build the runs that there are now anew in steps; those that are added meanwhile stay."""
        first = self._next_run
        self._next_run += 1  # No record is added to a run from before.
        seqs = list(self.ends)
        kept: list[deque[tuple[int, int]]] = []
        for start in range(0, len(seqs), _RUN_MOST):
            some = np.sort(np.array(seqs[start : start + _RUN_MOST], np.uint64))
            alive = self._index.alive(some)
            for seq in some[~alive].tolist():
                self.ends.pop(seq, None)
            run = sorted([(self.ends[seq], seq) for seq in some[alive].tolist() if seq in self.ends])
            if run:
                kept.append(deque(run))
            yield
        later = {number: run for number, run in self._runs.items() if number >= first}
        self._runs = later | dict(enumerate(kept, self._next_run))
        self._next_run += len(kept)
        self._order = [(run[0][0], number) for number, run in self._runs.items()]
        heapify(self._order)
        self._anew = False

    def next_end(self) -> int | None:
        """Return a time (ms) up to which no record that is not held expires, None for never."""
        return self._order[0][0] if self._order else None

    def is_due(self, now_ms: int, held: int) -> bool:
        """Return whether `take_due` may return seqs."""
        return bool(self._order and self._order[0][0] < now_ms) or bool(self._held and self._held[0] <= held)

    def take_due(self, now_ms: int, held: int) -> list[int]:
        """Return live seqs up to `held` that have expired, ascending; each is returned once.

        They are those that expired first, at most a thousand. `forget` or `put_back` follows.
        """
        found: list[int] = []
        while self._held and self._held[0] <= held and len(found) < _A_LOOK:
            found.append(heappop(self._held))
        order, looked = self._order, len(found)
        while order and order[0][0] < now_ms and looked < _A_LOOK:
            _end, number = heappop(order)
            run = self._runs[number]
            while run and run[0][0] < now_ms and looked < _A_LOOK:
                looked += 1
                _end, seq = run.popleft()
                if seq not in self.ends:
                    continue
                if seq > held:
                    heappush(self._held, seq)
                else:
                    found.append(seq)
            if run:
                heappush(order, (run[0][0], number))
            else:
                del self._runs[number]
        if not found:
            return found
        seqs = np.unique(np.array(found, np.uint64))
        alive = self._index.alive(seqs)
        self.forget(seqs[~alive].tolist())
        return [int(seq) for seq in seqs[alive].tolist()]

    def put_back(self, seqs: Sequence[int]) -> None:
        """Note records that were taken and have not expired after all."""
        self.add([(seq, self.ends[seq]) for seq in seqs if seq in self.ends])

    def forget(self, seqs: Sequence[int]) -> None:
        """Drop records that are gone."""
        for seq in seqs:
            self.ends.pop(seq, None)

    def of(self, seqs: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the end of each of these seqs, 0 without one."""
        get = self.ends.get
        return np.fromiter((get(seq, 0) for seq in seqs.tolist()), np.uint64, len(seqs))

    def recovered(self) -> None:
        """Enter what was put into `ends` in a recovery, without records that are gone."""
        found, self.ends = sorted(self.ends.items()), {}
        alive = self._index.alive(np.array([seq for seq, _end in found], np.uint64))
        self.add([each for each, lives in zip(found, alive.tolist(), strict=True) if lives])
