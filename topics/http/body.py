"""Steps 1 and 2 of a body that has come whole: decompression within the limit. Source: wire contract, section 2.3."""

from __future__ import annotations

import zlib

from topics.errors import RequestError
from topics.http.plan import too_large

_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def gunzip(data: bytes, max_bytes: int) -> bytes:
    """The decompressed body, members joined; max_bytes 0 is no limit.

    Raises: RequestError payload_too_large as soon as the output crosses the limit, invalid_request for corrupt input.
    """
    parts: list[bytes] = []
    size = 0
    while data:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = stream.decompress(data, max_bytes + 1 - size if max_bytes else 0)
        except zlib.error as error:
            raise RequestError("invalid_request", f"the gzip body is corrupt: {error}") from None
        size += len(part)
        if max_bytes and size > max_bytes:
            raise too_large(max_bytes)
        if not stream.eof:
            raise RequestError("invalid_request", "the gzip body ends early")
        parts.append(part)
        data = stream.unused_data
    return b"".join(parts)
