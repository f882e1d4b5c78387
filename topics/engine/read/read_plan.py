"""Plan of reads for rows: neighbouring frames of one file are fetched as one piece."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from topics.engine.index.selected_rows import SelectedRows
from topics.store.read.file_range import FileRange

_FEW_ROWS = 32
_SLACK_BYTES = 4096
"""Largest gap between two wanted frames that one read spans; a second read would cost more."""


class ReadPlan(NamedTuple):
    """pieces[i] holds the frames of rows[i], in seq order."""

    pieces: list[FileRange]
    rows: list[SelectedRows]


def plan_pieces(rows: SelectedRows, most: int) -> ReadPlan:
    """Return the pieces to fetch for these rows, the first `most` at most. rows: at least one."""
    if len(rows.offsets) == 1:
        return ReadPlan([FileRange(int(rows.file_ids[0]), int(rows.offsets[0]), int(rows.lengths[0]))], [rows])
    if len(rows.offsets) <= _FEW_ROWS:
        piece = _one_piece(rows)
        if piece is not None:
            return ReadPlan([piece], [rows])
    begins = rows.offsets.astype(np.int64)
    ends = begins + rows.lengths
    gaps = begins[1:] - ends[:-1]
    apart = (np.diff(rows.file_ids) != 0) | (gaps < 0) | (gaps > _SLACK_BYTES)
    if not apart.any():
        return ReadPlan([_piece(rows, begins, ends, 0, len(begins))], [rows])
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(begins)]
    spans = list(pairwise(cuts[: most + 1]))
    return ReadPlan(
        [_piece(rows, begins, ends, start, end) for start, end in spans],
        [rows.rows(slice(start, end)) for start, end in spans],
    )


def _one_piece(rows: SelectedRows) -> FileRange | None:
    """Return the piece of a few close rows of one file, found without arrays; else None."""
    files = rows.file_ids.tolist()
    offsets, lengths = rows.offsets.tolist(), rows.lengths.tolist()
    end = offsets[0]
    for file_id, offset, length in zip(files, offsets, lengths, strict=True):
        if file_id != files[0] or not 0 <= offset - end <= _SLACK_BYTES:
            return None
        end = offset + length
    return FileRange(files[0], offsets[0], end - offsets[0])


def _piece(
    rows: SelectedRows,
    begins: np.ndarray[tuple[int], np.dtype[np.int64]],
    ends: np.ndarray[tuple[int], np.dtype[np.int64]],
    start: int,
    end: int,
) -> FileRange:
    begin = int(begins[start])
    return FileRange(int(rows.file_ids[start]), begin, int(ends[end - 1]) - begin)
