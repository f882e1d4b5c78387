"""The rows whose tags match a predicate: found in bounded steps, then killed in one.

During the search, rows that were live at its start can only die, and their tags cannot change. The
result therefore stays valid except for rows that died. When the rows are killed, only rows added
during the search are still matched by the names of their tags.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import DEAD, Chunk
from topics.engine.index.found_rows import Found
from topics.engine.index.index import Index
from topics.engine.index.tag_matcher import TagMatcher
from topics.engine.values.predicate import Predicate

_CHUNKS_A_STEP = 32
"""Chunks skipped in one step; a chunk whose rows are matched takes a step of its own."""


class TaggedSearch:
    """A search among live rows up to `upto`. Run `steps` to the end, then `kill`."""

    def __init__(self, index: Index, predicate: Predicate, upto: int) -> None:
        self._index = index
        self.predicate = predicate
        self._upto = upto
        self._through = min(upto, index.last_seq)
        """The last seq when the search began; later rows are searched by `kill`."""
        self._seen: dict[Chunk, Found | None] = {}
        self._matcher: TagMatcher | None = None
        """For rows up to `_through`; None while no row has a tag."""
        if index.tags is not None and self._through > 0:
            self._matcher = TagMatcher(index.tags, predicate)

    def steps(self) -> Iterator[None]:
        """Search in steps of some tens of microseconds."""
        matcher = self._matcher
        if matcher is not None:
            yield from matcher.learn()
        if matcher is None or matcher.is_vain:
            self._seen = dict.fromkeys(self._index.chunks)
            return
        passed = 0
        for chunk in list(self._index.chunks):
            if chunk.first > self._through:
                return
            if matcher.may_hold(chunk):
                self._seen[chunk] = self._look(chunk, matcher)
                yield
                continue
            self._seen[chunk] = None
            passed += 1
            if passed % _CHUNKS_A_STEP == 0:
                yield

    def _look(self, chunk: Chunk, matcher: TagMatcher) -> Found | None:
        """Find the matching rows that exist since the search began."""
        end = min(chunk.count, self._through + 1 - chunk.first)
        filtered = chunk.tag_filter
        if matcher.matches_all and filtered is not None and not filtered.has_untagged and end == chunk.count:
            return Found(chunk, None, chunk.live, chunk.bytes)
        return _found(chunk, self._which(chunk, end))

    def _which(self, chunk: Chunk, end: int) -> NDArray[np.bool_]:
        """Return which rows of [0, end) live and match. end: at most the rows up to `_through`."""
        if chunk.tags is None or self._matcher is None:
            return np.zeros(end, np.bool_)
        which, _compared = self._matcher.which(chunk.tags[:end])
        which &= chunk.flags[:end] < DEAD
        return which

    def kill(self) -> list[Found]:
        """Kill all matching rows; return them, one `Found` a chunk."""
        found: list[Found] = []
        for chunk in self._index.chunks:
            if chunk.first > self._upto:
                break
            one = self._seen.get(chunk)
            if chunk.end > self._through + 1 or chunk not in self._seen or (one is not None and not one.holds):
                one = self._look_again(chunk)
            if one is not None:
                found.append(one)
        self._index.kill_found(found)
        return found

    def _look_again(self, chunk: Chunk) -> Found | None:
        """Search a chunk again whose rows have changed, or that was split off a larger one."""
        end = min(chunk.count, self._upto + 1 - chunk.first)
        known = max(0, min(end, self._through + 1 - chunk.first))
        which = np.zeros(end, np.bool_)
        which[:known] = self._which(chunk, known)
        tags = self._index.tags
        if end > known and chunk.tags is not None and tags is not None:
            alive = chunk.live_rows(known, end)
            which[alive], _compared = TagMatcher(tags, self.predicate).which(chunk.tags[alive])
        return _found(chunk, which)


def _found(chunk: Chunk, which: NDArray[np.bool_]) -> Found | None:
    records = int(np.count_nonzero(which))
    if not records:
        return None
    if records == chunk.live:
        return Found(chunk, None, records, chunk.bytes)
    size = int(chunk.sizes[: len(which)][which].sum(dtype=np.uint64))
    return Found(chunk, which, records, size)
