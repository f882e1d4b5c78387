"""Steps 1 and 2 of a body that has come whole: decompression within the limit. Source: wire contract, section 2.3."""

from __future__ import annotations

import zlib

from topics.errors import RequestError
from topics.http.plan import too_large

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_SLICE_BYTES = 65_536
"""zlib copies what lies behind a member: of small slices, so that many members do not cost their number squared."""
_MEMBERS_MAX = 1000
"""An empty member takes 20 bytes and a decompressor of 40 KiB; one stream has one, a concatenation a few."""


def gunzip(data: bytes, max_bytes: int) -> bytes:
    """The decompressed body, members joined; max_bytes 0 is no limit.

    Raises: RequestError payload_too_large as soon as the output crosses the limit, invalid_request for corrupt input.
    """
    parts: list[bytes] = []
    size = at = members = 0
    while at < len(data):
        members += 1
        if members > _MEMBERS_MAX:
            raise RequestError("invalid_request", f"the gzip body has more than {_MEMBERS_MAX} members")
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            if at >= len(data):
                raise RequestError("invalid_request", "the gzip body ends early")
            piece = data[at : at + _SLICE_BYTES]
            try:
                part = stream.decompress(piece, max_bytes + 1 - size if max_bytes else 0)
            except zlib.error as error:
                raise RequestError("invalid_request", f"the gzip body is corrupt: {error}") from None
            size += len(part)
            if max_bytes and size > max_bytes:
                raise too_large(max_bytes)
            parts.append(part)
            at += len(piece) - len(stream.unused_data)
    return b"".join(parts)
