"""Leases that begin to be kept: logged in steps, while they change, over the end of the process at any of them."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from tests.amount import amount, seeds
from tests.engine.harness import Answer, Harness
from tests.engine.queue.queue_calls import queue, start_claim
from tests.engine.shared.test_topic_snapshot import change_leases, leases_of
from topics.engine.state import leases
from topics.engine.state.leases import Leases
from topics.engine.values import job
from topics.engine.values.topic_config import make_config
from topics.errors import TopicsError


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_ROWS_A_STEP", 1)
    monkeypatch.setattr(job, "_FAILURE_BITS", 1)


def used_queue(rng: random.Random) -> Harness:
    h = queue(lease_ms=1000)
    h.store.format.end()
    for _ in range(30):
        change_leases(h, rng)
    return h


def keep(h: Harness, *, wanted: bool = True) -> Answer:
    answer = Answer()
    h.engine.put_topic("q", make_config(type="queue", lease_ms=1000, leases_durable=wanted), answer)
    return answer


def kept_in_steps(h: Harness, rng: random.Random, steps: int = 10_000) -> Answer:
    """Begin to keep the leases, and change them between so many steps at most; a checkpoint may come between."""
    with patch.object(Leases, "is_long", True):
        answer = keep(h)
        while not answer.given and steps > 0:
            steps -= 1
            h.engine.flush()
            h.store.log.commit()
            if rng.random() < 0.5:
                change_leases(h, rng)
            elif rng.random() < 0.1:
                h.checkpoint()
    return answer


def test_leases_that_change_while_they_begin_to_be_kept_are_the_same_after_a_restart() -> None:
    """R-DUR-11, R-Q-34: they are leased, fail, expire and go between the steps."""
    for seed in seeds(150):
        rng = random.Random(seed)
        h = used_queue(rng)
        assert kept_in_steps(h, rng).get().config.leases_durable
        for _ in range(rng.randrange(4)):
            change_leases(h, rng)
        before = leases_of(h)
        h.restart()
        assert leases_of(h) == before, seed


def test_a_process_that_ends_before_all_leases_are_logged_keeps_none() -> None:
    """R-DUR-11: nor do any come back when the next one begins to keep leases."""
    ended = 0
    for seed in seeds(150):
        rng = random.Random(seed)
        h = used_queue(rng)
        if kept_in_steps(h, rng, rng.randrange(1, 5)).given:
            continue
        ended += 1
        h.restart()
        count, found, rows, attempts = leases_of(h)
        assert (found.ready, found.in_flight, rows, attempts) == (count, 0, {}, {}), seed
        start_claim(h, rng.randrange(3))
        h.settle()
        with patch.object(Leases, "is_long", seed % 2 == 0):
            answer = keep(h)
            while not answer.given:
                h.settle()
        before = leases_of(h)
        h.restart()
        assert leases_of(h) == before, seed
    assert ended > amount(50)


def test_requests_that_want_leases_kept_while_they_are_logged_wait_for_the_same_steps() -> None:
    h = used_queue(random.Random(1))
    with patch.object(Leases, "is_long", True):
        first, second, other = keep(h), keep(h), keep(h, wanted=False)
        while not first.given:
            h.settle()
        h.settle()
    assert first.get().config.leases_durable
    assert second.get().config.leases_durable
    assert not other.get().config.leases_durable, "it was answered before them"
    before = leases_of(h)
    h.restart()
    assert leases_of(h) == before


def test_a_queue_deleted_while_its_leases_are_logged_is_made_anew_by_the_request() -> None:
    h = used_queue(random.Random(2))
    with patch.object(Leases, "is_long", True):
        answer = keep(h)
        assert h.delete_topic("q").deleted
        h.settle()
    assert answer.get().created
    assert h.state("q").count == 0


def test_a_log_that_fails_while_leases_are_logged_fails_the_request() -> None:
    h = used_queue(random.Random(3))
    with patch.object(Leases, "is_long", True):
        answer = keep(h)
        h.settle(TopicsError("no"))
        assert isinstance(answer.results[0], TopicsError)
        assert not h.engine._core.registry.by_name["q"].keeps_leases
