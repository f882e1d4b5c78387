"""Rows of an index whose tags match: the next ones for a reader, and those of a router's step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import DEAD
from topics.engine.index.index import Index
from topics.engine.index.selected_rows import NO_ROWS, SelectedRows, joined, rows_of
from topics.engine.index.tag_matcher import TagMatcher
from topics.engine.values.predicate import Predicate

_CHUNK_COST = 32
"""Cost of a chunk that is passed, in rows that are looked at."""
_NAME_COST = 50
"""Cost of comparing the text of a tag."""
_NEW_A_STEP = 512
"""Most new tags that one step compares."""


class TaggedRows(NamedTuple):
    """The result of a search."""

    rows: SelectedRows
    """Live rows that match, ascending."""
    through: int
    """The seq up to which all rows were looked at."""
    looked: int
    """Number of rows whose tags were looked at."""
    cost: int
    """All work, in rows whose tags are looked at."""


def tagged_rows(index: Index, predicate: Predicate, after: int, upto: int, *, limit: int, room: int) -> TaggedRows:
    """Return the first `limit` live, matching rows with after < seq <= upto.

    room: the search ends where its cost reaches this, but has looked at one row at least.
    """
    tags = index.tags
    if tags is None:
        return TaggedRows(NO_ROWS, upto, 0, 0)
    matcher = TagMatcher(tags, predicate)
    if matcher.is_vain:
        return TaggedRows(NO_ROWS, upto, 0, 0)
    parts: list[SelectedRows] = []
    looked = cost = 0
    through = after
    for position in range(max(0, index.position_of(after + 1)), len(index.chunks)):
        chunk = index.chunks[position]
        if chunk.first > upto:
            through = upto
            break
        if not limit or (cost >= room and through > after):
            break
        cost += _CHUNK_COST
        start, end = max(0, after + 1 - chunk.first), min(chunk.count, upto + 1 - chunk.first)
        column = chunk.tags
        if not matcher.may_hold(chunk):
            start = max(start, end)
        begin = start
        while column is not None and start < end and limit and (cost < room or not looked):
            which, compared = matcher.which(column[start : min(end, start + max(1, room - cost))], _NEW_A_STEP)
            which &= chunk.flags[start : start + len(which)] < DEAD
            cost += len(which) + _NAME_COST * compared
            rows = np.flatnonzero(which)[:limit] + start
            limit -= len(rows)
            if len(rows):
                parts.append(rows_of(chunk, rows))
            start = start + len(which) if limit else int(rows[-1]) + 1
            looked += start - begin
            begin = start
        through = max(through, chunk.first + start - 1)
        if start < end:
            break
    else:
        through = upto
    chosen = parts[0] if len(parts) == 1 else joined(parts) if parts else NO_ROWS
    return TaggedRows(chosen, through, looked, cost)


def tagged_mask(index: Index, seqs: NDArray[np.uint64], predicate: Predicate) -> NDArray[np.bool_]:
    """Return the mask of these live seqs, ascending, whose tag matches (R-RTR-6).

    The tags of these rows are compared, not all tags of the topic.
    """
    result = np.zeros(len(seqs), np.bool_)
    tags = index.tags
    if tags is None:
        return result
    matcher = TagMatcher(tags, predicate)
    if matcher.is_vain:
        return result
    for chunk, start, end in index.by_chunk(seqs):
        if chunk.tags is not None:
            rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
            result[start:end], _compared = matcher.which(chunk.tags[rows])
    return result
