"""The layout of an index: the file `seg-....idx` beside a sealed segment, and a part of a pack.

The file is IndexHeader, then index columns. It is written once; only the flags column changes. A
pack has such columns before its footer (pack_format.py).

Index columns of n rows (see `IndexColumns`): ts u64, seq delta u32, offset u32, length u32, size
u32, tag number u32, flags u8, then the tag table: u16 lengths, bytes. With a mark in its header the
index ends with another column: the time u64 from which on a job is claimable, or 0; with another
mark with one more: the last time u64 at which a record is not expired, or 0.

The checksum of an index leaves out the flags column, because a delete sets INDEX_DELETED there in
place, as it sets the byte after the frame's own checksum. Each byte of the column therefore
includes its parity, in the bit that is FLAG_ROUTED elsewhere; a file with such rows has them in
another bit, and says so in its marks. A flipped bit makes the index a damaged one, which is derived
from the frames again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from topics.errors import CorruptError
from topics.store.format.log_format import FLAG_FSYNC, FLAG_ROUTED
from topics.store.layouts.file_kind import VERSION, check_kind

INDEX_DELETED = 0x80
"""The bit of a deleted row in the flags column, beside the frame's own flags."""
_INDEX_PARITY = 0x40
"""The parity bit, only in files: it makes the number of ones in each byte of the column even."""
_ROUTED_IN_FILE = FLAG_FSYNC
"""The bit of FLAG_ROUTED in files, whose own bit is the parity. No reader of an index needs this
one: the class of a record is in its frame.
"""
HAS_PARITY = 1
"""The mark in the header of an index that says that its flags have parity.

Older indexes have 0 there, and their flags are not checked.
"""
_HAS_ROUTED = 2
"""The mark of an index with rows of FLAG_ROUTED, in the bit _ROUTED_IN_FILE."""
_HAS_DUES = 4
"""The mark of an index with times from which on jobs are claimable, after its tag table."""
_HAS_ENDS = 8
"""The mark of an index with times after which records are expired, after all others."""
_TIME_MARKS = (_HAS_DUES, _HAS_ENDS)
INDEX_DELETE = INDEX_DELETED | _INDEX_PARITY
"""The bits that a delete changes in a file's flags column."""
_IS_ODD = np.array([value.bit_count() % 2 for value in range(256)], np.uint8)
_ODD_BYTES = _IS_ODD.tobytes()
_WITH_PARITY = np.arange(256, dtype=np.uint8) | _IS_ODD * np.uint8(_INDEX_PARITY)
_OTHERS = np.uint8(~(FLAG_ROUTED | _ROUTED_IN_FILE) & 0xFF)
assert _INDEX_PARITY == FLAG_ROUTED
assert not FLAG_ROUTED % _ROUTED_IN_FILE
_MOVED = (FLAG_ROUTED // _ROUTED_IN_FILE).bit_length() - 1
"""Bits between the two places of FLAG_ROUTED."""
INDEX_ROW_BYTES = 8 + 5 * 4 + 1
"""Bytes of the index columns per row, without the tag table."""
FLAGS_OFFSET_PER_ROW = INDEX_ROW_BYTES - 1


class TagTable(Sequence[bytes]):
    """The tags of an index as its file stores them; split when the first of them is asked for."""

    __slots__ = ("_split", "ends", "texts")

    def __init__(self, ends: NDArray[np.int64], texts: bytes) -> None:
        self.ends = ends
        """Shape (n + 1,), beginning with 0: tag i is texts[ends[i]:ends[i + 1]]."""
        self.texts = texts
        self._split: list[bytes] | None = None

    @property
    def split(self) -> list[bytes]:
        """Return all tags."""
        if self._split is None:
            self._split = [self.texts[start:end] for start, end in pairwise(self.ends.tolist())]
        return self._split

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: Any) -> Any:
        return self.split[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.split)


class IndexColumns(NamedTuple):
    """The n rows of an index in seq order (of each run).

    The layout is in the module's docstring.
    """

    ts: NDArray[np.uint64]
    deltas: NDArray[np.uint32]
    """The seq minus the first seq of the segment or run."""
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    sizes: NDArray[np.uint32]
    tags: NDArray[np.uint32]
    """Index into tag_table, or catalog.NO_TAG."""
    flags: NDArray[np.uint8]
    tag_table: Sequence[bytes]
    times: NDArray[np.uint64] | None = None
    """`RowColumns.times`; a file has each of these columns only with rows that have the time."""

    @property
    def marks(self) -> int:
        """Return what the header of a file with these columns says of them."""
        routed = _HAS_ROUTED if (self.flags & FLAG_ROUTED).any() else 0
        marks = HAS_PARITY | routed
        if self.times is not None:
            marks |= sum([mark for at, mark in enumerate(_TIME_MARKS) if self.times[:, at].any()])
        return marks

    def pack(self, before: bytes = b"") -> bytearray:
        """Return `before` and the columns as a file with their marks stores them."""
        tag_lengths = np.fromiter((len(tag) for tag in self.tag_table), "<u2", len(self.tag_table))
        flags, marks = self.flags, self.marks
        if marks & _HAS_ROUTED:
            flags = (flags & _OTHERS) | ((flags & np.uint8(FLAG_ROUTED)) >> np.uint8(_MOVED))
        columns = [np.ascontiguousarray(column).data for column in (*self[:6], _WITH_PARITY[flags], tag_lengths)]
        times: list[Any] = []
        if self.times is not None:
            there = [at for at, mark in enumerate(_TIME_MARKS) if marks & mark]
            times = [np.ascontiguousarray(self.times[:, at], np.uint64).data for at in there]
        return bytearray().join((before, *columns, *self.tag_table, *times))

    @classmethod
    def unpack(cls, data: memoryview, rows: int, tag_count: int, marks: int = HAS_PARITY) -> IndexColumns:
        """Return views into `data`.

        Raises CorruptError: too short, or bits of the flags have flipped.
        """
        if rows * INDEX_ROW_BYTES + 2 * tag_count > len(data):
            raise CorruptError("the columns of an index extend past its end", {})
        columns: list[Any] = []
        at = 0
        for dtype in ("<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "u1"):
            columns.append(np.frombuffer(data, dtype, rows, at))
            at += rows * np.dtype(dtype).itemsize
        tag_ends = np.zeros(tag_count + 1, np.int64)
        np.cumsum(np.frombuffer(data, "<u2", tag_count, at), out=tag_ends[1:])
        at += 2 * tag_count
        end = at + int(tag_ends[-1])
        if end > len(data):
            raise CorruptError("the tag table of an index extends past its end", {})
        tags = TagTable(tag_ends, bytes(data[at:end]))
        times = None
        for at_time, mark in enumerate(_TIME_MARKS):
            if marks & mark:
                if end + 8 * rows > len(data):
                    raise CorruptError("the delays or ttls of an index extend past its end", {})
                times = np.zeros((rows, 2), np.uint64) if times is None else times
                times[:, at_time] = np.frombuffer(data, "<u8", rows, end)
                end += 8 * rows
        ts, deltas, offsets, row_lengths, sizes, numbers, flags = columns
        if marks & HAS_PARITY and b"\1" in flags.tobytes().translate(_ODD_BYTES):
            raise CorruptError("a byte of the index's flags column is damaged", {})
        if marks & _HAS_ROUTED:
            flags = (flags & _OTHERS) | ((flags & np.uint8(_ROUTED_IN_FILE)) << np.uint8(_MOVED))
        else:
            flags = flags & np.uint8(~_INDEX_PARITY & 0xFF)
        return cls(ts, deltas, offsets, row_lengths, sizes, numbers, flags, tags, times)


def index_checksum(head: bytes | memoryview, columns: memoryview, rows: int, between: bytes | memoryview = b"") -> int:
    """Return the checksum of everything except the flags column.

    between: the run table of a pack.
    """
    flags = rows * FLAGS_OFFSET_PER_ROW
    digest = xxhash.xxh3_64(head)
    for part in (between, columns[:flags], columns[flags + rows :]):
        digest.update(part)
    return digest.intdigest()


INDEX_MAGIC = b"TPIX"
_INDEX_HEADER = struct.Struct("<4sHHQQQIIQ8x")
"""magic, version, marks of the columns, topic_id, epoch, first_seq, rows, tags, sum.

U64 checksum.
"""
INDEX_HEADER_BYTES = _INDEX_HEADER.size + 8
assert INDEX_HEADER_BYTES == 64


class IndexHeader(NamedTuple):
    """The first 64 bytes of an .idx file."""

    topic_id: int
    epoch: int
    first_seq: int
    rows: int
    tag_count: int
    sum: int
    """The `sum` of the segment's footer."""

    def pack(self, columns: IndexColumns) -> bytearray:
        """Return the whole file: header and columns."""
        head = _INDEX_HEADER.pack(INDEX_MAGIC, VERSION, columns.marks, *self)
        data = columns.pack(head.ljust(INDEX_HEADER_BYTES))
        checksum = index_checksum(head, memoryview(data)[INDEX_HEADER_BYTES:], self.rows)
        data[len(head) : INDEX_HEADER_BYTES] = checksum.to_bytes(8, "little")
        return data

    @classmethod
    def unpack_header(cls, data: bytes | memoryview, path: str) -> IndexHeader:
        """Parse only the fixed part, without comparing its checksum.

        Raises FormatError or CorruptError.
        """
        check_kind(data, INDEX_HEADER_BYTES, INDEX_MAGIC, "a segment index", path)
        return cls(*_INDEX_HEADER.unpack_from(data)[3:])

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str) -> tuple[IndexHeader, IndexColumns]:
        """Parse the whole file. Raises FormatError or CorruptError."""
        header = cls.unpack_header(data, path)
        columns = memoryview(data)[INDEX_HEADER_BYTES:]
        stored = int.from_bytes(data[_INDEX_HEADER.size : INDEX_HEADER_BYTES], "little")
        if stored != index_checksum(data[: _INDEX_HEADER.size], columns, header.rows):
            raise CorruptError(f"{path}: checksum of the segment index is wrong", {"path": path})
        marks: int = _INDEX_HEADER.unpack_from(data)[2]
        return header, IndexColumns.unpack(columns, header.rows, header.tag_count, marks)
