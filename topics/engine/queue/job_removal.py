"""Removal of jobs that have ended: their records, leases and delivery counts, in one operation.

Source: wire contract 8.3, R-Q-7 to R-Q-12.

It is a silent delete with a frame of its own, one for any number of jobs. Until that is committed
the jobs can neither expire nor end again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.clock import Clock
from topics.engine.index.pending_delete_flags import PendingDeleteFlags
from topics.engine.queue.queue_results import AckResult
from topics.engine.state.control_frames import encode, from_runs, removal, to_runs
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import WakeCore, wake
from topics.engine.values.job import JobState, LeasedJob
from topics.engine.values.results import Done
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType

_FEW_RUNS = 8
_MANY_SEQS = 1 << 20
"""Number of seqs from which runs are not expanded: most may be absent (`lifecycle.py`)."""


class RemoveJobsCore(Protocol):
    """The part of the core that `remove_jobs` needs: recovery calls it, too."""

    deletions: PendingDeleteFlags


class JobRemovalCore(RemoveJobsCore, OperationCore, WakeCore, Protocol):
    """The part of the core that the removal of jobs needs."""

    clock: Clock


BeforeRemoval = Callable[[Topic, list[int], Callable[[TopicsError | None], None]], None]
"""`before(topic, seqs, then)`: `then` is called once no router needs these jobs (R-RTR-18)."""


class JobRemoval(Operation[JobRemovalCore]):
    """The removal of some jobs; `done` gets the outcome."""

    __slots__ = ("done", "jobs", "runs", "skipped")

    def __init__(
        self, core: JobRemovalCore, topic: Topic, jobs: list[LeasedJob], skipped: list[int], done: Done[AckResult]
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
        remove_jobs(self.core, topic, self.runs)
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
        now_ms = self.core.clock.now_ms()
        for job in self.jobs:
            if job.state is JobState.ENDING:
                leases.note(job, "released", now_ms)
            leases.release(job)
        if acked:  # jobs that could not be moved are not tried again at once
            wake(self.core, self.topic)
        self.done(error)

    def deletes(self, seqs: NDArray[np.uint64]) -> NDArray[np.bool_] | bool:
        return np.isin(seqs, np.array(from_runs(self.runs), np.uint64))


def remove_jobs(core: RemoveJobsCore, topic: Topic, runs: list[int]) -> None:
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
        core.deletions.add_rows(topic.id, chunk, rows)
    if topic.floors.gaps:
        topic.settle_gaps()


def stage_job_removal(
    core: JobRemovalCore, topic: Topic, jobs: list[LeasedJob], now_ms: int, operation: JobRemoval
) -> None:
    """Stage the end of these jobs. Raises StorageError; nothing was done then."""
    assert topic.queue is not None, "only queues have jobs"
    if topic.stage_class == "ephemeral":
        topic.queue.end_all(jobs)
        operation.stage_unlogged()
        return
    payload = removal(topic, seqs=operation.runs)
    with core.log.use_reserve():
        core.log.stage_control(topic.id, FrameType.CONSUME, payload.upto, now_ms, encode(payload))
    topic.queue.end_all(jobs)
    operation.stage(synced=topic.stage_class == "fsync")
