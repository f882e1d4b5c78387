"""The head of a relayed request: what the core that answers it has to know, and no more.

The core that has the connection has checked Host, Origin, key, rights and size, and decompresses
the body. So the head has no secrets, and nothing that concerns a connection: method, path, decoded
parameters, the fields that handlers read, and the rights with which names in a body are checked.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from topics.http.access.guard import AccessVerdict
from topics.http.access.principal import Principal
from topics.http.access.routes import Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.plan.call import Handler
from topics.http.plan.plan import Aim, Plan
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.wire.head import HeadFraming
from topics.http.wire.request import Request

FIELDS = (b"idempotency-key", b"prefer")
"""Fields that handlers of routes of one topic read, and the plan itself of strictness."""
_KEPT_PLANS = 1024
_KEPT_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class RelayedRoute(Route[Handler]):
    """A route whose handler has another core answer. That core counts the answer."""


def relayed_route(route: Route[Handler], handler: Handler) -> RelayedRoute:
    """Return a route with the same checks. handler: gets the call with its whole body."""
    return RelayedRoute(route.method, route.pattern, route.scope, handler, route.body, access=route.access)


class _Head(msgspec.Struct, frozen=True, array_like=True):
    method: str
    path: str
    query: dict[str, str]
    fields: dict[str, bytes]
    scopes: int
    prefixes: list[bytes]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Head)


def encoded_head(plan: Plan) -> bytes:
    """Return what another core has to know of a request."""
    request, principal = plan.request, plan.principal
    fields = {name.decode(): request.headers[name] for name in FIELDS if name in request.headers}
    prefixes = [prefix.encode("utf-8", "surrogateescape") for prefix in principal.prefixes]
    head = _Head(request.method, request.path, plan.query, fields, principal.scopes.value, prefixes)
    return _ENCODER.encode(head)


class RelayedPlans:
    """Plans of heads that other cores have sent. Those that come again are kept."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._kept: dict[bytes, Plan] = {}

    def plan(self, head: bytes) -> Plan:
        """Return the plan. Raises: DamagedRelayError, it is no head of a route of one topic."""
        plan = self._kept.get(head)
        if plan is None:
            plan = self._made(head)
            if len(head) <= _KEPT_HEAD_BYTES and b"idempotency-key" not in plan.request.headers:
                if len(self._kept) >= _KEPT_PLANS:
                    self._kept.clear()
                self._kept[head] = plan
        return plan

    def _made(self, data: bytes) -> Plan:
        try:
            head = _DECODER.decode(data)
            scopes = Scope(head.scopes)
        except (msgspec.MsgspecError, ValueError) as error:
            raise DamagedRelayError("the head of a request is none") from error
        headers = {name.encode(): value for name, value in head.fields.items()}
        framing = HeadFraming(head.method.encode(), b"", 1, 0, chunked=False, connection=b"")
        request = Request(head.method, head.path, "", "", headers, framing, keep_alive=True, expects_continue=False)
        aim = Aim(request, self._routes).with_query(head.query)
        if aim.route is None or not aim.is_of_topic or aim.route.stream:
            raise DamagedRelayError(f"{head.method} {head.path} is no request of one topic")
        plan = Plan(request, aim, None, AccessVerdict(Principal(None, scopes, tuple(head.prefixes))), 0)
        plan.all_headers = plan.answer_headers = b""  # the core of the connection adds them
        return plan
