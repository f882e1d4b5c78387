"""The frames of topics with few rows: read and verified together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import xxhash

from topics.loop.tasks import Future
from topics.store.checkpoint.copy_context import CopyContext
from topics.store.disk.time_slices import TimeSlices
from topics.store.format import codec
from topics.store.format.catalog import FewRows
from topics.store.format.codec import ScanStop
from topics.store.format.log_format import FRAME_TRAILER_BYTES
from topics.store.format.row_columns import contiguous
from topics.store.read.file_range import FileRange
from topics.store.segments.pack import FewRuns
from topics.store.segments.segment import check_copied

_SPAN_MAX = 4
"""A stretch of a file is read as a whole if it is at most this many times the bytes of its rows."""
_READS_A_STEP = 64
_NO_FRAME = memoryview(b"")


async def frames_of(few: FewRows, context: CopyContext, turns: TimeSlices) -> list[memoryview]:
    """Return the bytes of the rows' frames, not verified, in pieces. Raises StorageError."""
    frames = [_NO_FRAME] * len(few.lengths)
    """A piece is in the place of its first row; that of its other rows is empty."""
    for file_id in set(few.file_ids.tolist()):  # The first call of np.unique imports for 7 ms.
        rows = np.flatnonzero(few.file_ids == file_id)
        offsets, lengths = few.offsets[rows].astype(np.int64), few.lengths[rows].astype(np.int64)
        begin = int(offsets.min())
        span = int((offsets + lengths).max()) - begin
        ranges, starts = [FileRange(file_id, begin, span)], offsets - begin
        if span > _SPAN_MAX * int(lengths.sum()):
            ranges = [FileRange(file_id, *piece) for piece in contiguous(few.offsets[rows], few.lengths[rows])]
            starts = np.cumsum(lengths) - lengths
        begun: list[Future[list[memoryview]]] = []
        for at in range(0, len(ranges), _READS_A_STEP):
            await turns.turn()
            with turns.working():
                begun.append(context.begin_fetch(ranges[at : at + _READS_A_STEP]))
        views = [view for fetched in begun for view in await fetched]
        await turns.turn()
        with turns.working():
            read = views[0] if len(views) == 1 else memoryview(b"".join(views))
            ends = starts + lengths
            begins = np.ones(len(rows), np.bool_)
            begins[1:] = (rows[1:] != rows[:-1] + 1) | (starts[1:] != ends[:-1])
            firsts = np.flatnonzero(begins)
            lasts = np.append(firsts[1:], len(rows)) - 1
            for row, start, end in zip(
                rows[firsts].tolist(), starts[firsts].tolist(), ends[lasts].tolist(), strict=True
            ):
                frames[row] = read[start:end]
    return frames


def checked_runs(few: FewRows, frames: list[memoryview]) -> FewRuns:
    """Return these frames as runs of a pack. Raises CorruptError naming topic and seq."""
    data = b"".join(frames)
    scan = codec.scan_frames(data)
    found, seqs = scan.frames, few.seqs
    ends, row_ends = np.cumsum(few.counts), np.cumsum(few.lengths, dtype=np.int64)
    if (
        scan.reason is not ScanStop.END
        or len(found) != len(seqs)
        or (found["topic_id"] != np.repeat(few.topic_ids, few.counts)).any()
        or (found["seq"] != seqs).any()
    ):
        bounds = zip(pairwise([0, *ends.tolist()]), pairwise([0, *row_ends[ends - 1].tolist()]), strict=True)
        for topic_id, (rows, part) in zip(few.topic_ids.tolist(), bounds, strict=True):
            check_copied(data[slice(*part)], 0, topic_id, seqs[slice(*rows)], 0)
        raise AssertionError("frames that are sound one topic after the other are sound together")
    return FewRuns(few, found, data, row_ends[ends - 1], _sums(data, row_ends.tolist(), few.counts.tolist()))


def _sums(data: bytes, row_ends: list[int], counts: list[int]) -> list[int]:
    """Return the running checksum over the checksums of each topic's frames."""
    sums: list[int] = []
    checksums = [data[end - FRAME_TRAILER_BYTES : end - FRAME_TRAILER_BYTES + 8] for end in row_ends]
    at = 0
    for count in counts:
        total = 0
        for checksum in checksums[at : at + count]:
            total = xxhash.xxh3_64_intdigest(checksum, seed=total)
        sums.append(total)
        at += count
    return sums
