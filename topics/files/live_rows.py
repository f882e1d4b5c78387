"""The live records of a piece as columns of numbers: position, size, time and tag of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.files.scanning import Frames
from topics.store.format.log_format import FrameType
from topics.store.layouts.index_format import INDEX_DELETED, IndexColumns


class LiveRows(NamedTuple):
    """n live records of one topic in one file, oldest first, as columns of shape (n,)."""

    seqs: NDArray[np.uint64]
    """Strictly increasing."""
    offsets: NDArray[np.uint32]
    """Bytes from the start of the file to the frame."""
    lengths: NDArray[np.uint32]
    """Bytes of the whole frame."""
    sizes: NDArray[np.uint32]
    """Bytes that count against the topic's caps."""
    ts: NDArray[np.uint64]
    """Milliseconds, never decreasing."""
    tags: NDArray[np.uint32] | None
    """Indexes into tag_table, or NO_TAG; None: without an index, only the frames have the tags."""
    tag_table: Sequence[bytes]
    is_verified: bool = False
    """The scan that found the rows has compared the checksum of each frame."""

    def select(self, where: slice | NDArray[np.bool_] | NDArray[np.intp]) -> LiveRows:
        """Return the rows chosen by a slice, a mask or ascending indexes."""
        return LiveRows(
            self.seqs[where],
            self.offsets[where],
            self.lengths[where],
            self.sizes[where],
            self.ts[where],
            None if self.tags is None else self.tags[where],
            self.tag_table,
            self.is_verified,
        )

    def between(self, first: int, last: int) -> LiveRows:
        """Return the rows with seqs first to last, both included."""
        if not len(self.seqs) or (first <= int(self.seqs[0]) and int(self.seqs[-1]) <= last):
            return self
        low = int(np.searchsorted(self.seqs, np.uint64(max(first, 0)), "left"))
        return self.select(slice(low, int(np.searchsorted(self.seqs, np.uint64(last), "right"))))

    def tagged(self, tags: frozenset[bytes]) -> LiveRows:
        """Return the rows with one of these tags; all rows if there is no index of tags."""
        if self.tags is None:
            return self
        wanted = [number for number, tag in enumerate(self.tag_table) if tag in tags]
        return self.select(np.flatnonzero(np.isin(self.tags, np.array(wanted, np.uint32))))


_NONE32, _NONE64 = np.empty(0, np.uint32), np.empty(0, np.uint64)
NO_ROWS = LiveRows(_NONE64, _NONE32, _NONE32, _NONE32, _NONE64, None, [], True)


def rows_of_index(
    columns: IndexColumns, first_seq: int, part: slice = slice(None), *, deleted: bool = False
) -> LiveRows:
    """Return the live rows of an index, or the deleted ones.

    first_seq: the seq to which each delta is added.
    part: the rows of the index to take.
    """
    rows = LiveRows(
        columns.deltas[part].astype(np.uint64) + np.uint64(first_seq),
        columns.offsets[part],
        columns.lengths[part],
        columns.sizes[part],
        columns.ts[part],
        columns.tags[part],
        columns.tag_table,
    )
    dead = columns.flags[part] >= INDEX_DELETED
    if deleted:
        return rows.select(dead)
    return rows.select(~dead) if dead.any() else rows


def rows_of_frames(parts: list[Frames], *, deleted: bool = False) -> LiveRows:
    """Return the live records among scanned frames, or the deleted ones."""
    chosen = []
    for frames in parts:
        live = (frames.says_deleted() == deleted) & (frames.types == FrameType.RECORD)
        chosen.append(
            [column[live] for column in (frames.seqs, frames.offsets, frames.lengths, frames.sizes, frames.ts)]
        )
    if not chosen:
        return NO_ROWS
    seqs, offsets, lengths, sizes, ts = (np.concatenate(columns) for columns in zip(*chosen, strict=True))
    return LiveRows(seqs, offsets.astype(np.uint32), lengths, sizes, ts, None, [], True)
