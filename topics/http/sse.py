"""Server-sent events: the bytes of every stream of the server. Source: wire contract 10.1 (R-SSE-1 to R-SSE-4)."""

from __future__ import annotations

from topics.errors import RequestError
from topics.http.plan import Plan
from topics.http.stream import Block

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


def check_accept(plan: Plan) -> None:
    """Raises RequestError not_acceptable for a client that excludes event streams (R-SSE-1)."""
    accept = plan.request.headers.get(b"accept", b"")
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise RequestError("not_acceptable", "this path answers text/event-stream: the Accept header must allow it")
