"""Requests for a checkpoint: what they cost, and that nothing of them remains."""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer, Harness
from topics.engine.values.results import CheckpointResult
from topics.errors import DiskFullError, RequestError


@pytest.fixture
def h() -> Harness:
    return Harness()


def ask(h: Harness, wait_ms: int | None = 30_000) -> Answer:
    answer = Answer()
    h.engine.checkpoint(wait_ms, answer)
    return answer


def assert_nothing_is_left(h: Harness) -> None:
    core = h.engine._core
    assert (core.checkpoint_waits, core.waits, h.loop.waiting, h.store.requested.asked) == ({}, 0, 0, {})


@pytest.mark.parametrize("how", ["done", "failed", "cancelled", "late", "stopped"])
def test_a_request_leaves_nothing_behind(h: Harness, how: str) -> None:
    """R-CHK-3 to R-CHK-5."""
    answer = Answer()
    cancel = h.engine.checkpoint(500, answer)
    if how == "done":
        h.store.requested.end()
        assert answer.get() == CheckpointResult(9, True, 1)
    elif how == "failed":
        h.store.requested.end(DiskFullError("full"))
        assert isinstance(answer.results[0], DiskFullError)
    elif how == "cancelled":
        cancel()
    elif how == "late":
        h.advance_ms(500)
        assert answer.get() == CheckpointResult(7, False, 1)
    else:
        h.engine.begin_shutdown()
        assert answer.results[0].code == "shutting_down"
    h.settle()
    assert_nothing_is_left(h)
    cancel()
    h.store.requested.end()
    assert len(answer.results) == (how != "cancelled")


def test_one_that_does_not_wait_begins_a_checkpoint(h: Harness) -> None:
    """R-CHK-3."""
    assert ask(h, 0).get() == CheckpointResult(7, False, 1)
    assert h.store.requested.begun == 1
    assert_nothing_is_left(h)


def test_one_may_wait_without_end(h: Harness) -> None:
    answer = ask(h, None)
    h.advance_ms(1_000_000)
    assert not answer.given
    h.store.requested.end()
    assert answer.get().done


def test_one_that_meets_a_stopping_engine_is_refused(h: Harness) -> None:
    """R-CHK-5."""
    h.engine.begin_shutdown()
    refused = ask(h).results[0]
    assert isinstance(refused, RequestError)
    assert refused.code == "shutting_down"


def test_many_answers_are_made_in_turns(h: Harness) -> None:
    """R-CHK-2: a checkpoint that thousands wait for does not hold up a pass."""
    answers = [ask(h) for _ in range(2000)]
    h.store.requested.end()
    given = [sum(answer.given for answer in answers)]
    while not all(answer.given for answer in answers):
        h.engine.flush()
        given.append(sum(answer.given for answer in answers) - sum(given))
    assert max(given) < 1000
    h.advance_ms(1)
    assert_nothing_is_left(h)
