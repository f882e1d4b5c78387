"""Compressed segments: the whole file of a sealed segment in blocks, with delete flags beside them.

Only tiering.py writes them. Little-endian. The file has the name that the segment would have, and
other contents:

    header   64 bytes, see `CompressedHeader`
    flags    one byte for each FRAME_MIN_BYTES bytes of the segment: the delete flag of the frame
             whose own flag would be among them
    table    u32 for each block: its bytes in this file
    blocks   each compressed by itself: so many bytes of the segment, fewer in the last block

No frame is shorter than FRAME_MIN_BYTES, so no two of them share a flag. A byte of the segment at
offset n is in block n // block_bytes, and a flag at offset n in byte n // FRAME_MIN_BYTES of the
flags: indexes, manifests and reads use the offsets of the segment, compressed or not.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Any, NamedTuple

import xxhash

from topics.common.extras import install_command
from topics.errors import VERSION_REMEDY, CorruptError, FormatError, StorageError
from topics.store.format.log_format import FRAME_MIN_BYTES

try:
    import zstandard
except ImportError:  # an extra: whatever needs it says so (`require_zstd`)
    zstandard: Any = None  # type: ignore[no-redef]

MAGIC = b"TPSZ"
CODEC_PLAIN, CODEC_ZSTD = 0, 1
VERSION = 1
HEADER_BYTES = 64
BLOCK_BYTES = 64 << 10
"""Bytes of a segment in a block: what a read of one record decompresses."""
LEVEL = 6
_HEADER = struct.Struct("<4sHBxIIQQ24x")
"""magic, version, codec, block_bytes, blocks, image_bytes, sum of the table; u64 checksum."""
assert _HEADER.size == HEADER_BYTES - 8
_BLOCK_OVERHEAD_MAX = 4096
"""Bytes by which a compressed block is larger than what it holds, at most."""
_LENGTH = struct.Struct("<I")
_LENGTH_BYTES = 4
_HEADER_BYTES_AT = 44
"""Offset in a segment's own header of the bytes before its first frame."""


def require_zstd(what: str) -> None:
    """Check that the package is installed. Raises StorageError."""
    if zstandard is None:
        raise StorageError(f"{what} needs the package zstandard: install it by {install_command('zstd')}")


def is_compressed(data: bytes | bytearray | memoryview) -> bool:
    """Return whether a file that begins with these bytes is a compressed segment."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def flag_place(offset: int) -> int:
    """Return the place in the file of the flag that a frame has at this offset of the segment."""
    return HEADER_BYTES + offset // FRAME_MIN_BYTES


class CompressedHeader(NamedTuple):
    """The first 64 bytes of a compressed segment."""

    block_bytes: int
    blocks: int
    image_bytes: int
    """Bytes of the segment."""
    table_sum: int

    @classmethod
    def of(cls, image_bytes: int) -> CompressedHeader:
        """Return the header of a segment of this size, without the sum of its table."""
        return cls(BLOCK_BYTES, -(-image_bytes // BLOCK_BYTES), image_bytes, 0)

    @property
    def flags_bytes(self) -> int:
        return -(-self.image_bytes // FRAME_MIN_BYTES)

    @property
    def table_at(self) -> int:
        return HEADER_BYTES + self.flags_bytes

    @property
    def blocks_at(self) -> int:
        return self.table_at + 4 * self.blocks

    def pack(self, table: bytes) -> bytes:
        head = _HEADER.pack(MAGIC, VERSION, CODEC_ZSTD, *self[:3], xxhash.xxh3_64_intdigest(table))
        return head + xxhash.xxh3_64_intdigest(head).to_bytes(8, "little")

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview, path: str) -> CompressedHeader:
        """Parse the header at the start of a file. Raises FormatError or CorruptError."""
        if len(data) < HEADER_BYTES or not is_compressed(data):
            raise CorruptError(f"{path}: not a compressed segment", {"path": path, "offset": 0})
        _, version, codec, *fields = _HEADER.unpack_from(data)
        if version != VERSION or codec != CODEC_ZSTD:
            raise FormatError(
                f"{path}: a compressed segment of version {version} and codec {codec}; this build knows version "
                f"{VERSION} and codec {CODEC_ZSTD} (zstd): {VERSION_REMEDY}"
            )
        stored = int.from_bytes(data[_HEADER.size : HEADER_BYTES], "little")
        if stored != xxhash.xxh3_64_intdigest(bytes(data[: _HEADER.size])):
            text = f"{path}: checksum of the header of the compressed segment is wrong"
            raise CorruptError(text, {"path": path, "offset": 0})
        header = cls(*fields)
        if not header.block_bytes or header.blocks != -(-header.image_bytes // header.block_bytes):
            text = f"{path}: the header of the compressed segment contradicts itself"
            raise CorruptError(text, {"path": path, "offset": 0})
        return header


class Blocks:
    """The blocks of a compressed segment, by their places in the file."""

    def __init__(self, header: CompressedHeader, table: bytes | bytearray | memoryview, path: str) -> None:
        """Raises: CorruptError."""
        if len(table) != 4 * header.blocks or xxhash.xxh3_64_intdigest(table) != header.table_sum:
            text = f"{path}: the table of the compressed segment is damaged"
            raise CorruptError(text, {"path": path, "offset": header.table_at})
        sizes = struct.unpack(f"<{header.blocks}I", table)
        self.header = header
        self.path = path
        self._starts: list[int] = list(accumulate(sizes, initial=header.blocks_at))

    @property
    def end(self) -> int:
        """The bytes of the file."""
        return self._starts[-1]

    def covering(self, offset: int, length: int) -> range:
        """Return the numbers of the blocks that hold these bytes of the segment.

        Raises: CorruptError, the segment ends before.
        """
        header = self.header
        if offset + length > header.image_bytes:
            text = f"{self.path} ends at {header.image_bytes}, inside a record"
            raise CorruptError(text, {"path": self.path, "offset": header.image_bytes})
        return range(offset // header.block_bytes, -(-(offset + length) // header.block_bytes))

    def place(self, blocks: range) -> tuple[int, int]:
        """Return where these blocks begin in the file, and their bytes."""
        start = self._starts[blocks.start]
        return start, self._starts[blocks.stop] - start

    def inflate(self, block: int, data: bytes | bytearray | memoryview, begin: int = 0) -> bytes:
        """Return the bytes of one block of the segment.

        data: bytes of the file from `begin` on.
        Raises: CorruptError, StorageError.
        """
        require_zstd(f"{self.path}: reading it")
        start, end = self._starts[block], self._starts[block + 1]
        at = block * self.header.block_bytes
        size = min(self.header.block_bytes, self.header.image_bytes - at)
        packed = memoryview(data)[start - begin : end - begin]
        if len(packed) < end - start:
            text = f"{self.path} ends at byte {begin + len(data)}, inside a compressed block"
            raise CorruptError(text, {"path": self.path, "offset": begin + len(data)})
        found = b""
        try:
            # a damaged size could ask for any amount of memory
            if zstandard.frame_content_size(packed) == size:
                found = zstandard.ZstdDecompressor().decompress(packed)
        except zstandard.ZstdError:
            pass
        if len(found) != size:
            text = f"{self.path}: the compressed block at byte {start} is damaged"
            raise CorruptError(text, {"path": self.path, "offset": start})
        return found


def compressor() -> Any:
    """Return an object whose `compress` makes a block of bytes of a segment."""
    require_zstd("segment_codec zstd")
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)


def packed_table(sizes: list[int]) -> bytes:
    return struct.pack(f"<{len(sizes)}I", *sizes)


def blocks_of(data: bytes | bytearray | memoryview, path: str) -> Blocks:
    """Return the blocks of a whole file. Raises FormatError or CorruptError."""
    header = CompressedHeader.unpack(data, path)
    return Blocks(header, memoryview(data)[header.table_at : header.blocks_at], path)


def walked_blocks(header: CompressedHeader, data: bytes, path: str) -> Blocks:
    """Return the blocks of a file whose table is damaged: each begins where the one before ends.

    After a damaged block all are empty.
    """
    sizes: list[int] = []
    at, most = header.blocks_at, header.block_bytes + _BLOCK_OVERHEAD_MAX
    require_zstd(f"{path}: reading it")
    for _ in range(header.blocks):
        walk = zstandard.ZstdDecompressor().decompressobj()
        window = data[at : at + most]
        try:
            walk.decompress(window)
        except zstandard.ZstdError:
            break
        sizes.append(len(window) - len(walk.unused_data))
        at += sizes[-1]
    sizes += [0] * (header.blocks - len(sizes))
    table = packed_table(sizes)
    return Blocks(header._replace(table_sum=xxhash.xxh3_64_intdigest(table)), table, path)


def image_of(data: bytes, path: str) -> bytes:
    """Return the segment in a file, delete flags included.

    A file that is not compressed is returned as it is.
    Raises: FormatError, CorruptError; StorageError, a package is missing.
    """
    if not is_compressed(data):
        return data
    blocks = blocks_of(data, path)
    image = bytearray().join(blocks.inflate(block, data) for block in range(blocks.header.blocks))
    flags = data[HEADER_BYTES : blocks.header.table_at]
    for at in flag_offsets(image) if any(flags) else ():
        flag(image, at, flags)
    return bytes(image)


def surplus_bytes(data: bytes, path: str) -> int:
    """Return how many bytes of a sound file follow its last block.

    Raises: FormatError, CorruptError.
    """
    return max(0, len(data) - blocks_of(data, path).end) if is_compressed(data) else 0


def flag(image: bytearray, at: int, flags: bytes | bytearray | memoryview) -> None:
    """Set the delete flag at this offset of a segment, if the flags beside it say so."""
    if not image[at]:
        image[at] = flags[at // FRAME_MIN_BYTES]


def flag_offsets(image: bytes | bytearray | memoryview) -> list[int]:
    """Return the offsets of the flags of a segment's frames, up to a damaged frame."""
    found = []
    at = int.from_bytes(image[_HEADER_BYTES_AT : _HEADER_BYTES_AT + 4], "little")
    while at + FRAME_MIN_BYTES <= len(image):
        length = _LENGTH.unpack_from(image, at)[0] + _LENGTH_BYTES
        if length < FRAME_MIN_BYTES or at + length > len(image):
            break
        at += length
        found.append(at - 1)
    return found
