"""A run of index rows as columns: row i is seq first + i.

A hole (a seq that was burned or never stored) is a row marked dead.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index._index_reads import lib
from topics.engine.index.tag_filter import TagFilter
from topics.store.format.catalog import NO_TAG
from topics.store.format.codec import addresses_of, place_run

CHUNK_ROWS_MAX = 8192
_ROWS_MIN = 16

THIN = 16
"""A chunk is thin if fewer than one in so many rows live and it has at least `THIN_ROWS_MIN` rows.
"""
THIN_ROWS_MIN = 1024

_FILTER_ROWS_MIN = 1024
"""Rows from which on a closed chunk gets a tag filter; fewer rows are searched as quickly."""

DEAD = lib.TP_ROW_DEAD
"""A bit of `flags`, above the frame's own: the row is not live (deleted, evicted, or a hole)."""


class Chunk:
    """Columns of shape (capacity,), rows [:count] valid. `ts` never decreases, dead rows included.

    file_ids, offsets, lengths, sizes are u32, ts u64, flags u8: 25 bytes a row. tags (u32) exists
    once a row has a tag; it is NO_TAG in rows without a tag and after the last row.
    """

    __slots__ = (
        "addresses",
        "bytes",
        "capacity",
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
        self.capacity = capacity
        """The capacity of the columns, in rows."""
        self.count = 0
        self.live = 0
        self.bytes = 0
        """The sum of the live rows' sizes."""
        self.file_id = 0
        """The file that holds all live rows; 0 if several files may hold them."""
        self.files: tuple[int, ...] = ()
        """All files that may hold live rows if `file_id` is 0, otherwise empty."""
        self.file_ids: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.offsets: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.lengths: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.sizes: NDArray[np.uint32] = np.empty(capacity, np.uint32)
        self.ts: NDArray[np.uint64] = np.empty(capacity, np.uint64)
        self.flags: NDArray[np.uint8] = np.empty(capacity, np.uint8)
        self.tags: NDArray[np.uint32] | None = None
        self.tag_filter: TagFilter | None = None
        """The filter of the tags. None while rows are added, and in a part of a thinned chunk."""
        self.packed: tuple[int, bytes] | None = None
        """`count` and the chunk's row of a ChunkTable, as of that count; None until it is built."""
        self.addresses = b""
        """The result of `find_addresses`; b"" until it is called."""
        self.thinned_at = CHUNK_ROWS_MAX
        """The number of live rows when `thinned` was called last."""

    def find_addresses(self) -> bytes:
        """Return the addresses of file_ids, offsets, lengths, sizes, ts and flags as packed u64.

        They are valid until the chunk is resized.
        """
        columns = (self.file_ids, self.offsets, self.lengths, self.sizes, self.ts, self.flags)
        self.addresses = addresses_of(*columns)
        return self.addresses

    @property
    def end(self) -> int:
        """The seq after the last row."""
        return self.first + self.count

    @property
    def newest_ts(self) -> int:
        """The `$ts` of the last row, live or dead."""
        return int(self.ts[self.count - 1])

    def resize(self, capacity: int) -> None:
        """Replace the columns by copies of this capacity."""
        assert capacity >= self.count, "no row is cut off"
        self.capacity = capacity
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
        """Make room for `rows` more. The capacity doubles, so that a row takes constant time."""
        needed = self.count + rows
        assert needed <= CHUNK_ROWS_MAX, "a chunk is full"
        if needed > self.capacity:
            self.resize(min(CHUNK_ROWS_MAX, max(_ROWS_MIN, needed, 2 * self.capacity)))

    def take(self, rows: int, size: int, file_id: int) -> None:
        """Add live rows, all in one file. The caller fills their columns.

        size: their bytes together.
        """
        if self.file_id != file_id:
            self.join(file_id)
        self.count += rows
        self.live += rows
        self.bytes += size

    def place(self, rows: int, placed: bytes | bytearray, at: int, file_id: int, base: int) -> int:
        """Add live rows without tags, for which there is room, from packed PLACED.

        at: position of the first one in `placed`. base: added to their starts.
        Returns: their bytes together.
        """
        count = self.count
        size = place_run(self.addresses or self.find_addresses(), count, placed, at, rows, file_id, base)
        if self.file_id != file_id:
            self.join(file_id)
        self.count = count + rows
        self.live += rows
        self.bytes += size
        return size

    def join(self, file_id: int) -> None:
        """Note that some live rows are in this file, which is not `file_id`."""
        if not self.live:
            self.file_id, self.files = file_id, ()
        elif self.file_id:
            self.file_id, self.files = 0, (self.file_id, file_id)
        elif file_id not in self.files:
            self.files += (file_id,)

    def moved(self, rows: slice | NDArray[np.intp], file_id: int) -> None:
        """Note that these rows are in another file now."""
        self.file_ids[rows] = file_id
        if self.file_id != file_id:
            here = self.file_ids[: self.count]
            if self.live != self.count:
                here = here[self.live_rows(0, self.count)]
            files = {int(here[0]), *here[1:][here[1:] != here[:-1]].tolist()} if len(here) else {file_id}
            self.file_id, self.files = (file_id, ()) if files == {file_id} else (0, tuple(files))

    def may_be_in(self, file_ids: Set[int]) -> bool:
        """Return whether live rows may be in one of these files, at a cost independent of the rows.

        False is certain; True may be wrong.
        """
        return self.file_id in file_ids if self.file_id else not file_ids.isdisjoint(self.files)

    def set_flags(self, flags: NDArray[np.uint8]) -> None:
        """Replace the column of flags. The caller discards the index's table of chunks."""
        self.flags = flags
        self.packed = None
        self.addresses = b""

    def tag_column(self) -> NDArray[np.uint32]:
        """Return the column of tags, which is created with the first tag."""
        if self.tags is None:
            self.tags = np.full(self.capacity, NO_TAG, np.uint32)
        return self.tags

    def add_holes(self, rows: int) -> None:
        """Add rows that never held a record."""
        self.reserve(rows)
        start, end = self.count, self.count + rows
        self.flags[start:end] = DEAD
        self.ts[start:end] = self.ts[start - 1] if start else 0
        self.sizes[start:end] = 0
        self.count = end

    def close(self) -> None:
        """End the chunk: it takes no more rows."""
        if self.count < self.capacity // 2:
            self.resize(self.count)
        self.thinned_at = CHUNK_ROWS_MAX
        if self.tags is not None and self.count >= _FILTER_ROWS_MIN:
            self.tag_filter = TagFilter(self.tags[: self.count])

    @property
    def is_thin(self) -> bool:
        """Whether few rows live, and half of those that lived at the last `thinned` have died."""
        return self.live * THIN <= self.count >= THIN_ROWS_MIN and 2 * self.live <= self.thinned_at

    def thinned(self, hole_rows_max: int) -> list[Chunk]:
        """Return chunks with the same live rows and no wider holes, if that saves much.

        Returns: [self] otherwise.
        hole_rows_max: dead rows in a row that a part may keep.
        """
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
        """Return the positions of the live rows in [start, end), ascending."""
        if self.live == self.count:
            return np.arange(start, end)
        return np.flatnonzero(self.flags[start:end] < DEAD) + start


class Dead(NamedTuple):
    """Rows of a chunk that died.

    which: shape (n,), the rows of [0, n) that died. None: all rows that live by the flags of a
    chunk that left the index.
    """

    chunk: Chunk
    which: NDArray[np.bool_] | None

    @property
    def rows(self) -> NDArray[np.intp]:
        """The positions of these rows in the chunk, ascending."""
        return np.flatnonzero(self.mask)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which rows of the chunk, from its first one on, these are."""
        return self.chunk.flags[: self.chunk.count] < DEAD if self.which is None else self.which
