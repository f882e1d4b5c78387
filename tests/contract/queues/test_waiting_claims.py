"""Goal: a claim that waits is answered with the first job that it can have, and holds nothing meanwhile.

Method: claimers of one queue over HTTP, on simulated time.
"""

from __future__ import annotations

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, deliveries_of, seqs_of
from tests.contract.world.world import World


def test_a_claim_waits_for_a_job_that_is_written_handed_back_or_freed_by_time(world: World) -> None:
    """R-Q-31, 8.2: the answer is that of an ordinary claim."""
    queue = Queue(world, lease_ms=1000)
    waiting = queue.ask_claim(5, wait_ms=30_000)
    assert waiting.waiting
    queue.put("a", "b")
    answer = waiting.answer().json
    assert set(answer) == {"topic", "claimed", "count", "ready", "performance"}
    assert seqs_of(answer) == [1, 2]

    returned = queue.ask_claim(node="other", wait_ms=30_000)
    assert returned.waiting
    queue.nack(1)
    assert deliveries_of(returned.answer().json) == {1: 2}

    delayed = queue.ask_claim(node="third", wait_ms=30_000)
    assert delayed.waiting
    queue.nack(2, delay_ms=300)
    asked_ms = world.now_ms()
    assert deliveries_of(delayed.answer().json) == {2: 2}
    assert world.now_ms() >= asked_ms + 300

    expired = queue.ask_claim(node="fourth", wait_ms=30_000)
    assert deliveries_of(expired.answer().json) == {1: 3}


def test_a_claim_that_may_have_jobs_does_not_wait(world: World) -> None:
    """R-Q-31: fewer than it asks for are enough."""
    queue = Queue(world)
    queue.put("a")
    begun_ms = world.now_ms()
    assert queue.claim(5, wait_ms=30_000)["count"] == 1
    assert world.now_ms() - begun_ms < 1000


@pytest.mark.parametrize(("asked_ms", "waited_ms"), [(500, 500), (2**32 - 1, 30_000)])
def test_a_wait_without_jobs_ends_with_an_empty_answer(world: World, asked_ms: int, waited_ms: int) -> None:
    """R-Q-31, 5.2: after the time asked for, 30 s at most."""
    waiting = Queue(world).ask_claim(wait_ms=asked_ms)
    world.advance_ms(waited_ms - 100)
    assert waiting.nothing_came
    world.advance_ms(200)
    assert waiting.answer().json["claimed"] == []


def test_each_job_goes_to_one_of_the_claims_that_wait(world: World) -> None:
    """R-Q-31, R-Q-6: the others continue to wait."""
    queue = Queue(world)
    asked = [queue.ask_claim(node=f"w{number}", wait_ms=2000) for number in range(20)]
    assert asked[-1].waiting
    queue.put("a", "b", "c")
    world.advance_ms(100)
    served = [claim for claim in asked if not claim.nothing_came]
    assert sorted(seq for claim in served for seq in seqs_of(claim.answer().json)) == [1, 2, 3]
    assert queue.counters == (3, 0, 3)
    assert {claim.answer().json["count"] for claim in asked if claim not in served} == {0}


def test_a_claimer_that_leaves_while_it_waits_gets_no_job(world: World) -> None:
    """R-Q-31, R-NET-11."""
    queue = Queue(world)
    gone, waiting = queue.ask_claim(node="gone", wait_ms=30_000), queue.ask_claim(wait_ms=30_000)
    assert waiting.waiting
    gone.reset()
    world.settle()
    queue.put("a")
    assert seqs_of(waiting.answer().json) == [1]
    assert queue.counters == (1, 0, 1)


@pytest.mark.parametrize("then", ["", "log", "queue"])
def test_a_claim_whose_queue_is_deleted_fails(world: World, then: str) -> None:
    """R-Q-31: also when it was created again."""
    waiting = Queue(world).ask_claim(wait_ms=30_000)
    assert waiting.waiting
    world.drop("jobs")
    if then:
        world.put("jobs", type=then)
    assert waiting.answer().refusal == (404, "topic_not_found", {"topic": "jobs"})


def test_a_server_that_stops_answers_without_jobs(make_world: MakeWorld) -> None:
    """R-Q-31."""
    world = make_world()
    waiting = Queue(world).ask_claim(wait_ms=30_000)
    assert waiting.waiting
    world.begin_stop()
    assert waiting.answer().json["claimed"] == []
    world.finish_stop()


def test_with_a_window_each_look_waits_for_its_end(world: World) -> None:
    """R-Q-31, R-Q-17."""
    queue = Queue(world, claim_jitter_ms=300)
    waiting = queue.ask_claim(wait_ms=30_000)
    world.advance_ms(400)
    queue.put("a")
    world.advance_ms(200)
    assert waiting.nothing_came
    assert seqs_of(waiting.answer().json) == [1]


def test_a_claim_that_waits_for_a_router_gets_its_copies(world: World) -> None:
    """R-Q-31, R-RTR-18."""
    queue = Queue(world)
    world.put("source")
    assert world.request("PUT", "/v0/routers/r", {"source": "source", "dest": "jobs"}).status == 201
    waiting = queue.ask_claim(wait_ms=30_000)
    assert waiting.waiting
    world.write("source", "a")
    assert seqs_of(waiting.answer().json) == [1]


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", None, 2**32])
def test_a_wait_that_is_none_is_refused(world: World, wrong: object) -> None:
    """8.2, R-JSON-4: 400, and no job is leased."""
    queue = Queue(world)
    queue.put("a")
    assert queue.refuse("claim", {"node": "w", "wait_ms": wrong}) == (400, "invalid_request", None)
    assert queue.counters == (1, 1, 0)
