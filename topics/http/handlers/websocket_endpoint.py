"""The HTTP part of an upgrade to WebSocket. Source: wire contract 11.1."""

from __future__ import annotations

from topics.errors import RequestError
from topics.http.plan.call import Call
from topics.http.wire.error_answers import MethodNotAllowedError


def open_websocket(call: Call) -> None:
    """Pass an upgrade request to the WebSocket handler.

    Over HTTP/2 the path exists for no method (extended CONNECT is not offered).
    """
    request = call.plan.request
    if not call.upgrades:
        raise MethodNotAllowedError(request.method, request.path, "")
    if call.plan.has_body:
        raise RequestError("invalid_request", "a WebSocket begins with a request without a body")
    call.service.open_websocket(call)
