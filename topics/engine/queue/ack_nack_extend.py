"""Ack, nack and extend: calls of a holder for its leases.

Source: wire contract 8.3 to 8.5, R-Q-7 to R-Q-12.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from topics.config import Config
from topics.engine.queue.alarm import AlarmCore, tend
from topics.engine.queue.job_removal import BeforeRemoval, JobRemoval, JobRemovalCore, stage_job_removal
from topics.engine.queue.lease_log import LeaseLogCore, log_ended, log_leases
from topics.engine.queue.lookup import LookupCore, find_queue
from topics.engine.queue.queue_results import AckResult, ExtendResult, HeldJobs
from topics.engine.shared.job_counts import JobCounts
from topics.engine.state.leases import Leases
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import wake
from topics.engine.values.job import BLOCK_BITS, JobState, LeasedJob
from topics.engine.values.results import Done
from topics.engine.values.topic_config import clamped_lease_ms
from topics.engine.write.admission import check_backlog
from topics.engine.write.retention import ExpiryCore, expire, when_retained
from topics.errors import RequestError, TopicsError

NACK_DELAY_MS_MAX = 86_400_000
_LEASED = JobState.LEASED


class HolderCore(JobRemovalCore, AlarmCore, LeaseLogCore, LookupCore, ExpiryCore, Protocol):
    """The part of the core that the calls of a holder need."""

    job_counts: JobCounts


def ack(core: HolderCore, before: BeforeRemoval, request: HeldJobs, done: Done[AckResult]) -> None:
    """Complete jobs at the class's commit point, after routers got them (R-RTR-18)."""
    topic = core.registry.named(request.queue)
    if topic is None or not topic.routers or topic.queue is None:
        _ack(core, before, request, done)
        return
    jobs, _skipped = held(topic.queue, request, core.clock.now_ms())
    seqs = [job.seq for job in jobs]

    def on_forwarded(error: TopicsError | None) -> None:
        if error is not None:
            done(error)
        else:
            _ack(core, before, request, done, set(seqs))

    before(topic, seqs, on_forwarded)


def _ack(
    core: HolderCore,
    before: BeforeRemoval,
    request: HeldJobs,
    done: Done[AckResult],
    prepared: Container[int] | None = None,
) -> None:
    """Complete jobs once routers have them.

    prepared: only these are acknowledged, even if the node leased others since; None: routers need
    none.
    """
    try:
        found = find_queue(core, request.queue, lambda: ack(core, before, request, done))
        if found is None:
            return
        topic, leases = found
        check_backlog(core.log)
        now_ms = core.clock.now_ms()
        expire(core, topic, now_ms)
        leases.apply_time(now_ms)
        jobs, skipped = held(leases, request, now_ms, prepared)
        if not any(job.live for job in jobs):
            for job in jobs:
                leases.finish(job)
            core.job_counts.acked += len(jobs)
            _answer(core, topic, AckResult(len(jobs), skipped, 0, 0), done)
            return

        def then(result: AckResult | TopicsError) -> None:
            if isinstance(result, AckResult):
                core.job_counts.acked += result.done
            done(result)

        stage_job_removal(core, topic, jobs, now_ms, JobRemoval(core, topic, jobs, skipped, then))
    except TopicsError as error:
        done(error)


def nack(core: HolderCore, request: HeldJobs, delay_ms: int, reason: str, done: Done[AckResult]) -> None:
    """Return jobs to the queue, claimable at once or after a delay.

    reason: kept with the attempts that end here (R-Q-32); "" for none.
    """
    try:
        found = find_queue(core, request.queue, lambda: nack(core, request, delay_ms, reason, done))
        if found is None:
            return
        topic, leases = found
        now_ms = core.clock.now_ms()
        leases.apply_time(now_ms)
        jobs, skipped = held(leases, request, now_ms)
        delay_ms = min(delay_ms, NACK_DELAY_MS_MAX)
        for job in jobs:
            leases.note(job, "nacked", now_ms, reason)
            if delay_ms:
                leases.delay(job, now_ms + delay_ms - 1)
            else:
                leases.release(job)
        tend(core, topic)
        wake(core, topic)

        def then(error: TopicsError | None) -> None:
            if error is not None:
                done(error)
            else:
                core.job_counts.nacked += len(jobs)
                _answer(core, topic, AckResult(len(jobs), skipped, 0, 0), done)

        log_ended(core, topic, jobs, then)
    except TopicsError as error:
        done(error)


def check_reason(limits: Config, reason: str) -> None:
    """Check that a nack's reason is not too long. Raises RequestError."""
    size, most = len(reason.encode()), limits.max_reason_bytes
    if size > most:
        message = f"reason has {size} bytes: at most {most} are allowed (TOPICS_MAX_REASON_BYTES), so cut it"
        raise RequestError("invalid_request", message)


def extend(core: HolderCore, request: HeldJobs, lease_ms: int, done: Done[ExtendResult]) -> None:
    """Set new deadlines, counted from now. Lease ids and delivery counts stay (R-Q-12)."""
    try:
        found = find_queue(core, request.queue, lambda: extend(core, request, lease_ms, done))
        if found is None:
            return
        topic, leases = found
        now_ms = core.clock.now_ms()
        leases.apply_time(now_ms)
        until_ms = now_ms + clamped_lease_ms(lease_ms)
        jobs, skipped = held(leases, request, now_ms)
        for job in jobs:
            leases.extend(job, until_ms)
        tend(core, topic)

        def then(error: TopicsError | None) -> None:
            done(error if error is not None else ExtendResult({job.seq: until_ms for job in jobs}, skipped))

        log_leases(core, topic, jobs, then)
    except TopicsError as error:
        done(error)


def held(
    leases: Leases, request: HeldJobs, now_ms: int, among: Container[int] | None = None
) -> tuple[list[LeasedJob], list[int]]:
    """Return the jobs held as requested, each once, and the other seqs, in order (R-Q-7).

    among: no other seqs; None: any.
    """
    _, node, seqs, fences = request
    jobs: list[LeasedJob] = []
    skipped: list[int] = []
    blocks = leases.jobs.blocks
    number, known = -1, dict[int, LeasedJob]()
    taken: set[int] = set()
    for at, seq in enumerate(seqs):
        if seq >> BLOCK_BITS != number:
            number = seq >> BLOCK_BITS
            known = blocks[number].jobs if number in blocks else {}
        job = known.get(seq)
        if (
            job is None
            or job.state is not _LEASED
            or job.until < now_ms  # Of very many leases that end at once, some end later (R-Q-2).
            or job.node != node
            or (fences and fences[at] is not None and fences[at] != job.lease_id)
            or seq in taken
            or (among is not None and seq not in among)
        ):
            skipped.append(seq)
        else:
            taken.add(seq)
            jobs.append(job)
    return jobs, skipped


def _answer(core: HolderCore, topic: Topic, result: AckResult, done: Done[AckResult]) -> None:
    """Answer with the counters after retention (R-FLOOR-7)."""
    now_ms = core.clock.now_ms()

    def on_retained(error: TopicsError | None) -> None:
        assert topic.queue is not None, "only queues have jobs"
        if error is not None:
            done(error)
        else:
            ready, in_flight = topic.queue.counters(now_ms)
            done(result._replace(ready=ready, in_flight=in_flight))

    when_retained(core, topic, now_ms, on_retained)
