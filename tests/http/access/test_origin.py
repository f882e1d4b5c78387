"""Attacks of a web page on a server on its reader's machine: DNS rebinding and cross-site requests."""

import pytest

from tests.http.byte_stream import Echo, Peer, make_service
from topics.http.access.routes import Route, RouteTable
from topics.http.access.scope import Scope


def get(peer: Peer, host: str) -> int:
    (response,) = peer.send(f"GET /v0/topics/a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return response.status


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:4000", "127.0.0.1:4000", "[::1]:4000", "a.localhost", "topics", "10.0.0.7"]
)
def test_names_that_cannot_be_rebound_are_served_on_loopback(peer: Peer, host: str) -> None:
    assert get(peer, host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4000", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_foreign_host_is_refused_on_loopback_whatever_the_route(peer: Peer, host: str) -> None:
    assert get(peer, host) == 403
    (response,) = peer.send(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert response.code == "forbidden"


def test_the_host_of_an_absolute_target_counts(peer: Peer) -> None:
    assert peer.ask("GET", "http://evil.example/v0/topics/a").status == 403


def test_allowed_hosts_are_served_and_any_host_off_loopback(echo: Echo) -> None:
    routes = echo.routes()
    assert get(Peer(make_service(routes, allowed_hosts=("Log.Example",))), "log.example:80") == 200
    assert get(Peer(make_service(routes, bound_host="0.0.0.0")), "any.example") == 200
    assert get(Peer(make_service(routes, bound_host="0.0.0.0", allowed_hosts=("log.example",))), "any.example") == 403
    assert get(Peer(make_service(routes, host_check=False)), "any.example") == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"])
def test_a_name_that_is_bound_to_loopback_is_checked_as_loopback_is(echo: Echo, address: str) -> None:
    service = make_service(echo.routes(), bound_host="log.example")
    assert get(Peer(service), "evil.example") == 200
    service.hosts.listens_on(address)
    assert get(Peer(service), "evil.example:4000") == 403
    assert get(Peer(service), "log.example") == 200
    unchecked = make_service(echo.routes(), bound_host="log.example", host_check=False)
    unchecked.hosts.listens_on(address)
    assert get(Peer(unchecked), "evil.example") == 200


def test_http_1_0_needs_no_host(peer: Peer) -> None:
    (response,) = peer.send(b"GET /v0/topics/a HTTP/1.0\r\n\r\n")
    assert response.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
    ],
)
def test_what_changes_state_may_not_come_from_another_site(peer: Peer, headers: dict[str, str], status: int) -> None:
    assert peer.ask("POST", "/v0/topics/a", b"{}", **headers).status == status
    assert peer.ask("GET", "/v0/topics/a", **headers).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "http://LOCALHOST"}, 200),
        ({"origin": "https://app.example"}, 200),
        ({"origin": "https://app.example", "sec_fetch_site": "cross-site"}, 200),
        ({"origin": "https://app.example:444"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
    ],
)
def test_a_stream_is_not_opened_for_a_page_of_elsewhere(echo: Echo, headers: dict[str, str], status: int) -> None:
    """R-NET-10: no browser asks before it opens a WebSocket."""
    routes = RouteTable([Route("GET", "/v0/ws", Scope.NONE, echo.echo, stream=True)])
    peer = Peer(make_service(routes, allowed_origins=("https://app.example",)))
    assert peer.ask("GET", "/v0/ws", **headers).status == status
    anyone = Peer(make_service(routes, allowed_origins=("*",)))
    assert anyone.ask("GET", "/v0/ws", **headers).status == 200


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:4000", "http://127.0.0.1:4000", 200),
        ("127.0.0.1:4000", "http://127.0.0.1:9999", 403),
        ("127.0.0.1:4000", "http://127.0.0.1", 403),
        ("127.0.0.1:4000", "http://localhost:4000", 403),
        ("127.0.0.1:4000", "chrome-extension://127.0.0.1:4000", 403),
        ("[::1]:4000", "http://[::1]:4000", 200),
        ("[::1]:4000", "http://[::1]:4001", 403),
        ("log.example", "https://log.example", 200),
        ("log.example:443", "https://log.example", 200),
        ("log.example", "http://log.example:80", 200),
        ("log.example", "http://log.example:8080", 403),
        ("log.example", "https://log.example:80", 403),
    ],
)
def test_a_page_of_the_same_host_and_port_is_the_servers_own(echo: Echo, host: str, origin: str, status: int) -> None:
    """A proxy with TLS may stand before the server, so the scheme says no more than which port is the default."""
    peer = Peer(make_service(echo.routes(), allowed_hosts=("log.example",)))
    head = f"POST /v0/topics/a HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Length: 2\r\n"
    (response,) = peer.send(f"{head}Content-Type: application/json\r\n\r\n{{}}".encode())
    assert response.status == status
