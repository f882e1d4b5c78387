"""Ack, nack and extend: calls of a holder for its leases.

Source: wire contract 8.3 to 8.5, R-Q-7 to R-Q-12.

An ack is a silent delete with a frame of its own, one for a request with any number of jobs. Until
that is committed the job can neither expire nor be acked again; then record, lease and delivery
count are removed together.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

import numpy as np

from topics.clock import Clock
from topics.engine.index.pending_delete_flags import PendingDeleteFlags
from topics.engine.index.usage import Usage
from topics.engine.queue.alarm import AlarmCore, tend
from topics.engine.queue.logged import LeaseLogCore, log_ended, log_leases
from topics.engine.queue.lookup import LookupCore, find_queue
from topics.engine.queue.queue_results import AckResult, ExtendResult, HeldJobs
from topics.engine.state.control_frames import encode, from_runs, removal, to_runs
from topics.engine.state.leases import Leases
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import WakeCore, wake
from topics.engine.values.job import JobState, LeasedJob
from topics.engine.values.results import Done
from topics.engine.values.topic_config import clamped_lease_ms
from topics.engine.write.admission import check_backlog
from topics.engine.write.retention import ExpiryCore, expire, when_retained
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType
from topics.store.wal.commit import Commit

NACK_DELAY_MS_MAX = 86_400_000
_LEASED = JobState.LEASED
_FEW_RUNS = 8
_MANY_SEQS = 1 << 20
"""Number of seqs from which runs are not expanded: most may be absent (`lifecycle.py`)."""


class ConsumptionCore(Protocol):
    """The part of the core that the removal of jobs needs."""

    usage: Usage
    deletions: PendingDeleteFlags


class EndCore(ConsumptionCore, OperationCore, WakeCore, Protocol):
    """The part of the core that the end of jobs needs."""

    clock: Clock


class CompletionCore(EndCore, AlarmCore, LeaseLogCore, LookupCore, ExpiryCore, Protocol):
    """The part of the core that the calls of a holder need."""


BeforeConsumption = Callable[[Topic, list[int], Callable[[TopicsError | None], None]], None]
"""`before(topic, seqs, then)`: `then` is called once no router needs these jobs (R-RTR-18)."""


class Consumption(Operation[EndCore]):
    """The deletion of jobs' records; `done` gets the outcome."""

    __slots__ = ("done", "jobs", "runs", "skipped")

    def __init__(
        self, core: EndCore, topic: Topic, jobs: list[LeasedJob], skipped: list[int], done: Done[AckResult]
    ) -> None:
        super().__init__(core, topic)
        self.jobs = jobs
        # Only live ones: a router would forward deleted ones (R-DEL-9).
        self.runs = to_runs(sorted([job.seq for job in jobs if job.live]))
        self.skipped = skipped
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic, leases = self.topic, self.topic.queue
        assert leases is not None, "only queues have jobs"
        has_gaps = bool(topic.floors.gaps)
        consume_now(self.core, topic, self.runs)
        if has_gaps:  # readers see another floor
            wake(self.core, topic)
        leases.finish_all(self.jobs)
        sync_ns = commit.sync_ns if topic.config.durability == "fsync" else 0
        counters = leases.counters(self.core.clock.now_ms())
        self.done(AckResult(len(self.jobs), self.skipped, *counters, sync_ns))

    def fail(self, error: TopicsError) -> None:
        """Release the jobs, which are claimable again; nothing is deleted."""
        leases = self.topic.queue
        assert leases is not None, "only queues have jobs"
        acked = any(job.state is JobState.ENDING for job in self.jobs)
        for job in self.jobs:
            leases.release(job)
        if acked:  # jobs that could not be moved are not tried again at once
            wake(self.core, self.topic)
        self.done(error)


def consume_now(core: ConsumptionCore, topic: Topic, runs: list[int]) -> None:
    """Remove the records of these jobs, silently. runs: as in `to_runs`."""
    index = topic.index
    for router in topic.routers:
        if router.keeping:
            router.consumed(runs)
    if len(runs) <= 2 * _FEW_RUNS or sum(runs[1::2]) - sum(runs[::2]) >= _MANY_SEQS:
        killed = [part for at in range(0, len(runs), 2) for part in index.kill_run(runs[at], runs[at + 1])]
    else:
        killed = index.kill_seqs(np.array(from_runs(runs), np.uint64))
    for chunk, rows in killed:
        here = chunk.file_ids[rows]
        for file_id in set(here.tolist()):
            if core.usage.is_sealed(file_id):
                its = rows[here == file_id]
                dead = (its + chunk.first).astype(np.uint64)
                core.deletions.add(topic.id, file_id, dead, chunk.offsets[its], chunk.lengths[its])
    if topic.floors.gaps:
        topic.floors.settle_gaps(topic.earliest)


def ack(core: CompletionCore, before: BeforeConsumption, request: HeldJobs, done: Done[AckResult]) -> None:
    """Complete jobs at the class's commit point, after routers got them (R-RTR-18)."""
    topic = core.registry.named(request.queue)
    if topic is None or not topic.routers or topic.queue is None:
        _ack(core, before, request, done)
        return
    jobs, _skipped = held(topic.queue, request)
    seqs = [job.seq for job in jobs]

    def on_forwarded(error: TopicsError | None) -> None:
        if error is not None:
            done(error)
        else:
            _ack(core, before, request, done, set(seqs))

    before(topic, seqs, on_forwarded)


def _ack(
    core: CompletionCore,
    before: BeforeConsumption,
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
        leases.look(now_ms)
        jobs, skipped = held(leases, request, prepared)
        if not any(job.live for job in jobs):
            for job in jobs:
                leases.finish(job)
            _answer(core, topic, AckResult(len(jobs), skipped, 0, 0), done)
            return
        stage_consumption(core, topic, jobs, now_ms, Consumption(core, topic, jobs, skipped, done))
    except TopicsError as error:
        done(error)


def stage_consumption(core: EndCore, topic: Topic, jobs: list[LeasedJob], now_ms: int, operation: Consumption) -> None:
    """Stage the end of these jobs. Raises StorageError; nothing was done then."""
    assert topic.queue is not None, "only queues have jobs"
    if topic.stage_class == "ephemeral":
        for job in jobs:
            job.state = JobState.ENDING if job.state is _LEASED else job.state
        operation.stage_unlogged()
        return
    payload = removal(topic, seqs=operation.runs)
    with core.log.use_reserve():
        core.log.stage_control(topic.id, FrameType.CONSUME, payload.upto, now_ms, encode(payload))
    for job in jobs:
        job.state = JobState.ENDING if job.state is _LEASED else job.state
    operation.stage(synced=topic.stage_class == "fsync")


def nack(core: CompletionCore, request: HeldJobs, delay_ms: int, done: Done[AckResult]) -> None:
    """Return jobs to the queue, claimable at once or after a delay."""
    try:
        found = find_queue(core, request.queue, lambda: nack(core, request, delay_ms, done))
        if found is None:
            return
        topic, leases = found
        now_ms = core.clock.now_ms()
        leases.look(now_ms)
        jobs, skipped = held(leases, request)
        delay_ms = min(delay_ms, NACK_DELAY_MS_MAX)
        for job in jobs:
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
                _answer(core, topic, AckResult(len(jobs), skipped, 0, 0), done)

        log_ended(core, topic, jobs, then)
    except TopicsError as error:
        done(error)


def extend(core: CompletionCore, request: HeldJobs, lease_ms: int, done: Done[ExtendResult]) -> None:
    """Set new deadlines, counted from now. Lease ids and delivery counts stay (R-Q-12)."""
    try:
        found = find_queue(core, request.queue, lambda: extend(core, request, lease_ms, done))
        if found is None:
            return
        topic, leases = found
        now_ms = core.clock.now_ms()
        leases.look(now_ms)
        until_ms = now_ms + clamped_lease_ms(lease_ms)
        jobs, skipped = held(leases, request)
        for job in jobs:
            leases.extend(job, until_ms)
        tend(core, topic)

        def then(error: TopicsError | None) -> None:
            done(error if error is not None else ExtendResult({job.seq: until_ms for job in jobs}, skipped))

        log_leases(core, topic, jobs, then)
    except TopicsError as error:
        done(error)


def held(leases: Leases, request: HeldJobs, among: Container[int] | None = None) -> tuple[list[LeasedJob], list[int]]:
    """Return the jobs held as requested, each once, and the other seqs, in order (R-Q-7).

    among: no other seqs; None: any.
    """
    _, node, seqs, fences = request
    jobs: list[LeasedJob] = []
    skipped: list[int] = []
    known = leases.jobs
    taken: set[int] = set()
    for at, seq in enumerate(seqs):
        job = known.get(seq)
        if (
            job is None
            or job.state is not _LEASED
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


def _answer(core: CompletionCore, topic: Topic, result: AckResult, done: Done[AckResult]) -> None:
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
