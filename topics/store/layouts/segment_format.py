"""The layout of a segment, a file of `topics/<topic_id:016x>/` with records of that topic.

    header     SegmentHeader and its description, zero-padded to whole 4096-byte blocks (usually 1)
    frames     record frames, byte for byte as the log had them (log_format.py), without gaps, seqs
               increasing
    zeros      up to the footer, or to the end of an unsealed file: what a crash left after the
               frames is zeroed
    footer     sealed segments only: a description, then SegmentFooter as the file's last 128 bytes

A description is the JSON of `CheckpointCatalog.describe`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import xxhash

from topics.errors import VERSION_REMEDY, CorruptError, FormatError
from topics.store.format.log_format import BLOCK_BYTES, align_up
from topics.store.layouts.file_kind import CODEC_FRAMES, FOOTER_BYTES, VERSION, check_kind, checksum_of

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
        check_kind(data, SEGMENT_HEADER_FIXED, SEGMENT_MAGIC, "a segment", path)
        _, _, codec, _, topic_id, epoch, first_seq, created_ms, length, _ = _SEGMENT_HEADER.unpack_from(data)
        description = bytes(data[SEGMENT_HEADER_FIXED : SEGMENT_HEADER_FIXED + length])
        stored = int.from_bytes(data[_SEGMENT_HEADER.size : SEGMENT_HEADER_FIXED], "little")
        if len(description) != length or stored != checksum_of(data[: _SEGMENT_HEADER.size], description):
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
        check_kind(fixed, FOOTER_BYTES, SEGMENT_FOOTER_MAGIC, "a segment footer", path)
        values = _SEGMENT_FOOTER.unpack_from(fixed)
        length = values[-2]
        description = bytes(tail[len(tail) - FOOTER_BYTES - length : len(tail) - FOOTER_BYTES])
        stored = int.from_bytes(fixed[-8:], "little")
        if len(description) != length or stored != checksum_of(fixed[:-8], description):
            raise CorruptError(f"{path}: checksum of the segment footer is wrong", {"path": path})
        return cls(*(*values[3:9], *values[10:16], description))


def footer_description_bytes(fixed: bytes | memoryview) -> int:
    """Return the length of the description before a footer's fixed 128 bytes, not verified."""
    length: int = _SEGMENT_FOOTER.unpack_from(fixed)[-2]
    return length
