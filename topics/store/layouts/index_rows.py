"""The rows of an index file as RowColumns, and RowColumns as the columns of an index file."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.store.format.catalog import NO_TAG, RowColumns
from topics.store.format.row_columns import joined_times, select
from topics.store.layouts.index_format import INDEX_DELETED, IndexColumns


def index_rows(columns: IndexColumns, first_seqs: np.uint64 | NDArray[np.uint64], file_id: int) -> RowColumns:
    """Return all rows of an index, deleted ones included. first_seqs: the base of each delta."""
    return RowColumns(
        file_id,
        columns.deltas.astype(np.uint64) + first_seqs,
        columns.offsets,
        columns.lengths,
        columns.sizes,
        columns.ts,
        columns.flags,
        columns.tags,
        columns.tag_table,
        columns.times,
    )


def live_rows(rows: RowColumns) -> RowColumns:
    """Return the rows of an index that are not marked deleted."""
    live = (rows.flags & INDEX_DELETED) == 0
    return rows if live.all() else select(rows, live)


def _renumbered(parts: list[RowColumns], table: dict[bytes, int]) -> NDArray[np.uint32]:
    """Return the tag numbers, in `table`, of parts that share one tag table.

    Tags that occur are added to `table`.
    """
    own = list(parts[0].tag_table)
    tags = np.concatenate([np.minimum(part.tags, len(own)) for part in parts])
    if not own:
        return np.full(len(tags), NO_TAG, np.uint32)
    occurs = np.zeros(len(own) + 1, np.bool_)
    occurs[tags] = True
    places = np.flatnonzero(occurs[:-1])
    numbers = np.full(len(own) + 1, NO_TAG, np.uint32)
    numbers[places] = [table.setdefault(own[place], len(table)) for place in places.tolist()]
    renumbered: NDArray[np.uint32] = numbers[tags]
    return renumbered


def index_of(rows: list[RowColumns], first_seq: int) -> IndexColumns:
    """Return index columns of live rows of one file, in order."""
    table: dict[bytes, int] = {}
    tags = [_renumbered(list(parts), table) for _own, parts in groupby(rows, lambda part: id(part.tag_table))]

    def join(name: str, dtype: type) -> NDArray[Any]:
        parts = [getattr(part, name) for part in rows]
        if len(parts) == 1:
            return np.asarray(parts[0], dtype)
        return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)

    deltas = join("seqs", np.uint64) - np.uint64(first_seq)
    assert not len(deltas) or deltas[-1] < 1 << 32, "a segment spans less than 2^32 seqs"
    return IndexColumns(
        join("ts", np.uint64),
        deltas.astype(np.uint32),
        join("offsets", np.uint32),
        join("lengths", np.uint32),
        join("sizes", np.uint32),
        np.concatenate(tags) if tags else np.empty(0, np.uint32),
        join("flags", np.uint8),
        list(table),
        joined_times([(part.times, len(part.seqs)) for part in rows]),
    )
