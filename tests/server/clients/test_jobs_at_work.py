"""Jobs of `work` whose acks have no answer, and those whose blocks never begin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from topics.common import work_steps
from topics.common.values.answers import ExtendResult
from topics.common.values.delivered import Job
from topics.errors import NoAnswerError, OutcomeUnknown, UsageError

PATIENCE_MS = 20_000


@pytest.fixture
def jobs_log(any_log: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A log with a queue of two jobs, in which an ack is repeated without a pause."""
    monkeypatch.setattr(work_steps, "_PAUSE_S", 0.0)
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", ["one", "two"])
    return any_log


def counts(log: Any) -> tuple[int, int]:
    queue = log.state("jobs").queue
    return queue.ready, queue.in_flight


def answered_late(call: Callable[..., Any], before: Callable[[], object] | None = None) -> Callable[..., Any]:
    """Return a call whose first answer is lost. before: done in the place of that first call."""
    tries = iter(range(100))

    def lost(*arguments: Any, **options: Any) -> Any:
        if next(tries):
            return call(*arguments, **options)
        if before is None:
            call(*arguments, **options)
        else:
            before()
        raise OutcomeUnknown("the answer was lost")

    return lost


def test_a_job_whose_ack_was_done_without_an_answer_is_not_lost(jobs_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_log, "ack", answered_late(jobs_log.ack))
    for job in jobs_log.work("jobs", node="w"):
        with job:
            pass
        assert (job.is_lost, job.ended) == (False, True)
        break
    assert jobs_log.state("jobs").count == 1


def test_a_job_whose_ack_was_not_done_and_that_another_worker_has_is_lost(
    jobs_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_log.work("jobs", node="w")
    job = next(jobs)
    taken: list[Job] = []

    def take() -> None:
        jobs_log.nack("jobs", "w", [job.job])
        taken.extend(jobs_log.claim("jobs", "other"))

    monkeypatch.setattr(jobs_log, "ack", answered_late(jobs_log.ack, take))
    with job:
        pass
    assert (job.is_lost, taken[0].seq) == (True, job.seq)


def test_an_ack_without_an_answer_is_repeated_until_the_lease_ends_and_the_loop_goes_on(
    jobs_log: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known, tries = jobs_log.ack, []

    def ack(queue: str, node: str, jobs: list[Job]) -> Any:
        if jobs[0].seq > 1:
            return known(queue, node, jobs)
        tries.append(jobs)
        if len(tries) == 3:
            job._lease_until = 0.0
        raise NoAnswerError("no answer from http://s")

    monkeypatch.setattr(jobs_log, "ack", ack)
    lost = []
    for job in jobs_log.work("jobs", node="w"):
        with job:
            pass
        lost.append(job.is_lost)
        if len(lost) == 2:
            break
    assert (lost, len(tries)) == ([True, False], 3)
    assert "whether job 1 of jobs has ended is not known: no answer" in caplog.text


@pytest.mark.parametrize("leaves", ["break", "exception"])
def test_a_job_that_the_loop_leaves_without_a_block_comes_back_at_once(jobs_log: Any, leaves: str) -> None:
    def leave() -> None:
        for job in jobs_log.work("jobs", node="w", max=2):
            left.append(job)
            if leaves == "break":
                break
            raise KeyError(leaves)

    left: list[Any] = []
    if leaves == "break":
        leave()
    else:
        with pytest.raises(KeyError):
            leave()
    assert counts(jobs_log) == (2, 0)
    with pytest.raises(UsageError, match="given back when the loop"), left[0]:
        pass
    left[0].ack()
    assert left[0].is_lost
    assert counts(jobs_log) == (2, 0)
    (job,) = jobs_log.claim("jobs", "x", 1, include_attempts=True)
    assert [attempt.reason for attempt in job.attempts] == [
        "given back when the loop over work was left: begin its block before"
    ]


def test_a_job_that_is_worked_on_when_the_loop_is_left_stays(jobs_log: Any) -> None:
    jobs = jobs_log.work("jobs", node="w", max=2)
    with next(jobs) as job:
        next(jobs)
        jobs.close()
        assert counts(jobs_log) == (1, 1)
    assert not job.is_lost
    assert counts(jobs_log) == (1, 0)


def test_a_job_whose_block_does_not_begin_in_time_comes_back(
    jobs_log: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work_steps, "_PARTS", 10_000)
    jobs = jobs_log.work("jobs", node="w", start_ms=0)
    job = next(jobs)
    again = jobs_log.claim("jobs", "other", 2, wait_ms=PATIENCE_MS)
    while len(again) < 2:
        again += jobs_log.claim("jobs", "other", 2, wait_ms=PATIENCE_MS)
    assert {each.data for each in again} == {"one", "two"}
    assert job.is_lost
    with pytest.raises(UsageError, match="raise start_ms"), job:
        pass
    assert "no block of jobs 1 of jobs began within 0 ms" in caplog.text


def test_an_extension_that_skips_a_job_whose_ack_has_no_answer_yet_does_not_say_that_it_is_lost() -> None:
    options = work_steps.WorkOptions("jobs", "w", 2, 1000, 0, 1000)
    held = work_steps.WorkSteps(options, work_steps.JobAtWork, lambda: 0.0, lambda: False)
    one, two = held._hold(Job(seq=seq, ts=1, lease_id="lease_1", deadline=1, deliveries=1, data=1) for seq in (1, 2))
    ending = held.acking(one)
    next(ending)  # its answer does not come
    held._note_extended([one, two], ExtendResult({}, [1, 2]))
    assert (one.is_lost, two.is_lost) == (False, True)


def test_asyncio_ends_and_gives_back_jobs_alike(
    jobs_log: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work_steps, "_PARTS", 10_000)
    aio = jobs_log.aio
    known, tries = aio.ack, iter(range(9))

    async def ack(*arguments: Any) -> Any:
        result = await known(*arguments)
        if not next(tries):
            raise OutcomeUnknown("the answer was lost")
        return result

    monkeypatch.setattr(aio, "ack", ack)

    async def end_one_and_leave_one() -> None:
        jobs = aio.work("jobs", node="w", max=2)
        async with await anext(jobs) as job:
            pass
        assert (job.is_lost, job.ended) == (False, True)
        left = await anext(jobs)
        await jobs.aclose()
        assert (left.is_lost, counts(jobs_log)) == (True, (1, 0))
        with pytest.raises(UsageError, match="given back"):
            async with left:
                pass
        jobs = aio.work("jobs", node="w", start_ms=0)
        late = await anext(jobs)
        assert [each.data for each in await aio.claim("jobs", "other", wait_ms=PATIENCE_MS)] == ["two"]
        assert late.is_lost
        await jobs.aclose()

    with caplog.at_level(logging.WARNING, "topics.work"):
        asyncio.run(end_one_and_leave_one())


def test_a_job_whose_exception_has_no_text_comes_back_too(jobs_log: Any) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    for job in jobs_log.work("jobs", node="w", retry_ms=0):
        with job:
            raise Mute
        break
    queue = jobs_log.state("jobs", include_attempts=True).queue
    assert (queue.ready, queue.in_flight) == (2, 0)
    assert queue.failed[0].attempts[-1].reason == "Mute: it has no text, because its __str__ fails"
