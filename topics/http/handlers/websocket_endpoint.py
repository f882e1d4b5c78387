"""The upgrade to WebSocket: what is HTTP about it. Source: wire contract 11.1."""

from __future__ import annotations

from topics.errors import RequestError
from topics.http.plan.call import Call
from topics.http.wire.error_answers import MethodNotAllowedError


def open_websocket(call: Call) -> None:
    """Over HTTP/2 there is no such path for any method (extended CONNECT is not offered)."""
    request = call.plan.request
    if not call.upgrades:
        raise MethodNotAllowedError(request.method, request.path, "")
    if call.plan.has_body:
        raise RequestError("invalid_request", "a WebSocket begins with a request without a body")
    call.service.open_websocket(call)
