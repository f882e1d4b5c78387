"""Leases that persist over restarts: a frame a request, at the class's commit point.

Source: R-DUR-11.

Other queues do not log leases: after a restart every job is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from topics.clock import Clock
from topics.common.values.answers import Attempt
from topics.engine.state.control_frames import AttemptRow, LeaseRow, LeasesPayload, attempt_row, encode, to_runs
from topics.engine.state.staged_operations import Notice, OperationCore
from topics.engine.state.topic import Life, Topic
from topics.engine.values.job import LeasedJob
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType

Then = Callable[[TopicsError | None], None]


class LeaseLogCore(OperationCore, Protocol):
    """The part of the core that the log of leases needs."""

    clock: Clock


def log_leases(core: LeaseLogCore, topic: Topic, jobs: Sequence[LeasedJob], then: Then) -> None:
    """Log that these jobs are leased as they state.

    Raises StorageError; `then` is not called then.
    """
    if not jobs or not topic.keeps_leases or topic.life is Life.GONE:
        then(None)
        return
    rows = [LeaseRow(job.seq, job.lease_id, job.until, job.deliveries, job.node) for job in jobs if job.live]
    _stage(core, topic, LeasesPayload(rows), then)


def log_ended(core: LeaseLogCore, topic: Topic, jobs: Sequence[LeasedJob], then: Then) -> None:
    """Log that the leases of these jobs ended before their deadline, and how.

    Raises as `log_leases`. `Leases.note` was called before.
    """
    if not jobs or not topic.keeps_leases or topic.life is Life.GONE:
        then(None)
        return
    attempts = _last_attempts(jobs)
    ends = LeasesPayload(ended=to_runs(sorted(job.seq for job in jobs)), attempts=attempts)
    _stage(core, topic, ends, then)


def _last_attempts(jobs: Sequence[LeasedJob]) -> list[AttemptRow]:
    """Return the last attempt of each job that has one, equal ones in one row."""
    seqs: dict[Attempt, list[int]] = {}
    for job in jobs:
        if job.live and job.attempts:
            seqs.setdefault(job.attempts[-1], []).append(job.seq)
    return [attempt_row(sorted(found), attempt) for attempt, found in seqs.items()]


def _stage(core: LeaseLogCore, topic: Topic, payload: LeasesPayload, then: Then) -> None:
    with core.log.use_reserve():
        core.log.stage_control(topic.id, FrameType.LEASES, topic.next_seq - 1, core.clock.now_ms(), encode(payload))
    Notice(core, topic, then).stage(synced=topic.stage_class == "fsync")
