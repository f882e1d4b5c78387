"""Acks on their way: what they do to their jobs, and what others may do meanwhile."""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer
from tests.engine.queue.queue_calls import claim, counters, jobs_of, queue, start_ack, start_claim
from topics.errors import RequestError, StorageError


def test_a_failed_ack_gives_its_jobs_back_with_their_deliveries() -> None:
    h = queue()
    h.append(1, 2, name="q")
    claim(h, 2)
    answer = start_ack(h, 1)
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        answer.get()
    assert counters(h) == (2, 1, 1)
    again = start_claim(h)
    h.settle()
    assert jobs_of(again)[0]["deliveries"] == 2


def test_a_job_whose_ack_is_on_its_way_is_given_to_no_other() -> None:
    h = queue(lease_ms=100)
    h.append(1, name="q")
    claim(h)
    first, second = start_ack(h, 1), start_ack(h, 1)
    h.advance_ms(500)
    third = start_claim(h, node="other")
    h.settle()
    assert (first.get().done, second.get().skipped, third.get().count) == (1, [1], 0)
    assert counters(h) == (0, 0, 0)


def test_an_ack_of_a_topic_that_is_being_deleted_is_refused() -> None:
    h = queue()
    h.append(1, name="q")
    claim(h)
    gone = Answer()
    h.engine.delete_topic("q", if_empty=False, done=gone)
    late = start_ack(h, 1)
    h.settle()
    assert gone.get().deleted
    with pytest.raises(RequestError, match="does not exist"):
        late.get()
