"""Redrives of dead letters, of a topic of the queue's core or of another one. Wire contract, 8.8.

Goal: what routers out of the dead-letter topic keep is what becomes jobs again, and no more.
"""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer
from tests.engine.routers.far_cores import Cores, core_of
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.queue.redrive import RedriveRequest
from topics.errors import RequestError

QUEUE = "q0"


@pytest.mark.parametrize(("keep_bytes", "code"), [(1 << 20, "topic_full"), (1, "throttled")])
@pytest.mark.parametrize("dead", ["dead0", "dead1"])
def test_a_redrive_into_a_queue_with_room_for_one_has_routers_keep_one(dead: str, keep_bytes: int, code: str) -> None:
    """R-RTR-18: with 1 byte to keep, a router keeps one record, and then refuses."""
    world = Cores(3, router_keep_bytes=keep_bytes, router_retry_ms=1000)
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": dead, "lease_ms": 100_000}
    world.put(QUEUE, **config, discard="reject", cap_records=3)
    world.put(dead)
    full = f"full{core_of(dead)}"
    world.put(full, discard="reject", cap_records=1)
    world.append(full, "a record")
    world.route("r", dead, full)
    world.append(QUEUE, 1, 2, 3)
    engine = world.engine_of(QUEUE)
    claimed = Answer()
    engine.claim(ClaimRequest(QUEUE, "w", 3, None), claimed)
    world.wait(claimed)
    engine.nack(HeldJobs(QUEUE, "w", [1, 2, 3]), 0, "", Answer())
    engine.claim(ClaimRequest(QUEUE, "w", 3, None), Answer())
    jobs = world.worlds[0].stored.registry.by_name[QUEUE].index
    world.run(lambda: not jobs.live)
    world.append(QUEUE, 4, 5)
    driven = Answer()
    engine.redrive(RedriveRequest(QUEUE, None), driven)
    with pytest.raises(RequestError) as refused:
        world.wait(driven)
    assert refused.value.code == code
    assert jobs.live == 3
    assert sorted(world.worlds[core_of(dead)].stored.routers.by_name["r"].kept) == [1]
