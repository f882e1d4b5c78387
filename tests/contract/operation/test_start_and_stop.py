"""Recovery and shutdown as clients see them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import World, request_bytes


def fill(world: World, topics: int = 30, records: int = 100) -> None:
    for number in range(topics):
        world.write(f"t{number:02d}", *range(records))


def summary(world: World) -> Any:
    """Everything a client can read."""
    rows = world.request("GET", "/v0/topics?page_size=1000").json["topics"]
    return rows, {row["topic"]: world.data(row["topic"]) for row in rows}


# --- recovery -------------------------------------------------------------------------------------------------------
def test_nothing_is_served_while_the_log_is_recovered(make_world: MakeWorld) -> None:
    """R-LIFE-4, R-LIFE-5, 12.2, 2.4/3: probes and metrics answer, other requests are asked to come back in a second."""
    world = make_world()
    fill(world)
    world.crash()
    world.start(ready=False)
    asked = {
        path: world.ask("GET", path)
        for path in (
            "/healthz",
            "/v0/health",
            "/readyz",
            "/v0/ready",
            "/v0/metrics",
            "/v0/topics",
            "/v0/topics/t00",
            "/x",
        )
    }
    write = world.ask("POST", "/v0/topics/t00", {"records": [{"data": 1}]})
    bad = world.ask("PATCH", "/v0/topics/t00", b"not json")
    answers = {path: connection.answer() for path, connection in asked.items()}
    for path in ("/healthz", "/v0/health", "/v0/metrics"):
        assert answers[path].status == 200, path
    for path in ("/readyz", "/v0/ready", "/v0/topics", "/v0/topics/t00", "/x"):
        status, code, detail = answers[path].refusal
        assert (status, code) == (503, "not_ready"), path
        assert detail is not None
        assert set(detail) == {"replay_progress"}
        assert isinstance(detail["replay_progress"], float)
        assert 0.0 <= detail["replay_progress"] <= 1.0
        assert answers[path].header("retry-after") == "1"
    assert write.answer().refusal[:2] == bad.answer().refusal[:2] == (503, "not_ready")
    assert "topics_ready 0" in answers["/v0/metrics"].text
    world.wait_until(lambda: world.request("GET", "/readyz").status == 200, 60_000)
    assert world.state("t00")["head_seq"] == 100


def test_a_connection_made_during_recovery_serves_on_after_it(make_world: MakeWorld) -> None:
    """R-LIFE-4: it just gets better answers."""
    world = make_world()
    fill(world, topics=5)
    world.crash()
    world.start(ready=False)
    connection = world.connect()
    statuses = [connection.request("GET", "/v0/topics/t00").status for _ in range(3)]
    assert 503 in statuses
    world.wait_until(lambda: connection.request("GET", "/readyz").status == 200, 60_000)
    assert connection.request("GET", "/v0/topics/t00").json["head_seq"] == 100


def test_a_torn_tail_is_cut_off_and_all_before_it_survives(make_world: MakeWorld) -> None:
    """R-LIFE-6: it is never read as data."""
    world = make_world()
    if not isinstance(world, SimWorld):
        pytest.skip("corrupts a simulated disk")
    world.write_singly("t", *range(20))
    world.write("t", "the last", "of all")
    world.crash()
    world.rot_log_tail(b"of all")
    world.start()
    assert world.data("t") == list(range(20))
    assert world.write("t", "next")["first_seq"] > 20
    world.crash_and_start()
    assert world.data("t") == [*range(20), "next"]


@pytest.mark.parametrize("power", [False, True])
def test_being_killed_during_recovery_changes_nothing(make_world: MakeWorld, power: bool) -> None:
    """R-LIFE-6: however often, wherever."""
    world = make_world(seed=3, shuffle=True)
    if not isinstance(world, SimWorld):
        pytest.skip("stops a simulated process")
    for number in range(5):
        world.put(f"t{number}", durability="fsync", cap_records=50)
        world.write(f"t{number}", *range(60))
        world.delete(f"t{number}", before_seq=15)
    world.drop("t4")
    before = summary(world)
    for moment_us in (0, 30, 100, 200, 400, 800, 1500, 3000, 6000):
        world.power_cut() if power else world.crash()
        world.start(ready=False)
        world.advance_us(moment_us)
    world.power_cut() if power else world.crash()
    world.start()
    assert summary(world) == before


# --- shutdown -------------------------------------------------------------------------------------------------------
def test_a_stop_is_graceful_and_loses_nothing(world: World) -> None:
    """R-LIFE-7, R-DUR-3: exit code 0; what was acknowledged is there."""
    fill(world, topics=3)
    before = summary(world)
    assert world.stop() == 0
    world.start()
    assert summary(world) == before


@pytest.mark.http1
def test_a_draining_server_says_so_on_open_connections_and_takes_no_new_ones(world: World) -> None:
    """R-LIFE-7, 12.1, 12.2: readiness and new requests get 503 and the end of their connection; health is 200."""
    world.put("t", durability="fsync")
    paths = ["/readyz", "/v0/ready", "/v0/topics", "/v0/topics/t", "/healthz"]
    open_ones = {path: world.connect() for path in paths}
    for connection in open_ones.values():
        assert connection.request("GET", "/healthz").status == 200
    world.begin_stop()
    for path, connection in open_ones.items():
        connection.start("GET", path)
    for path, connection in open_ones.items():
        answer = connection.answer()
        assert answer.header("connection") == "close", path
        if path == "/healthz":
            assert answer.status == 200
        else:
            assert answer.refusal == (503, "shutting_down", None)
            assert answer.header("retry-after") == "1"
    with pytest.raises(OSError, match="refused"):
        world.connect()
    assert world.finish_stop() == 0


@pytest.mark.http1
def test_requests_in_progress_are_finished(world: World) -> None:
    """R-LIFE-7: writes under way are answered, and what was answered is kept."""
    world.put("t", durability="fsync")
    connections = [world.connect() for _ in range(5)]
    for connection in connections:
        assert connection.request("GET", "/healthz").status == 200
    for number, connection in enumerate(connections):
        connection.start("POST", "/v0/topics/t", {"records": [{"data": number}]})
    world.advance_ms(0)
    world.begin_stop()
    answers = [connection.answer() for connection in connections]
    assert world.finish_stop() == 0
    world.start()
    kept = world.data("t")
    for number, answer in enumerate(answers):
        assert (answer.status == 200) is (number in kept)


def test_an_idle_connection_does_not_delay_a_stop(world: World) -> None:
    """R-LIFE-8, R-LIFE-7: nor does one with half a head."""
    idle = world.connect()
    assert idle.request("GET", "/healthz").status == 200
    half = world.connect().send(b"GET /healthz HTTP/1.1\r\n")
    world.settle()
    world.begin_stop()
    assert world.finish_stop(within_ms=5000) == 0
    assert idle.ended
    assert half.ended


def test_a_connection_that_does_not_end_is_abandoned_after_ten_seconds(world: World) -> None:
    """R-LIFE-7: a client that never reads its answers, and one that never ends its body."""
    world.write("t", *["x" * 100_000] * 8)
    stuck = world.connect()
    for _ in range(8):
        stuck.start("POST", "/v0/topics/t/diff", {"max_batch_bytes": 2**23})
    world.connect().send(request_bytes("POST", "/v0/topics/t", {"records": []})[:-5])
    world.settle()
    world.begin_stop()
    assert world.finish_stop(within_ms=12_000) == 0


def test_stop_and_start_may_follow_each_other_at_once(world: World) -> None:
    """R-LIFE-7, R-DUR-6: an empty server too; heads are exactly what they were."""
    for number in range(4):
        world.restart()
        assert world.write("t", number)["first_seq"] == number + 1
    assert world.data("t") == [0, 1, 2, 3]


@pytest.mark.http1
def test_a_stop_finds_clients_in_every_state(world: World) -> None:
    """R-LIFE-7, R-LIFE-8: idle, in a head, in a body that stopped, in a long poll, on every kind of stream."""
    world.put("jobs", type="queue")
    sse = {"Accept": "text/event-stream"}
    idle = world.connect()
    assert idle.request("GET", "/healthz").status == 200
    silent = world.connect()
    in_head = world.connect().send(b"GET /healthz HTTP/1.1\r\nHost: x")
    in_body = world.connect().send(request_bytes("POST", "/v0/topics/t", {"records": [{"data": 1}]})[:-4])
    poll = world.ask("POST", "/v0/topics/jobs/diff", {"wait_ms": 30_000})
    wid = world.request("POST", "/v0/watch", {"topics": {"jobs": {}}}).json["wid"]
    watch = world.ask("GET", f"/v0/watch/{wid}", headers=sse)
    work = world.ask("GET", "/v0/topics/jobs/work?node=n", headers=sse)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    socket = world.ask("GET", "/v0/ws", headers=upgrade)
    for connection in (watch, work):
        assert connection.receive().startswith(b"HTTP/1.1 200")
    assert socket.receive().startswith(b"HTTP/1.1 101")
    world.begin_stop()
    assert poll.answer("POST").json["caught_up"] is True
    assert world.finish_stop(within_ms=5000) == 0
    for stream in (watch, work, socket):
        assert b"server_shutting_down" in stream.receive()
    for connection in (idle, silent, in_head, in_body, poll, watch, work, socket):
        assert connection.ended
    assert in_body.receive() == b""
