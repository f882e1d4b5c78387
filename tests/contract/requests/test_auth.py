"""Keys, scopes and prefixes over the wire."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld, is_live, sim_options
from tests.contract.world.answer import Answer
from tests.contract.world.live_world import LiveWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.sse_client import EventStream, create
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World
from topics.http.access.guard import shape_scope
from topics.http.access.routes import Access, Route
from topics.http.access.scope import Scope
from topics.http.route_table import ROUTES
from topics.http.streams import stream_slots

KEYS = "root,reader:read,writer:write,deleter:delete,admin:admin,rw:rw,box:rw+d+a:box-|b:,boxreader:r:box-"
UNAUTHORIZED = (401, "unauthorized", None)
FORBIDDEN = (403, "forbidden", None)
TOKENS = {
    "root": Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN,
    "reader": Scope.READ,
    "writer": Scope.WRITE,
    "deleter": Scope.DELETE,
    "admin": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}
STREAM = {"Accept": "text/event-stream"}


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


@pytest.fixture
def keyed(make_world: MakeWorld) -> World:
    """A server with the keys above."""
    return make_world(api_keys=KEYS)


def ask(world: World, token: str | None, method: str, path: str, body: Any = None) -> Answer:
    headers = {} if token is None else bearer(token)
    return world.request(method, path, **({} if body is None else {"body": body}), headers=headers)


# --- credentials ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "value",
    [
        None, "", "Bearer", "Bearer ", "Bearer  ", "bearer root", "BEARER root", "Basic root", "root", "Bearerroot",
        "Bearer\troot", "Bearer roo", "Bearer root x", "Bearer root,reader", "Bearer ROOT", "Token root",
    ],
)  # fmt: skip
def test_what_is_no_valid_credential(keyed: World, value: str | None) -> None:
    """4.3/3: the scheme exactly, one blank, the rest trimmed, and a key."""
    headers = {} if value is None else {"Authorization": value}
    for method, path in (("GET", "/v0/topics"), ("PUT", "/v0/topics/t"), ("GET", "/v0/metrics"), ("GET", "/nowhere")):
        answer = keyed.request(method, path, headers=headers)
        assert answer.refusal == UNAUTHORIZED
        assert answer.header("www-authenticate") is None


@pytest.mark.parametrize("value", ["Bearer root", "Bearer   root", "Bearer root  ", "Bearer \troot"])
def test_blanks_around_a_token_are_trimmed(keyed: World, value: str) -> None:
    """4.3/3: after the scheme and its one blank."""
    assert keyed.request("GET", "/v0/topics", headers={"Authorization": value}).status == 200


def test_a_missing_key_is_told_before_anything_else_is_looked_at(keyed: World) -> None:
    """2.4/2: path, method, name, size, type and shape of the body come after the keys."""
    for method, path in (("GET", "/nowhere"), ("BREW", "/v0/topics/t"), ("GET", "/v0/topics/%FF"), ("OPTIONS", "/")):
        assert keyed.request(method, path).refusal == UNAUTHORIZED
    assert keyed.request("POST", "/v0/topics/t", b"{", {"Content-Type": "text/plain"}).refusal == UNAUTHORIZED
    assert keyed.request("POST", "/v0/topics/t", headers={"Content-Length": str(1 << 40)}).refusal == UNAUTHORIZED
    # Syntax comes first.
    assert keyed.raw(b"GET /v0/topics HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_without_keys_credentials_mean_nothing(world: World) -> None:
    """4.2: whatever is sent."""
    for headers in ({}, bearer("nonsense"), {"Authorization": "Basic x"}):
        assert world.request("GET", "/v0/topics?token=x", headers=headers).status == 200
        assert world.request("PUT", "/v0/topics/t", headers=headers).status in (200, 201)


def test_a_token_in_the_query_is_ignored_outside_the_streams(keyed: World) -> None:
    """R-AUTH-7: no credential there, and no harm beside one."""
    for path in ("/v0/topics?token=root", "/v0/metrics?token=root", "/v0/topics/t?token=root", "/v0/ws?token=root"):
        assert keyed.request("GET", path).refusal == UNAUTHORIZED
    assert keyed.request("GET", "/v0/topics?token=wrong", headers=bearer("root")).status == 200


def test_a_key_answers_request_after_request_on_one_connection(keyed: World) -> None:
    """4.3: each request for itself, pipelined ones too."""
    connection = keyed.connect()
    for token, status in (("root", 200), ("wrong", 401), ("reader", 200), (None, 401), ("root", 200), ("writer", 403)):
        for _ in range(2):
            headers = bearer(token) if token else {}
            assert connection.request("GET", "/v0/topics", headers=headers).status == status


# --- scopes ---------------------------------------------------------------------------------------------------------
def filled(pattern: str) -> str:
    return "/".join("box-1" if part.startswith(":") else part for part in pattern.split("/"))


def routes_and_tokens() -> list[Any]:
    pairs = itertools.product(ROUTES, TOKENS)
    return [pytest.param(route, token, id=f"{route.method} {route.pattern} {token}") for route, token in pairs]


def body_of(route: Route) -> dict[str, Any]:
    return {} if route.method in ("GET", "DELETE") else {"body": {}}


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One keyed server for the whole matrix: nothing it is asked leaves more than empty topics."""
    world: World
    if is_live(request.config):
        world = LiveWorld(tmp_path_factory.mktemp("keyed"), api_keys=KEYS)
    else:
        world = SimWorld(**sim_options(), api_keys=KEYS)
    world.start()
    yield world
    world.close()


@pytest.mark.parametrize(("route", "token"), routes_and_tokens())
def test_a_route_takes_exactly_the_keys_with_its_scopes(shared: World, route: Route, token: str) -> None:
    """4.4, 4.3/5: the matrix of routes and scopes, from the table that routes."""
    headers = bearer(token, **(STREAM if route.access in (Access.STREAM, Access.OWN) else {}))
    connection = shared.ask(route.method, filled(route.pattern), headers=headers, **body_of(route))
    answer = connection.answer(route.method)
    if route.scope in TOKENS[token] or route.access is Access.OPEN:
        assert answer.status not in (401, 403)
    else:
        assert answer.refusal == FORBIDDEN
    connection.reset()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_a_route_asks_for_a_key_unless_it_says_otherwise(shared: World, route: Route) -> None:
    """4.3: deny by default."""
    answer = shared.request(route.method, filled(route.pattern), **body_of(route))
    if route.access in (Access.PROBE, Access.OPEN, Access.OWN):
        assert answer.status != 401 or route.access is Access.OWN
    else:
        assert answer.refusal == UNAUTHORIZED


SCOPES_OF_THE_CONTRACT = {
    "PUT /v0/topics/:topic": Scope.ADMIN,
    "PATCH /v0/topics/:topic": Scope.ADMIN,
    "GET /v0/topics/:topic": Scope.READ,
    "GET /v0/topics": Scope.READ,
    "DELETE /v0/topics/:topic": Scope.DELETE,
    "POST /v0/topics/:topic": Scope.WRITE,
    "POST /v0/topics/:topic/diff": Scope.READ,
    "POST /v0/topics/:topic/delete": Scope.DELETE,
    "POST /v0/topics/:topic/claim": Scope.READ | Scope.WRITE,
    "GET /v0/topics/:topic/work": Scope.READ | Scope.WRITE,
    "POST /v0/topics/:topic/ack": Scope.WRITE,
    "POST /v0/topics/:topic/nack": Scope.WRITE,
    "POST /v0/topics/:topic/extend": Scope.WRITE,
    "GET /v0/topics/:topic/dead": Scope.READ,
    "POST /v0/topics/:topic/redrive": Scope.WRITE | Scope.DELETE,
    "PUT /v0/topics/:topic/readers/:reader": Scope.ADMIN,
    "GET /v0/topics/:topic/readers/:reader": Scope.READ,
    "GET /v0/topics/:topic/readers": Scope.READ,
    "DELETE /v0/topics/:topic/readers/:reader": Scope.ADMIN,
    "POST /v0/topics/:topic/readers/:reader/read": Scope.READ,
    "POST /v0/topics/:topic/readers/:reader/commit": Scope.READ,
    "POST /v0/topics/:topic/readers/:reader/seek": Scope.READ,
    "PUT /v0/routers/:router": Scope.ADMIN,
    "GET /v0/routers/:router": Scope.READ,
    "GET /v0/routers": Scope.READ,
    "DELETE /v0/routers/:router": Scope.DELETE,
    "POST /v0/watch": Scope.READ,
    "GET /v0/watch/:wid": Scope.NONE,
    "POST /v0/wait": Scope.READ,
    "POST /v0/checkpoint": Scope.ADMIN,
    "POST /v0/backups": Scope.ADMIN,
    "GET /v0/backups": Scope.ADMIN,
    "GET /v0/archive": Scope.ADMIN,
    "GET /v0/archive/file": Scope.ADMIN,
    "GET /v0/ws": Scope.NONE,
    "GET /v0/metrics": Scope.READ,
    "GET /v0/health": Scope.NONE,
    "GET /v0/ready": Scope.NONE,
    "GET /healthz": Scope.NONE,
    "GET /readyz": Scope.NONE,
    "GET /openapi.json": Scope.READ,
    "GET /docs": Scope.READ,
    "GET /docs/contract/:section": Scope.READ,
    "GET /docs/guides/:page": Scope.READ,
    "GET /": Scope.NONE,
    "GET /ui": Scope.NONE,
}
ACCESS_OF_THE_CONTRACT = {
    "GET /v0/topics/:topic/work": Access.STREAM,
    "GET /v0/watch/:wid": Access.OWN,
    "GET /v0/health": Access.PROBE,
    "GET /v0/ready": Access.PROBE,
    "GET /healthz": Access.PROBE,
    "GET /readyz": Access.PROBE,
    "GET /docs": Access.OPEN,
    "GET /docs/contract/:section": Access.OPEN,
    "GET /docs/guides/:page": Access.OPEN,
    "GET /": Access.OPEN,
    "GET /ui": Access.OPEN,
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_every_route_declares_the_scope_of_the_contract(route: Route) -> None:
    """4.4: a route that is missing here fails."""
    name = f"{route.method} {route.pattern}".replace(":q", ":topic")
    assert route.scope == SCOPES_OF_THE_CONTRACT[name]
    assert route.access == ACCESS_OF_THE_CONTRACT.get(name, Access.KEY)


def test_what_is_no_route_has_the_scope_of_its_shape(keyed: World) -> None:
    """4.4: under a topic write, under a router by method; elsewhere any key, and then the path is unknown."""
    for token, status in (("root", 404), ("writer", 404), ("rw", 404), ("reader", 403), ("admin", 403)):
        for method, path in (("GET", "/v0/topics/t/unknown"), ("POST", "/v0/topics/t/diff/x"), ("PUT", "/v0/topics/")):
            assert ask(keyed, token, method, path).status == status
    for token, status in (("writer", 405), ("reader", 403)):
        assert ask(keyed, token, "BREW", "/v0/topics/t").status == status
        assert ask(keyed, token, "GET", "/v0/topics/t/diff").status == status
    assert ask(keyed, "reader", "POST", "/v0/routers/r").refusal == FORBIDDEN
    assert ask(keyed, "admin", "POST", "/v0/routers/r").status in (404, 405)
    for path in ("/ui/", "/v0", "/v0/nothing", "/v1/topics/t"):
        assert ask(keyed, "deleter", "GET", path).refusal == (404, "not_found", None)
    assert ask(keyed, "deleter", "POST", "/v0/metrics").status == 405


def test_the_shape_of_a_path_has_its_scope_without_a_table() -> None:
    """4.4: also before the routes of a feature exist."""
    assert shape_scope("GET", "/v0/routers/r") == Scope.READ
    assert shape_scope("PUT", "/v0/routers/r") == Scope.ADMIN
    assert shape_scope("DELETE", "/v0/routers/r") == Scope.DELETE
    assert shape_scope("PATCH", "/v0/routers/r") == Scope.ADMIN
    assert shape_scope("GET", "/v0/topics/t/x") == Scope.WRITE


def test_head_needs_what_get_needs(keyed: World) -> None:
    """4.4, 2.1: authentication included."""
    assert ask(keyed, "root", "PUT", "/v0/topics/t").status == 201
    for token, status in (("reader", 200), ("writer", 403), ("nobody", 401)):
        for path in ("/v0/topics", "/v0/topics/t", "/v0/metrics"):
            assert ask(keyed, token, "HEAD", path).status == status
    assert ask(keyed, None, "HEAD", "/healthz").status == 200


# --- names ----------------------------------------------------------------------------------------------------------
def test_the_name_in_the_path_must_begin_with_a_prefix(keyed: World) -> None:
    """4.3/6: any method and subpath, after the scopes."""
    assert ask(keyed, "box", "PUT", "/v0/topics/box-1").status == 201
    assert ask(keyed, "box", "PUT", "/v0/topics/b:x").status == 201
    for name in ("other", "Box-1", "box", "b", "xbox-1", "%62ox"):
        for method, path in (("GET", ""), ("PUT", ""), ("POST", "/diff"), ("DELETE", ""), ("GET", "/unknown")):
            assert ask(keyed, "box", method, f"/v0/topics/{name}{path}").refusal == FORBIDDEN
    assert ask(keyed, "boxreader", "PUT", "/v0/topics/other").refusal == FORBIDDEN


def test_prefixes_meet_the_decoded_name(keyed: World) -> None:
    """4.3/6: as the topic will be called."""
    assert ask(keyed, "box", "PUT", "/v0/topics/%62%6Fx%2D2").json["topic"] == "box-2"
    assert ask(keyed, "box", "GET", "/v0/topics/box%2D%FF").refusal == (400, "invalid_request", None)
    assert ask(keyed, "box", "GET", "/v0/topics/%FF").refusal == FORBIDDEN
    assert ask(keyed, "box", "GET", "/v0/routers/box-%3Ex").status in (404, 200)
    assert ask(keyed, "box", "GET", "/v0/routers/a-%3Ebox-").refusal == FORBIDDEN


def test_a_list_shows_what_the_key_may_see(keyed: World) -> None:
    """R-AUTH-4: pages count allowed names only."""
    for name in ("a", "box-1", "box-2", "c", "box-3"):
        ask(keyed, "root", "PUT", f"/v0/topics/{name}")
    first = ask(keyed, "boxreader", "GET", "/v0/topics?page_size=2").json
    assert [row["topic"] for row in first["topics"]] == ["box-1", "box-2"]
    rest = ask(keyed, "boxreader", "GET", f"/v0/topics?page_size=2&cursor={first['next_cursor']}").json
    assert [row["topic"] for row in rest["topics"]] == ["box-3"]
    assert "next_cursor" not in rest
    assert ask(keyed, "boxreader", "GET", "/v0/topics?prefix=a").json["topics"] == []


def test_metrics_show_the_topics_of_the_key_one_by_one(keyed: World) -> None:
    """12.3, 4.3: all others are only in the sums."""
    for name in ("a", "box-1", "b:x", "c"):
        ask(keyed, "root", "PUT", f"/v0/topics/{name}")

    def shown(token: str) -> set[str]:
        text = ask(keyed, token, "GET", "/v0/metrics").text
        assert "\ntopics_topics 4.0\n" in text
        return set(re.findall(r'topic="([^"]+)"', text))

    assert shown("root") == shown("reader") == {"a", "b:x", "box-1", "c"}
    assert shown("boxreader") == {"box-1"}
    assert shown("box") == {"b:x", "box-1"}


def test_refusals_of_routers_name_what_the_key_may_name(keyed: World) -> None:
    """R-AUTH-9: the others are left out, and what is refused is the same."""
    for name, source, dest in (
        ("r1", "box-a", "secret-1"),
        ("r2", "secret-1", "secret-2"),
        ("r3", "secret-2", "box-z"),
        ("box-r", "box-q", "secret-3"),
    ):
        body = {"source": source, "dest": dest}
        assert ask(keyed, "root", "PUT", f"/v0/routers/{name}", body).status == 201

    def put(token: str, name: str, source: str, dest: str) -> Answer:
        return ask(keyed, token, "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})

    way = ["box-z", "box-a", "secret-1", "secret-2", "box-z"]
    assert put("root", "box-c", "box-z", "box-a").refusal == (409, "router_cycle", {"cycle": way})
    refused = put("box", "box-c", "box-z", "box-a")
    assert refused.refusal == (409, "router_cycle", {"cycle": ["box-z", "box-a", "box-z"]})
    assert "secret" not in refused.text
    assert put("root", "box-r", "box-q", "box-x").refusal[2] == {
        "router": "box-r",
        "reason": "router_repoint_forbidden",
        "existing_source": "box-q",
        "existing_dest": "secret-3",
    }
    refused = put("box", "box-r", "box-q", "box-x")
    detail = {"router": "box-r", "reason": "router_repoint_forbidden", "existing_source": "box-q"}
    assert refused.refusal == (409, "topic_exists_incompatible", detail)
    assert "secret" not in refused.text
    assert "'r3'" in put("root", "box-c", "box-q", "box-z").text
    refused = put("box", "box-c", "box-q", "box-z")
    assert refused.refusal[2] == {"topic": "box-z", "reason": "router_dest_fan_in"}
    assert "r3" not in refused.text
    assert ask(keyed, "box", "DELETE", "/v0/topics/box-a").json["routers_removed"] == []
    assert ask(keyed, "root", "GET", "/v0/routers/r1").status == 404, "it went along all the same"
    assert ask(keyed, "box", "DELETE", "/v0/topics/box-q").json["routers_removed"] == ["box-r"]


def test_a_dead_letter_must_be_allowed(keyed: World) -> None:
    """R-AUTH-6, 7.1/3, 7.17/2: after its own rule, in every configuration that is taken."""
    put = ask(keyed, "box", "PUT", "/v0/topics/box-q", {"type": "queue", "dead_letter": "dlq"})
    assert put.refusal == (403, "forbidden", {"topic": "dlq"})
    assert ask(keyed, "box", "PUT", "/v0/topics/box-q", {"dead_letter": "!"}).status == 400
    assert ask(keyed, "box", "PUT", "/v0/topics/box-p").status == 201
    patch = ask(keyed, "box", "PATCH", "/v0/topics/box-p", {"dead_letter": "dlq"})
    assert patch.refusal == (403, "forbidden", {"topic": "dlq"})
    write = {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": "dlq"}}
    assert ask(keyed, "box", "POST", "/v0/topics/box-q", write).refusal == (403, "forbidden", {"topic": "dlq"})
    assert ask(keyed, "box", "GET", "/v0/topics/box-q").status == 404
    good = {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": "box-d"}}
    assert ask(keyed, "box", "POST", "/v0/topics/box-q", good).status == 201
    assert ask(keyed, "box", "POST", "/v0/topics/box-q", write).status == 200, "the config of a write to what exists"
    assert ask(keyed, "root", "PUT", "/v0/topics/box-q", {"type": "queue", "dead_letter": "dlq"}).status == 200


def test_creating_with_a_config_needs_admin(keyed: World) -> None:
    """7.5/2: only where it would create, and before the records are looked at."""
    write = {"records": [{"data": 1}], "config": {"cap_records": 5}}
    assert ask(keyed, "writer", "POST", "/v0/topics/t", write).refusal == (403, "forbidden", {"topic": "t"})
    assert ask(keyed, "writer", "POST", "/v0/topics/t", {**write, "records": []}).status == 403
    assert ask(keyed, "writer", "POST", "/v0/topics/!", write).status == 403
    assert ask(keyed, "admin", "POST", "/v0/topics/t", write).refusal == FORBIDDEN
    assert ask(keyed, "writer", "POST", "/v0/topics/t", {"records": [{"data": 1}]}).status == 201
    assert ask(keyed, "writer", "POST", "/v0/topics/t", write).status == 200
    assert ask(keyed, "root", "POST", "/v0/topics/t2", write).status == 201


# --- requests in flight ---------------------------------------------------------------------------------------------
POLL = {"wait_ms": 30_000}


def test_requests_in_flight_of_a_key_have_a_cap(make_world: MakeWorld) -> None:
    """4.3/4, 14: TOPICS_MAX_INFLIGHT_PER_KEY, felt only by that key, checked before its rights, freed by the answer."""
    world = make_world(api_keys="k,other,narrow:r:x", max_inflight_per_key=2)
    ask(world, "k", "PUT", "/v0/topics/t")
    polls = [world.ask("POST", "/v0/topics/t/diff", POLL, bearer("k")) for _ in range(2)]
    assert all(poll.waiting for poll in polls)
    refused = ask(world, "k", "GET", "/v0/topics/t")
    assert refused.refusal == (429, "throttled", None)
    assert refused.header("retry-after") == "1"
    assert ask(world, "k", "GET", "/nowhere").status == 429
    assert ask(world, "other", "GET", "/v0/topics/t").status == 200
    assert ask(world, None, "GET", "/v0/topics/t").status == 401
    assert ask(world, None, "GET", "/healthz").status == 200
    assert ask(world, "other", "POST", "/v0/topics/t", {"records": [{"data": 1}]}).status == 200
    assert [poll.answer("POST").status for poll in polls] == [200, 200]
    assert ask(world, "k", "GET", "/v0/topics/t").status == 200


def test_a_client_that_leaves_frees_its_place(make_world: MakeWorld) -> None:
    """R-NET-11, 4.3: out of a long poll, and out of half a body."""
    world = make_world(api_keys="k", max_inflight_per_key=1)
    ask(world, "k", "PUT", "/v0/topics/t")
    poll = world.ask("POST", "/v0/topics/t/diff", POLL, bearer("k"))
    assert poll.waiting
    assert ask(world, "k", "GET", "/v0/topics").status == 429
    poll.reset()
    assert ask(world, "k", "GET", "/v0/topics").status == 200
    head = "POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nAuthorization: Bearer k\r\n\r\n{"
    half = world.connect().send(head.encode())
    assert half.waiting
    assert ask(world, "k", "GET", "/v0/topics").status == 429
    half.reset()
    assert ask(world, "k", "GET", "/v0/topics").status == 200


@pytest.mark.parametrize("settings", [{"api_keys": "k", "max_inflight_per_key": 0}, {"max_inflight_per_key": 1}])
def test_no_cap_is_none(make_world: MakeWorld, settings: dict[str, Any]) -> None:
    """14, 4.2: zero, and without keys."""
    world = make_world(**settings)
    ask(world, "k", "PUT", "/v0/topics/t")
    polls = [world.ask("POST", "/v0/topics/t/diff", POLL, bearer("k")) for _ in range(3)]
    assert all(poll.waiting for poll in polls)


# --- probes and states ----------------------------------------------------------------------------------------------
PROBES = ("/healthz", "/readyz", "/v0/health", "/v0/ready")


def test_probes_need_no_key(keyed: World) -> None:
    """4.3/1: nor does a wrong one harm, nor another method."""
    for path in PROBES:
        assert keyed.request("GET", path).status == 200
        assert ask(keyed, "nonsense", "GET", path).status == 200
        assert keyed.request("POST", path).status == 405


def test_probes_need_a_key_when_told_so(make_world: MakeWorld) -> None:
    """4.3/1, 14: TOPICS_PROBE_AUTH asks for any key, whatever its scopes and prefixes."""
    world = make_world(api_keys="d:d:p", probe_auth=True)
    for path in PROBES:
        assert world.request("GET", path).refusal == UNAUTHORIZED
        assert ask(world, "x", "GET", path).refusal == UNAUTHORIZED
        assert ask(world, "d", "GET", path).status == 200


def test_probe_auth_without_keys_asks_for_nothing(make_world: MakeWorld) -> None:
    """4.2: dev mode."""
    world = make_world(probe_auth=True)
    assert world.request("GET", "/healthz").status == 200


def test_secrets_are_not_kept_by_a_running_server(make_world: MakeWorld) -> None:
    """4.1: the configuration forgets them."""
    world = make_world(api_keys="topsecret")
    server = getattr(world, "server", None)
    if server is None:
        pytest.skip("needs the server's insides")
    ask(world, "topsecret", "GET", "/v0/topics")
    assert server.config.api_keys == server.service.config.api_keys == ""
    assert "topsecret" not in repr(server.service.planner.kept.keys())


@pytest.mark.http1
def test_a_key_that_is_taken_away_writes_no_more(make_world: MakeWorld, tmp_path: Path) -> None:
    """4.1, 4.3: however often its requests were seen before, on connections that stay; others continue."""
    keys = tmp_path / "keys"
    keys.write_text("old\nstays\n")
    keys.chmod(0o600)
    world = make_world(api_keys_file=str(keys))
    write = {"records": [{"data": 1}]}
    connections = {token: world.connect() for token in ("old", "stays", "new")}
    if isinstance(world, SimWorld):
        assert world.server is not None
        if world.server.lane is not None:
            world.server.lane.least = 1  # these requests come one by one

    def statuses() -> dict[str, int]:
        return {
            token: connection.request("POST", "/v0/topics/t", write, bearer(token)).status
            for token, connection in connections.items()
        }

    for _ in range(5):
        found = statuses()
        if isinstance(world, SimWorld):
            world.advance_ms(1500)
    assert found == {"old": 200, "stays": 200, "new": 401}
    if isinstance(world, SimWorld):
        assert world.server is not None
        lane = world.server.lane
        for _ in range(100):  # where the network cuts requests, it takes a while until one arrives whole
            if lane is None or lane.taken:
                break
            statuses()
        assert lane is None or lane.taken, "writes were not seen often enough"
    change_keys(world, keys, "new\nstays\n")
    for _ in range(5):
        assert statuses() == {"old": 401, "stays": 200, "new": 200}


def change_keys(world: World, file: Path, text: str) -> None:
    file.write_text(text)
    if isinstance(world, LiveWorld):
        assert world.process is not None
        before = world.stderr().count("read again")
        world.process.send_signal(signal.SIGHUP)
        world._until(lambda: world.stderr().count("read again") >= before + world.cores, 10)
    else:
        assert isinstance(world, SimWorld)
        assert world.server is not None
        world.server.reload_keys()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("gone\nless\nstays\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def changing(make_world: MakeWorld, key_file: Path) -> World:
    """A server with the keys of the file, a log and a queue with a job."""
    world = make_world(api_keys_file=str(key_file))
    assert ask(world, "stays", "POST", "/v0/topics/t", {"records": [{"data": 1}]}).status == 201
    assert ask(world, "stays", "PUT", "/v0/topics/q", {"type": "queue"}).status == 201
    return world


FEWER = "less:r:t\nstays\n"
"""`gone` is taken away, `less` may do less, `stays` stays."""


@pytest.mark.parametrize("token", ["gone", "less"])
def test_a_watch_stream_ends_with_its_key(changing: World, key_file: Path, token: str) -> None:
    """4.1, R-WATCH-4, R-WATCH-15: without a frame; its session is gone, too. Streams of other keys continue."""
    streams = {}
    for each in (token, "stays"):
        answer = create(changing, "t", headers=bearer(each))
        streams[each] = EventStream(changing, answer.json["stream_url"], bearer(each) | STREAM)
        streams[each].frames(2)
    wid = create(changing, "t", headers=bearer(token)).json["stream_url"]
    change_keys(changing, key_file, FEWER)
    assert streams[token].ends()
    assert streams[token].rest() == []
    answer = changing.request("GET", wid, headers=bearer(token) | STREAM)
    assert answer.refusal == (404, "not_found", None)
    assert ask(changing, "stays", "POST", "/v0/topics/t", {"records": [{"data": 2}]}).status == 200
    assert streams["stays"].one().data["to_seq"] == 2
    answer = create(changing, "t", headers=bearer(token))
    assert answer.status == (200 if token == "less" else 401)


def test_sessions_whose_streams_end_later_than_their_key_take_no_place_of_others(
    make_world: MakeWorld, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.1: with more streams than end in one pass, the sessions of the last ones were idle, and counted."""
    monkeypatch.setattr(stream_slots, "KEYS_GONE_A_PASS", 1)
    world = make_world(api_keys_file=str(key_file), max_watch_sessions_per_key=2)
    assert ask(world, "stays", "POST", "/v0/topics/t", {"records": [{"data": 1}]}).status == 201
    streams = []
    for _ in range(2):
        answer = create(world, "t", headers=bearer("less"))
        streams.append(EventStream(world, answer.json["stream_url"], bearer("less") | STREAM))
        streams[-1].frames(2)
    change_keys(world, key_file, FEWER)
    assert all(stream.ends() for stream in streams)
    assert [create(world, "t", headers=bearer("less")).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("token", ["gone", "less"])
def test_a_stream_of_jobs_ends_with_its_key(changing: World, key_file: Path, token: str) -> None:
    """4.1, R-Q-29: a frame says why, and its jobs are claimable at once."""
    path = "/v0/topics/q/work?node=w"
    stream = EventStream(changing, path, bearer(token) | STREAM)
    other = EventStream(changing, path, bearer("stays") | STREAM)
    ask(changing, "stays", "POST", "/v0/topics/q", {"records": [{"data": 1}, {"data": 2}]})
    assert (stream.one().event, other.one().event) == ("job", "job")
    change_keys(changing, key_file, FEWER)
    frame = stream.one()
    assert (frame.event, frame.id, frame.data["code"], frame.data["topic"]) == ("error", None, "unauthorized", "q")
    assert stream.ends()
    assert ask(changing, "stays", "GET", "/v0/topics/q").json["queue"]["in_flight"] == 1
    assert other.rest() == []


@pytest.mark.http1
@pytest.mark.parametrize("token", ["gone", "less"])
def test_a_websocket_ends_with_its_key(changing: World, key_file: Path, token: str) -> None:
    """4.1, 11.6: the reason, then 1008; nothing is delivered to it any more."""
    socket, other = WebSocket(changing, **bearer(token)), WebSocket(changing, **bearer("stays"))
    for each in (socket, other):
        each.subscribe("t", 1)
        assert each.next()["op"] == "caught_up"
    change_keys(changing, key_file, FEWER)
    ask(changing, "stays", "POST", "/v0/topics/t", {"records": [{"data": 2}]})
    told = socket.next()
    assert (told["op"], told["code"], sorted(told)) == ("error", "unauthorized", ["code", "message", "op"])
    assert socket.closed_with() == 1008
    assert other.next()["op"] == "record"


def test_streams_of_a_key_that_stays_go_on(changing: World, key_file: Path) -> None:
    """4.1: also when others come, and when the file is read again as it was."""
    stream = EventStream(changing, create(changing, "t", headers=bearer("less")).json["stream_url"], bearer("less"))
    stream.frames(2)
    change_keys(changing, key_file, "less\nnew\nstays\n")
    change_keys(changing, key_file, "less\nnew\nstays\n")
    ask(changing, "new", "POST", "/v0/topics/t", {"records": [{"data": 2}]})
    assert stream.one().event == "record"


@pytest.mark.parametrize(("token", "status"), [("gone", 401), ("less", 403), ("stays", 200)])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.http1
def test_a_key_is_asked_again_when_the_body_is_whole(
    changing: World, key_file: Path, token: str, status: int, chunked: bool
) -> None:
    """R-AUTH-10: a client that sends a body slowly would continue to write with a removed key."""
    body = b'{"records":[{"data":"late"}]}'
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%b\r\n"
    whole = head % framing + b"Authorization: Bearer %b\r\n\r\n" % token.encode()
    end = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    connection = changing.connect()
    assert connection.send(whole + end[:-1]).waiting
    change_keys(changing, key_file, FEWER)
    assert connection.send(end[-1:]).answer("POST").status == status
    assert ask(changing, "stays", "GET", "/v0/topics/t").json["head_seq"] == (2 if status == 200 else 1)
    assert connection.request("GET", "/v0/topics/t", None, bearer("stays")).status == 200, "the connection goes on"
