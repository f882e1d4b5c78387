"""Compression of answers for clients that accept it. Source: wire contract, section 3.1.

Compression blocks the only thread, so it prefers speed to size, and answers above a size are sent
uncompressed.
"""

from __future__ import annotations

import zlib

_GZIP = 16
_LARGE = _GZIP + zlib.MAX_WBITS, 8
_SMALL = _GZIP + 12, 5
"""Window and memory level of zlib for bodies of up to 4 KiB.

Clearing the buffers of the large setting takes longer than compressing so few bytes.
"""
HEADERS = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"


class Compressor:
    """A gzip encoder with one level and bounds of size.

    level: the level of zlib, 1 to 9; 0 never compresses. Bodies of min_bytes to max_bytes are
    compressed.
    """

    __slots__ = ("_level", "max_bytes", "min_bytes")

    def __init__(self, level: int, min_bytes: int, max_bytes: int) -> None:
        self._level = level
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes if level else 1 << 62

    def encode(self, body: bytes) -> tuple[bytes, bytes]:
        """Return the body to send, and its header lines.

        A body that compression does not shorten is returned as it is, with no header lines.
        """
        if len(body) > self.max_bytes:
            return body, b""
        window, memory = _SMALL if len(body) <= 4096 else _LARGE
        stream = zlib.compressobj(self._level, zlib.DEFLATED, window, memory)
        encoded = stream.compress(body) + stream.flush()
        return (encoded, HEADERS) if len(encoded) < len(body) else (body, b"")


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
