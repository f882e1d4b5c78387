"""Slow and hostile clients (T13, T18, T19): others are served all the while, and afterwards nothing of them is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.answer import Answer
from tests.contract.world.live_world import LiveWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import ABSENT, Connection, World, request_bytes

WRITE = request_bytes("POST", "/v0/topics/t", {"records": [{"data": "x" * 50}]})
HEAD = (
    b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
)


def held(world: World) -> dict[str, int]:
    """Return the bytes that the server holds for clients, as far as they can be seen from here."""
    if isinstance(world, LiveWorld):
        return {"descriptors": world.descriptors() // 10}  # its own files come and go
    assert isinstance(world, SimWorld)
    server = world.server
    assert server is not None
    connections = list(server.listener.connections)
    return {
        "connections": len(connections),
        "descriptors": len(world.ring.open_fds),
        "outbound": sum(conn.outbound_bytes for conn in connections),
        "inbound": sum(conn.state.held_bytes for conn in connections),
        "in progress": server.service.in_flight.requests,
        "streams": server.service.streams.slots.open,
    }


@pytest.fixture
def sober(world: World) -> Iterator[World]:
    """Before and after the test the server holds the same, and it serves all the while."""
    asked(world, "POST", "/v0/topics/t", {"records": [{"data": "first"}]})
    world.settle()
    before = held(world)
    yield world
    assert asked(world).status == 200
    world.settle()
    world.wait_until(lambda: not_more(world, before), 5000)
    assert not_more(world, before), (held(world), before)


def not_more(world: World, before: dict[str, int]) -> bool:
    """A connection that was still closing before may be gone by now."""
    return all(count <= before[name] for name, count in held(world).items())


def asked(world: World, method: str = "GET", path: str = "/v0/topics/t", body: Any = ABSENT) -> Answer:
    """One request over a connection that does not stay."""
    connection = world.connect()
    answer = connection.request(method, path, body)
    connection.reset()
    return answer


def gone(world: World, connections: list[Connection]) -> None:
    for connection in connections:
        connection.reset()
    world.settle()


def test_heads_that_trickle_end_within_their_minute(sober: World) -> None:
    """R-NET-4: a byte a second of a head each, and no other client waits (T18)."""
    attackers = [sober.connect() for _ in range(20)]
    head = b"GET /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200
    for second in range(62):
        for attacker in attackers:
            attacker.send(head[second : second + 1])
        sober.advance_ms(1000)
        if second % 20 == 0:
            assert asked(sober).status == 200
    for attacker in attackers:
        assert attacker.ended
    gone(sober, attackers)


def test_bodies_that_trickle_end_within_seconds(sober: World) -> None:
    """R-NET-11: a byte a second of a body each (T18)."""
    attackers = [sober.connect().send(HEAD) for _ in range(20)]
    for _ in range(13):
        for attacker in attackers:
            if not attacker.ended:
                attacker.send(b" ")
        sober.advance_ms(1000)
    for attacker in attackers:
        assert attacker.ended
    gone(sober, attackers)


def test_clients_that_vanish_are_missed_by_keep_alive(sober: World) -> None:
    """R-NET-11, R-SSE-5: without a FIN, and with nothing on its way to them that could be missed."""
    if not isinstance(sober, SimWorld):
        pytest.skip("only a simulated client can vanish")
    sockets = [WebSocket(sober) for _ in range(5)]
    for socket in sockets:
        socket.subscribe("t", 1)
        assert socket.next()["op"] == "caught_up"
        stream: Any = socket.connection._stream
        stream.vanish()
    sober.advance_ms(110_000)
    assert held(sober)["streams"] == 5
    sober.advance_ms(15_000)
    assert held(sober)["streams"] == 0


@pytest.mark.parametrize("cut", [1, len(HEAD) // 2, len(HEAD), len(HEAD) + 100])
def test_a_reset_anywhere_in_a_request_leaves_nothing(sober: World, cut: int) -> None:
    """R-NET-11: of a head, after it, or in the body (T18)."""
    data = HEAD + b" " * 5000
    attackers = [sober.connect().send(data[:cut]) for _ in range(20)]
    sober.settle()
    gone(sober, attackers)
    assert asked(sober).json["head_seq"] == 1


@pytest.mark.parametrize("data", [b"", HEAD[:30], HEAD, HEAD + b" " * 10, WRITE, WRITE * 3 + WRITE[:20]])
def test_a_half_close_anywhere_ends_the_connection_behind_what_is_whole(sober: World, data: bytes) -> None:
    """R-NET-11, R-NET-3: whole requests are answered, the rest is dropped (T18)."""
    connection = sober.connect().send(data).finish_sending()
    for _ in range(data.count(WRITE)):
        assert connection.answer().status == 200
    assert connection.ended


def test_a_flood_of_pipelined_requests_is_read_no_faster_than_it_is_answered(sober: World) -> None:
    """R-NET-3: by a client that reads nothing; then by one that reads all (T18)."""
    flood = request_bytes("POST", "/v0/topics/t/diff", {"from_seq": 0}) * 5000
    silent = sober.connect().send(flood)
    sober.advance_ms(100)
    if isinstance(sober, SimWorld):
        assert held(sober)["inbound"] < 1 << 20
        assert held(sober)["outbound"] < 4 << 20
    assert asked(sober).status == 200
    gone(sober, [silent])
    reader = sober.connect().send(request_bytes("GET", "/v0/topics/t") * 500)
    for _ in range(500):
        assert reader.answer().status == 200
    gone(sober, [reader])


def test_waiting_clients_that_vanish_together_leave_nothing(sober: World) -> None:
    """R-NET-11: a hundred long polls (T18)."""
    poll = {"from_seq": 1, "wait_ms": 30_000}
    polls = [sober.ask("POST", "/v0/topics/t/diff", poll) for _ in range(100)]
    assert all(poll.waiting for poll in polls[:3])
    gone(sober, polls)
    assert asked(sober, "POST", "/v0/topics/t", {"records": [{"data": "nobody waits"}]}).status == 200


def test_garbage_is_refused_once_and_leaves_nothing(sober: World) -> None:
    """R-NET-8, R-NET-9: other protocols' first bytes, and too much of anything (T13)."""
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
        b"EHLO example\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00" * 1000,
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ):
        connection = sober.connect().send(data)
        assert connection.ends(12_000)
        connection.reset()


def test_more_clients_than_descriptors_are_told_and_leave_nothing(make_world: MakeWorld) -> None:
    """R-NET-8: those within the limit are served on (T19)."""
    world = make_world()
    if not isinstance(world, SimWorld):
        pytest.skip("the process's limits are not ours to change")
    asked(world, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
    kept = [world.connect() for _ in range(3)]
    assert all(connection.request("GET", "/healthz").status == 200 for connection in kept)
    before = held(world)
    world.ring.fd_limit = max(world.ring.open_fds) + 5
    crowd: list[Any] = [world.connect() for _ in range(30)]
    world.advance_ms(2000)
    assert all(connection.request("GET", "/v0/topics/t").status == 200 for connection in kept)
    gone(world, crowd)
    world.advance_ms(2000)
    assert asked(world).status == 200
    world.settle()
    assert held(world) == before


def test_a_key_that_leaves_in_every_way_has_no_request_in_flight(make_world: MakeWorld) -> None:
    """4.3, R-NET-11: its cap is whole afterwards (T18)."""
    world = make_world(api_keys="k", max_inflight_per_key=3)
    auth = {"Authorization": "Bearer k"}
    world.request("PUT", "/v0/topics/t", {}, auth)
    keyed = HEAD.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer k\r\n\r\n")
    for leave in ("reset", "finish_sending"):
        for data in (keyed, keyed + b"x" * 10, keyed[:40]):
            connection = world.connect().send(data)
            world.settle()
            getattr(connection, leave)()
            world.settle()
        poll = world.ask("POST", "/v0/topics/t/diff", {"wait_ms": 30_000}, auth)
        assert poll.waiting
        getattr(poll, leave)()
        world.settle()
    polls = [world.ask("POST", "/v0/topics/t/diff", {"wait_ms": 30_000}, auth) for _ in range(3)]
    assert all(poll.waiting for poll in polls)
    assert world.request("GET", "/v0/topics", headers=auth).status == 429
    gone(world, polls)
    assert world.request("GET", "/v0/topics", headers=auth).status == 200
