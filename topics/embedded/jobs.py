"""Queues of the library: jobs as a worker gets them, and what it says about them afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from topics.embedded import arguments
from topics.engine.queue.results import ClaimResult, HeldJobs
from topics.errors import TopicsError


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A record leased to a node. ts, deadline: milliseconds since the epoch; deliveries: 1 the first time."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    lease_id: str
    deadline: int
    deliveries: int
    data: Any
    meta: Any = None
    tag: str | None = msgspec.field(name="$tag", default=None)


Jobs = Iterable[Job | int]
"""Jobs as claimed, fenced by their leases; or bare seqs, which are not."""

_decoder = msgspec.json.Decoder(list[Job])


def parse_jobs(result: ClaimResult | TopicsError) -> list[Job] | TopicsError:
    """The engine's answer decoded; an error stays what it is."""
    return result if isinstance(result, TopicsError) else _decoder.decode(b"[" + result.records + b"]")


def held_jobs(queue: str, node: str, jobs: Jobs) -> HeldJobs:
    """What ack, nack and extend ask of the engine."""
    arguments.text("queue", queue)
    arguments.text("node", node)
    seqs: list[int] = []
    leases: list[int | None] = []
    for job in jobs:
        if isinstance(job, Job):
            seqs.append(job.seq)
            leases.append(int(job.lease_id.removeprefix("lease_"), 16))
        else:
            arguments.count("jobs", job)
            seqs.append(job)
            leases.append(None)
    return HeldJobs(queue, node, seqs, leases)
