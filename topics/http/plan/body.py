"""Decompression of a whole request body within its limit: steps 1 and 2.

Source: wire contract, section 2.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import NamedTuple

from topics.common.memory import GrowingBytes
from topics.errors import RequestError
from topics.http.plan.plan import too_large

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_SLICE_BYTES = 65_536
"""Bytes of input in one call of zlib.

zlib copies the bytes after the end of a member. With small slices, many members do not cost
the square of their number.
"""
_INPUT_WEIGHT = 16
"""Bytes of output that one byte of input counts as: an empty deflate block takes a microsecond."""
_MEMBERS_MAX = 1000
"""Most members of a body: each needs a decompressor of 40 KiB, and an empty one takes 20 bytes.

A stream has one member, a concatenation a few.
"""

Steps = Generator[int, None, bytes | memoryview]
"""The unpacking of a body: each step yields the bytes so far, and the last returns the body."""


class Unpacking(NamedTuple):
    """A body that is being unpacked."""

    steps: Steps
    """The remaining steps."""
    size: int
    """Bytes of the compressed body."""
    unpacked_bytes: int
    """Bytes that the first step has unpacked."""


def unpack(data: bytes | bytearray | memoryview, max_bytes: int, step_bytes: int) -> Steps:
    """Decompress a body in steps of about `step_bytes` of output, and return it, members joined.

    max_bytes: limit of the output; 0 for none.

    Raises: RequestError payload_too_large as soon as the output exceeds the limit, invalid_request
    for corrupt input.
    """
    out = GrowingBytes()
    at = members = step = 0
    while at < len(data):
        members += 1
        if members > _MEMBERS_MAX:
            raise RequestError("invalid_request", f"the gzip body has more than {_MEMBERS_MAX} members")
        stream = zlib.decompressobj(_GZIP_WINDOW)
        has_more = False
        while not stream.eof:
            if at >= len(data) and not has_more:
                raise RequestError("invalid_request", "the gzip body ends early")
            piece = data[at : at + _SLICE_BYTES]
            most = min(step_bytes, max_bytes + 1 - len(out)) if max_bytes else step_bytes
            try:
                part = stream.decompress(piece, most)
            except zlib.error as error:
                raise RequestError("invalid_request", f"the gzip body is corrupt: {error}") from None
            has_more = len(part) == most
            out += part
            if max_bytes and len(out) > max_bytes:
                raise too_large(max_bytes)
            taken = len(piece) - len(stream.unused_data if stream.eof else stream.unconsumed_tail)
            at += taken
            step += max(len(part), _INPUT_WEIGHT * taken)
            if step >= step_bytes:
                step = 0
                yield len(out)
    return out.take()


def begun(steps: Steps, size: int) -> bytes | Unpacking:
    """Run the first step. Return the body if that completes it, else the rest of the unpacking.

    size: bytes of the compressed body.

    Raises: RequestError as `unpack` does.
    """
    try:
        return Unpacking(steps, size, next(steps))
    except StopIteration as end:
        return bytes(end.value)
