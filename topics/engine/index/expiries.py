"""When each record with a `ttl_ms` of its own expires.

A look takes a bounded number of ends, so no pass of the loop depends on how many there are. Source:
R-RTTL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.index import Index
from topics.engine.index.seq_times import SeqTimes

A_LOOK = 1024
"""Most entries that a look at a topic takes (R-RTTL-1)."""
_STALE_MIN = 1024
"""Entries of dead records are dropped once there are this many more entries than twice the live
ones.
"""


class Expiries:
    """The ends of one topic's records: the last time (ms) at which each is not expired."""

    __slots__ = ("_held", "_index", "_is_swept", "ends", "pass_of_look")

    def __init__(self, index: Index) -> None:
        self._index = index
        self.ends = SeqTimes()
        """The ends of the records that may be live."""
        self._held: list[int] = []
        """Heap of seqs that have expired while a named reader held them."""
        self.pass_of_look = -1
        """The number of the pass in which `take_due` was called last."""
        self._is_swept = False
        """Whether entries of dead records are being dropped, in steps."""

    def add(self, seqs: Sequence[int], ends: Sequence[int]) -> None:
        """Note records, ascending, and the end of each."""
        self.ends.add(seqs, ends)
        if len(self.ends) > 2 * self._index.live + _STALE_MIN and not self._is_swept:
            self._is_swept = True
            self._index.usage.reclaim.run(self._sweep())

    def _sweep(self) -> Iterator[None]:
        """Drop the entries of records that died for another reason, in steps."""
        for part in self.ends.parts():
            seqs = np.sort(np.array([seq for seq, _end in part], np.uint64))
            self.ends.discard(seqs[~self._index.alive(seqs)].tolist())
            yield
        self._is_swept = False

    def next_end(self) -> int | None:
        """Return a time (ms) up to which no record that is not held expires, None for never."""
        return self.ends.first()

    def is_due(self, now_ms: int, held: int) -> bool:
        """Return whether `take_due` may return seqs."""
        first = self.ends.first()
        return (first is not None and first < now_ms) or bool(self._held and self._held[0] <= held)

    def take_due(self, now_ms: int, held: int, most: int = A_LOOK) -> list[int]:
        """Return live seqs up to `held` that have expired, ascending; each is returned once.

        They are those that expired first, at most `most`. `forget` or `put_back` follows.
        """
        found: list[int] = []
        while self._held and self._held[0] <= held and len(found) < most:
            found.append(heappop(self._held))
        for seq in self.ends.take(now_ms - 1, most - len(found)):
            if seq > held:
                heappush(self._held, seq)
            else:
                found.append(seq)
        if not found:
            return found
        seqs = np.unique(np.array(found, np.uint64))
        alive = self._index.alive(seqs)
        self.forget(seqs[~alive].tolist())
        return [int(seq) for seq in seqs[alive].tolist()]

    def put_back(self, seqs: Sequence[int]) -> None:
        """Note records that were taken and have not expired after all."""
        known = [seq for seq in seqs if seq in self.ends]
        self.add(known, list(map(self.ends.get, known)))

    def forget(self, seqs: Sequence[int]) -> None:
        """Drop records that are gone."""
        self.ends.discard(seqs)

    def of(self, seqs: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the end of each of these seqs, 0 without one."""
        return self.ends.of(seqs)

    def recovered(self) -> None:
        """Build the heap after a recovery filled `ends`; entries of dead records are dropped."""
        noted = self.ends
        self.ends = SeqTimes()
        seqs = np.array(noted.seqs(), np.uint64)
        live = seqs[self._index.alive(seqs)].tolist()
        self.add(live, list(map(noted.get, live)))
