"""Server-sent events: the bytes of every stream of the server. Source: wire contract 10.1 (R-SSE-1 to R-SSE-4)."""

from __future__ import annotations

from topics.http.wire.stream import Block

CONTENT_TYPE = b"text/event-stream"
HEADERS = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
RETRY = Block(b"retry: 2000\n\n")
"""The first bytes of a stream."""
HEARTBEAT = Block(b": hb\n\n")
"""A comment, when no frame went out for the heartbeat interval; it carries no id."""


def frame(event: bytes, data: bytes, frame_id: bytes) -> bytes:
    """data: one line of compact JSON."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (frame_id, event, data)


def frame_without_id(event: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event, data)
