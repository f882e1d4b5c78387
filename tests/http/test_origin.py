"""What a web page may not do to a server on its reader's machine: DNS rebinding and cross-site requests."""

import pytest

from tests.http.wire import Echo, Peer, make_service
from topics.http.routes import Route, RouteTable
from topics.http.scope import Scope


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
        ({"sec_fetch_site": "same-origin"}, 200),
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
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
)
def test_a_stream_is_not_opened_for_a_page_of_elsewhere(echo: Echo, headers: dict[str, str], status: int) -> None:
    """R-NET-10: no browser asks before it opens a WebSocket."""
    routes = RouteTable([Route("GET", "/v0/ws", Scope.NONE, echo.echo, stream=True)])
    peer = Peer(make_service(routes, allowed_origins=("https://app.example",)))
    assert peer.ask("GET", "/v0/ws", **headers).status == status
    anyone = Peer(make_service(routes, allowed_origins=("*",)))
    assert anyone.ask("GET", "/v0/ws", **headers).status == 200
