"""A run of index rows as columns: row i is seq first + i. A hole (burned or never stored) is a row marked dead."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index._index_reads import lib
from topics.engine.index.tag_filter import TagFilter
from topics.store.format.catalog import NO_TAG
from topics.store.format.topic_rows import addresses_of

CHUNK_ROWS_MAX = 8192
_ROWS_MIN = 16

THIN = 16
"""A chunk of which less than one row in so many lives is thin, if it has at least `THIN_ROWS_MIN`."""
THIN_ROWS_MIN = 1024

_FILTER_ROWS_MIN = 1024
"""The tags of fewer rows are as quickly looked through."""

DEAD = lib.TP_ROW_DEAD
"""In `flags`, above the frame's own: the row is not live (deleted, evicted, or a hole)."""


class Chunk:
    """Columns of shape (capacity,), rows [:count] valid. `ts` never decreases, dead rows included.

    file_ids, offsets, lengths, sizes u32, ts u64, flags u8: 25 bytes a row; tags u32 only once one has a tag, and then
    NO_TAG in rows without and behind the last.
    """

    __slots__ = (
        "addresses",
        "bytes",
        "count",
        "file_id",
        "file_ids",
        "files",
        "first",
        "flags",
        "lengths",
        "live",
        "offsets",
        "packed",
        "sizes",
        "tag_filter",
        "tags",
        "thinned_at",
        "ts",
    )

    def __init__(self, first: int, capacity: int) -> None:
        self.first = first
        self.count = 0
        self.live = 0
        self.bytes = 0
        """Sizes of the live rows together."""
        self.file_id = 0
        """The file in which all live rows lie; 0: perhaps in several."""
        self.files: tuple[int, ...] = ()
        """All files in which live rows may lie where `file_id` is 0; with a `file_id`, empty."""
        self.file_ids: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.offsets: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.lengths: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.sizes: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.ts: NDArray[np.uint64] = np.empty(capacity, np.uint64)
        self.flags: NDArray[np.uint8] = np.empty(capacity, np.uint8)
        self.tags: NDArray[np.uint32] | None = None
        self.tag_filter: TagFilter | None = None
        """Of its tags; None until it takes no more rows, and in one that is a part of another."""
        self.packed: tuple[int, bytes] | None = None
        """Its row of a ChunkTable, and `count` when that was made."""
        self.addresses = b""
        """What `find_addresses` found; b"": nobody asked."""
        self.thinned_at = CHUNK_ROWS_MAX
        """How many rows lived when `thinned` was asked last."""

    def find_addresses(self) -> bytes:
        """Where file_ids, offsets, lengths, sizes, ts and flags lie, a packed u64 each, until the chunk is resized."""
        columns = (self.file_ids, self.offsets, self.lengths, self.sizes, self.ts, self.flags)
        self.addresses = addresses_of(*columns)
        return self.addresses

    @property
    def capacity(self) -> int:
        return len(self.flags)

    @property
    def end(self) -> int:
        """The seq behind the last row."""
        return self.first + self.count

    def resize(self, capacity: int) -> None:
        """Other arrays of this capacity with the same rows."""
        assert capacity >= self.count, "no row is cut off"
        self.packed = None
        self.addresses = b""
        for name in ("file_ids", "offsets", "lengths", "sizes", "ts", "flags"):
            old = getattr(self, name)
            new = np.empty(capacity, old.dtype)
            new[: self.count] = old[: self.count]
            setattr(self, name, new)
        if self.tags is not None:
            tags = np.full(capacity, NO_TAG, np.uint32)
            tags[: self.count] = self.tags[: self.count]
            self.tags = tags

    def reserve(self, rows: int) -> None:
        """Room for `rows` more; grows by doubling, so that a row costs a constant time."""
        needed = self.count + rows
        assert needed <= CHUNK_ROWS_MAX, "a chunk is full"
        if needed > len(self.flags):
            self.resize(min(CHUNK_ROWS_MAX, max(_ROWS_MIN, needed, 2 * len(self.flags))))

    def take(self, rows: int, size: int, file_id: int) -> None:
        """So many more rows, all live, in one file; their columns are the caller's to fill."""
        if self.file_id != file_id:
            self._lies_in_another(file_id)
        self.count += rows
        self.live += rows
        self.bytes += size

    def _lies_in_another(self, file_id: int) -> None:
        """Rows in this file join those that live."""
        if not self.live:
            self.file_id, self.files = file_id, ()
        elif self.file_id:
            self.file_id, self.files = 0, (self.file_id, file_id)
        elif file_id not in self.files:
            self.files += (file_id,)

    def moved(self, rows: slice | NDArray[np.intp], file_id: int) -> None:
        """These rows lie in another file now."""
        self.file_ids[rows] = file_id
        if self.file_id != file_id:
            here = self.file_ids[: self.count]
            if self.live != self.count:
                here = here[self.live_rows(0, self.count)]
            files = {int(here[0]), *here[1:][here[1:] != here[:-1]].tolist()} if len(here) else {file_id}
            self.file_id, self.files = (file_id, ()) if files == {file_id} else (0, tuple(files))

    def may_lie_in(self, file_ids: Set[int]) -> bool:
        """False: no live row lies in any of these files. The answer costs nothing by the row."""
        return self.file_id in file_ids if self.file_id else not file_ids.isdisjoint(self.files)

    def set_flags(self, flags: NDArray[np.uint8]) -> None:
        """Another column; the index's table of chunks is the caller's to make anew."""
        self.flags = flags
        self.packed = None
        self.addresses = b""

    def tag_column(self) -> NDArray[np.uint32]:
        """The column of tags, made when the first tag comes."""
        if self.tags is None:
            self.tags = np.full(self.capacity, NO_TAG, np.uint32)
        return self.tags

    def add_holes(self, rows: int) -> None:
        """Rows that never held a record."""
        self.reserve(rows)
        start, end = self.count, self.count + rows
        self.flags[start:end] = DEAD
        self.ts[start:end] = self.ts[start - 1] if start else 0
        self.sizes[start:end] = 0
        self.count = end

    def close(self) -> None:
        """It takes no more rows."""
        if self.count < self.capacity // 2:
            self.resize(self.count)
        self.thinned_at = CHUNK_ROWS_MAX
        if self.tags is not None and self.count >= _FILTER_ROWS_MIN:
            self.tag_filter = TagFilter(self.tags[: self.count])

    @property
    def is_thin(self) -> bool:
        """Hardly a row lives, and half of them have died since that was last so."""
        return self.live * THIN <= self.count >= THIN_ROWS_MIN and 2 * self.live <= self.thinned_at

    def thinned(self, hole_rows_max: int) -> list[Chunk]:
        """Chunks with the same live rows and no wider holes; itself where that would not save much."""
        self.thinned_at = self.live
        rows = self.live_rows(0, self.count)
        cuts = np.flatnonzero(np.diff(rows) > hole_rows_max)
        spans = list(zip(rows[[0, *(cuts + 1)]].tolist(), (rows[[*cuts, -1]] + 1).tolist(), strict=True))
        if 2 * sum([end - start for start, end in spans]) > self.count:
            return [self]
        return [self._part(start, end) for start, end in spans]

    def _part(self, start: int, end: int) -> Chunk:
        part = Chunk(self.first + start, end - start)
        for name in ("file_ids", "offsets", "lengths", "sizes", "ts", "flags"):
            getattr(part, name)[:] = getattr(self, name)[start:end]
        if self.tags is not None:
            part.tag_column()[:] = self.tags[start:end]
        part.count = end - start
        alive = part.flags < DEAD
        part.live = int(np.count_nonzero(alive))
        part.bytes = int(part.sizes[alive].sum(dtype=np.uint64))
        part.file_id, part.files = self.file_id, self.files
        part.thinned_at = part.live
        return part

    def live_rows(self, start: int, end: int) -> NDArray[np.intp]:
        """Row numbers of the live rows among [start, end), ascending."""
        if self.live == self.count:
            return np.arange(start, end)
        return np.flatnonzero(self.flags[start:end] < DEAD) + start


class Dead(NamedTuple):
    """Rows of a chunk that died. which: shape (n,), those of rows [0, n); None: all that live by the flags of a chunk
    that is gone."""

    chunk: Chunk
    which: NDArray[np.bool_] | None

    @property
    def rows(self) -> NDArray[np.intp]:
        """Their numbers, ascending."""
        if self.which is None:
            return np.flatnonzero(self.chunk.flags[: self.chunk.count] < DEAD)
        return np.flatnonzero(self.which)
