"""Rows of one topic as bytes for its segment: read, each frame verified, without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.common.memory import page_aligned
from topics.store.checkpoint.copy_context import CopyContext, joined_frames
from topics.store.disk.time_slices import TimeSlices
from topics.store.format import codec
from topics.store.format.catalog import RowColumns
from topics.store.format.log_format import align_up
from topics.store.format.row_columns import contiguous
from topics.store.read.file_range import FileRange
from topics.store.read.own_frames import share_frames
from topics.store.segments.segment import Extension, check_copied, extension_of

_SPAN_MAX = 2
"""A stretch of a file is read as a whole if it is at most this many times the bytes of its rows."""
_ROOM_STEP = 1 << 20


class LiveFrames(NamedTuple):
    """Frames without gaps, valid until the next are gathered; `lengths` has the bytes of each."""

    data: memoryview
    lengths: NDArray[np.uint32]
    extension: Extension


class LiveFrameReaders:
    """The readers of one checkpoint, one for each segment that is being filled.

    Their memory is reused: faulting in new pages costs as much as copying.
    """

    def __init__(self, context: CopyContext, turns: TimeSlices) -> None:
        self._context = context
        self.turns = turns
        self._free: list[LiveFrameReader] = []

    @contextmanager
    def one(self) -> Iterator[LiveFrameReader]:
        """Lend a reader that no other segment uses meanwhile."""
        reader = self._free.pop() if self._free else LiveFrameReader(self._context, self.turns)
        yield reader
        self._free.append(reader)  # not after an error, when a read may still be in flight


class LiveFrameReader:
    """A reader of frames, of one segment at a time."""

    def __init__(self, context: CopyContext, turns: TimeSlices) -> None:
        self._context = context
        self._turns = turns
        self._source = memoryview(b"")
        self._room = memoryview(b"")

    async def gather(self, rows: RowColumns, topic_id: int, sum: int) -> LiveFrames:
        """Return the verified frames of rows of one file.

        sum: the segment's running sum so far.
        Raises: CorruptError, StorageError.
        """
        if share_frames(rows.flags):
            views = await self._pieces(rows)
            await self._turns.turn()
            with self._turns.working():
                data = joined_frames(views, topic_id, [rows])
                scan = check_copied(data, sum, topic_id, rows.seqs, 0)
                return LiveFrames(memoryview(data), scan.frames["length"].copy(), extension_of(scan))
        size = int(rows.lengths.sum(dtype=np.int64))
        begin, last = int(rows.offsets.min()), int(rows.offsets.argmax())
        span = int(rows.offsets[last]) + int(rows.lengths[last]) - begin
        is_dense = span <= _SPAN_MAX * size
        if is_dense:
            self._source = _with_room(self._source, span)
            views = await self._fetch([FileRange(rows.file_id, begin, span)], self._source)
        else:
            views = await self._pieces(rows)
        await self._turns.turn()
        with self._turns.working():
            offsets = rows.offsets
            if not is_dense:
                begin, offsets = 0, (np.cumsum(rows.lengths, dtype=np.uint64) - rows.lengths).astype(np.uint32)
            read = views[0] if len(views) == 1 else memoryview(b"".join(views))
            self._room = _with_room(self._room, size)
            copied = codec.copy_frames(self._room, read, begin, offsets, rows.lengths, rows.seqs, topic_id, sum=sum)
        extension = Extension(
            len(rows.seqs), int(rows.seqs[-1]), copied.last_ts, copied.size, copied.written, copied.sum
        )
        return LiveFrames(self._room[: copied.written], rows.lengths, extension)

    async def _pieces(self, rows: RowColumns) -> list[memoryview]:
        return await self._fetch([FileRange(rows.file_id, *piece) for piece in contiguous(rows.offsets, rows.lengths)])

    async def _fetch(self, pieces: list[FileRange], memory: memoryview | None = None) -> list[memoryview]:
        """Fetch pieces, in turn: those in memory are copied at once, like a check."""
        await self._turns.turn()
        with self._turns.working():
            begun = self._context.begin_fetch(pieces, memory)
        return await begun


def _with_room(memory: memoryview, size: int) -> memoryview:
    return memory if len(memory) >= size else memoryview(page_aligned(align_up(size, _ROOM_STEP)))
