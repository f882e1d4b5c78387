"""What requests for server-sent events have in common. Source: wire contract, 10.1 (R-SSE-1)."""

from __future__ import annotations

from topics.errors import RequestError
from topics.http.plan.plan import Plan


def check_accept(plan: Plan) -> None:
    """Raises RequestError not_acceptable for a client that excludes event streams (R-SSE-1)."""
    accept = plan.request.headers.get(b"accept", b"")
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise RequestError("not_acceptable", "this path answers text/event-stream: the Accept header must allow it")
