"""The gone records that a topic states when it leaves class `ephemeral`, in parts.

No frame of that class states what is removed, so a replay would bring back records from a time in
another class. Before the config that ends the class, frames state which seqs hold no record in a
file, and which of these expired (R-DUR-5, R-RTTL-4). There may be millions of runs, so a frame has
those of some chunks of the index, or of some holes where no chunk is, and each frame but the last
has a commit of its own.

Meanwhile the topic is used in class `ephemeral`. Rows in files die and none are added, so a chunk
with as many live rows as when it was stated is unchanged; the others are stated again. So are the
seqs between two chunks once the chunk before or after them is gone. If the process ends before the
config is in the log, a start removes all rows of the topic, as without these frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.engine.index.chunk import Chunk
from topics.engine.index.usage import Usage
from topics.engine.state.control_frames import RemovalPayload, encode
from topics.engine.state.staged_operations import Notice, OperationCore
from topics.engine.state.topic import Life, Topic
from topics.errors import TopicsError
from topics.store.format.floors import TTL
from topics.store.format.log_format import FrameType

_ROWS_A_STEP = 16_384
"""Rows, and holes beside them, after which a frame ends: to state them takes some milliseconds."""
_ROWS_IN_MEMORY = 64
"""A chunk whose records are all in memory is like so many rows: it is one run."""
_ONE = np.uint64(1)
Then = Callable[[TopicsError | None], None]


class GoneCore(OperationCore, Protocol):
    """The part of the core that these frames need."""

    clock: Clock
    usage: Usage


class _Unstated(NamedTuple):
    """Seqs that are not stated: after < seq <= last."""

    chunk: Chunk | None
    """The chunk that they are in; None: there is no chunk."""
    after: int
    last: int


class GoneRecords:
    """The gone records of one topic, of which some are stated."""

    def __init__(self, core: GoneCore, topic: Topic) -> None:
        self._core = core
        self._topic = topic
        self._stated: set[tuple[int, int, int]] = set()
        """First seq, end and live rows of the stated chunks."""
        self._stated_between: dict[int, tuple[int, int]] = {}
        """By the first seq of a chunk: a <= b, if of the seqs before it those of a < seq <= b are
        stated and no chunk was between a and it. The head + 1 counts as a first seq.
        """
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
        self._stage(self._take(None), now_ms)

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
            self._stated_between.clear()
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
        for part in self._unstated():
            rows += self._rows_of(part)
            if rows > _ROWS_A_STEP:
                return True
        return False

    def _unstated(self) -> Iterator[_Unstated]:
        """Yield the seqs of the rest of this round, chunk by chunk and between them."""
        index = self._topic.index
        position = max(0, index.position_of(self._through))
        after = self._topic.floors.dead_through
        if position:
            after = max(after, index.chunks[position - 1].end - 1)
        for at in range(position, len(index.chunks)):
            chunk = index.chunks[at]
            yield from self._unstated_between(after, chunk.first)
            last = chunk.end - 1
            if last > max(after, self._through) and _state_of(chunk) not in self._stated:
                yield _Unstated(chunk, max(after, chunk.first - 1), last)
            after = max(after, last)
        yield from self._unstated_between(after, self._topic.head + 1)

    def _unstated_between(self, after: int, first: int) -> Iterator[_Unstated]:
        """Yield the seqs above `after` and below `first`, which are in no chunk."""
        since, through = self._stated_between.get(first, (0, 0))
        if since <= after:
            after = max(after, through)
        if after < first - 1:
            yield _Unstated(None, after, first - 1)

    def _rows_of(self, part: _Unstated) -> int:
        """Return how many rows the work of stating these seqs is like."""
        if part.chunk is None:
            return self._topic.floors.gaps.count_between(part.after, part.last)
        return _ROWS_IN_MEMORY if self._in_memory(part.chunk) else part.chunk.count

    def _in_memory(self, chunk: Chunk) -> bool:
        return all(map(self._core.usage.is_memory, chunk.files or (chunk.file_id,)))

    def _take(self, most: int | None) -> RemovalPayload:
        """Return what states the next seqs, which are stated from then on. most: rows."""
        payload = RemovalPayload(self._topic.next_seq - 1)
        rows = 0
        for part in self._unstated():
            rows += self._rows_of(part)
            if part.chunk is None:
                self._take_between(payload, part, 0 if most is None else rows - most)
            else:
                self._add(payload, part.after, part.last, self._kept(part.chunk, part.after))
                self._stated.add(_state_of(part.chunk))
                self._through = part.last
            if most is not None and rows >= most:
                break
        return payload

    def _take_between(self, payload: RemovalPayload, part: _Unstated, too_many: int) -> None:
        """State seqs that are in no chunk. too_many: so many of their holes are left for later."""
        last, first = part.last, part.last + 1
        if too_many > 0:
            last = self._topic.floors.gaps.ending_above(part.after, self._rows_of(part) - too_many)[-1].last
        self._add(payload, part.after, last, np.empty(0, np.uint64))
        since, through = self._stated_between.get(first, (part.after, part.after))
        self._stated_between[first] = (since if through == part.after else part.after), last

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
        here = gaps.ending_above(after, gaps.count_between(after, last))
        holes = [bound for first, upto, reason in here if reason == TTL for bound in (first, upto)]
        if holes:
            holes[-1] = min(holes[-1], last)
            part.holes += holes

    def _stage(self, part: RemovalPayload, now_ms: int) -> None:
        if part.seqs:
            self._core.log.stage_control(self._topic.id, FrameType.CONSUME, part.upto, now_ms, encode(part))


def _state_of(chunk: Chunk) -> tuple[int, int, int]:
    return chunk.first, chunk.end, chunk.live
