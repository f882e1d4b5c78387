"""Synced groups of a server: in place while all clients write, through the ring beside requests that do not."""

from __future__ import annotations

import json

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection
from tests.server.lane_streams import plain, plain_read

ROUNDS = 40
WRITERS = 4


def in_place(*, readers: int = 0, records: int = 1, pipelined: int = 1, lane: str = "auto", shards: int = 1) -> int:
    """Return how many of the groups of four clients that write at the same time were made in place.

    readers: clients that read in every round. pipelined: the requests of a writer in a round.
    """
    world = SimWorld(2, http_lane=lane, wal_shards=shards)
    world.start()
    body = json.dumps({"records": [{"data": 1}] * records, "config": {"durability": "fsync"}}).encode()
    world.connect().send(plain("t", body)).answer("POST")
    body = json.dumps({"records": [{"data": 1}] * records}).encode()
    writers = [world.connect() for _ in range(WRITERS)]
    others = [world.connect() for _ in range(readers)]
    log = world.server.engine._core.log  # type: ignore[union-attr]
    before = log.counters.in_place
    for _ in range(ROUNDS):
        asked: list[Connection] = [conn.send(plain("t", body) * pipelined) for conn in writers]
        asked += [conn.send(plain_read("t", b'{"from_seq":1,"limit":1}')) for conn in others]
        for conn in asked:
            for _ in range(pipelined if conn in writers else 1):
                assert conn.answer("POST").status == 200
        world.advance_ms(10)
    assert world.server.lane is None or world.server.lane.taken > ROUNDS  # type: ignore[union-attr]
    in_place: int = log.counters.in_place - before
    world.close()
    return in_place


@pytest.mark.parametrize("lane", ["auto", "off"])
def test_groups_are_in_place_while_all_clients_write(lane: str) -> None:
    assert in_place(lane=lane) > ROUNDS // 2
    assert in_place(lane=lane, records=100) > ROUNDS // 2


@pytest.mark.parametrize("lane", ["auto", "off"])
@pytest.mark.parametrize(("records", "pipelined"), [(1, 1), (40, 1), (1, 8)])
def test_a_reader_beside_them_waits_for_no_sync(lane: str, records: int, pipelined: int) -> None:
    """Batches and requests in a row hid it: the requests were compared with records."""
    assert in_place(readers=1, records=records, pipelined=pipelined, lane=lane) <= 2
