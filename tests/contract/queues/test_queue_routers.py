"""Goal: queues among routers: jobs come in by forwarding, and what is acked is forwarded all the same."""

from __future__ import annotations

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, deliveries_of, seqs_of
from tests.contract.world.sse_client import EventStream
from tests.contract.world.world import World


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


def blocked_queue(world: World, jobs: int) -> Queue:
    """Jobs of 1000 bytes, all leased, and a router whose destination has no room."""
    queue = Queue(world, durability="disk")
    world.put("audit", cap_records=1, discard="reject")
    world.write("audit", "full")
    route(world, "jobs", "audit")
    for _ in range(jobs):
        queue.put("x" * 1000)
    assert len(seqs_of(queue.claim(jobs))) == jobs
    return queue


def test_a_blocked_router_keeps_so_much_of_what_is_acked_and_no_more(make_world: MakeWorld) -> None:
    """R-RTR-13, R-RTR-18, 3.2: then acks are refused, also after a crash, until there is room; nothing is lost."""
    world = make_world(router_keep_bytes=10_000)
    queue = blocked_queue(world, 20)
    acked = 0
    while True:
        answer = world.request("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": [acked + 1]})
        if answer.status != 200:
            break
        acked += 1
    assert answer.refusal == (429, "throttled", {"retry_after_ms": 1000})
    assert answer.header("retry-after") == "1"
    assert 7 <= acked <= 10
    assert queue.counters == (20 - acked, 0, 20 - acked)
    assert queue.refuse("ack", {"node": "w", "seqs": [acked + 1, acked + 2]})[:2] == (429, "throttled")
    world.crash_and_start()
    assert len(seqs_of(queue.claim(20))) == 20 - acked
    assert queue.refuse("ack", {"node": "w", "seqs": [acked + 1]})[:2] == (429, "throttled")
    world.put("audit")
    assert queue.ack(acked + 1)["acked"] == 1
    assert len(world.data("audit")) == 21


def test_a_blocked_router_keeps_one_job_whatever_its_size(make_world: MakeWorld) -> None:
    """R-RTR-18: a bound below a job's size would let none be acknowledged."""
    world = make_world(router_keep_bytes=10)
    queue = blocked_queue(world, 2)
    assert queue.ack(1)["acked"] == 1
    assert queue.refuse("ack", {"node": "w", "seqs": [2]})[:2] == (429, "throttled")


def test_poison_jobs_leave_a_queue_whose_router_keeps_enough(make_world: MakeWorld) -> None:
    """R-Q-22, R-RTR-18: their copies are there already."""
    world = make_world(router_keep_bytes=10)
    queue = blocked_queue(world, 3)
    world.put("jobs", type="queue", max_deliveries=1, dead_letter="dlq")
    assert queue.nack(1, 2, 3)["nacked"] == 3
    assert seqs_of(queue.claim(3)) == []
    assert len(world.data("dlq")) == queue.dead_lettered == 3
    world.put("audit")
    assert len(world.data("audit")) == 4
