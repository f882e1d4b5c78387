"""Claims: the jobs of all claims that wait together, in one pass.

Source: wire contract 8.2, R-Q-3, R-Q-17 to -23.

A pass is decided in one instant: retention, expired leases, then jobs are dealt round-robin and
leased. Only then are their records read, which may take a disk's time; poison jobs found on the way
are moved first, and then all claims are answered. Of very many poison jobs, some are moved, and the
claims are decided after them, in another pass of the loop.

Of very many jobs, some are dealt in a turn, and of claims that were collected together some are
answered in a turn: their jobs, which no other claim gets from the deal on, are leased then. Between
turns jobs may be deleted, and claimers leave, whose jobs are claimable again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from typing import Protocol

import numpy as np

from topics.config import Config
from topics.engine.queue.alarm import AlarmCore, tend
from topics.engine.queue.dead_letter import CLAIM_WAIT_NS, DeadLetters, PoisonJobs, Then
from topics.engine.queue.fetch import FetchCore, JobsRead
from topics.engine.queue.lease_log import LeaseLogCore, log_ended, log_leases
from topics.engine.queue.lookup import LookupCore, find_queue
from topics.engine.queue.queue_results import ClaimRequest, ClaimResult
from topics.engine.read.frame_read import FrameRead
from topics.engine.shared.job_counts import JobCounts
from topics.engine.shared.lease_ids import LeaseIds, LeaseIdsCore
from topics.engine.state import refusals
from topics.engine.state.leases import Leases
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst, wake
from topics.engine.values.job import Holder, JobState, LeasedJob
from topics.engine.values.ports import TimerPort
from topics.engine.values.results import Cancel, Done
from topics.engine.values.topic_config import clamped_lease_ms
from topics.engine.write.retention import ExpiryCore, when_retained
from topics.errors import CorruptError, RequestError, StorageError, TopicsError
from topics.store.read.render_json import Payload

BYTES_A_LOOK = 256
"""Share of a pass's budget for reads that a look takes which finds no jobs: a microsecond."""
_BYTES_A_CLAIM, _BYTES_AN_ANSWER, _BYTES_A_DEAL = 4096, 32_768, 1 << 20
"""Shares that a claim takes, and when it has jobs, besides them; and a deal before another one."""
_DEALT = 1024
"""Most jobs that are dealt in one instant."""


class ClaimCore(AlarmCore, FetchCore, LeaseLogCore, LookupCore, ExpiryCore, LeaseIdsCore, Protocol):
    """The part of the core that claims need."""

    closing: bool
    config: Config
    job_counts: JobCounts
    lease_ids: LeaseIds


class Claim:
    """One claimer's part of a pass. `jobs` are the jobs dealt to it; `answer` ends it."""

    __slots__ = (
        "bytes_apart",
        "cancelled",
        "done",
        "holder",
        "jobs",
        "lease_ids",
        "lease_ms",
        "most",
        "node",
        "size",
        "with_attempts",
    )

    def __init__(
        self,
        node: str,
        most: int,
        lease_ms: int | None,
        done: Done[ClaimResult],
        holder: Holder | None = None,
        *,
        bytes_apart: bool = False,
        with_attempts: bool = False,
    ) -> None:
        self.node = node
        self.most = most
        self.lease_ms = lease_ms
        self.done = done
        self.holder = holder
        self.bytes_apart = bytes_apart
        self.with_attempts = with_attempts
        self.cancelled = False
        """Whether no caller waits for the answer any more."""
        self.jobs: list[LeasedJob] = []
        self.lease_ids = 0, 0
        """Lease ids of `jobs`: the first, and the one after the last."""
        self.size = 0
        """Accounted bytes of the jobs, if they were looked at."""

    @property
    def wanted(self) -> int:
        """Number of jobs that it may still be dealt."""
        return 0 if self.cancelled else self.most - len(self.jobs)

    def cancel(self) -> None:
        self.cancelled = True

    def fail(self, error: TopicsError) -> None:
        if not self.cancelled:
            self.done(error)


class ClaimWindow:
    """Claims that wait for the end of the window that the first of them opened."""

    def __init__(self, owner: Claims, topic: Topic, jitter_ms: int) -> None:
        self.owner = owner
        self.topic = topic
        self.claims: list[Claim] = []
        self._timer: TimerPort = owner.core.loop.call_later(jitter_ms * 1_000_000, self.close)

    def close(self) -> None:
        """End the window: one pass serves all claims still waiting.

        Cancelled ones affect no other (R-NET-11).
        """
        leases = self.topic.queue
        assert leases is not None, "only queues have claims"
        self._timer.cancel()
        leases.window = None
        claims = [claim for claim in self.claims if not claim.cancelled]
        if claims:
            Pass(self.owner, self.topic, leases, claims).begin()


class Claims:
    """The claims of an engine."""

    def __init__(self, core: ClaimCore, catch_up: CatchUpFirst, dead_letters: DeadLetters) -> None:
        self.core = core
        self.catch_up = catch_up
        self.dead_letters = dead_letters

    def claim(self, request: ClaimRequest, done: Done[ClaimResult]) -> Cancel:
        """Lease jobs; see `Engine.claim`."""
        most = max(1, min(request.most, self.core.config.max_claim))
        one = Claim(
            request.node,
            most,
            request.lease_ms,
            done,
            bytes_apart=request.bytes_apart,
            with_attempts=request.with_attempts,
        )
        self.enter(request.queue, one)
        return one.cancel

    def enter(self, name: str, one: Claim) -> None:
        """Check a claim, then serve it by itself, or with others if the queue gathers claims."""
        core = self.core
        try:
            found = find_queue(core, name, lambda: self.enter(name, one))
            if found is None:
                return
            check_node(core.config, one.node)
        except TopicsError as error:
            one.fail(error)
            return
        topic, leases = found
        jitter_ms = topic.config.claim_jitter_ms
        if not jitter_ms or core.closing:
            Pass(self, topic, leases, [one]).begin()
            return
        window = leases.window
        if not isinstance(window, ClaimWindow):
            window = leases.window = ClaimWindow(self, topic, jitter_ms)
        window.claims.append(one)


def check_node(limits: Config, node: str) -> None:
    """Check that a node's name is neither empty nor too long. Raises RequestError."""
    most = limits.max_node_bytes
    if not 1 <= len(node.encode()) <= most:
        raise RequestError("invalid_request", f"node must be 1 to {most} bytes long: it names who holds the jobs")


class Pass:
    """One hand-out of jobs to some claims."""

    _demand = 0
    """Number of jobs for which there are lease ids."""
    _stuck: list[LeasedJob] | None = None
    """Poison jobs that are passed over, since others could not be moved; None: none failed."""
    _moved_until_ns = 0
    """Until when it waits for jobs to be moved to another core; 0: it has met none."""
    _is_dealt = False
    """Whether jobs wait for a later turn to be leased."""
    _is_sized = False
    """Whether a claim may reach its most bytes."""
    _error: TopicsError | None = None
    """The answer of claims without jobs."""

    def __init__(self, owner: Claims, topic: Topic, leases: Leases, claims: list[Claim]) -> None:
        self._owner = owner
        self._core = owner.core
        self._topic = topic
        self._leases = leases
        self._claims = deque(claims)
        """The claims that are not answered."""
        self._wanting = deque(claims)
        """The claims that may be dealt more jobs, the next one first."""
        self._budget = owner.core.config.max_claim_bytes

    def begin(self) -> None:
        self._core.turns.spend(_BYTES_A_CLAIM)
        if self._core.closing:
            self._serve(None)
        else:
            self._owner.catch_up(self._topic, self._retain)

    def _retain(self) -> None:
        when_retained(self._core, self._topic, self._core.clock.now_ms(), self._on_retained)

    def _on_retained(self, error: TopicsError | None) -> None:
        if error is not None or self._core.closing or self._topic.life is Life.GONE:
            self._serve(error)
            return
        self._demand = self._wanted() if self._topic.index.live else 0
        self._core.lease_ids.when_free(self._core, self._demand, self._on_ids)

    def _wanted(self) -> int:
        """Return how many jobs are dealt next."""
        if len(self._wanting) == 1:
            return min(self._wanting[0].wanted, _DEALT)
        count = 0
        for one in self._wanting:
            count += one.wanted
            if count >= _DEALT:
                return _DEALT
        return count

    def _on_ids(self, error: StorageError | None) -> None:
        """Decide all claims, or some of very many jobs, in this instant."""
        if error is not None or self._topic.life is Life.GONE:
            self._serve(error)
            return
        leases, topic = self._leases, self._topic
        leases.apply_time(self._core.clock.now_ms())
        if not self._is_sized and 0 < self._budget < topic.index.bytes:
            self._is_sized = True
            if any(one.jobs for one in self._wanting):  # their bytes are unknown
                self._wanting = deque([one for one in self._wanting if not one.jobs])
        limit = min(self._demand, self._wanted())
        taken = leases.take(limit, topic.head, topic.config)
        poison = taken.poison
        if taken.is_cut:
            self._move_some(poison)
            return
        is_cut = taken.is_partial or 0 < limit == len(taken.jobs)
        self._deal(taken.jobs)
        if self._stuck is not None:
            self._stuck += poison
            poison = []
        goes_on = is_cut and bool(self._wanting)
        if goes_on or poison or self._stuck is not None or len(self._claims) > 1:
            self._is_dealt = True
        if self._is_dealt:  # else they are leased in this instant
            leases.deal(taken.jobs)
        if goes_on:
            if poison:
                self._move_some(poison)
            else:
                self._core.turns.spend(_BYTES_A_DEAL)
                self._core.turns.take_later(self._retain)
        elif poison:
            self._move(poison, self._on_moved)
        elif taken.jobs and not self._is_dealt:
            self._lease(self._claims.popleft())  # for whom there are ids
        else:
            self._serve(None)

    def _deal(self, jobs: list[LeasedJob]) -> None:
        """Deal one job at a time, round-robin in order of arrival (R-Q-18).

        A claim with as many as it asks for is passed over, and one whose next job would exceed its
        bytes. Jobs that no claim takes are claimable.
        """
        wanting, budget = self._wanting, self._budget
        if len(self._claims) == 1 and not self._is_sized and not self._claims[0].jobs:
            self._claims[0].jobs = jobs
            if len(jobs) == self._claims[0].most:
                wanting.clear()
            return
        for at, (job, size) in enumerate(zip(jobs, self._sizes(jobs), strict=True)):
            while wanting:
                one = wanting.popleft()
                if one.cancelled or (size and one.jobs and one.size + size > budget):
                    continue
                one.jobs.append(job)
                one.size += size
                if one.wanted:
                    wanting.append(one)
                break
            else:
                for job in jobs[at:]:
                    self._leases.put_back(job)
                del jobs[at:]
                return

    def _sizes(self, jobs: list[LeasedJob]) -> list[int]:
        """Return the accounted bytes of each job; 0 if all together are within a claim's bytes."""
        if not jobs or not self._is_sized:
            return [0] * len(jobs)
        seqs = np.array([job.seq for job in jobs], np.uint64)
        order = np.argsort(seqs)
        sizes = np.zeros(len(jobs), np.uint32)
        sizes[order] = self._topic.index.at(seqs[order]).sizes
        return [int(size) for size in sizes]

    def _move_some(self, poison: list[LeasedJob]) -> None:
        """Move some of very many poison jobs, or pass them over, before the claims are decided."""
        if self._stuck is None:
            self._move(poison, self._on_some_moved)
        else:
            self._stuck += poison
            self._core.loop.call_later(0, self.begin)

    def _move(self, poison: list[LeasedJob], then: Then) -> None:
        if not self._moved_until_ns:
            self._moved_until_ns = self._core.clock.monotonic_ns() + CLAIM_WAIT_NS
        self._owner.dead_letters.move(PoisonJobs(self._topic, self._leases, poison, then, self._moved_until_ns))

    def _on_some_moved(self, error: TopicsError | None) -> None:
        """Begin anew, in another pass: the copies may have been committed in place."""
        if error is not None:  # Others would fail, too; they are claimable.
            self._stuck = []
        self._core.loop.call_later(0, self.begin)

    def _on_moved(self, _error: TopicsError | None) -> None:
        """Answer, with or without an error: poison jobs that could not be moved are claimable."""
        self._serve(None)

    def _put_stuck_back(self) -> None:
        if self._stuck:
            self._leases.put_back_all(self._stuck)
            self._stuck = []

    def _serve(self, error: TopicsError | None) -> None:
        """Answer all claims: those with jobs, as far as retention and time left them meanwhile.

        error: for claims without jobs; None: they get none.
        """
        self._error = error
        self._put_stuck_back()
        self._leases.apply_time(self._core.clock.now_ms())
        self._serve_some()

    def _serve_some(self) -> None:
        """Answer claims in turns, since a window may have had thousands of them."""
        claims, turns = self._claims, self._core.turns
        while claims:
            one = claims.popleft()
            if one.jobs:
                self._core.lease_ids.when_free(self._core, len(one.jobs), partial(self._on_free, one))
            elif self._error is None or self._topic.life is Life.GONE:
                tend(self._core, self._topic)
                Delivery(self._core, self._topic, self._leases, one).begin()
            else:
                one.fail(self._error)
            if claims:
                turns.spend(_BYTES_A_CLAIM)
                if not turns.is_free:
                    turns.take(self._serve_some)
                    return

    def _on_free(self, one: Claim, error: StorageError | None) -> None:
        """Lease the jobs dealt to a claim, of which some may be deleted, or release them."""
        if self._topic.life is Life.GONE:
            one.fail(_gone(self._core, self._topic.name))
            return
        self._leases.apply_time(self._core.clock.now_ms())
        if error is None and not one.cancelled:
            self._lease(one)
            return
        jobs, one.jobs = one.jobs, []
        for job in jobs:
            self._leases.release(job)
        wake(self._core, self._topic)
        one.fail(error or StorageError("no client waits"))

    def _lease(self, one: Claim) -> None:
        """Lease the jobs of a claim, and deliver them, in this instant."""
        core, jobs, wanted = self._core, one.jobs, one.lease_ms
        jobs.sort(key=_by_seq)
        lease_ms = self._topic.config.lease_ms if wanted is None else clamped_lease_ms(wanted)
        lease_id = core.lease_ids.take(len(jobs))
        one.lease_ids = lease_id, lease_id + len(jobs)
        self._leases.lease(jobs, lease_id, core.clock.now_ms() + lease_ms, one.node, one.holder)
        tend(core, self._topic)
        Delivery(core, self._topic, self._leases, one).begin()


def _by_seq(job: LeasedJob) -> int:
    return job.seq


def _gone(core: LookupCore, name: str) -> RequestError:
    """Return what a new claim gets of a queue that was deleted (R-Q-20)."""
    other = core.registry.visible(name)
    return refusals.topic_not_found(name) if other is None or other.queue is not None else refusals.not_a_queue(name)


class Delivery:
    """One claimer's jobs being delivered: read, logged if the queue persists leases, answered."""

    def __init__(self, core: ClaimCore, topic: Topic, leases: Leases, one: Claim) -> None:
        self._core = core
        self._topic = topic
        self._leases = leases
        self._claim = one
        self._read: FrameRead | None = None
        """The first read of the jobs' records; None: there are no jobs."""
        self._rendered: list[bytes] = []
        self._payloads: list[Payload] | None = [] if one.bytes_apart else None
        """Data of bytes, if it comes apart from the jobs' JSON."""
        self._is_whole = True
        """Whether all jobs were there when their turn came."""
        self._waiting_for = 2
        self._error: TopicsError | None = None

    def begin(self) -> None:
        one = self._claim
        jobs = one.jobs = self._held()
        if not jobs or self._topic.life is Life.GONE:
            self._answer()
            return
        self._core.turns.spend(_BYTES_AN_ANSWER)
        singly, attempts = one.holder is not None or one.with_attempts, one.with_attempts
        read = JobsRead(
            self._core, self._topic, jobs, self._on_rendered, self._payloads, singly=singly, attempts=attempts
        )
        self._read = read.planned
        try:
            log_leases(self._core, self._topic, jobs, self._step)
        except TopicsError as error:
            self._step(error)
        read.begin()

    def _on_rendered(self, result: list[bytes] | StorageError) -> None:
        if isinstance(result, StorageError):
            self._step(result)
            return
        self._is_whole = bool(result)
        if result and self._claim.with_attempts and self._claim.holder is None:
            result = [b",".join(result)]
        self._rendered = result
        self._step(None)

    def _step(self, error: TopicsError | None) -> None:
        self._error = self._error or error
        self._waiting_for -= 1
        if not self._waiting_for:
            self._answer()

    def _held(self) -> list[LeasedJob]:
        """Return the jobs that still exist and are still leased as they were dealt.

        The leases of deleted jobs are ended here, because no claimer got them: they take no slot of
        a stream.
        """
        first, end = self._claim.lease_ids
        held = []
        for job in self._claim.jobs:
            if first <= job.lease_id < end and job.state is JobState.LEASED:
                if job.live:
                    held.append(job)
                else:
                    self._leases.finish(job)
        return held

    def _answer(self) -> None:
        core, one, leases = self._core, self._claim, self._leases
        now_ms = core.clock.now_ms()
        if self._topic.life is Life.GONE:
            one.fail(_gone(core, self._topic.name))
            return
        leases.apply_time(now_ms)
        if self._error is not None or one.cancelled:
            self._take_back(self._error)
            one.fail(self._error or StorageError("no client waits"))
            return
        count = len(one.jobs)
        gone = self._read is not None and self._read.saw_deaths and not all(job.live for job in one.jobs)
        if gone or not self._is_whole:
            # some were deleted while the bytes were read (R-DEL-7)
            Delivery(core, self._topic, leases, one).begin()
            return
        ready = leases.counters(now_ms).ready
        core.job_counts.claimed += count
        if one.holder is None:
            one.done(ClaimResult(self._rendered[0] if count else b"", count, ready, (), self._payloads or ()))
        else:
            each = [(job.seq, text) for job, text in zip(one.jobs, self._rendered, strict=True)]
            one.done(ClaimResult(b"", count, ready, each))

    def _take_back(self, error: TopicsError | None) -> None:
        """Release the jobs of a failed claim.

        One that cannot be read is delayed, so that the others come first.
        """
        bad = (error.detail or {}).get("seq") if isinstance(error, CorruptError) else None
        jobs = self._held()
        now_ms = self._core.clock.now_ms()
        for job in jobs:
            self._leases.note(job, "released", now_ms)
            if job.seq == bad:
                self._leases.delay(job, job.until)
            else:
                self._leases.release(job)
        wake(self._core, self._topic)
        with contextlib.suppress(TopicsError):  # else their leases end at their deadline
            log_ended(self._core, self._topic, jobs, _ignore)


def _ignore(_error: TopicsError | None) -> None:
    pass
