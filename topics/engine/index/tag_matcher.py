"""The rows of an index whose tags match a predicate: the one test of reads, deletes and routers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import Chunk
from topics.engine.index.tags import Tags
from topics.engine.values.predicate import Predicate
from topics.store.format.catalog import NO_TAG

_NAMES_A_STEP = 256
_FEW = 16
"""Up to this number of matching tags, each is looked up in a chunk's filter."""
_FEW_ROWS = 64
"""Rows whose tags are compared one by one, if there is no table of all tags yet."""
_UNKNOWN, _OTHER, _MATCHES = 0, 1, 2


class TagMatcher:
    """A test of tag numbers, for the rows that were live when it was made.

    A prefix is compared once with each tag that occurs. `learn` compares it with all tags, which
    pays for a search through many chunks: chunks without a matching tag are skipped then.
    """

    __slots__ = ("_end", "_few", "_known", "_learned", "_tags", "_value", "matches_all", "number")

    def __init__(self, tags: Tags, predicate: Predicate) -> None:
        self._tags = tags
        self._value = predicate.value
        self._end = tags.numbers_end
        self.number = None if predicate.is_prefix else tags.number(predicate.value)
        """The only number that matches, NO_TAG if none does; None: found by the tags' texts."""
        self._few: list[int] = []
        """The numbers that match, if all tags were compared and few match."""
        self.matches_all = False
        """Whether all tags were compared, and match."""
        self._learned: NDArray[np.bool_] | None = None
        """By number whether it matches, False at the end for rows without a tag; see `learn`."""
        self._known: NDArray[np.uint8] | None = None
        """By number, too, while some are _UNKNOWN; None before the first large column."""

    @property
    def is_vain(self) -> bool:
        """Whether no tag can match, so that no row does."""
        return self.number == NO_TAG

    def learn(self) -> Iterator[None]:
        """Compare the predicate with all tags, a bounded number a step."""
        if self.number is not None:
            return
        value, end = self._value, self._end
        matches = np.zeros(end + 1, np.bool_)
        if value:
            for at in range(0, end, _NAMES_A_STEP):
                names = self._tags.names(at, min(at + _NAMES_A_STEP, end))
                matches[at : at + len(names)] = [name.startswith(value) for name in names]
                yield
            found = np.flatnonzero(matches)
            self.matches_all = len(found) == end
            self._few = found.tolist() if len(found) <= _FEW else []
            if not len(found):
                self.number = NO_TAG
        else:
            matches[:-1] = self.matches_all = True
        self._learned = matches

    def may_hold(self, chunk: Chunk) -> bool:
        """Return whether a live row of the chunk may match; False is certain."""
        if chunk.tags is None or not chunk.live:
            return False
        filtered = chunk.tag_filter
        if filtered is None:
            return True
        if self.number is not None:
            return filtered.may_hold(self.number)
        return not self._few or any(map(filtered.may_hold, self._few))

    def which(self, column: NDArray[np.uint32], new_max: int | None = None) -> tuple[NDArray[np.bool_], int]:
        """Return which rows match, and how many tags were compared.

        column: tag numbers, shape (n,). new_max: the mask ends before a row whose tag would be one
        more new one than that, but has one row at least; None: its shape is (n,).
        """
        if self.number is not None:
            equal: NDArray[np.bool_] = column == self.number
            return (equal if self.number != NO_TAG else np.zeros(len(column), np.bool_)), 0
        if self._learned is not None:
            return (column != NO_TAG if self.matches_all else self._learned.take(column, mode="clip")), 0
        known = self._known
        if known is None:
            if len(column) <= _FEW_ROWS and new_max is None:
                return self._tags.begin_with(column, self._value), len(column)
            known = self._known = np.zeros(self._end + 1, np.uint8)
            known[-1] = _OTHER  # rows without a tag, whose NO_TAG is clipped to it
        states = known.take(column, mode="clip")
        unknown = np.flatnonzero(states == _UNKNOWN)
        if not len(unknown):
            return states == _MATCHES, 0
        if new_max is not None and len(unknown) > new_max:
            column = column[: int(unknown[new_max])]
            unknown = unknown[:new_max]
        # Not by numpy's unique, whose first call imports modules for 12 ms.
        numbers = np.array(list(set(column[unknown].tolist())), np.uint32)
        known[numbers] = np.where(self._tags.begin_with(numbers, self._value), _MATCHES, _OTHER)
        return known.take(column, mode="clip") == _MATCHES, len(numbers)
