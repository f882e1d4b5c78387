"""The meaning of a request head, worked out once: route, parameters, framing, refusal.

A plan is a pure function of the head's bytes and the server's settings. The heads of a client
repeat (same topic, same length), so plans are cached by head, and the second request with a head
costs one dictionary lookup. The plan of a head with a secret is cached without the secret, by the
head's digest, which costs the hashing.
"""

from __future__ import annotations

import enum
from copy import copy
from hashlib import sha256
from itertools import islice
from typing import Protocol, TypeVar

import msgspec

from topics.engine.json.known_keys import unknown_key
from topics.errors import RequestError
from topics.http.access.guard import AccessVerdict, Guard
from topics.http.access.origin import PREFLIGHT_HEADERS, HostRule
from topics.http.access.principal import UNAUTHENTICATED, Principal
from topics.http.access.routes import Access, Body, Match, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.openapi.known_keys_of import query_names
from topics.http.wire.compression import offers_gzip
from topics.http.wire.error_answers import ElsewhereError, MethodNotAllowedError
from topics.http.wire.h2_request import HeaderList, parse_header_list
from topics.http.wire.parser import HeadParser
from topics.http.wire.percent import percent_decoded
from topics.http.wire.preference import APPLIED, is_strict
from topics.http.wire.query import Query, parse_query, token_of
from topics.http.wire.request import Request, parse_request

K = TypeVar("K")
V = TypeVar("V")

_KEPT_HEAD_BYTES = 1024
_KEPT_PLANS = 1024
_KEPT_AIMS = 4096
_LEAVE_AT_ONCE = 16
"""How many leave a full cache for another to be kept; all of them took some ms of one pass."""
_SECRETS = (b"authorization", b"cookie")
"""Fields whose values must not stay in memory. Only the guard reads them."""
_UNKEPT = b"idempotency-key"
"""A field that is new in every request; caching its heads would evict those that repeat."""
_NOSNIFF = b"X-Content-Type-Options: nosniff\r\n"
_JSON = b"application/json"
_PREFLIGHT = Route("OPTIONS", "*", Scope.NONE, lambda call: call.reply(b"{}"), always=True, access=Access.PROBE)
"""The route of a browser's question whether a page may send a request, on any path (R-NET-10)."""
_ASKS = b"access-control-request-method"
_TOPIC = "/v0/topics/:topic"
"""The beginning of the patterns of routes whose name is that of a topic."""
_SESSIONS = "/v0/watch"
"""The beginning of those of sessions, whose name, if they have one, is a wid."""


class Elsewhere(Protocol):
    """The other cores of a server, as plans see them."""

    def elsewhere(self, topic: str) -> int | None:
        """Return the core that owns a topic, if it is another one than this."""

    def relayed(self, plan: Plan) -> Plan:
        """Return the plan with which the core that owns the topic answers a request.

        It is the plan itself, if nothing is to be relayed.
        """


class Aim:
    """The meaning of a method and a target: route, parameters, query. Shared by all their heads.

    query: decoded on first use, which is after the key was checked.
    """

    __slots__ = ("_query", "_text", "child", "match", "missing", "name", "name_json", "route")

    def __init__(self, request: Request, routes: RouteTable) -> None:
        self._text = request.query
        self._query: Query | None = None
        self.route: Route | None = None
        self.name = ""
        """The first path parameter, decoded: a topic, a router or a session."""
        self.child = ""
        """The second one, decoded: a named reader of the topic."""
        self.match: Match | None = routes.match(request.path)
        self.missing = self._resolve(request, self.match)
        """The error if path, method or name lead to no handler: steps 4 to 6 of 2.4."""
        self.name_json = msgspec.json.encode(self.name)

    @property
    def query(self) -> Query:
        # Not by __getattr__, which would slow down Python's lookup of every other attribute.
        query = self._query
        if query is None:
            query = self._query = parse_query(self._text) if self._text else {}
        return query

    def with_query(self, query: Query) -> Aim:
        """Set the decoded query, and forget the text, which contains a secret."""
        self._text, self._query = "", query
        return self

    @property
    def is_of_one_core(self) -> bool:
        """Whether the path leads to a route of the one topic, or session, that it names."""
        if self.missing is not None or self.route is None or not self.name:
            return False
        return self.route.pattern.startswith((_TOPIC, _SESSIONS))

    def look_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Set the refusal of a request for a topic, or a session, that another core owns."""
        if self.is_of_one_core:
            core = elsewhere.elsewhere(self.name)
            if core is not None:
                self.missing = ElsewhereError(core)

    def as_preflight(self) -> Aim:
        """Return the aim of a preflight of this path, which need not exist."""
        aim = copy(self)
        aim.route, aim.missing = _PREFLIGHT, None
        return aim

    def _resolve(self, request: Request, match: Match | None) -> RequestError | None:
        if match is None:
            return RequestError("not_found", "there is no such path (/docs lists all)")
        route = match.methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None or (route.stream and request.method == "HEAD"):
            return MethodNotAllowedError(request.method, request.path, match.allow)
        self.route = route
        try:
            names = [percent_decoded(raw).decode() for raw in match.parameters]
        except UnicodeDecodeError:
            return RequestError("invalid_request", "the name in the path is not valid UTF-8 once percent-decoded")
        self.name, self.child = (*names, "", "")[:2]
        return None


class Plan:
    """The meaning of one head: the same for all requests with that head, which share it.

    The refusals follow the order of the contract's 2.4: `foreign` (Host, Origin), `unauthorized`
    and `forbidden` (the key) precede the not-ready gate, `missing` (path, method, undecodable name)
    follows it (`topics.http.plan.gatekeeping`); `too_large` and those of `body_refusal` are steps
    of the body.

    query: that of the aim. principal: the sender. counted: the principal whose in-flight cap this
    request uses; None where no cap applies.
    """

    __slots__ = (
        "_aim",
        "accepts_gzip",
        "all_headers",
        "answer_headers",
        "child",
        "content_length",
        "core",
        "counted",
        "expects_continue",
        "forbidden",
        "foreign",
        "gzip",
        "has_body",
        "head_there",
        "is_head",
        "keep_alive",
        "max_body_bytes",
        "missing",
        "name",
        "name_json",
        "plain",
        "principal",
        "relayed",
        "request",
        "route",
        "strict",
        "too_large",
        "unauthorized",
        "usual_body",
    )

    def __init__(
        self,
        request: Request,
        aim: Aim,
        foreign: RequestError | None,
        verdict: AccessVerdict,
        max_body_bytes: int,
        *,
        cors: bytes = b"",
    ) -> None:
        framing = request.framing
        headers = request.headers
        length = framing.content_length
        self.request = request
        self.route = aim.route
        self.name = aim.name
        self.name_json = aim.name_json
        self.child = aim.child
        self._aim = aim
        self.missing = aim.missing
        self.strict = b"prefer" in headers and is_strict(headers[b"prefer"])
        """Whether unknown keys and parameters are refused (2.5)."""
        if self.strict and self.missing is None:
            self.missing = _unknown_parameter(aim, verdict.principal)
        self.core = self.missing.core if isinstance(self.missing, ElsewhereError) else None
        """The core that owns the topic, if it is another one: see `core_to_ask`."""
        self.relayed: Plan | None = None
        """The plan with which that core answers, once it was asked for."""
        self.head_there = b""
        """The head of the request as that core gets it, once it was asked for."""
        self.foreign = foreign
        self.principal, self.counted, self.unauthorized, self.forbidden = verdict
        self.content_length = length
        self.has_body = framing.chunked or length > 0
        self.expects_continue = request.expects_continue and self.has_body
        self.is_head = request.method == "HEAD"
        self.keep_alive = request.keep_alive
        self.max_body_bytes = max_body_bytes
        self.too_large = too_large(max_body_bytes) if 0 < max_body_bytes < length else None
        self.accepts_gzip = b"accept-encoding" in headers and offers_gzip(headers[b"accept-encoding"])
        self.all_headers = cors + APPLIED if self.strict else cors
        """Further whole header lines of all answers."""
        self.answer_headers = self.all_headers + (_NOSNIFF if _from_browser(headers) else b"")
        """Further whole header lines of JSON answers (R-NET-13)."""
        encoding = headers.get(b"content-encoding")
        self.gzip = encoding is not None and encoding.lower() == b"gzip"
        self.usual_body = encoding is None and headers.get(b"content-type", b"").startswith(_JSON)
        """Whether the body is uncompressed JSON, so that `body_refusal` need not be called."""
        self.plain = (
            self.is_let_in
            and self.counted is None
            and self.too_large is None
            and not framing.chunked
            and not self.expects_continue
        )
        """Whether the handler runs after `content_length` bytes of body, with no more checks."""

    @property
    def query(self) -> Query:
        return self._aim.query

    @property
    def is_of_session(self) -> bool:
        """Whether the request makes or follows a session, which belongs to a key."""
        return self.route is not None and self.route.pattern.startswith(_SESSIONS)

    @property
    def is_of_stream(self) -> bool:
        """Whether the answer is a stream."""
        return self.route is not None and self.route.stream

    def as_last(self) -> Plan:
        """Return the plan of the same request, after which the connection is not used again."""
        last = self._copy()
        last.keep_alive = False
        return last

    def judged(self, verdict: AccessVerdict) -> Plan:
        """Return the plan of the same request, of a sender with these rights."""
        judged = self._copy()
        judged.principal, judged.counted, judged.unauthorized, judged.forbidden = verdict
        return judged

    def with_query(self, query: Query) -> Plan:
        """Return the plan of the same request with other parameters."""
        other = self._copy()
        other._aim = copy(self._aim).with_query(query)
        return other

    def _copy(self) -> Plan:
        """Return a copy without what depends on the rest of the plan."""
        other = copy(self)
        other.relayed, other.head_there = None, b""
        return other

    def as_relayed(self, route: Route) -> Plan:
        """Return the plan of the same request, admitted to the core that owns the topic.

        route: has that core answer.
        """
        relayed = self._copy()
        relayed.route = route
        relayed.missing = _unknown_parameter(self._aim, self.principal) if self.strict else None
        return relayed

    @property
    def is_let_in(self) -> bool:
        """Whether the head passes all checks: Host, Origin, key, rights, path and method."""
        return self.foreign is None and self.unauthorized is None and self.forbidden is None and self.missing is None

    def body_refusal(self, body_is_empty: bool) -> RequestError | None:
        """Return the error of steps 2 and 3 of 2.3, for a JSON route; None if they pass.

        body_is_empty: of the decompressed body.
        """
        assert self.route is not None, "a body of a request without a route"
        encoding = self.request.headers.get(b"content-encoding", b"").lower()
        if not self.gzip and encoding not in (b"", b"identity"):
            return RequestError("unsupported_media_type", "Content-Encoding may be gzip or identity")
        if body_is_empty and self.route.body is Body.JSON_OR_EMPTY:
            return None
        if self.request.headers.get(b"content-type", b"").lstrip().startswith(_JSON):
            return None
        return RequestError("unsupported_media_type", "the body must come as Content-Type: application/json")


def _unknown_parameter(aim: Aim, principal: Principal) -> RequestError | None:
    """Return the refusal of an unknown query parameter, once the key is known to be valid."""
    route = aim.route
    if route is None or principal is UNAUTHENTICATED:
        return None
    names = query_names(route)
    unknown = next((name for name in aim.query if name not in names), None)
    return None if unknown is None else unknown_key(unknown, names, what="parameter")


def _from_browser(headers: dict[bytes, bytes]) -> bool:
    """Return whether a request has `Origin` or a `Sec-Fetch-*` field, which only browsers send.

    The lane leaves these requests to the general path.
    """
    return b"origin" in headers or b"\nsec-fetch-" in b"\n".join((b"", *headers))


def too_large(max_body_bytes: int) -> RequestError:
    settings = "TOPICS_MAX_BODY_BYTES for writes, else TOPICS_MAX_COMMAND_BYTES"
    return RequestError("payload_too_large", f"the body is over {max_body_bytes} bytes ({settings})")


class Keep(enum.Enum):
    """The cache of a plan: none, by the head itself, or by the head's digest."""

    NOT = enum.auto()
    OPEN = enum.auto()
    SECRET = enum.auto()


class Planner:
    """A maker of plans from heads, with a cache of about a thousand."""

    def __init__(
        self,
        routes: RouteTable,
        parser: HeadParser,
        hosts: HostRule,
        guard: Guard,
        *,
        max_head_bytes: int = 65_536,
        max_head_fields: int = 100,
        max_body_bytes: int = 64 << 20,
        max_command_bytes: int = 0,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Set the limits; max_body_bytes and max_command_bytes may be 0 for no limit.

        max_command_bytes applies to the bodies of routes that are not `large`. elsewhere: None for
        a server of one core, which owns all topics.
        """
        self.kept: dict[bytes, Plan] = {}
        """Plans by whole head. Connections read it; this class fills it."""
        self._kept_secret: dict[bytes, Plan] = {}
        """Plans by the SHA-256 of a head with a secret in it."""
        self._kept_lists: dict[tuple[HeaderList, bool], Plan] = {}
        self._kept_secret_lists: dict[bytes, Plan] = {}
        """Plans by the SHA-256 of a header list with a secret in it."""
        self.max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._max_command_bytes = max_command_bytes
        self.max_head_fields = max_head_fields
        self._routes = routes
        self._parser = parser
        self._hosts = hosts
        self._guard = guard
        self._elsewhere = elsewhere
        self._aims: dict[tuple[bytes, bytes], Aim] = {}

    def forget(self) -> None:
        """Forget all plans, because their keys may no longer be valid."""
        self.kept.clear()
        self._kept_secret.clear()
        self._kept_lists.clear()
        self._kept_secret_lists.clear()

    def plan(self, head: bytes) -> Plan:
        """Return the plan of a head that is not in `kept`.

        Raises: BadRequestError, the head is not a request.
        """
        digest = b""
        if self._kept_secret:
            digest = sha256(head).digest()
            plan = self._kept_secret.get(digest)
            if plan is not None:
                return plan
        request = parse_request(head, self._parser, self.max_head_bytes, self.max_head_fields)
        plan, keep = self._make(request, len(head))
        if keep is Keep.SECRET:
            _keep(self._kept_secret, digest or sha256(head).digest(), plan, _KEPT_PLANS)
        elif keep is Keep.OPEN:
            _keep(self.kept, head, plan, _KEPT_PLANS)
        return plan

    def again(self, plan: Plan) -> Plan:
        """Return a new plan for an admitted request whose key has changed since (R-AUTH-10).

        The key may change while the body arrives, or while the request waits for its turn.
        """
        request = plan.request
        method = "GET" if request.method == "HEAD" else request.method
        return plan.judged(self._guard.judge_again(plan.principal, request, method, plan.route))

    def plan_list(self, fields: HeaderList, whole: bool) -> Plan:
        """Return the plan of an HTTP/2 header list. whole: no body follows.

        Raises: BadRequestError, the list is not a request.
        """
        plan = self._kept_lists.get((fields, whole))
        if plan is None and self._kept_secret_lists:
            plan = self._kept_secret_lists.get(_digest_of(fields, whole))
        if plan is None:
            request = parse_header_list(fields, whole, self.max_head_bytes, self.max_head_fields)
            plan, keep = self._make(request, sum(len(name) + len(value) for name, value in fields))
            if self._elsewhere is not None:
                plan = self._elsewhere.relayed(plan)  # a connection of HTTP/2 is not given away
            if keep is Keep.OPEN:
                _keep(self._kept_lists, (fields, whole), plan, _KEPT_PLANS)
            elif keep is Keep.SECRET:
                _keep(self._kept_secret_lists, _digest_of(fields, whole), plan, _KEPT_PLANS)
        return plan

    def _body_limit(self, route: Route | None) -> int:
        most, of_commands = self._max_body_bytes, self._max_command_bytes
        if route is None or route.large or route.body is Body.IGNORED or not of_commands:
            return most
        return min(most, of_commands) if most else of_commands

    def _make(self, request: Request, head_bytes: int) -> tuple[Plan, Keep]:
        target = request.framing.method, request.framing.target
        aim = self._aims.get(target)
        fresh = aim is None
        if aim is None:
            aim = Aim(request, self._routes)
            if self._elsewhere is not None:
                aim.look_elsewhere(self._elsewhere)
        token = token_of(request.query) if request.query else None
        cors = self._hosts.cors_headers(request)
        if cors and request.method == "OPTIONS" and _ASKS in request.headers:
            # A browser sends it without the key.
            verdict, aim = AccessVerdict(UNAUTHENTICATED), aim.as_preflight()
            cors += PREFLIGHT_HEADERS
        else:
            verdict = self._guard.judge(request, token or "", aim.match)
        foreign = self._hosts.refusal(request, stream=aim.route is not None and aim.route.stream)
        headers = request.headers
        secrets = [headers.pop(name) for name in _SECRETS if name in headers]
        if token is not None:
            query = {} if verdict.principal is UNAUTHENTICATED else aim.query
            query.pop("token", None)
            framing = request.framing._replace(target=b"")
            request = request._replace(query="", framing=framing)
            aim = aim.with_query(query)
            return Plan(request, aim, foreign, verdict, self._body_limit(aim.route), cors=cors), Keep.NOT
        plan = Plan(request, aim, foreign, verdict, self._body_limit(aim.route), cors=cors)
        comes_once = aim.route is not None and aim.route.stream
        if head_bytes > _KEPT_HEAD_BYTES or comes_once:
            return plan, Keep.NOT
        if fresh and aim.route is not _PREFLIGHT:
            _keep(self._aims, target, aim, _KEPT_AIMS)
        if _UNKEPT in headers:
            return plan, Keep.NOT
        return plan, Keep.SECRET if secrets else Keep.OPEN


def _digest_of(fields: HeaderList, whole: bool) -> bytes:
    """Return the SHA-256 of a list. Lengths before all pieces make the hashed text unambiguous."""
    pieces = [b"%d:%b%d:%b" % (len(name), name, len(value), value) for name, value in fields]
    return sha256((b"1" if whole else b"0") + b"".join(pieces)).digest()


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Add to a cache.

    From a full one the oldest leave: if heads never repeat, no order of eviction is better.
    """
    if len(kept) >= most:
        for oldest in list(islice(kept, _LEAVE_AT_ONCE)):
            del kept[oldest]
    kept[key] = value
