"""Goal: a write in the lane says what pressure cost it, as one on the general path does (contract, 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.server.lane_streams import plain
from topics.server.app import Server


def under_pressure(names: Sequence[str]) -> tuple[SimWorld, Server]:
    world = SimWorld(0, all_in_lane=True)
    world.start()
    for name in names:
        world.connect().send(plain(name)).answer("POST")
    server = world.server
    assert server is not None
    assert server.engine is not None
    scheduler = server.engine._scheduler
    scheduler.governor.pressure = 0.5
    scheduler.governor.widen.taken = True
    scheduler._apply()
    assert server.engine.throttle_window_ns > 5_000_000
    return world, server


def general(request: bytes) -> bytes:
    return request.replace(b"Host:", b"X: y\r\nHost:")


@pytest.mark.parametrize("names", [["t", "t"], ["t", "u"]])
@pytest.mark.parametrize("with_keys", [False, True])
def test_a_write_held_back_under_pressure_says_so_in_the_lane(names: list[str], with_keys: bool) -> None:
    world, server = under_pressure(names)
    assert server.lane is not None
    said = []
    for in_lane in (True, False):
        before = server.lane.taken
        conns = []
        for at, name in enumerate(names):
            request = plain(name)
            if with_keys:
                request = request.replace(b"Host:", b"Idempotency-Key: %d-%d\r\nHost:" % (in_lane, at))
            conns.append(world.connect().send(request if in_lane else general(request)))
        said.append([conn.answer("POST").json["performance"] for conn in conns])
        assert server.lane.taken - before == (2 if in_lane else 0)
    for lane, other in zip(*said, strict=True):
        assert list(lane) == list(other) == ["server_total_ms", "throttle_wait_ms", "wal_append_ms", "fsync_ms"]
        assert lane["throttle_wait_ms"] == pytest.approx(other["throttle_wait_ms"], abs=1)
        assert lane["throttle_wait_ms"] > 1


def test_so_does_the_last_answer_of_a_connection() -> None:
    world, server = under_pressure(["t"])
    assert server.lane is not None
    conns = [world.connect().send(plain("t")), world.connect().send(general(plain("t")))]
    world.advance_us(100)
    assert server.lane.taken == 1
    world.begin_stop()
    said = [conn.answer("POST") for conn in conns]
    assert [answer.header("connection") for answer in said] == ["close"] * 2
    assert list(said[0].json["performance"]) == list(said[1].json["performance"])
    assert "throttle_wait_ms" in said[0].json["performance"]
