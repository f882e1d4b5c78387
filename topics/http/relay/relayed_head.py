"""The head of a relayed request: what the core that answers it has to know, and no more.

The core that has the connection has checked Host, Origin, key, rights and size, and decompresses
the body. So the head has no secrets, and nothing that concerns a connection: method, path, decoded
parameters, the fields that handlers read, and the rights with which names in a body are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from topics.errors import RequestError
from topics.http.access.guard import AccessVerdict
from topics.http.access.keyring import NO_KEYS
from topics.http.access.principal import Principal
from topics.http.access.routes import Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.handlers import record_endpoints
from topics.http.lane.group_answers import STRICT, WITHOUT_SEQS
from topics.http.plan.call import Handler
from topics.http.plan.plan import Aim, Plan
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.wire.head import HeadFraming
from topics.http.wire.request import Request

FIELDS = (b"idempotency-key", b"prefer")
"""Fields that handlers of routes of one topic read, and the plan itself of strictness."""
STREAM_FIELDS = (*FIELDS, b"accept", b"last-event-id")
"""Fields that handlers of streams read."""
_STRICT = b"handling=strict"
_FLAGS_OF_SEQS = {"true": 0, "1": 0, "false": WITHOUT_SEQS, "0": WITHOUT_SEQS}
"""Flags of plain writes, by `return_seqs`."""
_UNKNOWN_KEY = RequestError("unauthorized", "the core of the topic does not know the key yet, or not any more")
_KEPT_PLANS = 1024
_KEPT_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class RelayedRoute(Route[Handler]):
    """A route whose handler has another core answer. That core counts the answer."""

    handler_there: Handler | None = None
    """The handler that runs there."""


def relayed_route(route: Route[Handler], handler: Handler) -> RelayedRoute:
    """Return a route with the same checks. handler: gets the call with its whole body."""
    relayed = RelayedRoute(route.method, route.pattern, route.scope, handler, route.body, access=route.access)
    return replace(relayed, handler_there=route.handler, stream=route.stream)


@dataclass(frozen=True, slots=True, eq=False)
class SpanningRoute(Route[Handler]):
    """A route of which each core answers a portion. Its handler asks all, and joins the answers.

    portion: the same route for one core, which does not count what it answers.
    """

    portion: RelayedRoute | None = None


def spanning_route(route: Route[Handler], handler: Handler) -> SpanningRoute:
    """Return a route with the same checks. handler: asks the cores."""
    portion = RelayedRoute(
        route.method,
        route.pattern,
        route.scope,
        route.handler,
        route.body,
        always=route.always,
        access=route.access,
        large=route.large,
    )
    spanning = SpanningRoute(route.method, route.pattern, route.scope, handler, route.body, portion=portion)
    return replace(spanning, always=route.always, access=route.access, large=route.large)


INNER = "/inner/"
"""The beginning of paths that only cores ask each other for. No client's path leads to them."""


def inner_route(
    method: str,
    path: str,
    handler: Handler,
    body: Body = Body.IGNORED,
    *,
    stream: bool = False,
    always: bool = False,
) -> RelayedRoute:
    """Return a route for requests between cores, whose answers are not counted as a client's.

    path: without `INNER`. always: also while the core recovers or stops.
    """
    return RelayedRoute(method, INNER + path, Scope.NONE, handler, body, stream=stream, always=always)


def inner_plan(routes: RouteTable, method: str, path: str, principal: Principal, query: dict[str, str]) -> Plan:
    """Return the plan of a request of this core itself, for a route of `inner_route`.

    principal: with whose rights it is executed. path: without `INNER`.
    """
    request = _request(method, INNER + path, {})
    plan = Plan(request, Aim(request, routes).with_query(query), None, AccessVerdict(principal), 0)
    assert plan.route is not None, "an inner request without a route"
    plan.head_there = _encoded(method, request.path, query, {}, principal)
    return plan


def _request(method: str, path: str, headers: dict[bytes, bytes]) -> Request:
    framing = HeadFraming(method.encode(), b"", 1, 0, chunked=False, connection=b"")
    return Request(method, path, "", "", headers, framing, keep_alive=True, expects_continue=False)


class _Head(msgspec.Struct, frozen=True, array_like=True):
    method: str
    path: str
    query: dict[str, str]
    fields: dict[str, bytes]
    scopes: int
    prefixes: list[bytes]
    mark: bytes = b""
    """That of the key, of streams and sessions: they are counted for it, and end with it."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Head)


def head_there(plan: Plan) -> bytes:
    """Return what another core has to know of a request. The plan keeps it."""
    if not plan.head_there:
        headers, names = plan.request.headers, STREAM_FIELDS if plan.is_of_stream else FIELDS
        fields = {name.decode(): headers[name] for name in names if name in headers}
        request, mark = plan.request, plan.principal.mark if plan.is_of_stream or plan.is_of_session else b""
        plan.head_there = _encoded(request.method, request.path, plan.query, fields, plan.principal, mark=mark)
    return plan.head_there


def portion_plan(plan: Plan, query: dict[str, str], fields: dict[str, bytes]) -> Plan:
    """Return the plan of a portion of a request, with another query, and with these fields beside.

    The plan of a core's own portion has its query only.
    """
    portion = plan.with_query(query)
    headers = {name.decode(): value for name, value in plan.request.headers.items() if name in FIELDS}
    portion.head_there = _encoded(plan.request.method, plan.request.path, query, headers | fields, plan.principal)
    return portion


def plain_head(path: str, principal: Principal, flags: int) -> bytes:
    """Return the head of a plain write. flags: `WITHOUT_SEQS` and `STRICT`."""
    query = {"return_seqs": "false"} if flags & WITHOUT_SEQS else {}
    return _encoded("POST", path, query, {"prefer": _STRICT} if flags & STRICT else {}, principal)


def _encoded(
    method: str, path: str, query: dict[str, str], fields: dict[str, bytes], principal: Principal, *, mark: bytes = b""
) -> bytes:
    prefixes = [prefix.encode("utf-8", "surrogateescape") for prefix in principal.prefixes]
    return _ENCODER.encode(_Head(method, path, query, fields, principal.scopes.value, prefixes, mark))


class RelayedPlan(Plan):
    """The plan of a request of another core.

    flags: of a plain write, as the lane has them; None: of another request. is_portion: whether
    each core is asked, whatever it owns, and no answer is counted as a client's.
    """

    __slots__ = ("flags", "is_portion")

    def __init__(self, request: Request, aim: Aim, verdict: AccessVerdict, *, is_portion: bool) -> None:
        super().__init__(request, aim, None, verdict, 0)
        self.is_portion = is_portion
        self.all_headers = self.answer_headers = b""  # the core of the connection adds them
        self.flags = None if is_portion else _flags_of(self)


def _flags_of(plan: Plan) -> int | None:
    route, query, headers = plan.route, plan.query, plan.request.headers
    if route is None or route.handler is not record_endpoints.write or b"idempotency-key" in headers:
        return None
    flags = _FLAGS_OF_SEQS.get(query.get("return_seqs", "true"))
    if flags is None or len(query) > ("return_seqs" in query):
        return None
    return flags | STRICT if plan.strict else flags


class RelayedPlans:
    """Plans of heads that other cores have sent. Those that come again are kept."""

    def __init__(
        self,
        routes: RouteTable,
        key_id_of: Callable[[bytes], int | None] = NO_KEYS.key_id_of,
        inner: RouteTable | None = None,
    ) -> None:
        """key_id_of(mark): returns the number that a key has on this core; None: it has none.

        inner: the routes of `inner_route`.
        """
        self._routes = routes
        self._inner = inner or RouteTable([])
        self._key_id_of = key_id_of
        self._kept: dict[bytes, RelayedPlan] = {}

    def plan(self, head: bytes) -> RelayedPlan:
        """Return the plan.

        Raises: DamagedRelayError, it is no head of a route of one topic, or of one that spans.
        """
        plan = self._kept.get(head)
        if plan is None:
            plan = self._made(head)
            # The key of a stream may have another number later.
            comes_once = plan.is_of_stream or b"idempotency-key" in plan.request.headers
            comes_once = comes_once or (plan.is_portion and not plan.request.path.startswith(INNER))
            if len(head) <= _KEPT_HEAD_BYTES and not comes_once:
                if len(self._kept) >= _KEPT_PLANS:
                    self._kept.clear()
                self._kept[head] = plan
        return plan

    def _made(self, data: bytes) -> RelayedPlan:
        try:
            head = _DECODER.decode(data)
            scopes = Scope(head.scopes)
        except (msgspec.MsgspecError, ValueError) as error:
            raise DamagedRelayError("the head of a request is none") from error
        headers = {name.encode(): value for name, value in head.fields.items()}
        request = _request(head.method, head.path, headers)
        is_inner = head.path.startswith(INNER)
        aim = Aim(request, self._inner if is_inner else self._routes).with_query(head.query)
        portion = aim.route.portion if isinstance(aim.route, SpanningRoute) else aim.route if is_inner else None
        if portion is not None:
            aim.route = portion
        elif aim.route is None or not aim.is_of_one_core:
            raise DamagedRelayError(f"{head.method} {head.path} is no request of one topic")
        key_id = self._key_id_of(head.mark) if head.mark else None
        principal = Principal(key_id, scopes, tuple(head.prefixes), mark=head.mark)
        is_unknown = bool(head.mark) and key_id is None  # it has read them at another time
        verdict = AccessVerdict(principal, unauthorized=_UNKNOWN_KEY if is_unknown else None)
        return RelayedPlan(request, aim, verdict, is_portion=portion is not None)
