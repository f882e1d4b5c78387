"""Claims that meet very many jobs to be moved to the dead-letter topic: some of them a pass (R-Q-22 to -27)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.harness import Answer, Harness
from tests.engine.queue.queue_calls import claim, counters, jobs_of, one_pass, start_claim
from topics.engine.queue import dead_letter
from topics.engine.queue.dead_letter import DeadLetters, PoisonJobs
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.state import leases
from topics.engine.state.leases import Leases
from topics.errors import RequestError


@pytest.fixture(autouse=True)
def _few_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_POISON", 2)


def poisoned(*, good: int = 2, durability: str = "disk", **settings: Any) -> Harness:
    """A queue with jobs that were delivered as often as they may be, and with others after them."""
    h = Harness(**settings)
    h.put("q", type="queue", max_deliveries=1, dead_letter="dead", durability=durability)
    h.append(*range(1, 8 + good), name="q")
    seqs = claim(h, 7)
    h.engine.nack(HeldJobs("q", "w", seqs), 0, "", Answer())
    h.settle()
    return h


def a_pass(h: Harness) -> None:
    h.settle()
    h.advance_ms(0)


def passes_until(h: Harness, answer: Answer) -> int:
    for number in range(100):
        if answer.given:
            h.settle()
            return number
        a_pass(h)
    raise AssertionError("no answer")


def leases_of(h: Harness) -> Leases:
    queue = h.engine._core.registry.by_name["q"].queue
    assert queue is not None
    return queue


def dead(h: Harness) -> list[Any]:
    if h.engine._core.registry.visible("dead") is None:
        return []
    return [record["data"] for record in h.read(name="dead")]


def flip(h: Harness, number: int) -> None:
    """Damage the record of a job, or mend it."""
    memory = h.store.log.file.memory
    assert memory is not None
    memory[bytes(memory).index(b"ob %d" % number) - 1] ^= 1


class Moves:
    """The numbers of jobs of which a move began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[int] = []
        move = DeadLetters.move

        def counted(moves: DeadLetters, poison: PoisonJobs) -> None:
            self.begun.append(len(poison.jobs))
            move(moves, poison)

        monkeypatch.setattr(DeadLetters, "move", counted)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    return Moves(monkeypatch)


@pytest.mark.parametrize("most", [1, 2, 9])
@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
def test_a_claim_gets_the_jobs_after_many_that_are_moved(moves: Moves, durability: str, most: int) -> None:
    h = poisoned(durability=durability)
    h.put("dead", durability=durability)
    answer = start_claim(h, most)
    assert moves.begun == [2], "a pass moves some"
    passes_until(h, answer)
    assert [job["$seq"] for job in jobs_of(answer)] == [8, 9][:most]
    assert moves.begun == [2, 2, 2, 1]
    assert dead(h) == [1, 2, 3, 4, 5, 6, 7]
    assert counters(h) == (2, max(0, 2 - most), min(2, most))


def test_a_claim_of_a_queue_that_has_only_jobs_to_be_moved_is_empty() -> None:
    h = poisoned(good=0)
    answer = start_claim(h, 5)
    passes_until(h, answer)
    assert answer.get().count == 0
    assert dead(h) == [1, 2, 3, 4, 5, 6, 7]
    assert counters(h) == (0, 0, 0)


@pytest.mark.parametrize("good", [2, 0])
def test_a_claim_gets_the_jobs_after_many_that_cannot_be_moved(moves: Moves, good: int) -> None:
    """R-Q-26: those stay, claimable. No move is tried over and over."""
    h = poisoned(good=good, max_topics=1)
    for ready in (good, 0):
        answer = start_claim(h, 9)
        assert passes_until(h, answer) == 4, "a pass looks at two"
        assert [job["$seq"] for job in jobs_of(answer)] == [8, 9][:ready]
        for _ in range(4):
            a_pass(h)
        assert counters(h) == (7 + good, 7, good)
        leases_of(h).check()
    assert moves.begun == [2, 2], "one of each claim"


def test_claims_at_the_same_time_share_what_is_after_many_that_are_moved(moves: Moves) -> None:
    h = poisoned(good=4)
    answers = [start_claim(h, 2), start_claim(h, 2)]
    for answer in answers:
        passes_until(h, answer)
    assert sorted(job["$seq"] for answer in answers for job in jobs_of(answer)) == [8, 9, 10, 11]
    assert sorted(dead(h)) == [1, 2, 3, 4, 5, 6, 7]
    assert sum(moves.begun) == 7


def test_a_claim_gets_the_jobs_before_and_after_many_that_are_moved() -> None:
    """R-Q-3: what came back is first."""
    h = Harness()
    h.put("q", type="queue", max_deliveries=2, dead_letter="dead")
    h.append(*range(1, 14), name="q")
    assert claim(h, 12) == list(range(1, 13))
    h.engine.nack(HeldJobs("q", "w", range(4, 11)), 0, "", Answer())
    assert claim(h, 7) == [4, 5, 6, 7, 8, 9, 10]
    h.engine.nack(HeldJobs("q", "w", range(1, 13)), 0, "", Answer())
    h.settle()
    answer = start_claim(h, 6)
    passes_until(h, answer)
    assert [job["$seq"] for job in jobs_of(answer)] == [1, 2, 3, 11, 12, 13]
    assert dead(h) == [4, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("most", [1, 9])
def test_a_waiting_claim_gets_a_job_that_comes_after_many_that_are_moved(moves: Moves, most: int) -> None:
    h = poisoned(good=0)
    answer = Answer()
    h.engine.claim_when_ready(ClaimRequest("q", "w", most, None), 60_000, answer)
    for _ in range(20):
        a_pass(h)
    assert not answer.given
    assert moves.begun == [2, 2, 2, 1]
    h.append(8, name="q")
    passes_until(h, answer)
    assert [job["$seq"] for job in jobs_of(answer)] == [8]


def test_a_waiting_claim_gets_a_job_that_comes_after_many_that_cannot_be_moved(moves: Moves) -> None:
    h = poisoned(good=0, max_topics=1)
    answer = Answer()
    h.engine.claim_when_ready(ClaimRequest("q", "w", 9, None), 60_000, answer)
    for _ in range(20):
        a_pass(h)
    assert not answer.given
    assert moves.begun == [2], "it is tried again when the queue changes, or after five seconds"
    h.append(8, name="q")
    passes_until(h, answer)
    assert [job["$seq"] for job in jobs_of(answer)] == [8]


def test_jobs_are_delivered_that_are_to_be_moved_no_more_while_others_are() -> None:
    h = poisoned()
    answer = start_claim(h, 9)
    a_pass(h)
    h.put("q", type="queue", max_deliveries=0)
    passes_until(h, answer)
    first = len(dead(h))
    assert 0 < first < 7
    assert [job["$seq"] for job in jobs_of(answer)] == list(range(first + 1, 10))


def test_a_queue_deleted_while_many_are_moved_or_passed_over_answers_the_claim() -> None:
    for max_topics in (0, 1):
        for passes in range(3):
            h = poisoned(max_topics=max_topics)
            answer = start_claim(h, 9)
            for _ in range(passes):
                a_pass(h)
            h.delete_topic("q")
            passes_until(h, answer)
            with pytest.raises(RequestError, match="topic"):
                answer.get()


def test_a_server_that_stops_while_many_are_moved_or_passed_over_answers_without_jobs() -> None:
    for max_topics in (0, 1):
        h = poisoned(max_topics=max_topics)
        answer = start_claim(h, 9)
        a_pass(h)
        h.engine.begin_shutdown()
        passes_until(h, answer)
        assert answer.get().count == 0
        leases_of(h).check()


def test_a_claim_cancelled_while_many_are_moved_gives_nothing_away() -> None:
    h = poisoned()
    start_claim(h, 9)
    a_pass(h)
    h.cancel()
    for _ in range(20):
        a_pass(h)
    count, ready, in_flight = counters(h)
    assert (count, in_flight) == (ready, 0)
    assert count + len(dead(h)) == 9


@pytest.mark.parametrize("damaged", [[1], [2], [1, 2], [3], [1, 4, 7], [1, 2, 3, 4, 5, 6, 7]])
def test_a_job_that_cannot_be_read_is_passed_over_and_the_others_are_moved(moves: Moves, damaged: list[int]) -> None:
    """R-Q-26: it is claimable after a lease, and moved once it can be read."""
    h = Harness()
    h.put("q", type="queue", max_deliveries=1, dead_letter="dead", lease_ms=1000)
    h.append(*[f"job {number}" for number in range(1, 10)], name="q")
    h.engine.nack(HeldJobs("q", "w", claim(h, 7)), 0, "", Answer())
    h.settle()
    for number in damaged:
        flip(h, number)
    sound = [number for number in range(1, 8) if number not in damaged]
    answer = start_claim(h, 9)
    passes_until(h, answer)
    assert [job["$seq"] for job in jobs_of(answer)] == [8, 9]
    assert dead(h) == [f"job {number}" for number in sound]
    assert moves.begun == [2, 2, 2, 1], "no move is tried over and over"
    assert counters(h) == (len(damaged) + 2, 0, 2)
    leases_of(h).check()
    for number in damaged:
        flip(h, number)
    h.advance_ms(1001)
    passes_until(h, start_claim(h, 1))
    assert sorted(dead(h)) == [f"job {number}" for number in range(1, 10)], "those of the claim, too"


def test_claims_of_several_queues_that_meet_jobs_to_be_moved_decode_some_of_them_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All were decoded in the pass of the claims: 256 for each queue."""
    names = [f"q{number}" for number in range(5)]
    h = Harness()
    for name in names:
        h.put(name, type="queue", max_deliveries=1, dead_letter="dead")
        h.append(1, 2, name=name)
        answer = Answer()
        h.engine.claim(ClaimRequest(name, "w", 2), answer)
        h.settle()
        h.engine.nack(HeldJobs(name, "w", [1, 2]), 0, "", Answer())
        h.settle()
    decoded = [0]
    decode = dead_letter.decode_jobs

    def counted(*arguments: Any) -> None:
        decoded[-1] += len(arguments[2])
        decode(*arguments)

    monkeypatch.setattr(dead_letter, "decode_jobs", counted)
    monkeypatch.setattr(dead_letter, "_BYTES_A_MOVE", h.engine._core.config.pass_read_bytes // 2)
    answers = [Answer() for _ in names]
    for name, answer in zip(names, answers, strict=True):
        h.engine.claim(ClaimRequest(name, "w", 2), answer)
    while not all(answer.given for answer in answers):
        decoded.append(0)
        one_pass(h)
    assert (max(decoded), sum(decoded)) == (2, 10)
