"""Frames as RowColumns: from the table of a scan to the rows of each topic, and to byte ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from topics.store.format.catalog import NO_TAG, RowColumns
from topics.store.format.codec import Frames
from topics.store.format.log_format import (
    EXT_DELAY,
    EXT_TIME_BYTES,
    EXT_TTL,
    FLAG_TAG,
    FRAME_HEADER_BYTES,
    times_of,
)

_FEW_FRAMES = 16
"""Frames of which numpy takes longer than a loop does."""


def tags_of(frames: Frames, data: Buffer, base: int) -> tuple[NDArray[np.uint32], list[bytes]]:
    """Return the tag numbers of the frames, shape (n,), and the table that they index.

    data: the bytes that the frames were scanned from.
    base: the number that was added to their offsets.
    """
    numbers = np.full(len(frames), NO_TAG, np.uint32)
    tagged = np.flatnonzero(frames["flags"] & FLAG_TAG)
    if not len(tagged):
        return numbers, []
    rows = frames[tagged]
    starts = rows["offset"].astype(np.int64) - base + FRAME_HEADER_BYTES + rows["ext_len"] + rows["node_len"]
    view = memoryview(data).cast("B")
    table: dict[bytes, int] = {}
    numbers[tagged] = [
        table.setdefault(bytes(view[start:end]), len(table))
        for start, end in zip(starts.tolist(), (starts + rows["tag_len"]).tolist(), strict=True)
    ]
    return numbers, list(table)


def times_in(frames: Frames, data: Buffer, base: int) -> NDArray[np.uint64] | None:
    """Return `RowColumns.times` of record frames; None if none has a delay or a ttl.

    data, base: as in `tags_of`.
    """
    extended = np.flatnonzero(frames["ext_len"] >= EXT_TIME_BYTES)
    if not len(extended):
        return None
    starts = frames["offset"][extended].astype(np.int64) - base + FRAME_HEADER_BYTES
    view = memoryview(data).cast("B")
    kinds = np.frombuffer(view, np.uint8)[starts]
    begins = (kinds == EXT_DELAY) | (kinds == EXT_TTL)
    if not begins.any():
        return None
    extended, starts = extended[begins], starts[begins]
    ends = starts + np.minimum(frames["ext_len"][extended], 2 * EXT_TIME_BYTES)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    durations = np.array([times_of(view[at:end]) for at, end in spans], np.uint64)
    times = np.zeros((len(frames), 2), np.uint64)
    times[extended] = np.where(durations == 0, np.uint64(0), frames["ts_ms"][extended][:, None] + durations)
    return times


def rows_of(
    frames: Frames,
    tags: NDArray[np.uint32],
    tag_table: list[bytes],
    file_id: int,
    times: NDArray[np.uint64] | None = None,
) -> RowColumns:
    """Return contiguous columns of record frames."""
    return RowColumns(
        file_id,
        np.ascontiguousarray(frames["seq"]),
        frames["offset"].astype(np.uint32),
        np.ascontiguousarray(frames["length"]),
        np.ascontiguousarray(frames["size"]),
        np.ascontiguousarray(frames["ts_ms"]),
        np.ascontiguousarray(frames["flags"]),
        tags,
        tag_table,
        times,
    )


def by_topic(frames: Frames, data: Buffer, base: int, file_id: int) -> Iterator[tuple[int, RowColumns]]:
    """Yield (topic id, its rows in order) for each topic among record frames scanned from `data`.

    Columns are sorted once for all topics; each topic's are slices of them.
    """
    if not len(frames):
        return
    tags, table = tags_of(frames, data, base)
    times = times_in(frames, data, base)
    topic_ids = np.ascontiguousarray(frames["topic_id"])
    if (topic_ids == topic_ids[0]).all():
        yield int(topic_ids[0]), rows_of(frames, tags, table, file_id, times)
        return
    order = np.argsort(topic_ids, kind="stable")
    rows = rows_of(frames[order], tags[order], table, file_id, None if times is None else times[order])
    ordered = topic_ids[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1))
    yield from zip(ordered[starts].tolist(), split(rows, [*starts.tolist(), len(order)]), strict=True)


def indices_by_topic(topic_ids: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield (topic id, its indices in order) for each topic."""
    if not len(topic_ids):
        return
    order = np.argsort(topic_ids, kind="stable")
    ordered = topic_ids[order]
    starts = np.flatnonzero(np.diff(ordered)) + 1
    for where in np.split(order, starts):
        yield int(topic_ids[where[0]]), where


def split(rows: RowColumns, starts: list[int]) -> Iterator[RowColumns]:
    """Yield the rows of slices [starts[i], starts[i + 1]), each with a tag table of its own."""
    file_id, seqs, offsets, lengths, sizes, ts, flags, tags, table, times = rows
    for start, end in pairwise(starts):
        part = slice(start, end)
        numbers, own = compact_tags(tags[part], table)
        columns = seqs[part], offsets[part], lengths[part], sizes[part], ts[part], flags[part]
        yield RowColumns(file_id, *columns, numbers, own, None if times is None else times[part])


def compact_tags(tags: NDArray[np.uint32], table: Sequence[bytes]) -> tuple[NDArray[np.uint32], Sequence[bytes]]:
    """Return tag numbers into a table of only the tags that occur, and that table."""
    if not table:
        return tags, ()
    used = np.unique(tags)
    own = [table[number] for number in used.tolist() if number != NO_TAG]
    if len(own) == len(table):
        return tags, table
    return np.where(tags == NO_TAG, np.uint32(NO_TAG), np.searchsorted(used, tags).astype(np.uint32)), own


def select(rows: RowColumns, where: NDArray[np.bool_] | NDArray[np.intp] | slice) -> RowColumns:
    """Return some of the rows; the tag table stays whole."""
    columns: list[Any] = [column[where] for column in rows[1:8]]
    seqs, offsets, lengths, sizes, ts, flags, tags = columns
    times = None if rows.times is None else rows.times[where]
    return RowColumns(rows.file_id, seqs, offsets, lengths, sizes, ts, flags, tags, rows.tag_table, times)


def joined_times(parts: Sequence[tuple[NDArray[np.uint64] | None, int]]) -> NDArray[np.uint64] | None:
    """Return the times of parts, (times, rows), as one column; None if none has any."""
    if all(times is None for times, _count in parts):
        return None
    return np.concatenate([np.zeros((count, 2), np.uint64) if times is None else times for times, count in parts])


def contiguous(offsets: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> list[tuple[int, int]]:
    """Return (offset, bytes) of the ranges that these frames fill without gaps, in order."""
    if len(offsets) <= _FEW_FRAMES:
        return _contiguous_few(offsets.tolist(), lengths.tolist())
    starts = offsets.astype(np.int64)
    ends = starts + lengths
    cuts = np.flatnonzero(starts[1:] != ends[:-1])
    firsts = starts[np.concatenate(([0], cuts + 1))]
    lasts = ends[np.concatenate((cuts, [len(ends) - 1]))]
    return list(zip(firsts.tolist(), (lasts - firsts).tolist(), strict=True))


def _contiguous_few(offsets: list[int], lengths: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    start = end = -1
    for offset, length in zip(offsets, lengths, strict=True):
        if offset != end:
            if start >= 0:
                ranges.append((start, end - start))
            start = offset
        end = offset + length
    if start >= 0:
        ranges.append((start, end - start))
    return ranges
