"""The next rows of an index whose tags match a predicate, for a reader with a filter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import DEAD
from topics.engine.index.index import Index
from topics.engine.index.selected_rows import NO_ROWS, SelectedRows, joined, rows_of
from topics.engine.index.tags import Tags
from topics.engine.values.predicate import Predicate
from topics.store.format.catalog import NO_TAG

_CHUNK_COST = 32
"""Cost of a chunk that is passed, in rows that are looked at."""
_NAME_COST = 50
"""Cost of comparing the text of a tag."""
_NEW_A_STEP = 512
"""Most new tags that one step compares."""
_UNKNOWN, _OTHER, _MATCHES = 0, 1, 2


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
    matcher = _Prefix(tags, predicate.value) if predicate.is_prefix else _Equal(tags.number(predicate.value))
    if matcher.number == NO_TAG:
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
        column, number = chunk.tags, matcher.number
        may_hold = number is None or chunk.tag_filter is None or chunk.tag_filter.may_hold(number)
        if column is None or not chunk.live or not may_hold:
            start = max(start, end)
        begin = start
        while column is not None and start < end and limit and (cost < room or not looked):
            which, matched_cost = matcher.which(column[start : min(end, start + max(1, room - cost))])
            which &= chunk.flags[start : start + len(which)] < DEAD
            cost += len(which) + matched_cost
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


class _Equal:
    """The tags that equal a text: one number, or none (NO_TAG)."""

    def __init__(self, number: int) -> None:
        self.number: int | None = number

    def which(self, column: NDArray[np.uint32]) -> tuple[NDArray[np.bool_], int]:
        """Return which of the first numbers match, and the cost beside looking at them."""
        equal: NDArray[np.bool_] = column == self.number
        return equal, 0


class _Prefix:
    """The tags that begin with a text. Each tag that occurs is compared once."""

    number: int | None = None

    def __init__(self, tags: Tags, beginning: bytes) -> None:
        self._tags = tags
        self._beginning = beginning
        self._known = np.zeros(tags.numbers_end + 1, np.uint8)
        self._known[-1] = _OTHER  # rows without a tag, whose NO_TAG is clipped to it

    def which(self, column: NDArray[np.uint32]) -> tuple[NDArray[np.bool_], int]:
        """Return the matches and the cost, for a prefix of the numbers if many tags are new."""
        known = self._known
        states = known.take(column, mode="clip")
        unknown = np.flatnonzero(states == _UNKNOWN)
        if not len(unknown):
            return states == _MATCHES, 0
        if len(unknown) > _NEW_A_STEP:
            column = column[: int(unknown[_NEW_A_STEP])]
            unknown = unknown[:_NEW_A_STEP]
        # Not by numpy's unique, whose first call imports modules for 12 ms.
        numbers = np.array(list(set(column[unknown].tolist())), np.uint32)
        known[numbers] = np.where(self._tags.begin_with(numbers, self._beginning), _MATCHES, _OTHER)
        return known.take(column, mode="clip") == _MATCHES, _NAME_COST * len(numbers)
