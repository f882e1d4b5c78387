"""The jobs that a node says it holds, for ack, nack and extend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topics.common.values import arguments
from topics.common.values.delivered import Job, Jobs
from topics.errors import UsageError


class HeldJobs(NamedTuple):
    """Jobs that a node states it holds: the arguments of ack, nack and extend (8.1)."""

    queue: str
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int | None] = ()
    """Fences: a lease id, or None for no fence, for each seq; empty: no fences (R-Q-8)."""


def held_jobs(queue: str, node: str, jobs: Jobs) -> HeldJobs:
    """Return the engine's request for ack, nack and extend. Raises UsageError."""
    queue = arguments.text("queue", queue)
    node = arguments.text("node", node)
    if not node:
        raise UsageError("node is '': use the name that claimed the jobs")
    seqs: list[int] = []
    leases: list[int | None] = []
    if isinstance(jobs, Job | int | str | bytes) or not isinstance(jobs, Iterable):
        raise UsageError(f"jobs is {arguments.shown(jobs)}: use a list of jobs as claimed, or of seqs")
    for job in jobs:
        if isinstance(job, Job):
            seqs.append(arguments.count("jobs", job.seq))
            leases.append(_lease_number(job.lease_id))
        else:
            seqs.append(arguments.count("jobs", job))
            leases.append(None)
    return HeldJobs(queue, node, seqs, leases)


def _lease_number(lease_id: str) -> int:
    try:
        number = int(lease_id.removeprefix("lease_"), 16)
        arguments.count("lease_id", number)
    except (ValueError, AttributeError):
        raise UsageError(f"a job's lease_id is {arguments.shown(lease_id)}: use jobs as they were claimed") from None
    return number
