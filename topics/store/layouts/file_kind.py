"""The parts that all layouts of files share: magic, version, checksum, and the size of a footer.

Integers are little-endian. Checks come in the order magic, version, checksum, each with its own
message. Room for later: `codec` (frames as they are: 0), reserved fields, unknown members of the
JSON parts.
"""

from __future__ import annotations

import struct

import xxhash

from topics.errors import VERSION_REMEDY, CorruptError, FormatError

VERSION = 1
CODEC_FRAMES = 0
"""Frames as the log has them, not compressed."""
FOOTER_BYTES = 128


def checksum_of(head: bytes | memoryview, body: bytes | memoryview = b"") -> int:
    """Return the checksum of a fixed part and the body it describes."""
    return xxhash.xxh3_64_intdigest(head, seed=xxhash.xxh3_64_intdigest(body))


def check_kind(
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
