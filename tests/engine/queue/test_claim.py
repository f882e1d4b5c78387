"""Claims: who gets which jobs, and what becomes of them where the store is slow or fails."""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer, Harness
from tests.engine.queue.queue_calls import claim, counters, jobs_of, queue, start_ack, start_claim
from topics.engine.queue.queue_results import ClaimRequest, ClaimResult, HeldJobs
from topics.errors import CorruptError, RequestError, StorageError


# --- who gets what ----------------------------------------------------------------------------------------------------
def dealt(*answers: Answer) -> list[list[int]]:
    """The seqs that each claim got."""
    return [[job["$seq"] for job in jobs_of(answer)] for answer in answers]


def test_a_claim_gets_as_many_as_it_asks_for_in_their_order_with_what_is_left() -> None:
    """R-Q-3, R-Q-13."""
    h = queue()
    h.append(*"abcde", name="q", tag="t")
    answer = start_claim(h, 2)
    h.settle()
    assert (answer.get().count, answer.get().ready) == (2, 3)
    assert [(job["$seq"], job["data"], job["$tag"], job["deliveries"]) for job in jobs_of(answer)] == [
        (1, "a", "t", 1),
        (2, "b", "t", 1),
    ]
    assert dealt(start_claim(h, 10)) == [[3, 4, 5]]
    assert start_claim(h, 10).get() == ClaimResult(b"", 0, 0)


def test_a_claim_gets_no_more_than_the_setting_allows_and_one_at_least() -> None:
    h = Harness(max_claim=3)
    h.put("q", type="queue")
    h.append(*range(10), name="q")
    assert (claim(h, 1000), claim(h, 0), claim(h, -5)) == ([1, 2, 3], [4], [5])


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(None, 5000), (200, 200), (1, 100), (1 << 40, 86_400_000)])
def test_a_lease_lasts_as_asked_within_bounds_or_as_the_queue_says(asked_ms: int | None, given_ms: int) -> None:
    h = queue(lease_ms=5000)
    h.append(1, name="q")
    answer = start_claim(h, lease_ms=asked_ms)
    h.settle()
    assert jobs_of(answer)[0]["deadline"] == h.loop.clock.now_ms() + given_ms


def test_claims_of_one_window_are_dealt_to_in_turns() -> None:
    """R-Q-17, R-Q-18: in the order in which they came, and who has enough is passed over."""
    h = queue(claim_jitter_ms=50)
    h.append(*range(7), name="q")
    h.settle()
    answers = [start_claim(h, most, node) for most, node in ((4, "a"), (1, "b"), (3, "c"))]
    h.advance_ms(49)
    assert not any(answer.given for answer in answers)
    h.advance_ms(1)
    h.settle()
    assert dealt(*answers) == [[1, 4, 6], [2], [3, 5, 7]]
    late = start_claim(h)
    assert not late.given, "a window of its own"
    h.advance_ms(50)
    assert late.get().count == 0


def test_a_claim_that_left_before_its_window_ended_leaves_its_share_to_the_others() -> None:
    """R-NET-11."""
    h = queue(claim_jitter_ms=50)
    h.append(1, 2, name="q")
    left, stayed = start_claim(h, 2, "a"), Answer()
    cancel = h.cancel
    h.engine.claim(ClaimRequest("q", "b", 2), stayed)
    cancel()
    h.advance_ms(50)
    h.settle()
    assert dealt(stayed) == [[1, 2]]
    assert not left.given


def test_jobs_that_have_expired_are_not_handed_out() -> None:
    """R-TTL-3, R-Q-2."""
    h = queue(ttl_ms=100)
    h.append(1, name="q")
    h.advance_ms(60)
    h.append(2, name="q")
    h.advance_ms(60)
    answer = start_claim(h, 5)
    h.settle()
    assert dealt(answer) == [[2]]


def test_a_job_that_was_delivered_too_often_goes_to_the_dead_letters_and_the_next_one_is_handed_out() -> None:
    """R-Q-22."""
    h = queue(max_deliveries=1, dead_letter="dlq", lease_ms=100)
    h.append("poison", name="q")
    assert claim(h) == [1]
    h.append("sound", name="q")
    h.advance_ms(101)
    answer = start_claim(h, 5)
    for _ in range(4):
        h.settle()
    assert dealt(answer) == [[2]]
    assert [record["data"] for record in h.read(name="dlq")] == ["poison"]
    assert counters(h) == (1, 0, 1)


# --- refused, or too late ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "node", "code"),
    [
        ("absent", "w", "topic_not_found"),
        ("log", "w", "not_a_queue"),
        ("q", "", "invalid_request"),
        ("q", "n" * 1000, "invalid_request"),
        ("absent", "", "topic_not_found"),
    ],
)
def test_a_claim_that_cannot_be_served_is_refused(name: str, node: str, code: str) -> None:
    h = queue()
    h.put("log")
    h.append(1, name="q")
    answer = Answer()
    h.engine.claim(ClaimRequest(name, node), answer)
    h.settle()
    with pytest.raises(RequestError) as refused:
        answer.get()
    assert refused.value.code == code
    assert counters(h) == (1, 1, 0)


def test_a_queue_that_is_deleted_while_claims_wait_answers_all_of_them() -> None:
    """R-Q-20."""
    h = queue(claim_jitter_ms=50)
    h.append(1, name="q")
    answers = [start_claim(h, node=node) for node in "ab"]
    h.delete_topic("q")
    h.advance_ms(50)
    for answer in answers:
        with pytest.raises(RequestError) as refused:
            answer.get()
        assert refused.value.code == "topic_not_found"


def test_a_stopping_server_answers_claims_at_once_and_with_no_job() -> None:
    h = queue(claim_jitter_ms=50)
    h.append(1, name="q")
    waiting = start_claim(h)
    h.engine.begin_shutdown()
    late = start_claim(h)
    h.advance_ms(50)
    h.settle()
    assert (waiting.get().count, late.get().count) == (0, 0)


# --- where the store is slow or fails ------------------------------------------------------------------------
def test_a_durable_lease_that_cannot_be_logged_is_none() -> None:
    h = queue(leases_durable=True)
    h.append(1, 2, name="q")
    claim(h)
    answer = start_claim(h)
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        answer.get()
    assert counters(h) == (2, 1, 1)
    assert claim(h) == [2]


def test_a_job_deleted_while_its_bytes_are_read_is_not_handed_out() -> None:
    h = queue()
    h.append(1, name="q", tag="a")
    h.append(2, name="q", tag="b")
    claim(h, 1)
    start_ack(h, 99)
    h.engine.nack(HeldJobs("q", "w", [1]), 0, "", Answer())
    h.store.reader.slow = True
    answer = start_claim(h, 5)
    assert h.delete(match="a", name="q").deleted == 1
    while h.store.reader.held:
        h.store.reader.release()
    h.settle()
    assert [job["$seq"] for job in jobs_of(answer)] == [2]
    assert counters(h) == (1, 0, 1)


def test_a_claimer_that_leaves_during_the_read_leaves_the_jobs() -> None:
    h = queue()
    h.append(1, 2, name="q")
    claim(h, 1)
    h.store.reader.slow = True
    answer = start_claim(h)
    assert counters(h) == (2, 0, 2)
    h.cancel()
    h.store.reader.release()
    assert not answer.given
    assert counters(h) == (2, 1, 1)


def test_a_job_that_cannot_be_read_is_named_and_put_aside() -> None:
    """The others of its claim come at once, it comes again after the lease."""
    h = queue(lease_ms=1000)
    h.append("aaaa", "bbbb", "cccc", name="q")
    memory = h.store.log.file.memory
    assert memory is not None
    memory[bytes(memory).index(b"bbbb")] ^= 1
    answer = start_claim(h, 3)
    h.settle()
    with pytest.raises(CorruptError) as caught:
        answer.get()
    assert caught.value.detail == {"topic": "q", "seq": 2}
    assert counters(h) == (3, 2, 0)
    assert claim(h, 3) == [1, 3]
    h.advance_ms(1001)
    assert counters(h) == (3, 3, 0)


def test_a_topic_deleted_during_a_move_of_dead_letters_answers_all_requests() -> None:
    h = queue(max_deliveries=1, dead_letter="dlq")
    h.append(1, 2, name="q")
    claim(h)
    h.engine.nack(HeldJobs("q", "w", [1]), 0, "", Answer())
    late = start_claim(h, 2)
    gone = Answer()
    h.engine.delete_topic("q", if_empty=False, done=gone)
    for _ in range(4):
        h.settle()
    assert gone.get().deleted
    with pytest.raises(RequestError) as caught:
        late.get()
    assert caught.value.code == "topic_not_found"


def test_the_jobs_of_a_claim_have_a_limit_of_bytes_together() -> None:
    h = Harness(max_claim_bytes=100)
    h.put("q", type="queue")
    h.append(*["x" * 38] * 6, name="q")
    assert claim(h, 5) == [1, 2]
    assert counters(h) == (6, 4, 2)
    assert claim(h, 5) == [3, 4]
    h.append("y" * 500, name="q")
    assert claim(h, 5) == [5, 6]
    assert claim(h, 5) == [7]
