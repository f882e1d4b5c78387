"""Steps 1 and 2 of a body that has come whole: decompression within the limit. Source: wire contract, section 2.3."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import NamedTuple

from topics.common.memory import GrowingBytes
from topics.errors import RequestError
from topics.http.plan.plan import too_large

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_SLICE_BYTES = 65_536
"""zlib copies what lies behind a member: of small slices, so that many members do not cost their number squared."""
_INPUT_WEIGHT = 16
"""A byte of input counts as so many of output: a block of deflate takes a microsecond, and may be empty."""
_MEMBERS_MAX = 1000
"""An empty member takes 20 bytes and a decompressor of 40 KiB; one stream has one, a concatenation a few."""

Steps = Generator[None, None, bytes | memoryview]
"""Of the unpacking of a body."""


class Unpacking(NamedTuple):
    """A body that is being unpacked."""

    steps: Steps
    """Those to come."""
    size: int
    """Of the body as it came."""


def unpack(data: bytes | bytearray | memoryview, max_bytes: int, step_bytes: int) -> Steps:
    """The decompressed body, members joined, about `step_bytes` of it a step; max_bytes 0 is no limit.

    Raises: RequestError payload_too_large as soon as the output crosses the limit, invalid_request for corrupt input.
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
                yield
    return out.take()


def begun(steps: Steps) -> bytes | None:
    """The body, if a step is all it takes; else the rest is to be done. Raises like `unpack`."""
    try:
        next(steps)
    except StopIteration as end:
        return bytes(end.value)
    return None
