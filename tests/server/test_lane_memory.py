"""Goal: who takes nothing of an answer costs the lane memory that is counted, bounded, and never its work."""

from __future__ import annotations

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.loop.stuck_sends import fill_buffers
from tests.server.lane_streams import plain, plain_read


def world_with_lane(**settings: object) -> SimWorld:
    world = SimWorld(0, all_in_lane=True, **settings)
    world.start()
    conn = world.connect()
    conn.send(plain("t")).answer("POST")
    conn.send(plain_read("t")).answer("POST")
    return world


def test_writes_and_reads_are_answered_while_others_keep_all_buffers() -> None:
    world = world_with_lane()
    assert world.server is not None
    assert world.server.lane is not None
    assert world.loop is not None
    lane = world.server.lane
    fill_buffers(world.loop.use_connection_table())
    conns = [world.connect() for _ in range(3)]
    before = lane.taken
    for _ in range(2):
        for conn in conns:
            conn.send(plain("t"))
        assert [conn.answer("POST").status for conn in conns] == [200] * 3
        for conn in conns:
            conn.send(plain_read("t") * 2)
        for conn in conns:
            assert conn.answer("POST").status == conn.answer("POST").status == 200
    assert lane.taken == before + 18
    assert len(world.data("t")) == 7


@pytest.mark.parametrize("limit", [40_000, 100_000])
def test_a_reader_that_takes_nothing_is_dropped_when_the_memory_it_keeps_is_too_much(limit: int) -> None:
    """One answer of 300 bytes, in a buffer of 64 KiB."""
    world = world_with_lane(max_client_bytes=limit, write_stall_timeout_ms=300_000)
    assert world.loop is not None
    reader, other = world.connect(), world.connect()
    answer = other.send(plain("t")).receive()
    world.ring.network.socket_buffer_bytes = len(answer)
    reader.send(plain("t"))  # its answer fills the socket
    world.settle()
    reader.send(plain("t"))
    world.settle()
    (kept,) = world.loop.pinned().values()
    assert kept > 60_000
    world.advance_ms(3000)
    assert reader.over == (limit < kept)
    assert not other.over
    assert len(world.loop.pinned()) == (limit > kept)
