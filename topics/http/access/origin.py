"""The Host and Origin that a request may name: protection from web pages in a local browser.

DNS rebinding makes a browser send requests for `evil.example` to 127.0.0.1. A loopback address
therefore only accepts hosts that cannot be rebound: addresses, `localhost`, names without a dot
(which cannot be registered) and those that the operator allows.

A page of another site may send simple requests without a preflight, and open WebSockets, which CORS
does not cover. A request that changes state or opens a stream must therefore not come from another
origin. A page of another port of this machine is another origin, although a browser considers it
the same site. The table in docs/security.md states these rules for operators.

Pages of an origin that the operator lists may also read answers: CORS headers allow that to their
browsers (R-NET-10). Credentials are never allowed, because keys come in `Authorization`.
"""

from __future__ import annotations

import ipaddress

from topics.errors import RequestError
from topics.http.wire.request import Request

_HOSTS_KEPT = 256
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_OTHER_SITES = (b"cross-site", b"same-site")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_EXPOSED = b"Access-Control-Expose-Headers: Allow, Preference-Applied, Retry-After\r\n"
_ANY_ORIGIN = b"Access-Control-Allow-Origin: *\r\n" + _EXPOSED
PREFLIGHT_HEADERS = (
    b"Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n"
    b"Access-Control-Allow-Headers: Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Prefer\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)
"""Header lines of the answer to a preflight, beside those of all answers to its origin."""


class HostRule:
    """A rule on Host and Origin, decided from the head only.

    host: the name or address that the server is configured to listen on, which is always served.
    allowed_hosts: further names (without port); they enable the check for an address that is not
    loopback, where otherwise any Host passes; "*" allows all. allowed_origins: origins
    (`scheme://host:port`) whose pages have the rights of the server's own; "*" allows all.
    """

    def __init__(
        self,
        host: str,
        allowed_hosts: tuple[str, ...] = (),
        allowed_origins: tuple[str, ...] = (),
        *,
        enabled: bool = True,
    ) -> None:
        self._allowed = {name.lower() for name in (*allowed_hosts, host)}
        self._may_check_host = enabled and "*" not in allowed_hosts
        self._checks_host = self._may_check_host and (bool(allowed_hosts) or is_loopback(host))
        self._known: dict[str, bool] = {}
        """Result of the check by Host.

        A server sees few different ones, so at most 256 are cached.
        """
        self._checks_origin = enabled and "*" not in (*allowed_hosts, *allowed_origins)
        self._origins = {origin.lower() for origin in allowed_origins}
        self._any_origin = "*" in self._origins

    def listens_on(self, address: str) -> None:
        """Note the bound address, known once the configured name is resolved.

        `127.1` and the machine's own name may be loopback, too.
        """
        self._checks_host = self._checks_host or (self._may_check_host and is_loopback(address))

    def refusal(self, request: Request, *, stream: bool = False) -> RequestError | None:
        """Return a 403 for a foreign Host or a foreign page's request; None if the request passes.

        A page of another origin is refused for methods that change state, for upgrades and for
        streams. stream: the request asks for a stream, which is refused whatever its method.
        """
        host = request.authority or request.headers.get(b"host", b"").decode("latin-1")
        if self._checks_host and host and not self._is_known(host):
            return RequestError(
                "forbidden", "this Host is not served here: add it to TOPICS_ALLOWED_HOSTS if it should be"
            )
        if self._checks_origin and (stream or request.method not in _SAFE_METHODS or b"upgrade" in request.headers):
            origin = request.headers.get(b"origin")
            if origin is not None:
                if not self._may_act(origin.decode("latin-1").lower(), host.lower()):
                    return _foreign_page("origin")
            elif request.headers.get(b"sec-fetch-site", b"") in _OTHER_SITES:
                return _foreign_page("site")
        return None

    def cors_headers(self, request: Request) -> bytes:
        """Return the header lines by which a browser lets a page read the answer; b"" for none.

        A listed origin is named, with `Vary`, so that no cache serves its answer to another one.
        """
        origin = request.headers.get(b"origin") if self._origins else None
        if origin is None:
            return b""
        if self._any_origin:
            return _ANY_ORIGIN
        if origin.decode("latin-1").lower() not in self._origins:
            return b""
        return b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n%b" % (origin, _EXPOSED)

    def _is_known(self, host: str) -> bool:
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _HOSTS_KEPT:
                self._known.clear()
            known = self._known[host] = self._is_ours(host_name(host))
        return known

    def _is_ours(self, name: str) -> bool:
        if name in self._allowed or name.endswith(".localhost"):
            return True
        if "." not in name.rstrip(".") and ":" not in name:
            return True
        return is_address(name)

    def _may_act(self, origin: str, host: str) -> bool:
        """Return whether an origin is allowed, or is the target of the request itself.

        The scheme is not compared, because a proxy with TLS may stand before this server.
        """
        if origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        port = _DEFAULT_PORTS.get(scheme)
        return port is not None and bool(authority) and _without_port(authority, port) == _without_port(host, port)


def _without_port(authority: str, default: str) -> str:
    return authority.removesuffix(f":{default}")


def _foreign_page(what: str) -> RequestError:
    message = f"a page of another {what} may not do this: add its origin to TOPICS_ALLOWED_ORIGINS if it should"
    return RequestError("forbidden", message)


def host_name(authority: str) -> str:
    """Return the host of `host`, `host:port` or `[v6]:port`, in lower case, without brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and loopback addresses; False for other names and addresses.

    The unspecified address counts as not loopback.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
