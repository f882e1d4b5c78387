"""The layout of a pack, a file of `packs/` with short runs of records of many topics.

It is written once.

    header     PackHeader, zero-padded to one block
    runs       each at a multiple of 8: RunHeader, description, frames. A run describes itself as
               completely as a segment does
    run table  RUN_DTYPE rows, then index columns (index_format.py) over all rows of all runs, in
               its order
    footer     PackFooter as the file's last 128 bytes
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from topics.errors import CorruptError, FormatError
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.layouts.file_kind import CODEC_FRAMES, FOOTER_BYTES, VERSION, check_kind, checksum_of
from topics.store.layouts.index_format import HAS_PARITY, index_checksum

PACK_MAGIC = b"TPPK"
_PACK_HEADER = struct.Struct("<4sHBBQQ32x")
"""magic, version, codec, 0, epoch, created_ms; u64 checksum."""


class PackHeader(NamedTuple):
    """The header in the first block of a pack."""

    epoch: int
    created_ms: int

    def pack(self) -> bytes:
        """Return the header, zero-padded to one block."""
        head = _PACK_HEADER.pack(PACK_MAGIC, VERSION, CODEC_FRAMES, 0, *self)
        return (head + checksum_of(head).to_bytes(8, "little")).ljust(BLOCK_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str) -> PackHeader:
        check_kind(data, _PACK_HEADER.size + 8, PACK_MAGIC, "a pack", path)
        _, _, codec, _, epoch, created_ms = _PACK_HEADER.unpack_from(data)
        if int.from_bytes(data[_PACK_HEADER.size : _PACK_HEADER.size + 8], "little") != checksum_of(
            data[: _PACK_HEADER.size]
        ):
            raise CorruptError(f"{path}: checksum of the pack header is wrong", {"path": path, "offset": 0})
        if codec != CODEC_FRAMES:
            raise FormatError(f"{path}: codec {codec}; this build knows {CODEC_FRAMES}")
        return cls(epoch, created_ms)


RUN_MAGIC = b"TPRN"
_RUN_HEADER = struct.Struct("<4sHHQQQQIIQQ")
"""magic, version, 0, epoch, topic_id, first_seq, last_seq, records, description bytes, frames
bytes, sum; checksum.
"""
RUN_HEADER_BYTES = _RUN_HEADER.size + 8
assert RUN_HEADER_BYTES == 72


class RunHeader(NamedTuple):
    """The header before each run of a pack."""

    epoch: int
    """The epoch of the pack."""
    topic_id: int
    first_seq: int
    last_seq: int
    records: int
    frames_bytes: int
    sum: int
    description: bytes

    def pack(self) -> bytes:
        """Return the fixed part and the description; the frames follow in the file."""
        head = _RUN_HEADER.pack(RUN_MAGIC, VERSION, 0, *self[:5], len(self.description), self.frames_bytes, self.sum)
        return head + checksum_of(head, self.description).to_bytes(8, "little") + self.description

    @classmethod
    def unpack(cls, data: bytes | memoryview, where: str) -> RunHeader:
        """Parse a run's header. Raises FormatError or CorruptError."""
        check_kind(data, RUN_HEADER_BYTES, RUN_MAGIC, "a run of a pack", where)
        _, _, _, epoch, topic_id, first, last, records, length, size, sum_ = _RUN_HEADER.unpack_from(data)
        description = bytes(data[RUN_HEADER_BYTES : RUN_HEADER_BYTES + length])
        stored = int.from_bytes(data[_RUN_HEADER.size : RUN_HEADER_BYTES], "little")
        if len(description) != length or stored != checksum_of(data[: _RUN_HEADER.size], description):
            raise CorruptError(f"{where}: checksum of the run header is wrong", {"path": where})
        return cls(epoch, topic_id, first, last, records, size, sum_, description)


def run_description_bytes(fixed: bytes | bytearray | memoryview) -> int:
    """Return the length of the description after a run header's fixed 72 bytes, not verified."""
    length: int = _RUN_HEADER.unpack_from(fixed)[8]
    return length


RUN_DTYPE = np.dtype(
    [
        ("topic_id", "<u8"),
        ("first_seq", "<u8"),
        ("last_seq", "<u8"),
        ("position", "<u4"),  # position of the run header in the file
        ("records", "<u4"),
    ]
)
"""A row of the run table."""

PACK_FOOTER_MAGIC = b"TPPF"
_PACK_FOOTER = struct.Struct("<4sHHQIIIIQ80x")
"""magic, version, marks of the columns, epoch, runs, rows, tags, 0, offset of the run table.

U64 checksum.
"""
assert _PACK_FOOTER.size == FOOTER_BYTES - 8


class PackFooter(NamedTuple):
    """The last 128 bytes of a pack."""

    epoch: int
    runs: int
    rows: int
    tag_count: int
    table_offset: int
    marks: int = HAS_PARITY
    """Marks of the columns (`IndexColumns.marks`)."""

    @property
    def columns_offset(self) -> int:
        return self.table_offset + self.runs * RUN_DTYPE.itemsize

    def pack(self, table: bytes, columns: bytes | bytearray) -> bytes:
        head = _PACK_FOOTER.pack(PACK_FOOTER_MAGIC, VERSION, self.marks, *self[:4], 0, self.table_offset)
        return head + index_checksum(head, memoryview(columns), self.rows, table).to_bytes(8, "little")

    @classmethod
    def unpack(cls, fixed: bytes | memoryview, path: str) -> PackFooter:
        """Check kind and version only; `check` compares the checksum after the index was read."""
        check_kind(fixed, FOOTER_BYTES, PACK_FOOTER_MAGIC, "a pack footer", path)
        _, _, marks, epoch, runs, rows, tag_count, _, table_offset = _PACK_FOOTER.unpack_from(fixed)
        return cls(epoch, runs, rows, tag_count, table_offset, marks)

    def check(self, fixed: bytes | memoryview, table: memoryview, columns: memoryview, path: str) -> None:
        """Compare the checksum of the index. Raises CorruptError."""
        stored = int.from_bytes(fixed[-8:], "little")
        if stored != index_checksum(fixed[: _PACK_FOOTER.size], columns, self.rows, table):
            raise CorruptError(f"{path}: checksum of the pack index is wrong", {"path": path})
