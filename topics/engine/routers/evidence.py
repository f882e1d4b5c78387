"""Copies that an exactly_once router's destination holds already, by keys in their meta (R-EO-3).

Every client that may write to the destination may write such meta, so only frames that the server
marked as copies are read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topics.engine.read.frame_read import FrameRead, verified
from topics.engine.routers.copies import key_prefix, source_seq_in
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.topic import Router
from topics.engine.values.ports import ReaderPort
from topics.errors import StorageError, TopicsError
from topics.store.format.log_format import FLAG_META, FLAG_ROUTED

_ROUND_ROWS = 1000
_BYTES_A_ROUND = 65_536
"""Share of a pass's budget for reads that a round of rows takes, even without copies."""


class Evidence:
    """Rounds of reads of the destination's copies after `router.examined`; then `done`."""

    def __init__(
        self, reader: ReaderPort, turns: ReadTurns, router: Router, done: Callable[[TopicsError | None], None]
    ) -> None:
        self._reader = reader
        self._turns = turns
        self._router = router
        self._done = done
        self._prefix = key_prefix(router)
        self._in_round = False
        self._more = False

    def begin(self) -> None:
        """Make rounds, in a loop without nesting, until one waits for the disk or all is read."""
        self._more = True
        if self._in_round:
            return
        self._in_round = True
        while self._more:
            self._more = False
            self._round()
        self._in_round = False

    def _round(self) -> None:
        router = self._router
        self._turns.spend(_BYTES_A_ROUND)
        index, head = router.dest.index, router.dest.head
        rows = index.select(router.examined, head, _ROUND_ROWS)
        upto = int(rows.seqs[-1]) if len(rows.seqs) == _ROUND_ROWS else head
        marked = ((rows.flags & FLAG_ROUTED) != 0) | (rows.seqs <= np.uint64(router.unmarked))
        rows = rows.rows(((rows.flags & FLAG_META) != 0) & marked & ~_within(router.own, rows.seqs))
        if not len(rows.seqs):
            self._next(upto)
            return
        read = FrameRead(self._reader, router.dest, rows)
        self._turns.spend(read.size)
        read.begin(partial(self._on_read, upto))

    def _on_read(self, upto: int, read: FrameRead | StorageError) -> None:
        if isinstance(read, StorageError):
            self._done(read)
            return
        router = self._router
        try:
            for frames in read.all_frames():
                for seq, _raw, frame in verified(router.dest, frames):
                    found = source_seq_in(frame.meta or b"", self._prefix)
                    if found is not None and found > router.position:
                        router.evidence[found] = seq
        except StorageError as error:
            self._done(error)
            return
        self._next(upto)

    def _next(self, upto: int) -> None:
        router = self._router
        router.examined = max(router.examined, upto)
        if router.own:
            router.own = [run for run in router.own if run[1] > router.examined]
        if router.examined < router.dest.head:
            # for a new router, all records in memory may be before that
            self._turns.take(self.begin)
        else:
            self._done(None)


def _within(runs: list[tuple[int, int]], seqs: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return the mask of the seqs in one of the runs, which ascend."""
    if not runs:
        return np.zeros(len(seqs), np.bool_)
    firsts, lasts = np.array(runs, np.uint64).T
    at = np.searchsorted(firsts, seqs, "right")
    within: NDArray[np.bool_] = (at > 0) & (seqs <= lasts[np.maximum(at, 1) - 1])
    return within
