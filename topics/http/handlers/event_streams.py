"""A check shared by all requests for server-sent events. Source: wire contract, 10.1 (R-SSE-1)."""

from __future__ import annotations

from topics.errors import RequestError
from topics.http.plan.plan import Plan


def check_accept(plan: Plan) -> None:
    """Check that the client accepts an event stream.

    Raises: RequestError not_acceptable, it excludes them (R-SSE-1).
    """
    accept = plan.request.headers.get(b"accept", b"")
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise RequestError("not_acceptable", "this path answers text/event-stream: the Accept header must allow it")
