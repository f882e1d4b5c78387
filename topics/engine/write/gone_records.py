"""The gone records that a topic states when it leaves class `ephemeral`, in parts.

No frame of that class states what is removed, so a replay would bring back records from a time in
another class. Before the config that ends the class, frames state which seqs hold no record in a
file, and which of these expired (R-DUR-5, R-RTTL-4). There may be millions of runs, so a frame has
those of some chunks of the index, and each frame but the last has a commit of its own.

Meanwhile the topic is used in class `ephemeral`. Rows in files die and none are added, so a chunk
with as many live rows as when it was stated is unchanged; the others are stated again. If the
process ends before the config is in the log, a start removes all rows of the topic, as without
these frames.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.engine.index.chunk import Chunk
from topics.engine.index.usage import Usage
from topics.engine.state.control_frames import RemovalPayload, encode
from topics.engine.state.staged_operations import Notice, OperationCore
from topics.engine.state.tombstones import TTL, Gap
from topics.engine.state.topic import Life, Topic
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType

_ROWS_A_STEP = 16_384
"""Rows after which a frame ends: their runs and holes take some milliseconds."""
_ROWS_IN_MEMORY = 64
"""A chunk whose records are all in memory is like so many rows: it is one run."""
_NEVER = 1 << 64
_ONE = np.uint64(1)
Then = Callable[[TopicsError | None], None]


class GoneCore(OperationCore, Protocol):
    """The part of the core that these frames need."""

    clock: Clock
    usage: Usage


class GoneRecords:
    """The gone records of one topic, of which some are stated."""

    def __init__(self, core: GoneCore, topic: Topic) -> None:
        self._core = core
        self._topic = topic
        self._stated: dict[tuple[int, int, int], int] = {}
        """By first seq, end and live rows of a stated chunk, the seq above which its runs begin."""
        self._through = 0
        """Chunks up to this seq were looked at in this round."""
        self._waiting: list[Then] = []

    def begin(self, then: Then) -> bool:
        """State what is too long for one frame, and return True; `then` is called after the last.

        Returns: False, where so little is left that `state_rest` can follow in this pass. If the
        topic is deleted meanwhile, `then` gets no error, and asks again.
        """
        if self._waiting:
            self._waiting.append(then)
            return True
        if not self._is_long():
            return False
        self._waiting.append(then)
        self._go_on(None)
        return True

    def state_rest(self, now_ms: int) -> None:
        """Stage a frame of all that is not stated yet, in the pass of `begin`.

        Raises: LogReadOnlyError.
        """
        part = self._take(None)
        chunks, head = self._topic.index.chunks, self._topic.head
        floor = self._topic.floors.dead_through
        self._add(part, max(floor, chunks[-1].end - 1) if chunks else floor, head, np.empty(0, np.uint64))
        self._stage(part, now_ms)

    def _go_on(self, error: TopicsError | None) -> None:
        """Stage the next frame, after the commit of the one before."""
        topic, core = self._topic, self._core
        is_gone = topic.life is Life.GONE or topic.life is Life.DELETING
        if error is not None or is_gone or not self._is_long():
            self._end(error)
            return
        try:
            with core.log.use_reserve():
                self._stage(self._take(_ROWS_A_STEP), core.clock.now_ms())
            Notice(core, topic, self._go_on).stage(synced=False)
        except TopicsError as failed:
            self._end(failed)

    def _end(self, error: TopicsError | None) -> None:
        if error is not None:
            self._stated.clear()  # Perhaps these frames are not in the log.
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(error)

    def _is_long(self) -> bool:
        """Return whether more is unstated than a step takes; a round begins after the last one."""
        if self._through and not self._exceeds_a_step():
            self._through = 0
        return self._exceeds_a_step()

    def _exceeds_a_step(self) -> bool:
        rows = 0
        for chunk, _after in self._unstated():
            rows += self._rows_of(chunk)
            if rows > _ROWS_A_STEP:
                return True
        return False

    def _unstated(self) -> Iterator[tuple[Chunk, int]]:
        """Yield chunks of the rest of this round, and the seq after which their runs begin."""
        index = self._topic.index
        position = max(0, index.position_of(self._through))
        after = self._topic.floors.dead_through
        if position:
            after = max(after, index.chunks[position - 1].end - 1)
        for at in range(position, len(index.chunks)):
            chunk = index.chunks[at]
            last = chunk.end - 1
            if last > max(after, self._through):
                stated_after = self._stated.get((chunk.first, chunk.end, chunk.live), _NEVER)
                if stated_after > after:
                    yield chunk, after
            after = max(after, last)

    def _rows_of(self, chunk: Chunk) -> int:
        """Return how many rows the work of stating a chunk is like."""
        return _ROWS_IN_MEMORY if self._in_memory(chunk) else chunk.count

    def _in_memory(self, chunk: Chunk) -> bool:
        return all(map(self._core.usage.is_memory, chunk.files or (chunk.file_id,)))

    def _take(self, most: int | None) -> RemovalPayload:
        """Return what states the next chunks, which are stated from then on. most: rows."""
        part = RemovalPayload(self._topic.next_seq - 1)
        rows = 0
        for chunk, after in self._unstated():
            self._add(part, after, chunk.end - 1, self._kept(chunk, after))
            self._stated[chunk.first, chunk.end, chunk.live] = after
            self._through = chunk.end - 1
            rows += self._rows_of(chunk)
            if most is not None and rows >= most:
                break
        return part

    def _kept(self, chunk: Chunk, after: int) -> NDArray[np.uint64]:
        """Return the seqs above `after` of a chunk whose records are in files."""
        if not self._in_memory(chunk):
            for _, rows, file_ids in self._topic.index.locations(max(chunk.first, after + 1), chunk.end - 1):
                in_memory = [each for each in np.unique(file_ids).tolist() if self._core.usage.is_memory(each)]
                return (rows[~np.isin(file_ids, in_memory)] + chunk.first).astype(np.uint64)
        return np.empty(0, np.uint64)

    def _add(self, part: RemovalPayload, after: int, last: int, kept: NDArray[np.uint64]) -> None:
        """Add the runs of after < seq <= last without those kept, and the holes there."""
        if last <= after:
            return
        seqs = np.concatenate((np.array([after], np.uint64), kept, np.array([last + 1], np.uint64)))
        before = np.flatnonzero(np.diff(seqs) > 1)
        part.seqs += np.column_stack((seqs[before] + _ONE, seqs[before + 1] - _ONE)).ravel().tolist()
        gaps = self._topic.floors.gaps
        here = gaps[bisect_right(gaps, after, key=_last) : bisect_right(gaps, last, key=_first)]
        holes = [bound for first, upto, reason in here if reason == TTL for bound in (first, upto)]
        if holes:
            holes[0], holes[-1] = max(holes[0], after + 1), min(holes[-1], last)
            part.holes += holes

    def _stage(self, part: RemovalPayload, now_ms: int) -> None:
        if part.seqs:
            self._core.log.stage_control(self._topic.id, FrameType.CONSUME, part.upto, now_ms, encode(part))


def _first(gap: Gap) -> int:
    return gap.first


def _last(gap: Gap) -> int:
    return gap.last
