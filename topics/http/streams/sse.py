"""The bytes of server-sent events. Source: wire contract 10.1 (R-SSE-1 to R-SSE-4)."""

from __future__ import annotations

from topics.http.wire.stream import Block

CONTENT_TYPE = b"text/event-stream"
HEADERS = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
RETRY = Block(b"retry: 2000\n\n")
"""The first bytes of a stream."""
HEARTBEAT = Block(b": hb\n\n")
"""A comment without an id, sent if no frame was sent for the heartbeat interval."""


def frame(event: bytes, data: bytes, frame_id: bytes) -> bytes:
    """Return an event. data: one line of compact JSON."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (frame_id, event, data)


def frame_without_id(event: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event, data)
