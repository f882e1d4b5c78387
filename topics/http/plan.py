"""What a request head asks for, worked out once: route, parameters, framing, and the refusal if there is one.

A plan is a pure function of the head's bytes and the server's settings, and a client's heads repeat (same topic, same
length), so plans are kept by head: the second request with a head costs one dictionary lookup.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import msgspec

from topics.errors import RequestError
from topics.http.errors import MethodNotAllowedError
from topics.http.origin import HostRule
from topics.http.parser import HeadParser
from topics.http.query import Query, parse_query
from topics.http.request import Request, parse_request
from topics.http.routes import Body, Route, RouteTable

_KEPT_HEAD_BYTES = 1024
_KEPT_PLANS = 1024


class Plan:
    """One head's meaning; shared by all requests with that head, never changed.

    The refusals are in the order of the contract's 2.4: `foreign` (Host, Origin) comes before the not-ready gate,
    `missing` (path, method, undecodable name) after it, `too_large` and `wrong_type` are steps of the body.
    """

    __slots__ = (
        "content_length",
        "expects_continue",
        "foreign",
        "gzip",
        "has_body",
        "is_head",
        "keep_alive",
        "missing",
        "name",
        "name_json",
        "parameters",
        "plain",
        "query",
        "request",
        "route",
        "too_large",
        "wrong_encoding",
        "wrong_type",
    )

    def __init__(self, request: Request, routes: RouteTable, hosts: HostRule, max_body_bytes: int) -> None:
        framing = request.framing
        self.request = request
        self.content_length = framing.content_length
        self.has_body = framing.chunked or framing.content_length > 0
        self.expects_continue = request.expects_continue and self.has_body
        self.is_head = request.method == "HEAD"
        self.keep_alive = request.keep_alive
        self.query: Query = parse_query(request.query) if request.query else {}
        self.route: Route | None = None
        self.parameters: tuple[str, ...] = ()
        self.foreign = hosts.refusal(request)
        self.missing = self._resolve(routes)
        self.name = self.parameters[0] if self.parameters else ""
        """The first path parameter, decoded."""
        self.name_json = msgspec.json.encode(self.name)
        self.too_large: RequestError | None = None
        if max_body_bytes and framing.content_length > max_body_bytes:
            self.too_large = too_large(max_body_bytes)
        self.gzip = False
        self.wrong_encoding = self._check_encoding(request.headers.get(b"content-encoding", b""))
        self.wrong_type: RequestError | None = None
        if not request.headers.get(b"content-type", b"").lstrip().startswith(b"application/json"):
            self.wrong_type = RequestError(
                "unsupported_media_type", "the body must come as Content-Type: application/json"
            )
        self.plain = (
            self.foreign is None
            and self.missing is None
            and self.too_large is None
            and not framing.chunked
            and not self.expects_continue
        )
        """Nothing about the head needs a second look: the body is `content_length` bytes and then the handler runs."""

    def _resolve(self, routes: RouteTable) -> RequestError | None:
        """Sets route and parameters. Steps 4 to 6 of 2.4."""
        request = self.request
        match = routes.match(request.path)
        if match is None:
            return RequestError("not_found", "there is no such path")
        route = match.methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            return MethodNotAllowedError(request.method, request.path, match.allow)
        self.route = route
        try:
            self.parameters = tuple(unquote_to_bytes(raw).decode() for raw in match.parameters)
        except UnicodeDecodeError:
            return RequestError("invalid_request", "the name in the path is not valid UTF-8 once percent-decoded")
        return None

    def _check_encoding(self, value: bytes) -> RequestError | None:
        coding = value.strip().lower()
        if coding in (b"gzip", b"x-gzip"):
            self.gzip = True
        elif coding not in (b"", b"identity"):
            return RequestError("unsupported_media_type", "Content-Encoding may be gzip or identity")
        return None

    def body_refusal(self, body_is_empty: bool) -> RequestError | None:
        """Steps 2 and 3 of 2.3 over a body as it came; a gzip body's type is checked after it was decompressed."""
        route = self.route
        assert route is not None, "a body of a request without a route"
        if route.body is Body.IGNORED:
            return None
        if self.wrong_encoding is not None:
            return self.wrong_encoding
        if body_is_empty and route.body is Body.JSON_OR_EMPTY:
            return None
        return self.wrong_type


def too_large(max_body_bytes: int) -> RequestError:
    return RequestError("payload_too_large", f"the body is over {max_body_bytes} bytes (TOPICS_MAX_BODY_BYTES)")


class Planner:
    """Heads to plans, with the last thousand or so kept."""

    def __init__(
        self,
        routes: RouteTable,
        parser: HeadParser,
        hosts: HostRule,
        *,
        max_head_bytes: int = 65_536,
        max_head_fields: int = 100,
        max_body_bytes: int = 64 << 20,
    ) -> None:
        self.kept: dict[bytes, Plan] = {}
        """Plans by whole head. Read by connections; filled here."""
        self.max_head_bytes = max_head_bytes
        self.max_body_bytes = max_body_bytes
        self._max_head_fields = max_head_fields
        self._routes = routes
        self._parser = parser
        self._hosts = hosts

    def plan(self, head: bytes) -> Plan:
        """Raises: BadRequestError, the head is no request."""
        request = parse_request(head, self._parser, self.max_head_bytes, self._max_head_fields)
        plan = Plan(request, self._routes, self._hosts, self.max_body_bytes)
        if len(head) <= _KEPT_HEAD_BYTES and b"authorization" not in request.headers:
            # Tokens are not to stay in memory. Clearing all at once is as good as any order when heads never repeat.
            if len(self.kept) >= _KEPT_PLANS:
                self.kept.clear()
            self.kept[head] = plan
        return plan
