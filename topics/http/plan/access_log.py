"""Lines of the access log: one for every answer, when it begins.

No line has a header's value but that of `X-Request-Id`, a query, or a body. Texts of clients are
escaped, so that no client can make a line, or end a field of one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from topics.common.tuples import make_tuple
from topics.http.access.principal import Principal
from topics.http.access.routes import Route
from topics.http.plan.plan import Plan
from topics.http.wire.response import NOT_MODIFIED

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ESCAPES = {at: f"\\x{at:02x}" for at in range(256) if not 0x20 <= at < 0x7F or at in {ord('"'), ord("\\")}}
_PATH_CHARACTERS = 2048
"""Characters of a path in a line; longer ones are cut."""
_REQUEST_ID_BYTES = 128
_encode = msgspec.json.Encoder().encode


class Answering(Protocol):
    """The sender of an answer: a connection of HTTP/1, or a stream of HTTP/2."""

    @property
    def peer(self) -> tuple[str, int]:
        """The address of the client, or of the proxy before it."""

    @property
    def upgrades(self) -> bool: ...

    @property
    def received_bytes(self) -> int:
        """Bytes of the request's body, as they arrived."""


class _AnswerLine(NamedTuple):
    """The content of a line."""

    now_ms: int
    remote: str
    method: str
    """"" for a head that is no request."""
    path: str
    version: str
    status: int
    received: int
    """Bytes of the request's body."""
    size: int | None
    """Bytes of the answer's; None: it is a stream."""
    ns: int
    """Time since the request."""
    route: Route | None
    principal: str
    request_id: str


class AccessLog:
    """Renders a line for each answer and passes it to `write`."""

    def __init__(self, form: str, now_ms: Callable[[], int], write: Callable[[bytes], None]) -> None:
        """Set the format, `combined` or `json`, the clock, and where lines are written."""
        self._line = _Json().line if form == "json" else _Combined().line
        self._now_ms = now_ms
        self._write = write

    def answered(
        self, exchange: Answering, plan: Plan | None, status: int, size: int | None, ns: int, *, refused: bool = False
    ) -> None:
        """Note an answer that begins.

        plan: None for a head that is no request. size: of the body; None: the answer is a stream.
        ns: the time since the request. refused: before its handler, so that no body is counted.
        """
        if plan is None:
            answer = _AnswerLine(self._now_ms(), exchange.peer[0], "", "", "", status, 0, size, ns, None, "", "")
        else:
            request = plan.request
            version = f"1.{request.framing.version_minor}" if exchange.upgrades else "2.0"
            answer = _AnswerLine(
                self._now_ms(),
                exchange.peer[0],
                request.method,
                request.path[:_PATH_CHARACTERS],
                version,
                status,
                0 if refused else exchange.received_bytes,
                0 if plan.is_head or status == NOT_MODIFIED else size,
                ns,
                plan.route,
                name_of(plan.principal),
                request.headers.get(b"x-request-id", b"")[:_REQUEST_ID_BYTES].decode("latin-1"),
            )
        self._write(self._line(answer))

    def answered_plain(  # noqa: PLR0917 - hot where it is on
        self,
        peer: tuple[str, int],
        path: str,
        received: int,
        size: int,
        ns: int,
        route: Route,
        sender: Principal | None,
    ) -> None:
        """Note the answer to a plain request of the lane, which has no id."""
        now_ms, name = self._now_ms(), name_of(sender)
        answer = make_tuple(
            _AnswerLine, (now_ms, peer[0], "POST", path, "1.1", 200, received, size, ns, route, name, "")
        )
        self._write(self._line(answer))


def name_of(principal: Principal | None) -> str:
    """Return `key-` and the number of a key, from 1; "" without one."""
    return "" if principal is None or principal.key_id is None else f"key-{principal.key_id + 1}"


class _Combined:
    """Lines in the combined format, with further fields at their ends."""

    def __init__(self) -> None:
        self._second = -1
        self._time = ""

    def line(self, answer: _AnswerLine) -> bytes:
        second = answer.now_ms // 1000
        if second != self._second:
            self._second = second
            at = datetime.fromtimestamp(second, UTC)
            self._time = f"{at.day:02d}/{_MONTHS[at.month - 1]}/{at.year}:{at:%H:%M:%S} +0000"
        method, route = answer.method, answer.route
        asked = f"{method} {answer.path.translate(_ESCAPES)} HTTP/{answer.version}" if method else "-"
        sent = "-" if answer.size is None else answer.size
        named = "-" if route is None else f"{route.method} {route.pattern}"
        given = answer.request_id.translate(_ESCAPES) or "-"
        return (
            f'{answer.remote} - {answer.principal or "-"} [{self._time}] "{asked}" {answer.status} {sent} "-" "-" '
            f'{answer.received} {answer.ns / 1e9:.6f} "{named}" "{given}"\n'
        ).encode()


class _Json:
    """Lines that are objects."""

    def __init__(self) -> None:
        self._second = -1
        self._time = ""

    def line(self, answer: _AnswerLine) -> bytes:
        second, ms = divmod(answer.now_ms, 1000)
        if second != self._second:
            self._second = second
            self._time = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        route = answer.route
        fields: dict[str, Any] = {
            "time": f"{self._time}.{ms:03d}Z",
            "remote": answer.remote,
            "method": answer.method or None,
            "path": answer.path or None,
            "protocol": f"HTTP/{answer.version}" if answer.version else None,
            "status": answer.status,
            "bytes_in": answer.received,
            "bytes_out": answer.size,
            "duration_seconds": round(answer.ns / 1e9, 6),
            "route": None if route is None else f"{route.method} {route.pattern}",
            "principal": answer.principal or None,
            "request_id": answer.request_id or None,
        }
        return _encode(fields) + b"\n"
