"""The part of the auth pipeline that a request head decides.

Source: wire contract, sections 2.4 and 4.3. It runs before routing: the required scope follows from
the method and the shape of the path, so an unknown subpath has a scope, too. One step needs more
than the head: the cap on a key's requests in flight, which is checked between the two refusals of a
verdict. `topics.http.plan.gatekeeping` puts all steps in order.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.errors import RequestError
from topics.http.access.keyring import Keyring
from topics.http.access.principal import FULL, UNAUTHENTICATED, Principal
from topics.http.access.routes import Access, Match, Route
from topics.http.access.scope import Scope
from topics.http.wire.percent import percent_decoded
from topics.http.wire.request import Request

_BEARER = b"Bearer "
_TOPICS, _ROUTERS = "/v0/topics/", "/v0/routers/"
_ROUTER_METHODS = {"GET": Scope.READ, "PUT": Scope.ADMIN, "DELETE": Scope.DELETE}


class AccessVerdict(NamedTuple):
    """The decision about one head.

    principal: the rights of the request. counted: the principal whose in-flight cap this request
    uses; None where no cap applies. unauthorized, forbidden: the errors to answer; None where
    allowed.
    """

    principal: Principal
    counted: Principal | None = None
    unauthorized: RequestError | None = None
    forbidden: RequestError | None = None


_OPEN = AccessVerdict(FULL)
_UNAUTHORIZED = RequestError("unauthorized", "a valid key is required: send `Authorization: Bearer <key>`")


class Guard:
    """The judge of request heads. probe_auth: health and readiness need a valid key, too."""

    def __init__(self, keyring: Keyring, *, probe_auth: bool = False) -> None:
        self._keyring = keyring
        self._probe_auth = probe_auth

    def judge(self, request: Request, token: str, match: Match | None) -> AccessVerdict:
        """Return the verdict on a request.

        token: the decoded token of the query. match: the match of the path; None for an unknown
        path.
        """
        if not self._keyring:
            return _OPEN
        method = "GET" if request.method == "HEAD" else request.method
        route = match.methods.get(method) if match is not None else None
        access = _access(match, route)
        if access is Access.PROBE and not self._probe_auth:
            return AccessVerdict(UNAUTHENTICATED)
        if access is Access.OPEN:
            return AccessVerdict(UNAUTHENTICATED)
        own = access is Access.OWN and request.method == "GET"
        principal = self._identify(request, token if own or access is Access.STREAM else "")
        if own:
            return AccessVerdict(principal or UNAUTHENTICATED)
        if principal is None:
            return AccessVerdict(UNAUTHENTICATED, unauthorized=_UNAUTHORIZED)
        if access is Access.PROBE:
            return AccessVerdict(principal)
        return AccessVerdict(principal, principal, None, _forbidden(principal, request.path, method, route))

    def judge_again(self, principal: Principal, request: Request, method: str, route: Route | None) -> AccessVerdict:
        """Return the current verdict on an admitted request.

        principal: its key's, before the key changed.
        """
        found = principal.of_now
        if found is None:
            return AccessVerdict(UNAUTHENTICATED, unauthorized=_UNAUTHORIZED)
        return AccessVerdict(found, found, None, _forbidden(found, request.path, method, route))

    def _identify(self, request: Request, of_query: str) -> Principal | None:
        """Return the principal of the key in the header, else of the token in the query.

        None: neither is a valid key.
        """
        value = request.headers.get(b"authorization", b"")
        token = value[len(_BEARER) :].strip(b" \t") if value.startswith(_BEARER) else b""
        if not token:
            token = of_query.encode("utf-8", "surrogateescape")
        return self._keyring.find(token) if token else None


def _access(match: Match | None, route: Route | None) -> Access:
    """Return how a path takes its credential. Probes are free with any method."""
    if route is not None:
        return route.access
    if match is not None and any(other.access is Access.PROBE for other in match.methods.values()):
        return Access.PROBE
    return Access.KEY


def _forbidden(principal: Principal, path: str, method: str, route: Route | None) -> RequestError | None:
    """Return the error of steps 5 and 6 (scopes, then the name in the path); None if both pass."""
    scope = route.scope if route is not None else shape_scope(method, path)
    if not principal.may(scope):
        return RequestError("forbidden", f"this key lacks a scope: {_names(scope)} is needed")
    if principal.restricted:
        name = path_name(path)
        if name is not None and not principal.allows(name):
            return RequestError("forbidden", "this key may not use the name in the path")
    return None


def shape_scope(method: str, path: str) -> Scope:
    """Return the scope of a path without a route, from the shape of the path (4.4)."""
    if path.startswith(_TOPICS):
        return Scope.WRITE
    if path.startswith(_ROUTERS):
        return _ROUTER_METHODS.get(method, Scope.ADMIN)
    return Scope.NONE


def path_name(path: str) -> bytes | None:
    """Return the topic or router that a path names, percent-decoded; None where it names none."""
    for start in (_TOPICS, _ROUTERS):
        if path.startswith(start):
            return percent_decoded(path[len(start) :].partition("/")[0])
    return None


def _names(scope: Scope) -> str:
    return " and ".join(str(one.name).lower() for one in Scope if one in scope)
