"""Errors on the wire: status by code, and the envelope. Source: wire contract, section 3.2."""

from __future__ import annotations

from typing import Any

import msgspec

from topics.errors import RequestError

STATUS = {
    "invalid_request": 400,
    "batch_too_large": 400,
    "part_too_large": 400,
    "record_too_large": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "topic_not_found": 404,
    "router_not_found": 404,
    "reader_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "router_cycle": 409,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "not_a_queue": 409,
    "incarnation_mismatch": 409,
    "producer_diverged": 409,
    "producer_incomplete": 409,
    "producer_stale": 409,
    "reader_fenced": 409,
    "backup_running": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "throttled": 429,
    "head_too_large": 431,
    "internal": 500,
    "not_ready": 503,
    "shutting_down": 503,
}
"""HTTP status by error code.

The contract gives oversized heads a status but no code (R-NET-9); `head_too_large` is the code that
this server adds.
"""

RETRY_AFTER = b"Retry-After: 1\r\n"


class BadRequestError(Exception):
    """Bytes that are not an HTTP request.

    The connection answers `status` (400 or 431), then closes (R-NET-8, R-NET-9).
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status

    def as_request_error(self) -> RequestError:
        return RequestError("head_too_large" if self.status == 431 else "invalid_request", str(self))


class MethodNotAllowedError(RequestError):
    """A known path with an unsupported method.

    allow: the methods of the path, with HEAD where it has GET.
    """

    def __init__(self, method: str, path: str, allow: str) -> None:
        super().__init__("method_not_allowed", f"{path} does not take {method}: use {allow}")
        self.allow = allow


class ElsewhereError(RequestError):
    """A request for a topic of another core, if that core does not get its connection.

    core: the one that owns the topic.
    """

    def __init__(self, core: int) -> None:
        super().__init__("not_ready", "another core has the topic, and cannot take the request; try again in a second")
        self.core = core


def status_of(error: RequestError) -> int:
    return STATUS[error.code]


def envelope(error: RequestError) -> bytes:
    """Return the body of an error answer. Shape: {"error": {code, message, detail?}}."""
    inner: dict[str, Any] = {"code": error.code, "message": error.message or error.code}
    if error.detail is not None:
        inner["detail"] = error.detail
    return msgspec.json.encode({"error": inner})


def error_in(body: bytes) -> RequestError:
    """Return the error of an envelope."""
    inner = msgspec.json.decode(body)["error"]
    return RequestError(inner["code"], inner["message"], inner.get("detail"))


def extra_headers(error: RequestError) -> bytes:
    """Return the header lines of an error: Retry-After for 429 and 503, Allow for 405."""
    if isinstance(error, MethodNotAllowedError):
        return b"Allow: %b\r\n" % error.allow.encode()
    return RETRY_AFTER if STATUS[error.code] in (429, 503) else b""
