"""Compression of answers for clients that accept it. Source: wire contract, section 3.1.

Compression blocks the only thread, so it prefers speed to size, and answers above a size are sent
uncompressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

_GZIP = 16
_LARGE = _GZIP + zlib.MAX_WBITS, 8
_SMALL = _GZIP + 12, 5
"""Window and memory level of zlib for bodies of up to 4 KiB.

Clearing the buffers of the large setting takes longer than compressing so few bytes.
"""
_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
"""The head of a gzip member: deflate, no name, no time, any system."""
_COST = 8
"""Bytes that a read renders in the time in which one byte is compressed."""
HEADERS = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"


class Compressor:
    """A gzip encoder with one level and bounds of size.

    level: the level of zlib, 1 to 9; 0 never compresses. Bodies of min_bytes to max_bytes are
    compressed. spend: called with bytes that a read could have rendered meanwhile, before something
    is compressed.
    """

    __slots__ = ("_level", "_shared", "_spend", "max_bytes", "min_bytes")

    def __init__(
        self, level: int, min_bytes: int, max_bytes: int, spend: Callable[[int], None] = lambda _size: None
    ) -> None:
        self._level = level
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes if level else 1 << 62
        self._spend = spend
        self._shared = b"", b""
        """The bytes last compressed for several answers, and what they became."""

    def encode(self, body: bytes) -> tuple[bytes, bytes]:
        """Return the body to send, and its header lines.

        A body that compression does not shorten is returned as it is, with no header lines.
        """
        if len(body) > self.max_bytes:
            return body, b""
        self._spend(_COST * len(body))
        window, memory = _SMALL if len(body) <= 4096 else _LARGE
        stream = zlib.compressobj(self._level, zlib.DEFLATED, window, memory)
        encoded = stream.compress(body) + stream.flush()
        return (encoded, HEADERS) if len(encoded) < len(body) else (body, b"")

    def encode_around(self, before: bytes, shared: bytes, after: bytes) -> tuple[bytes, bytes]:
        """Return the body to send of three parts, and its header lines, as `encode`.

        shared: compressed once for all answers in a row that have the same object.
        """
        size = len(before) + len(shared) + len(after)
        if size > self.max_bytes:
            return before + shared + after, b""
        known, packed = self._shared
        if known is not shared:
            self._spend(_COST * len(shared))
            packed = self._part(shared, zlib.Z_SYNC_FLUSH)
            self._shared = shared, packed
        checksum = zlib.crc32(after, zlib.crc32(shared, zlib.crc32(before)))
        tail = b"%b%b" % (checksum.to_bytes(4, "little"), size.to_bytes(4, "little"))
        first, last = self._part(before, zlib.Z_SYNC_FLUSH), self._part(after, zlib.Z_FINISH)
        encoded = b"".join((_HEAD, first, packed, last, tail))
        return (encoded, HEADERS) if len(encoded) < size else (before + shared + after, b"")

    def _part(self, data: bytes, flush: int) -> bytes:
        """Return deflated bytes that end at a byte, and refer to nothing before them."""
        window, memory = (12, _SMALL[1]) if len(data) <= 4096 else (zlib.MAX_WBITS, _LARGE[1])
        stream = zlib.compressobj(self._level, zlib.DEFLATED, -window, memory)
        return stream.compress(data) + stream.flush(flush)


def offers_gzip(accept_encoding: bytes) -> bool:
    """Return whether an `Accept-Encoding` names gzip with a weight above 0."""
    for offer in accept_encoding.lower().split(b","):
        coding, *parameters = (part.strip() for part in offer.split(b";"))
        if coding == b"gzip":
            weights = (each[2:].strip() for each in parameters if each.startswith(b"q="))
            return not any(_is_zero(weight) for weight in weights)
    return False


def _is_zero(weight: bytes) -> bool:
    """Return whether a weight is 0 or less. A text that is not a number counts as 0."""
    try:
        return not float(weight) > 0
    except ValueError:
        return True
