"""The look over all connections: some a pass, and sooner where much has come for clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.engine.fake_store import FakeLoop
from tests.server.server_world import World
from topics.common import memory
from topics.common.memory import GrowingBytes, GrowthWatch, note_held
from topics.config import tiny_config
from topics.engine.values.results import DiffResult
from topics.loop.connection import CLOSED, CLOSING, OPEN, Connection
from topics.server.timeouts import CONNECTIONS_A_PASS, DROPS_A_PASS, Sweep

DIFF = (
    b"POST /v0/topics/a/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 17\r\n\r\n{"wait_ms":30000}'
)


class Peer:
    """A connection that holds `held_bytes`, and its protocol's state."""

    def __init__(self, number: int, held_bytes: int) -> None:
        self.id = self.send_data = number
        self.phase: int = OPEN
        self.outbound_bytes = 0
        self.held_bytes = held_bytes
        self.owned = False
        self.looks = 0
        self.large: list[memoryview] = []
        self.state = SimpleNamespace(
            arriving=(),
            look_cost=1,
            held_bytes=0,
            patient=False,
            admitted=True,
            overdue=self.look,
            large_writes=lambda: (),
        )

    def look(self, _waits: object) -> bool:
        self.looks += 1
        return False

    def large_sends(self) -> list[memoryview]:
        return self.large

    def abort(self) -> None:
        self.phase = CLOSED


class Looks(FakeLoop):
    """A loop of a sweep; `run` makes passes until nothing is due."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[int] = []

    def pinned(self) -> dict[int, int]:
        return {}

    def trim(self) -> None:
        pass


def swept(peers: list[Peer], **settings: Any) -> tuple[Sweep, Looks]:
    loop = Looks()
    service = SimpleNamespace(tick=0, writer=SimpleNamespace(set_date=lambda date: None))
    config = replace(tiny_config("unused"), min_body_bytes_per_s=0, **settings)
    sweep = Sweep(cast(Any, loop), config, cast(Any, service), lambda: cast(Any, peers))
    sweep.start()
    return sweep, loop


def test_a_look_takes_some_connections_a_pass_and_comes_to_all_of_them() -> None:
    peers = [Peer(number, 0) for number in range(3 * CONNECTIONS_A_PASS + 1)]
    _sweep, loop = swept(peers)
    loop.advance_ms(1000)
    seen = [0]
    for _ in range(5):
        seen.append(sum(peer.looks for peer in peers))
        peers[-2].phase = CLOSED  # meanwhile
        loop.advance_ms(0)
    each_pass = [after - before for before, after in pairwise(seen)]
    assert each_pass == [CONNECTIONS_A_PASS] * 2 + [CONNECTIONS_A_PASS - 1, 1, 0]
    assert [peer.looks for peer in peers if peer.phase == OPEN] == [1] * (len(peers) - 1)


def test_a_connection_with_very_many_streams_is_as_many_connections_for_a_look() -> None:
    """256 connections of 1,024 streams each were looked at in one pass."""
    peers = [Peer(number, 1000) for number in range(16)]
    for peer in peers:
        peer.state.look_cost = 1 + CONNECTIONS_A_PASS // 2
    _sweep, loop = swept(peers, max_client_bytes=8 * 1000)
    loop.advance_ms(1000)
    seen = [sum(peer.looks for peer in peers)]
    while loop.waiting > 1:
        loop.advance_ms(0)
        seen.append(sum(peer.looks for peer in peers))
    assert seen[:8] == list(range(2, 17, 2))
    assert len(seen) >= 8 + 8, "the look that weighs them takes as many passes"
    assert sum(peer.phase == CLOSED for peer in peers) == 8


def test_a_look_that_takes_longer_than_a_second_comes_to_all_before_another_begins() -> None:
    """Each second another look began at the first connections, and none came to the last."""
    peers = [Peer(number, 0) for number in range(8 * CONNECTIONS_A_PASS)]
    _sweep, loop = swept(peers)
    loop.advance_ms(1000)
    for _ in range(8):
        loop.advance_ms(400)
    assert [peer.looks for peer in peers[-CONNECTIONS_A_PASS:]] == [1] * CONNECTIONS_A_PASS
    assert peers[0].looks == 1
    loop.advance_ms(0)
    assert peers[0].looks == 2, "the next look was due meanwhile"


def test_all_that_a_look_asks_of_connections_is_asked_of_some_a_pass() -> None:
    """The lane's record of each connection was asked for, and all were sorted, in one pass."""
    peers = [Peer(number, 1000) for number in range(5 * CONNECTIONS_A_PASS)]
    sweep, loop = swept(peers, max_client_bytes=len(peers) * 1000 // 2)
    asked = 0

    def connections() -> Iterator[Peer]:
        nonlocal asked
        for peer in peers:
            asked += 1
            yield peer

    class Admitted(SimpleNamespace):
        @property
        def admitted(self) -> bool:
            nonlocal asked
            asked += 1
            return True

    for peer in peers:
        state = vars(peer.state)
        del state["admitted"]
        peer.state = Admitted(**state)
    sweep._connections = cast(Any, connections)
    a_pass = [0]
    loop.advance_ms(1000)
    while loop.waiting > 1:
        a_pass.append(asked)
        loop.advance_ms(0)
    assert max(after - before for before, after in pairwise(a_pass)) <= 2 * CONNECTIONS_A_PASS
    assert sum(peer.phase == CLOSED for peer in peers) == len(peers) // 2


def test_a_server_refreshes_the_connections_of_its_lane_as_they_are_looked_at() -> None:
    world = World().start()
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.ask(b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    refreshed: list[Connection] = []
    for conn in world.server.listener.connections:
        conn.owned = True
    world.server.lane = cast(Any, SimpleNamespace(refresh=refreshed.append))
    looked_at = iter(world.server._up_to_date_connections())
    first = next(looked_at)
    assert refreshed == [first]
    assert [first, *looked_at] == refreshed
    assert len(refreshed) == len(clients)
    for conn in refreshed:
        conn.owned = False


def test_connections_that_hold_too_much_are_dropped_some_a_pass() -> None:
    peers = [Peer(number, 1000) for number in range(5 * DROPS_A_PASS)]
    _sweep, loop = swept(peers, max_client_bytes=DROPS_A_PASS * 1000)
    dropped = [0]
    loop.advance_ms(1000)
    for _ in range(12):
        dropped.append(sum(peer.phase == CLOSED for peer in peers))
        loop.advance_ms(0)
    assert max(after - before for before, after in pairwise(dropped)) == DROPS_A_PASS
    assert dropped[-1] == 4 * DROPS_A_PASS


def test_what_ended_connections_still_hold_is_counted() -> None:
    peers = [Peer(number, 1000) for number in range(3)]
    peers[0].phase = CLOSING
    peers[0].large = [memoryview(bytes(5000))[:10]]
    sweep, loop = swept(peers, max_client_bytes=16_000)
    loop.advance_ms(1000)
    assert sweep._growth is not None
    assert not sweep._growth.is_short(10_000)
    assert sweep._growth.is_short(10_001), "5,000 for the first, as its end is not complete, and a sixteenth more"


def test_what_comes_during_a_look_is_looked_at_after_it() -> None:
    peers = [Peer(number, 0) for number in range(2 * CONNECTIONS_A_PASS)]
    _sweep, loop = swept(peers, max_client_bytes=160_000)
    loop.advance_ms(1000)
    peers[0].held_bytes = 200_000
    note_held(bytes(10_001))
    for _ in range(15):
        loop.advance_ms(0)
    assert peers[0].phase == CLOSED, "a second before the next look"


def test_what_clients_are_sent_is_counted_before_a_second_has_passed() -> None:
    world = World(max_client_bytes=2_000_000, http_lane="off").start()
    readers = [world.connect() for _ in range(20)]
    for client in readers:
        assert client.ask(DIFF) == []
    world.run_ms(1000 - world.loop.clock.now_ms() % 1000 + 1)
    for number, done in enumerate(world.backend.engine.waiting):
        done(DiffResult(b"%d" % number * 300_000, 1, 9, 9, 1, None, 0, 0))
    world.run_ms(20)
    assert 0 < sum(conn.outbound_bytes for conn in world.loop._traffic.connections()) <= 2_000_000


def test_the_engine_learns_whether_the_memory_for_clients_is_used_up() -> None:
    world = World(max_client_bytes=2_000_000, http_lane="off").start()
    readers = [world.connect() for _ in range(20)]
    for client in readers:
        assert client.ask(DIFF) == []
    is_short = world.is_memory_short
    assert not is_short()
    for number, done in enumerate(world.backend.engine.waiting):
        done(DiffResult(b"%d" % number * 300_000, 1, 9, 9, 1, None, 0, 0))
    assert is_short()
    world.run_ms(1000)
    assert not is_short(), "some were dropped, and what they held has been returned"


def test_a_growth_is_told_of_after_so_many_bytes_and_what_is_shared_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_growth", None)
    note_held(b"1" * 100)
    told: list[int] = []
    watch = GrowthWatch(100, lambda: told.append(1))
    shared = bytes(60)
    for _ in range(50):
        note_held(shared)
    assert told == []
    note_held(bytes(50))
    assert told == [1]
    note_held(shared)
    note_held(bytes(30))
    assert told == [1]
    note_held(shared)
    assert told == [1, 1], "it is sent again, after something else"
    del watch
    note_held(bytes(1000))
    assert told == [1, 1]


def test_bodies_that_grow_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_growth", None)
    told: list[int] = []
    watch = GrowthWatch(5 << 20, lambda: told.append(1))
    bodies = [GrowingBytes() for _ in range(10)]
    for body in bodies:
        body += bytes(1 << 20)
    assert told == []
    for body in bodies:
        body += bytes(1 << 20)
    assert len(told) == 3, "2 MiB each"
    bodies[0] += bytes(10 << 20)
    assert len(told) == 4
    del watch
