"""Readers that wait hear of a change at once, and of nothing that they may not see."""

from __future__ import annotations

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import request_bytes
from tests.sim.world.ring_core import LATENCY_NS
from tests.ws.frame_client import text

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_record_that_expires_while_it_is_written_is_not_shown_to_a_read_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-TTL-3. The expiry of the first record, which the read waits for, is committed with the second."""
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    world.put("b", durability="fsync")
    world.put("a", durability="fsync", ttl_ms=20)
    world.write("a", 1)
    monkeypatch.setitem(LATENCY_NS, "sync", 60_000_000)
    world.ask("POST", "/v0/topics/b", {"records": [{"data": 0}]})
    world.advance_ms(1)  # its commit is under way: what follows shares the next one
    writer = world.ask("POST", "/v0/topics/a", {"records": [{"data": 2}]})
    world.advance_ms(25)
    assert world.diff("a")["records"] == []
    assert writer.answer().status == 200


def test_an_ack_comes_before_its_records_when_deliveries_have_waited_for_another_ack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-WS-2: writes committed together are readable together, before the last of them is acknowledged."""
    world = SimWorld(commit_in_place_max_us=0, commit="link")
    world.start()
    world.put("slow", durability="fsync")
    world.put("fast", durability="ephemeral")
    socket = WebSocket(world)
    socket.subscribe("slow")
    assert socket.next()["op"] == "caught_up"
    monkeypatch.setitem(LATENCY_NS, "sync", 5_000_000)
    world.ask("POST", "/v0/topics/slow", {"records": [{"data": "of another"}]})
    world.advance_ms(1)
    own = [{"data": "own"}]
    socket.send(b"".join(text({"op": "publish", "topic": name, "records": own}) for name in ("slow", "fast", "slow")))
    told = [socket.next() for _ in range(5)]
    assert [message["op"] for message in told] == ["ack", "ack", "ack", "record", "caught_up"]
    assert [record["$seq"] for record in told[3]["records"]] == [1, 2, 3]


def test_a_write_that_came_behind_one_of_the_lane_is_committed_without_another_reason_to_wake_up() -> None:
    """It ran at the end of a pass, after the turn of the log, and waited for whatever else would come."""
    world = SimWorld(all_in_lane=True, commit_in_place_max_us=0, commit="link")
    world.start()
    world.put("a", durability="fsync")
    connection = world.connect()
    write = request_bytes("POST", "/v0/topics/a", {"records": [{"data": "x"}]})
    for _ in range(4):
        assert connection.send(write).answer().status == 200
    assert world.server is not None
    assert world.server.lane is not None
    assert world.server.lane.taken
    world.advance_ms(200)
    connection.send(write)
    world.advance_us(50)  # it is on its way to the disk
    connection.send(write)
    world.advance_us(40)
    assert world.loop is not None
    begun_ns = world.ring.clock.monotonic_ns()
    while world.server.service.in_flight.requests or world.server.service.in_flight.total < 7:
        world.loop.run_pass(None)  # as a server's loop does: no pass without a reason
    assert world.ring.clock.monotonic_ns() - begun_ns < 50_000_000


def test_a_long_poll_hears_of_a_write_that_came_behind_a_read_which_waited_its_turn() -> None:
    """R-WATCH-14, 7.6: the write ran at the end of a pass, after the turn of those who wait for changes."""
    world = SimWorld(http_lane="off", pass_read_bytes=1)
    world.start()
    world.write("a", "x")
    world.put("m", durability="ephemeral")
    world.ask("POST", "/v0/topics/m/diff", {"wait_ms": 20_000})
    world.advance_ms(200)
    read = request_bytes("POST", "/v0/topics/a/diff", {})
    world.connect().send(read)
    world.connect().send(read + request_bytes("POST", "/v0/topics/m", {"records": [{"data": "x"}]}))
    world.advance_us(20)
    begun_ns = world.ring.clock.monotonic_ns()
    assert world.loop is not None
    assert world.server is not None
    while world.server.service.in_flight.requests:
        world.loop.run_pass(None)  # as a server's loop does: no pass without a reason
    assert world.ring.clock.monotonic_ns() - begun_ns < 50_000_000


def test_a_wait_whose_time_is_over_while_a_router_is_held_up_is_answered_once_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-WAIT-5, R-WAIT-4, R-RTR-4: it shows no less than a wait without time, which waits for the router, too."""
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
    world.write("a", 1)
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "write", 400_000_000)
        slowly.setitem(LATENCY_NS, "sync", 400_000_000)
        asked = world.ask("POST", "/v0/wait", {"topics": {"b": 0}, "wait_ms": 100})
        world.advance_ms(200)
        assert asked.waiting
        assert asked.answer(within_ms=1000).json["topics"]["b"]["head_seq"] == 1
