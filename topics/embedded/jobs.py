"""Queues of the library: jobs as a worker gets them, and as it completes or returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from topics.embedded import arguments
from topics.embedded.calls import Start
from topics.embedded.records import put_payloads
from topics.engine.queue.queue_results import AckResult, ClaimResult, HeldJobs
from topics.engine.values.results import Cancel, Done
from topics.errors import TopicsError, UsageError


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A record leased to a node.

    ts, deadline: milliseconds since the epoch; deliveries: 1 the first time; data: bytes, if it was
    bytes.
    """

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    lease_id: str
    deadline: int
    deliveries: int
    data: Any
    meta: Any = None
    tag: str | None = msgspec.field(name="$tag", default=None)


class AwaitedClaim:
    """A claim whose caller may leave before it has the jobs, which are then given back.

    claiming: begins it, and returns what cancels it. nacking: returns the call that gives jobs
    back. The driving thread calls `begin` and `give_up`.
    """

    __slots__ = ("_cancel", "_claiming", "_done", "_given_up", "_jobs", "_nacking")

    def __init__(
        self, claiming: Callable[[Done[list[Job]]], Cancel], nacking: Callable[[list[Job]], Start[AckResult]]
    ) -> None:
        self._claiming = claiming
        self._nacking = nacking
        self._done: Done[list[Job]] | None = None
        """The receiver of the jobs, while the claim is in progress."""
        self._cancel: Cancel | None = None
        self._jobs: list[Job] = []
        self._given_up = False

    def begin(self, done: Done[list[Job]]) -> None:
        if self._given_up:
            done([])
            return
        self._done = done
        self._cancel = self._claiming(self._on_jobs)

    def _on_jobs(self, result: list[Job] | TopicsError) -> None:
        done, self._done = self._done, None
        if not isinstance(result, TopicsError):
            self._jobs = result
        assert done is not None, "it is answered once"
        done(result)

    def give_up(self, done: Done[AckResult | None]) -> None:
        """Cancel the claim, or give back the jobs that its caller did not get."""
        self._given_up = True
        if self._done is not None:
            assert self._cancel is not None, "it was begun"
            self._cancel()
            self._on_jobs([])
        if self._jobs:
            self._nacking(self._jobs)(done)
        else:
            done(None)


Jobs = Iterable[Job | int]
"""Jobs as claimed, fenced by their leases; or bare seqs, which have no fence."""

_decoder = msgspec.json.Decoder(list[Job])


def parse_jobs(result: ClaimResult | TopicsError) -> list[Job] | TopicsError:
    """Return the decoded jobs of the engine's answer; an error is returned unchanged."""
    if isinstance(result, TopicsError):
        return result
    jobs = _decoder.decode(b"[" + result.records + b"]")
    put_payloads(jobs, result.payloads)
    return jobs


def held_jobs(queue: str, node: str, jobs: Jobs) -> HeldJobs:
    """Return the engine's request for ack, nack and extend. Raises UsageError."""
    arguments.text("queue", queue)
    arguments.text("node", node)
    if not node:
        raise UsageError("node is '': use the name that claimed the jobs")
    seqs: list[int] = []
    leases: list[int | None] = []
    if isinstance(jobs, Job | int | str | bytes) or not isinstance(jobs, Iterable):
        raise UsageError(f"jobs is {arguments.shown(jobs)}: use a list of jobs as claimed, or of seqs")
    for job in jobs:
        if isinstance(job, Job):
            arguments.count("jobs", job.seq)
            seqs.append(job.seq)
            leases.append(_lease_number(job.lease_id))
        else:
            arguments.count("jobs", job)
            seqs.append(job)
            leases.append(None)
    return HeldJobs(queue, node, seqs, leases)


def _lease_number(lease_id: str) -> int:
    try:
        number = int(lease_id.removeprefix("lease_"), 16)
        arguments.count("lease_id", number)
    except (ValueError, AttributeError):
        raise UsageError(f"a job's lease_id is {arguments.shown(lease_id)}: use jobs as they were claimed") from None
    return number
