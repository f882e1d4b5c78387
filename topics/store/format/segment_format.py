"""The byte layouts of segments, packs, index columns and snapshots, defined only here.

Little-endian.

Segment `topics/<topic_id:016x>/seg-<first_seq:020d>.data`, the records of one topic. One that was
written anew without its deleted records is its next edition, and the name ends with that number:
`seg-<first_seq:020d>-<edition>.data`. It has the range of seqs of those it replaces, and is
always sealed.

    header     SegmentHeader and its description, zero-padded to whole 4096-byte blocks (usually 1)
    frames     record frames, byte for byte as the log had them (log_format.py), without gaps, seqs
               increasing
    zeros      up to the footer, or to the end of an unsealed file: what a crash left after the
               frames is zeroed
    footer     sealed segments only: a description, then SegmentFooter as the file's last 128 bytes

`seg-....idx` beside a sealed segment: IndexHeader, then index columns. Written once; only the flags
column changes.

Pack `packs/pack-<number:016x>.data`, short runs of records of many topics, written once:

    header     PackHeader, zero-padded to one block
    runs       each at a multiple of 8: RunHeader, description, frames. A run describes itself as
               completely as a segment does
    run table  RUN_DTYPE rows, then index columns over all rows of all runs, in its order
    footer     PackFooter as the file's last 128 bytes

Index columns of n rows (see `IndexColumns`): ts u64, seq delta u32, offset u32, length u32, size
u32, tag number u32, flags u8, then the tag table: u16 lengths, bytes. With a mark in its header the
index ends with another column: the time u64 from which on a job is claimable, or 0; with another
mark with one more: the last time u64 at which a record is not expired, or 0. The checksum of an
index leaves out the flags column, because a delete sets INDEX_DELETED there in place, as it sets
the byte after the frame's own checksum. Each byte of the column therefore includes its parity, in
the bit that is FLAG_ROUTED elsewhere; a file with such rows has them in another bit, and says so in
its marks. A flipped bit makes the index a damaged one, which is derived from the frames again.

Snapshot `snapshots/snapshot-<number:016x>`: SnapshotHeader, the store's part (JSON), the catalog's
part (JSON).

A description is the JSON of `CheckpointCatalog.describe`. Checks come in the order magic, version,
checksum, each with its own message. Room for later: `codec` (frames as they are: 0), reserved
fields, unknown members of the JSON parts.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from topics.common.bounded_steps import result_of
from topics.errors import VERSION_REMEDY, CorruptError, FormatError
from topics.store.format.log_format import BLOCK_BYTES, FLAG_FSYNC, FLAG_ROUTED, align_up

VERSION = 1
SNAPSHOT_VERSION = 2
"""Version 2 has topics as columns, which a build that only knows 1 would ignore. Both are read."""
CODEC_FRAMES = 0
"""Frames as the log has them, not compressed."""

FIRST_DIRECTORY_FORMAT, DIRECTORY_FORMAT = 1, 3
"""The oldest and the newest format in the marker of a data directory that this build knows.

A directory gets the format that it needs when it needs it (directory_format.py).
"""
SECOND_DIRECTORY_FORMAT = 2
"""The format with records of bytes, named readers, later editions and compressed segments."""
KNOWN_FORMATS = range(FIRST_DIRECTORY_FORMAT, DIRECTORY_FORMAT + 1)
MARKER_NAME = "topics.json"
"""Name of the marker in the data directory."""
COLD_MARK_NAME = "cold-directory"
"""Name of the file with the id that a data directory and its cold directory share."""
HOT, COLD = 0, 1
"""Tiers of segments: in the data directory, in the cold directory."""


def segment_path(topic_id: int, first_seq: int, edition: int = 0) -> str:
    """Return the path of a segment's data file, relative to the data directory."""
    again = f"-{edition}" if edition else ""
    return f"{topic_directory(topic_id)}/seg-{first_seq:020d}{again}.data"


def edition_of(name: str) -> int:
    """Return the edition in a name like `seg-<020d>-<edition>.data`; 0 for any other name."""
    digits = name.removesuffix(".data").partition("-")[2].partition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def index_path(data_path: str) -> str:
    """Return the path of the index beside a segment's data file."""
    assert data_path.endswith(".data")
    return data_path[:-5] + ".idx"


TOPICS_DIRECTORY = "topics"


def topic_directory(topic_id: int) -> str:
    return f"{TOPICS_DIRECTORY}/{topic_id:016x}"


PACK_DIRECTORY = "packs"
SNAPSHOT_DIRECTORY = "snapshots"


def pack_path(number: int) -> str:
    return f"{PACK_DIRECTORY}/pack-{number:016x}.data"


def file_number(path: str) -> int:
    """Return the number in the name of a data file: a segment's first seq, or a pack's number."""
    name = path.rpartition("/")[2].removesuffix(".data")
    return int(name[5:], 16) if name.startswith("pack-") else int(name[4:].partition("-")[0])


def snapshot_path(number: int) -> str:
    return f"{SNAPSHOT_DIRECTORY}/snapshot-{number:016x}"


def numbered(name: str, prefix: str, suffix: str = "") -> int | None:
    """Return the number in a name like `pack-<016x>.data`; None for any other name."""
    digits = name[len(prefix) : len(name) - len(suffix)]
    if name != f"{prefix}{digits}{suffix}" or len(digits) != 16:
        return None
    return int(digits, 16) if all(c in "0123456789abcdef" for c in digits) else None


def _checksum(head: bytes | memoryview, body: bytes | memoryview = b"") -> int:
    """Return the checksum of a fixed part and the body it describes."""
    return xxhash.xxh3_64_intdigest(head, seed=xxhash.xxh3_64_intdigest(body))


def _check_kind(
    data: bytes | memoryview, size: int, magic: bytes, what: str, path: str, *, newest: int = VERSION
) -> None:
    """Check the magic, then the version, up to the newest known.

    Every header starts with `4s magic, u16 version`. Raises FormatError.
    """
    if len(data) < size:
        raise CorruptError(f"{path}: too short for {what}", {"path": path})
    found, version = struct.unpack_from("<4sH", data)
    if found != magic:
        raise FormatError(f"{path}: not {what} (magic {found!r})")
    if not VERSION <= version <= newest:
        raise FormatError(f"{path}: {what} of version {version}; this build knows {newest}: {VERSION_REMEDY}")


# --- segment ---------------------------------------------------------------------------------------------------------

SEGMENT_MAGIC = b"TPSG"
_SEGMENT_HEADER = struct.Struct("<4sHBBQQQQII8x")
"""magic, version, codec, 0, topic_id, epoch, first_seq, created_ms, description bytes, header
bytes; u64 checksum.
"""
SEGMENT_HEADER_FIXED = _SEGMENT_HEADER.size + 8
assert SEGMENT_HEADER_FIXED == 64
SEGMENT_HEADER_MIN = BLOCK_BYTES
"""Header bytes of a segment whose description is short."""


class DescriptionPieces:
    """A description in pieces, with its size and checksum: that of a million holes has 23 MB."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self._sum = xxhash.xxh3_64()
        for piece in pieces:
            self.add(piece)

    def add(self, piece: bytes) -> None:
        if piece:
            self.pieces.append(piece)
            self.size += len(piece)
            self._sum.update(piece)

    def checksum(self, head: bytes) -> bytes:
        """Return the checksum of the fixed part that states its size, and of the description."""
        return xxhash.xxh3_64_intdigest(head, seed=self._sum.intdigest()).to_bytes(8, "little")


class SegmentHeader(NamedTuple):
    """The header of a segment, written when it is created."""

    topic_id: int
    epoch: int
    """A random number, new with each file; an index with another epoch belongs to another file."""
    first_seq: int
    created_ms: int
    description: bytes

    @property
    def header_bytes(self) -> int:
        """The offset of the first frame."""
        return header_bytes_of(len(self.description))

    def pack(self) -> bytes:
        """Return the header and its padding, `header_bytes` bytes."""
        return b"".join(self.pieces_with(DescriptionPieces(self.description)))

    def pieces_with(self, described: DescriptionPieces) -> list[bytes]:
        """Return, as `pack`, the pieces of a header that has this description, not its own."""
        header_bytes = header_bytes_of(described.size)
        head = _SEGMENT_HEADER.pack(
            SEGMENT_MAGIC,
            VERSION,
            CODEC_FRAMES,
            0,
            self.topic_id,
            self.epoch,
            self.first_seq,
            self.created_ms,
            described.size,
            header_bytes,
        )
        padding = bytes(header_bytes - SEGMENT_HEADER_FIXED - described.size)
        return [head + described.checksum(head), *described.pieces, padding]

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str) -> SegmentHeader:
        """Parse the header at the start of a file. Raises FormatError or CorruptError."""
        _check_kind(data, SEGMENT_HEADER_FIXED, SEGMENT_MAGIC, "a segment", path)
        _, _, codec, _, topic_id, epoch, first_seq, created_ms, length, _ = _SEGMENT_HEADER.unpack_from(data)
        description = bytes(data[SEGMENT_HEADER_FIXED : SEGMENT_HEADER_FIXED + length])
        stored = int.from_bytes(data[_SEGMENT_HEADER.size : SEGMENT_HEADER_FIXED], "little")
        if len(description) != length or stored != _checksum(data[: _SEGMENT_HEADER.size], description):
            raise CorruptError(f"{path}: checksum of the segment header is wrong", {"path": path, "offset": 0})
        if codec != CODEC_FRAMES:
            raise FormatError(f"{path}: codec {codec}; this build knows {CODEC_FRAMES}: {VERSION_REMEDY}")
        return cls(topic_id, epoch, first_seq, created_ms, description)


def header_description_bytes(fixed: bytes | bytearray | memoryview) -> int:
    """Return the length of the description after a header's fixed 64 bytes, not verified."""
    length: int = _SEGMENT_HEADER.unpack_from(fixed)[-2]
    return length


def header_identity(fixed: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return topic id and epoch of a header's fixed 64 bytes, not verified."""
    topic_id, epoch = _SEGMENT_HEADER.unpack_from(fixed)[4:6]
    return topic_id, epoch


def header_bytes_of(description_bytes: int) -> int:
    """Return the offset of the first frame after a description."""
    return align_up(SEGMENT_HEADER_FIXED + description_bytes, BLOCK_BYTES)


FOOTER_BYTES = 128
SEGMENT_FOOTER_MAGIC = b"TPSF"
_SEGMENT_FOOTER = struct.Struct("<4sHHQQQQQIIQQQQQQII8x")
"""magic, version, 0, topic_id, epoch, first_seq, last_seq, last_ts, records, 0, total_records,
frames_end, size, total_size, sealed_ms, sum, description bytes, 0; u64 checksum.
"""
assert _SEGMENT_FOOTER.size == FOOTER_BYTES - 8


class SegmentFooter(NamedTuple):
    """The footer of a sealed segment, about itself and about the topic at that time."""

    topic_id: int
    epoch: int
    first_seq: int
    """Seq of the first frame."""
    last_seq: int
    last_ts: int
    records: int
    """Number of frames in this file, deleted ones included."""
    total_records: int
    """Number of frames in this and all earlier segments of the topic."""
    frames_end: int
    """Offset of the end of the last frame."""
    size: int
    """Accounted bytes of the frames."""
    total_size: int
    sealed_ms: int
    sum: int
    """Checksum over the frames' checksums, as `codec.scan_frames` computes it.

    Delete flags do not change it.
    """
    description: bytes

    def pack(self) -> bytes:
        """Return the description and the fixed part, which end the file."""
        return b"".join(self.pieces_with(DescriptionPieces(self.description)))

    def pieces_with(self, described: DescriptionPieces) -> list[bytes]:
        """Return, as `pack`, the pieces of a footer that has this description, not its own."""
        head = _SEGMENT_FOOTER.pack(SEGMENT_FOOTER_MAGIC, VERSION, 0, *self[:6], 0, *self[6:12], described.size, 0)
        return [*described.pieces, head + described.checksum(head)]

    @classmethod
    def unpack(cls, tail: bytes | memoryview, path: str) -> SegmentFooter:
        """Parse the footer in the last bytes of a file.

        tail: as many bytes as are at hand: 128 and the description.
        Raises: FormatError, also if the segment is not sealed; CorruptError.
        """
        fixed = tail[-FOOTER_BYTES:]
        _check_kind(fixed, FOOTER_BYTES, SEGMENT_FOOTER_MAGIC, "a segment footer", path)
        values = _SEGMENT_FOOTER.unpack_from(fixed)
        length = values[-2]
        description = bytes(tail[len(tail) - FOOTER_BYTES - length : len(tail) - FOOTER_BYTES])
        stored = int.from_bytes(fixed[-8:], "little")
        if len(description) != length or stored != _checksum(fixed[:-8], description):
            raise CorruptError(f"{path}: checksum of the segment footer is wrong", {"path": path})
        return cls(*(*values[3:9], *values[10:16], description))


def footer_description_bytes(fixed: bytes | memoryview) -> int:
    """Return the length of the description before a footer's fixed 128 bytes, not verified."""
    length: int = _SEGMENT_FOOTER.unpack_from(fixed)[-2]
    return length


# --- index columns ---------------------------------------------------------------------------------------------------

INDEX_DELETED = 0x80
"""The bit of a deleted row in the flags column, beside the frame's own flags."""
_INDEX_PARITY = 0x40
"""The parity bit, only in files: it makes the number of ones in each byte of the column even."""
_ROUTED_IN_FILE = FLAG_FSYNC
"""The bit of FLAG_ROUTED in files, whose own bit is the parity. No reader of an index needs this
one: the class of a record is in its frame.
"""
_HAS_PARITY = 1
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
        marks = _HAS_PARITY | routed
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
    def unpack(cls, data: memoryview, rows: int, tag_count: int, marks: int = _HAS_PARITY) -> IndexColumns:
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
        if marks & _HAS_PARITY and b"\1" in flags.tobytes().translate(_ODD_BYTES):
            raise CorruptError("a byte of the index's flags column is damaged", {})
        if marks & _HAS_ROUTED:
            flags = (flags & _OTHERS) | ((flags & np.uint8(_ROUTED_IN_FILE)) << np.uint8(_MOVED))
        else:
            flags = flags & np.uint8(~_INDEX_PARITY & 0xFF)
        return cls(ts, deltas, offsets, row_lengths, sizes, numbers, flags, tags, times)


def _index_checksum(head: bytes | memoryview, columns: memoryview, rows: int, between: bytes | memoryview = b"") -> int:
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
        checksum = _index_checksum(head, memoryview(data)[INDEX_HEADER_BYTES:], self.rows)
        data[len(head) : INDEX_HEADER_BYTES] = checksum.to_bytes(8, "little")
        return data

    @classmethod
    def unpack_header(cls, data: bytes | memoryview, path: str) -> IndexHeader:
        """Parse only the fixed part, without comparing its checksum.

        Raises FormatError or CorruptError.
        """
        _check_kind(data, INDEX_HEADER_BYTES, INDEX_MAGIC, "a segment index", path)
        return cls(*_INDEX_HEADER.unpack_from(data)[3:])

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str) -> tuple[IndexHeader, IndexColumns]:
        """Parse the whole file. Raises FormatError or CorruptError."""
        header = cls.unpack_header(data, path)
        columns = memoryview(data)[INDEX_HEADER_BYTES:]
        stored = int.from_bytes(data[_INDEX_HEADER.size : INDEX_HEADER_BYTES], "little")
        if stored != _index_checksum(data[: _INDEX_HEADER.size], columns, header.rows):
            raise CorruptError(f"{path}: checksum of the segment index is wrong", {"path": path})
        marks: int = _INDEX_HEADER.unpack_from(data)[2]
        return header, IndexColumns.unpack(columns, header.rows, header.tag_count, marks)


# --- pack ------------------------------------------------------------------------------------------------------------

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
        return (head + _checksum(head).to_bytes(8, "little")).ljust(BLOCK_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str) -> PackHeader:
        _check_kind(data, _PACK_HEADER.size + 8, PACK_MAGIC, "a pack", path)
        _, _, codec, _, epoch, created_ms = _PACK_HEADER.unpack_from(data)
        if int.from_bytes(data[_PACK_HEADER.size : _PACK_HEADER.size + 8], "little") != _checksum(
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
        return head + _checksum(head, self.description).to_bytes(8, "little") + self.description

    @classmethod
    def unpack(cls, data: bytes | memoryview, where: str) -> RunHeader:
        """Parse a run's header. Raises FormatError or CorruptError."""
        _check_kind(data, RUN_HEADER_BYTES, RUN_MAGIC, "a run of a pack", where)
        _, _, _, epoch, topic_id, first, last, records, length, size, sum_ = _RUN_HEADER.unpack_from(data)
        description = bytes(data[RUN_HEADER_BYTES : RUN_HEADER_BYTES + length])
        stored = int.from_bytes(data[_RUN_HEADER.size : RUN_HEADER_BYTES], "little")
        if len(description) != length or stored != _checksum(data[: _RUN_HEADER.size], description):
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
    marks: int = _HAS_PARITY
    """Marks of the columns (`IndexColumns.marks`)."""

    @property
    def columns_offset(self) -> int:
        return self.table_offset + self.runs * RUN_DTYPE.itemsize

    def pack(self, table: bytes, columns: bytes | bytearray) -> bytes:
        head = _PACK_FOOTER.pack(PACK_FOOTER_MAGIC, VERSION, self.marks, *self[:4], 0, self.table_offset)
        return head + _index_checksum(head, memoryview(columns), self.rows, table).to_bytes(8, "little")

    @classmethod
    def unpack(cls, fixed: bytes | memoryview, path: str) -> PackFooter:
        """Check kind and version only; `check` compares the checksum after the index was read."""
        _check_kind(fixed, FOOTER_BYTES, PACK_FOOTER_MAGIC, "a pack footer", path)
        _, _, marks, epoch, runs, rows, tag_count, _, table_offset = _PACK_FOOTER.unpack_from(fixed)
        return cls(epoch, runs, rows, tag_count, table_offset, marks)

    def check(self, fixed: bytes | memoryview, table: memoryview, columns: memoryview, path: str) -> None:
        """Compare the checksum of the index. Raises CorruptError."""
        stored = int.from_bytes(fixed[-8:], "little")
        if stored != _index_checksum(fixed[: _PACK_FOOTER.size], columns, self.rows, table):
            raise CorruptError(f"{path}: checksum of the pack index is wrong", {"path": path})


# --- snapshot --------------------------------------------------------------------------------------------------------

SNAPSHOT_MAGIC = b"TPSN"
_SNAPSHOT_HEADER = struct.Struct("<4sHHQQQQ16x")
"""magic, version, 0, number, created_ms, store bytes, catalog bytes; u64 checksum."""
SNAPSHOT_HEADER_BYTES = _SNAPSHOT_HEADER.size + 8
SUMMED_A_STEP = 1 << 20
"""Bytes of a snapshot after which a step of its sum ends."""
Pieces = Sequence[bytes | memoryview]
SNAPSHOT_LARGE_BYTES = 64 << 20
"""A larger snapshot is not read in one step: its header is read first, which has its size."""
assert SNAPSHOT_HEADER_BYTES == 64


class SnapshotFile(NamedTuple):
    """A whole snapshot file."""

    number: int
    created_ms: int
    store: bytes | memoryview
    catalog: bytes | memoryview

    def pack(self) -> bytes:
        return b"".join(pack_snapshot(self.number, self.created_ms, [self.store], [self.catalog]))

    @staticmethod
    def check_size(header: bytes | memoryview, size: int, path: str) -> None:
        """Check that a file of `size` bytes is as large as its header says.

        A file whose magic or version is unknown passes if it has the size of a snapshot. `unpack`,
        which takes the whole file, distinguishes damage from a file of a newer build.

        Raises: FormatError or CorruptError.
        """
        if len(header) >= SNAPSHOT_HEADER_BYTES:
            *_, store_bytes, catalog_bytes = _SNAPSHOT_HEADER.unpack_from(header)
            expected = SNAPSHOT_HEADER_BYTES + store_bytes + catalog_bytes
            if size == expected:
                return
        _check_kind(header, SNAPSHOT_HEADER_BYTES, SNAPSHOT_MAGIC, "a snapshot", path, newest=SNAPSHOT_VERSION)
        raise CorruptError(f"{path}: the snapshot has {size} bytes; its header says {expected}", {"path": path})

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str, body_sum: int | None = None) -> SnapshotFile:
        """Parse and verify a snapshot file. Raises FormatError or CorruptError.

        body_sum: XXH3-64 of what follows the header, and the parts are views of `data`; None: it is
            computed here, and the parts are copies.
        """
        body = memoryview(data)[SNAPSHOT_HEADER_BYTES:]
        if body_sum is None:
            body, body_sum = memoryview(bytes(body)), xxhash.xxh3_64_intdigest(body)
        try:
            _check_kind(data, SNAPSHOT_HEADER_BYTES, SNAPSHOT_MAGIC, "a snapshot", path, newest=SNAPSHOT_VERSION)
        except FormatError:
            # A newer build's checksum covers its own version, so it never fits one that this build
            # knows.
            if any(_is_sound(data, kind, body_sum) for kind in _SNAPSHOT_KINDS):
                raise CorruptError(f"{path}: magic or version of the snapshot is damaged", {"path": path}) from None
            raise
        if not _is_sound(data, bytes(data[: len(_SNAPSHOT_KINDS[0])]), body_sum):
            raise CorruptError(f"{path}: checksum of the snapshot is wrong", {"path": path})
        _, _, _, number, created_ms, store_bytes, _ = _SNAPSHOT_HEADER.unpack_from(data)
        return cls(number, created_ms, body[:store_bytes], body[store_bytes:])


_SNAPSHOT_KINDS = [struct.pack("<4sH", SNAPSHOT_MAGIC, version) for version in range(VERSION, SNAPSHOT_VERSION + 1)]
"""Magic and version: the first bytes of each kind of snapshot that this build reads."""


def _is_sound(data: bytes | memoryview, kind: bytes, body_sum: int) -> bool:
    """Return whether a snapshot is sound if its magic and version are `kind`.

    Its length and its checksum are compared.
    """
    *_, store_bytes, catalog_bytes = _SNAPSHOT_HEADER.unpack_from(data)
    if len(data) != SNAPSHOT_HEADER_BYTES + store_bytes + catalog_bytes:
        return False
    stored = int.from_bytes(data[_SNAPSHOT_HEADER.size : SNAPSHOT_HEADER_BYTES], "little")
    return stored == xxhash.xxh3_64_intdigest(kind + bytes(data[len(kind) : _SNAPSHOT_HEADER.size]), seed=body_sum)


def pack_snapshot(
    number: int,
    created_ms: int,
    store: Pieces,
    catalog: Pieces,
    body_sum: int | None = None,
) -> list[bytes | memoryview]:
    """Return a `SnapshotFile`, whose parts come in pieces, as pieces of the file.

    body_sum: from `sum_in_steps`; None: it is computed here.
    """
    if body_sum is None:
        body_sum = result_of(sum_in_steps(store, catalog))
    sizes = sum(map(len, store)), sum(map(len, catalog))
    head = _SNAPSHOT_HEADER.pack(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, 0, number, created_ms, *sizes)
    checksum = xxhash.xxh3_64_intdigest(head, seed=body_sum)
    return [head + checksum.to_bytes(8, "little"), *store, *catalog]


def sum_in_steps(store: Pieces, catalog: Pieces) -> Generator[None, None, int]:
    """Return the sum of a snapshot's parts, some MiB a step: those of 10^6 topics have 90."""
    body, summed = xxhash.xxh3_64(), 0
    for piece in chain(store, catalog):
        for at in range(0, len(piece), SUMMED_A_STEP):
            if summed >= SUMMED_A_STEP:
                summed = 0
                yield
            part = memoryview(piece)[at : at + SUMMED_A_STEP]
            body.update(part)
            summed += len(part)
    return body.intdigest()
