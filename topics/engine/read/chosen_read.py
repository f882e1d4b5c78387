"""Reads in two steps: the loop chooses the rows, and the caller's thread reads and renders them.

Head, gap and rows are those of the instant at which they were chosen. What is deleted afterwards
may be in the result, in part, too: each piece leaves out what is gone when its file is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.selected_rows import SelectedRows
from topics.engine.read.frame_read import FrameRead, OwnFrames, own, with_topic
from topics.engine.read.read_pass import ReadCore, ReadPass, Renderer
from topics.engine.state import refusals
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import ReaderPort
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.read.lender import Lender
from topics.store.read.lent_pieces import LentPieces
from topics.store.read.render_json import JsonRenderer

_BYTES_A_ROW = 32
"""Share of a pass's budget for reads that choosing a row costs.

It takes as much time as rendering this many bytes.
"""
_TURN_ROWS = 65_536
"""Rows that are chosen in one turn, for which writers wait: 2 to 3 ms.

A turn costs as much as an append or two by itself, so more turns would delay more appends.
"""
_NO_END = (1 << 64) - 1
"""A budget that no page reaches: its bounds were kept when its rows were chosen."""


@dataclass(slots=True)
class Step:
    """The most that a step adds, one row at least. A caller may change it between steps."""

    rows: int
    size: int
    """Bytes of frames."""


class ChosenResult(DiffResult):
    """A result whose records are chosen, and are read by `add_to`, once."""

    frames: ChosenFrames | None = None
    """The chosen rows; None if there are no records."""
    more: Callable[[Done[DiffResult]], None] | None = None
    """The call that chooses the next records of the same read; None: these are the last ones."""

    @classmethod
    def of(
        cls, result: DiffResult, frames: ChosenFrames | None, more: Callable[[Done[DiffResult]], None] | None
    ) -> ChosenResult:
        """Return the result with what else a chosen one has, which is in none of its fields."""
        made = cls(*result)
        made.frames, made.more = frames, more
        return made

    def add_to(self, renderer: Renderer, step: Step | None = None) -> Iterator[None]:
        """Read the records and add them to a renderer, in steps.

        On any thread. Raises: StorageError; UsageError, the log was closed meanwhile.
        """
        if self.frames is not None:
            yield from self.frames.add_to(renderer, step)

    @property
    def topic_id(self) -> int:
        """The topic's id, if there are records."""
        return 0 if self.frames is None else self.frames.topic_id

    @property
    def memory_bytes(self) -> float:
        """Bytes that are read from memory; endless, if some are read from a file."""
        return 0 if self.frames is None else self.frames.memory_bytes

    def renderer(self) -> JsonRenderer:
        """Return a renderer for all that a record has, with data of bytes apart."""
        return JsonRenderer(self.topic_id, limit=self.count, budget=_NO_END, include_tags=True, bytes_apart=True)


def chosen(result: DiffResult) -> ChosenResult:
    """Return the result of a `ChoosingPass` as what it is."""
    assert isinstance(result, ChosenResult), "the records were read on the loop"
    return result


class ChosenFrames(FrameRead):
    """The frames of chosen rows, which one other thread reads."""

    __slots__ = ("_chosen", "_pieces")

    def __init__(self, lender: Lender, reader: ReaderPort, topic: Topic, rows: SelectedRows) -> None:
        super().__init__(reader, topic, rows)
        self._pieces = LentPieces(lender, self.pieces)
        self._chosen: list[SelectedRows] = []
        """The rows of each piece."""

    @property
    def size(self) -> int:
        return _BYTES_A_ROW * sum([len(rows.seqs) for rows in self._rows])

    def begin(self, then: Callable[[FrameRead | StorageError], None]) -> None:
        self._pieces.hold(partial(self._on_held, then))

    def _on_held(self, then: Callable[[FrameRead | StorageError], None], error: StorageError | None) -> None:
        if error is not None:
            then(error)
            return
        self._views = [memoryview(b"")] * len(self.pieces)
        then(self)

    def _deliver(self, view: memoryview, base: int, rows: SelectedRows) -> OwnFrames:
        """Note the rows; `add_to` reads their frames."""
        self._chosen.append(rows)
        return OwnFrames(view, base, rows)

    @property
    def topic_id(self) -> int:
        return self._topic.id

    @property
    def memory_bytes(self) -> float:
        return math.inf if self._pieces.has_files else sum([piece.length for piece in self.pieces])

    def add_to(self, renderer: Renderer, step: Step | None) -> Iterator[None]:
        """See `ChosenResult.add_to`."""
        try:
            self._pieces.begin()
            for index, rows in enumerate(self._chosen):
                if not len(rows.seqs):
                    continue
                for data, base, some in self._parts(index, rows):
                    for few in (some,) if step is None else _in_steps(some, step):
                        try:
                            frames = own(self._topic, data, base, few)
                            offsets, lengths, seqs = frames.rows.offsets, frames.rows.lengths, frames.rows.seqs
                            renderer.add(frames.data, frames.base, offsets, lengths, seqs)
                        except CorruptError as error:
                            raise with_topic(self._topic, error, self) from None
                        yield
        finally:
            self._pieces.end()

    def _parts(self, index: int, rows: SelectedRows) -> Iterator[OwnFrames]:
        """Yield the bytes of a piece, part by part, with the rows whose frames are there."""
        parts = self._pieces.read(index)
        if len(parts) == 1:
            (begin, data) = parts[0]
            yield OwnFrames(data, begin, rows)
            return
        cuts = np.searchsorted(rows.offsets, np.array([part.begin for part in parts[1:]], np.uint32)).tolist()
        for (begin, data), start, end in zip(parts, [0, *cuts], [*cuts, len(rows.seqs)], strict=True):
            if start < end:
                yield OwnFrames(data, begin, rows.rows(slice(start, end)))


def _in_steps(rows: SelectedRows, step: Step) -> Iterator[SelectedRows]:
    count, sums = len(rows.seqs), np.cumsum(rows.lengths, dtype=np.uint64)
    start = done = 0
    while start < count:
        fitting = int(np.searchsorted(sums, np.uint64(done + step.size), "right"))
        end = max(start + 1, min(start + step.rows, fitting))
        yield rows if end - start == count else rows.rows(slice(start, end))
        start, done = end, int(sums[end - 1])


class _RowCounter:
    """The renderer of a read that chooses: it counts the rows."""

    full = False
    size = 0

    def __init__(self) -> None:
        self.count = 0

    def add(
        self,
        data: memoryview,
        base: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        seqs: NDArray[np.uint64],
    ) -> int:
        self.count += len(seqs)
        return len(seqs)

    def records(self) -> bytes:
        return b""


class ChoosingPass(ReadPass):
    """A pass that answers with a `ChosenResult`. Only for a query without a filter by nodes."""

    def __init__(self, lender: Lender, core: ReadCore, topic: Topic, query: DiffQuery, done: Done[DiffResult]) -> None:
        super().__init__(core, topic, query, done)
        self._lender = lender
        self._chosen: ChosenFrames | None = None
        self.into(_RowCounter())

    def _frames(self, reader: ReaderPort, topic: Topic, rows: SelectedRows) -> FrameRead:
        self._chosen = ChosenFrames(self._lender, reader, topic, rows)
        return self._chosen

    def _answer(self, result: DiffResult | TopicsError) -> None:
        if isinstance(result, DiffResult):
            result = ChosenResult.of(result, self._chosen if result.count else None, self._more_after(result))
        self._chosen = None
        super()._answer(result)

    def _more_after(self, result: DiffResult) -> Callable[[Done[DiffResult]], None] | None:
        return None


class ChoosingTurns(ChoosingPass):
    """A pass that chooses many rows in turns, so that none takes the loop for long.

    Each turn answers with its rows and with what makes the next one, at the instant of the first:
    up to the same head. Rows that were lost meanwhile end it, and the next read reports them.
    """

    def __init__(self, lender: Lender, core: ReadCore, topic: Topic, query: DiffQuery, done: Done[DiffResult]) -> None:
        super().__init__(lender, core, topic, query._replace(limit=min(query.limit, _TURN_ROWS)), done)
        self._limit, self._room = query.limit, query.max_batch_bytes
        """Records and bytes that are left of the query's."""
        self._is_first = True
        self._size = 0

    def _frames(self, reader: ReaderPort, topic: Topic, rows: SelectedRows) -> FrameRead:
        self._size = int(rows.sizes.sum(dtype=np.uint64))
        return super()._frames(reader, topic, rows)

    def _answer(self, result: DiffResult | TopicsError) -> None:
        if isinstance(result, DiffResult):
            if not self._is_first and (result.tombstone is not None or self._size > self._room):
                # The next read begins with what is left out.
                result, self._chosen = result._replace(count=0, next_from_seq=self.from_seq, tombstone=None), None
            self._limit -= result.count
            self._room -= self._size
        super()._answer(result)

    def _more_after(self, result: DiffResult) -> Callable[[Done[DiffResult]], None] | None:
        has_more = self._limit > 0 and self._room > 0 and result.next_from_seq < self._entry.stop
        return self._go_on if result.count and has_more else None

    def _go_on(self, done: Done[DiffResult]) -> None:
        """Choose the next rows."""
        self._done, self._is_first, self._size = done, False, 0
        limit = min(self._limit, _TURN_ROWS)
        self._query = self._query._replace(from_seq=self._cursor, begin=None, limit=limit, max_batch_bytes=self._room)
        self._entry, self.from_seq = self._entry._replace(tombstone=None), self._cursor
        self.into(_RowCounter())
        if self._topic.life is Life.GONE:
            self._answer(refusals.topic_not_found(self._topic.name))
        else:
            self._read_on()
