"""Rows chosen from an index, as columns that later changes of the index leave as they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import Chunk


class SelectedRows(NamedTuple):
    """Live rows in seq order; the columns are copies of shape (n,)."""

    seqs: NDArray[np.uint64]
    file_ids: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    sizes: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    ts: NDArray[np.uint64]

    def rows(self, which: slice | NDArray[np.bool_]) -> SelectedRows:
        return SelectedRows(
            self.seqs[which],
            self.file_ids[which],
            self.offsets[which],
            self.lengths[which],
            self.sizes[which],
            self.flags[which],
            self.ts[which],
        )


NO_ROWS = SelectedRows(
    np.empty(0, np.uint64),
    np.empty(0, np.uint32),
    np.empty(0, np.uint32),
    np.empty(0, np.uint32),
    np.empty(0, np.uint32),
    np.empty(0, np.uint8),
    np.empty(0, np.uint64),
)


def slice_of(chunk: Chunk, start: int, end: int) -> SelectedRows:
    """Return all rows of [start, end), by copies of slices: they cost less than chosen rows."""
    return SelectedRows(
        np.arange(chunk.first + start, chunk.first + end, dtype=np.uint64),
        chunk.file_ids[start:end].copy(),
        chunk.offsets[start:end].copy(),
        chunk.lengths[start:end].copy(),
        chunk.sizes[start:end].copy(),
        chunk.flags[start:end].copy(),
        chunk.ts[start:end].copy(),
    )


def rows_of(chunk: Chunk, rows: NDArray[np.intp]) -> SelectedRows:
    """Return these rows of a chunk."""
    return SelectedRows(
        (rows + chunk.first).astype(np.uint64),
        chunk.file_ids[rows],
        chunk.offsets[rows],
        chunk.lengths[rows],
        chunk.sizes[rows],
        chunk.flags[rows],
        chunk.ts[rows],
    )


def joined(parts: list[SelectedRows]) -> SelectedRows:
    """Return the rows of several parts as one, in their order."""
    return SelectedRows(
        np.concatenate([part.seqs for part in parts]),
        np.concatenate([part.file_ids for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.flags for part in parts]),
        np.concatenate([part.ts for part in parts]),
    )
