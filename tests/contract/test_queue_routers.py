"""Goal: queues among routers: jobs come in by forwarding, and what is acked is forwarded all the same."""

from __future__ import annotations

import pytest

from tests.contract.queue_client import Queue, deliveries_of, seqs_of
from tests.contract.sse_client import EventStream
from tests.contract.world import World


def route(world: World, source: str, dest: str, **fields: object) -> None:
    answer = world.request("PUT", f"/v0/routers/{source}-{dest}", {"source": source, "dest": dest, **fields})
    assert answer.status == 201, answer.text


def test_a_router_into_a_queue_makes_jobs(world: World) -> None:
    """R-RTR-18, R-RTR-4: a claim sees what was acknowledged in the source; copies are jobs like any other."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    route(world, "events", "jobs")
    world.write_records("events", [{"data": n, "tag": "t", "meta": {"n": n}} for n in range(5)])
    claimed = queue.claim(2)
    assert [(job["data"], job["$tag"], job["meta"]) for job in claimed["claimed"]] == [
        (0, "t", {"n": 0}),
        (1, "t", {"n": 1}),
    ]
    queue.ack(1)
    queue.nack(2)
    world.delete("events", before_seq=10)
    assert seqs_of(queue.claim(9)) == [3, 4, 5]
    assert world.data("dlq") == [1]
    world.crash_and_start()
    assert deliveries_of(queue.claim(9)) == {3: 1, 4: 1, 5: 1}


def test_jobs_that_are_forwarded_are_pushed(world: World) -> None:
    """R-RTR-5, R-Q-28: a stream is a reader of its queue."""
    queue = Queue(world)
    route(world, "events", "jobs")
    stream = EventStream(world, f"{queue.path}/work?node=w&max=5")
    world.settle()
    world.write("events", "a", "b")
    assert [frame.data["data"] for frame in stream.frames(2)] == ["a", "b"]


@pytest.mark.parametrize("durability", ["disk", "fsync", "ephemeral"])
def test_an_acked_job_is_forwarded_all_the_same(world: World, durability: str) -> None:
    """R-RTR-18: an ack consumes, a delete erases; acks do not propagate."""
    queue = Queue(world, durability=durability)
    route(world, "jobs", "audit")
    for number in range(4):
        queue.put(number)
        (seq,) = seqs_of(queue.claim(1))
        assert queue.ack(seq)["acked"] == 1
    assert queue.counters == (0, 0, 0)
    assert world.data("audit") == [0, 1, 2, 3]
