"""Goal: what became of a job's earlier leases can be asked for, and why a job is a dead letter.

Method: workers of one queue over HTTP, on simulated time.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue
from tests.contract.world.world import World


def attempts_of(claimed: Any) -> list[list[dict[str, Any]]]:
    return [job["attempts"] for job in claimed["claimed"]]


def failed(world: World) -> Any:
    answer = world.request("GET", "/v0/topics/jobs?touch=false&include_attempts=true")
    assert answer.status == 200
    return answer.json["queue"]["failed"]


def test_the_attempts_of_a_job_say_who_held_it_how_that_ended_and_why(world: World) -> None:
    """R-Q-32, R-Q-33, R-Q-34: ascending, of those requests that ask for them."""
    queue = Queue(world, lease_ms=1000)
    queue.put("job")
    assert attempts_of(queue.claim(node="a", include_attempts=True)) == [[]]
    queue.nack(1, node="a", reason='no "such" ü file')
    nacked_ms = world.now_ms()
    deadline = queue.claim(node="b")["claimed"][0]["deadline"]
    world.advance_to_ms(deadline + 500)
    queue.claim(node="c")
    queue.nack(1, node="c")
    (attempts,) = attempts_of(queue.claim(node="d", include_attempts=True))
    first, second, third = attempts
    assert first == {"delivery": 1, "node": "a", "ended": "nacked", "at": first["at"], "reason": 'no "such" ü file'}
    assert abs(first["at"] - nacked_ms) < 100
    assert second == {"delivery": 2, "node": "b", "ended": "expired", "at": deadline}
    assert third == {"delivery": 3, "node": "c", "ended": "nacked", "at": third["at"]}


def test_a_claim_that_does_not_ask_is_answered_as_before(world: World) -> None:
    """R-Q-34, 8.2: so is a state."""
    queue = Queue(world)
    queue.put("job")
    queue.claim()
    queue.nack(1, reason="broken")
    assert set(world.state("jobs")["queue"]) == {"ready", "in_flight", "dead_lettered"}
    job = queue.claim(include_attempts=False)["claimed"][0]
    assert set(job) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}


def test_jobs_come_with_their_attempts_whatever_kind_they_are(world: World) -> None:
    """R-Q-34, R-BYTES-2."""
    queue = Queue(world)
    world.write_records("jobs", [{"data_base64": "AAEC"}, {"data": {}, "meta": {"k": "}"}}, {"data": "x", "tag": "t"}])
    queue.claim(3)
    queue.nack(1, 2, reason="r")
    claimed = queue.claim(3, include_attempts=True)["claimed"]
    assert [job.get("data_base64", job.get("data")) for job in claimed] == ["AAEC", {}]
    assert [[attempt["reason"] for attempt in job["attempts"]] for job in claimed] == [["r"], ["r"]]
    assert claimed[1]["meta"] == {"k": "}"}


def test_only_the_last_attempts_are_known(make_world: MakeWorld) -> None:
    """R-Q-34: as many as the setting says."""
    world = make_world(max_attempts=2)
    queue = Queue(world)
    queue.put("job")
    for number in range(4):
        queue.claim()
        queue.nack(1, reason=f"r{number}")
    (attempts,) = attempts_of(queue.claim(include_attempts=True))
    assert [(attempt["delivery"], attempt["reason"]) for attempt in attempts] == [(3, "r2"), (4, "r3")]


def test_a_state_lists_the_jobs_that_failed_last(world: World) -> None:
    """R-Q-34, 7.2: not those that were never returned, or are done."""
    queue = Queue(world)
    queue.put(*range(5))
    queue.claim(4)
    for seq in (1, 3, 2):
        queue.nack(seq, reason=f"r{seq}")
    assert [(job["$seq"], job["deliveries"]) for job in failed(world)] == [(2, 1), (3, 1), (1, 1)]
    queue.claim(1)
    queue.nack(1)
    assert [job["$seq"] for job in failed(world)] == [1, 2, 3]
    assert [attempt["ended"] for attempt in failed(world)[0]["attempts"]] == ["nacked", "nacked"]
    queue.claim(2)
    queue.ack(1)
    world.delete("jobs", before_seq=3)
    assert [job["$seq"] for job in failed(world)] == [3]


def test_a_state_lists_a_hundred_jobs_at_most(world: World) -> None:
    """R-Q-34."""
    queue = Queue(world)
    queue.put(*range(150))
    queue.claim(150)
    queue.nack(*range(1, 151))
    assert [job["$seq"] for job in failed(world)] == list(range(150, 50, -1))


def test_a_state_of_a_log_has_no_attempts(world: World) -> None:
    """7.2."""
    world.put("log")
    answer = world.request("GET", "/v0/topics/log?include_attempts=true")
    assert "queue" not in answer.json


@pytest.mark.parametrize("reason", ["", None])
def test_an_empty_reason_is_none(world: World, reason: str | None) -> None:
    """R-Q-32."""
    queue = Queue(world)
    queue.put("job")
    queue.claim()
    queue.nack(1, reason=reason)
    assert "reason" not in attempts_of(queue.claim(include_attempts=True))[0][0]


@pytest.mark.parametrize("reason", ["x" * 1025, "ü" * 513, 1, ["x"], {}])
def test_a_reason_that_is_none_or_too_long_is_refused(world: World, reason: Any) -> None:
    """R-Q-32, 8.4: and the lease stays."""
    queue = Queue(world)
    queue.put("job")
    queue.claim()
    assert queue.refuse("nack", {"node": "w", "seqs": [1], "reason": reason}) == (400, "invalid_request", None)
    assert queue.counters == (1, 0, 1)
    assert queue.nack(1, reason="ü" * 512)["nacked"] == 1


def test_attempts_last_as_long_as_the_count(make_world: MakeWorld) -> None:
    """R-Q-34, R-DUR-11: over restarts, checkpoints and kills where leases are durable."""
    world = make_world()
    queue = Queue(world, leases_durable=True, lease_ms=1000)
    queue.put("nacked", "expired", "fresh")
    queue.claim(2, node="a")
    queue.nack(1, node="a", reason="first")
    queue.claim(1, node="b")
    world.advance_ms(2000)
    queue.claim(2, node="c", lease_ms=60_000)
    queue.nack(1, node="c", reason="third")
    before = failed(world)
    assert [len(job["attempts"]) for job in before] == [3, 1]
    world.crash_and_start()
    assert failed(world) == before
    world.restart()
    assert failed(world) == before
    world.crash_and_start()
    assert failed(world) == before
    assert [len(attempts) for attempts in attempts_of(queue.claim(3, include_attempts=True))] == [3, 0]


def test_attempts_are_forgotten_with_the_count_where_leases_are_not_durable(world: World) -> None:
    """R-Q-34, R-DUR-11."""
    queue = Queue(world)
    queue.put("job")
    queue.claim()
    queue.nack(1, reason="r")
    world.restart()
    assert failed(world) == []
    assert attempts_of(queue.claim(include_attempts=True)) == [[]]


def test_attempts_that_are_known_when_leases_become_durable_last_too(make_world: MakeWorld) -> None:
    """R-Q-34, R-DUR-11."""
    world = make_world()
    queue = Queue(world)
    queue.put("job")
    queue.claim()
    queue.nack(1, reason="r")
    before = failed(world)
    world.put("jobs", type="queue", leases_durable=True)
    world.crash_and_start()
    assert failed(world) == before


def test_a_dead_letter_has_the_last_reason(world: World) -> None:
    """R-Q-35, R-Q-24: whichever attempt gave it."""
    queue = Queue(world, max_deliveries=2, dead_letter="dlq")
    queue.put("told", "silent")
    for reasons in (("early", ""), ("", "")):
        queue.claim(2)
        for seq, reason in enumerate(reasons, 1):
            queue.nack(seq, reason=reason)
    assert queue.claim(2)["count"] == 0
    told, silent = (copy["meta"] for copy in world.diff("dlq")["records"])
    assert told["$dead_letter_reason"] == "early"
    assert set(silent) == {"$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq"}
