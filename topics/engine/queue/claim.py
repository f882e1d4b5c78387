"""Claims: the jobs of all claims that wait together, in one pass.

Source: wire contract 8.2, R-Q-3, R-Q-17 to -23.

A pass is decided in one instant: retention, expired leases, then jobs are dealt round-robin and
leased. Only then are their records read, which may take a disk's time; poison jobs found on the way
are moved first, and then all claims are answered. Of very many poison jobs, some are moved, and the
claims are decided after them, in another pass of the loop.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

import numpy as np

from topics.config import Config
from topics.engine.queue.alarm import AlarmCore, tend
from topics.engine.queue.dead_letter import DeadLetters
from topics.engine.queue.fetch import read_of, render_jobs, with_attempts
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
from topics.engine.values.ports import ReaderPort, TimerPort
from topics.engine.values.read_bounds import fitting
from topics.engine.values.results import Cancel, Done
from topics.engine.values.topic_config import clamped_lease_ms
from topics.engine.write.retention import ExpiryCore, when_retained
from topics.errors import CorruptError, RequestError, StorageError, TopicsError
from topics.store.read.render_json import Payload

BYTES_A_LOOK = 256
"""Share of a pass's budget for reads that a look takes which finds no jobs: a microsecond."""
_BYTES_A_CLAIM, _BYTES_AN_ANSWER = 4096, 12_288
"""Shares that a claim takes at its beginning, and when it has jobs, besides their records."""
_BYTES_A_JOB, _BYTES_A_SINGLE = 2048, 6144
"""Shares that a job takes in one answer with others, and one that is rendered by itself."""


class ClaimCore(AlarmCore, LeaseLogCore, LookupCore, ExpiryCore, LeaseIdsCore, Protocol):
    """The part of the core that claims need."""

    closing: bool
    config: Config
    job_counts: JobCounts
    lease_ids: LeaseIds
    reader: ReaderPort


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

    def __init__(self, owner: Claims, topic: Topic, leases: Leases, claims: list[Claim]) -> None:
        self._owner = owner
        self._core = owner.core
        self._topic = topic
        self._leases = leases
        self._claims = claims
        self._budget = owner.core.config.max_claim_bytes
        self._demand = 0
        """Number of jobs asked for, for which there are lease ids."""
        self._stuck: list[LeasedJob] | None = None
        """Poison jobs that are passed over, since others could not be moved; None: none failed."""

    def begin(self) -> None:
        self._core.turns.spend(_BYTES_A_CLAIM * len(self._claims))
        if self._core.closing:
            self._put_stuck_back()
            self._answer_empty()
            return
        self._owner.catch_up(self._topic, self._retain)

    def _retain(self) -> None:
        when_retained(self._core, self._topic, self._core.clock.now_ms(), self._on_retained)

    def _answer_empty(self) -> None:
        """Answer without jobs, because the server stops: no job could be finished."""
        ready, _ = self._leases.counters(self._core.clock.now_ms())
        for one in self._claims:
            if not one.cancelled:
                one.done(ClaimResult(b"", 0, ready))

    def _is_gone(self) -> bool:
        """Return whether the queue was deleted.

        All claims then get the error of a new claim (R-Q-20).
        """
        if self._topic.life is not Life.GONE:
            return False
        name = self._topic.name
        other = self._core.registry.visible(name)
        is_log = other is not None and other.queue is None
        for one in self._claims:
            one.fail(refusals.not_a_queue(name) if is_log else refusals.topic_not_found(name))
        return True

    def _fail(self, error: TopicsError) -> None:
        for one in self._claims:
            one.fail(error)

    def _on_retained(self, error: TopicsError | None) -> None:
        if self._is_gone():
            return
        if error is not None:
            self._put_stuck_back()
            self._fail(error)
            return
        demand = sum(one.most for one in self._claims) if self._topic.index.live else 0
        self._demand = demand
        self._core.lease_ids.when_free(self._core, demand, self._on_ids)

    def _on_ids(self, error: StorageError | None) -> None:
        """Decide all claims, in this instant."""
        if self._is_gone():
            return
        if error is not None:
            self._put_stuck_back()
            self._fail(error)
            return
        leases, topic = self._leases, self._topic
        now_ms = self._core.clock.now_ms()
        leases.apply_time(now_ms)
        claims = self._claims = [one for one in self._claims if not one.cancelled]
        demand = min(self._demand, sum(one.most for one in claims))
        taken = leases.take(demand, topic.head, topic.config)
        if taken.is_cut:
            self._move_some(taken.poison)
            return
        _deal(taken.jobs, claims)
        lease_id = self._core.lease_ids.take(len(taken.jobs))
        for one in claims:
            wanted = one.lease_ms
            until_ms = now_ms + (topic.config.lease_ms if wanted is None else clamped_lease_ms(wanted))
            one.jobs.sort(key=_by_seq)
            if 0 < self._budget < topic.index.bytes:
                self._keep_within_budget(one)
            leases.lease(one.jobs, lease_id, until_ms, one.node, one.holder)
            one.lease_ids = lease_id, lease_id + len(one.jobs)
            lease_id += len(one.jobs)
        tend(self._core, topic)
        if self._stuck is not None:
            self._stuck += taken.poison
            self._put_stuck_back()
            self._deliver(None)
        elif taken.poison:
            self._owner.dead_letters.move(topic, leases, taken.poison, self._deliver)
        else:
            self._deliver(None)

    def _move_some(self, poison: list[LeasedJob]) -> None:
        """Move some of very many poison jobs, or pass them over, before the claims are decided."""
        if self._stuck is None:
            self._owner.dead_letters.move(self._topic, self._leases, poison, self._on_some_moved)
        else:
            self._stuck += poison
            self._core.loop.call_later(0, self.begin)

    def _on_some_moved(self, error: TopicsError | None) -> None:
        """Begin anew, in another pass: the copies may have been committed in place."""
        if error is not None:  # Others would fail, too; they are claimable.
            self._stuck = []
        self._core.loop.call_later(0, self.begin)

    def _put_stuck_back(self) -> None:
        if self._stuck:
            self._leases.put_back_all(self._stuck)
            self._stuck = []

    def _keep_within_budget(self, one: Claim) -> None:
        """Put jobs beyond the budget back for other claims."""
        if len(one.jobs) > 1:
            sizes = self._topic.index.at(np.array([job.seq for job in one.jobs], np.uint64)).sizes
            most = fitting(sizes, self._budget)
            for job in one.jobs[most:]:
                self._leases.put_back(job)
            del one.jobs[most:]

    def _deliver(self, _error: TopicsError | None) -> None:
        """Deliver the dealt jobs, as far as retention and time left them meanwhile.

        Poison jobs that could not be moved are claimable.
        """
        self._leases.apply_time(self._core.clock.now_ms())
        for one in self._claims:
            Delivery(self._core, self._topic, self._leases, one).begin()


def _by_seq(job: LeasedJob) -> int:
    return job.seq


def _deal(jobs: list[LeasedJob], claims: list[Claim]) -> None:
    """Deal one job at a time, round-robin in order of arrival, to unsatisfied claims (R-Q-18)."""
    if len(claims) == 1:
        claims[0].jobs = jobs
        return
    wanting = claims
    at = 0
    while at < len(jobs):
        for one in wanting[: len(jobs) - at]:
            one.jobs.append(jobs[at])
            at += 1
        wanting = [one for one in wanting if len(one.jobs) < one.most]


class Delivery:
    """One claimer's jobs being delivered: read, logged if the queue persists leases, answered."""

    def __init__(self, core: ClaimCore, topic: Topic, leases: Leases, one: Claim) -> None:
        self._core = core
        self._topic = topic
        self._leases = leases
        self._claim = one
        self._read: FrameRead | None = None
        """Read of the jobs' records; None: there are no jobs."""
        self._rendered: list[bytes] = []
        self._payloads: list[Payload] | None = [] if one.bytes_apart else None
        """Data of bytes, if it comes apart from the jobs' JSON."""
        self._waiting_for = 2
        self._error: TopicsError | None = None

    def begin(self) -> None:
        jobs = self._claim.jobs = self._held()
        if not jobs or self._topic.life is Life.GONE:
            self._answer()
            return
        read = self._read = read_of(self._core.reader, self._topic, jobs)
        singly = self._claim.holder is not None or self._claim.with_attempts
        a_job = _BYTES_A_SINGLE if singly else _BYTES_A_JOB
        self._core.turns.spend(_BYTES_AN_ANSWER + len(jobs) * a_job + read.size)
        try:
            log_leases(self._core, self._topic, jobs, self._step)
        except TopicsError as error:
            self._step(error)
        render_jobs(read, self._topic, jobs, self._on_rendered, singly=singly, payloads=self._payloads)

    def _on_rendered(self, result: list[bytes] | StorageError) -> None:
        if isinstance(result, StorageError):
            self._step(result)
            return
        if self._claim.with_attempts:
            jobs = self._claim.jobs
            result = [with_attempts(text, job) for text, job in zip(result, jobs, strict=True)]
            if self._claim.holder is None:
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
            one.fail(refusals.topic_not_found(self._topic.name))
            return
        leases.apply_time(now_ms)
        if self._error is not None or one.cancelled:
            self._take_back(self._error)
            one.fail(self._error or StorageError("no client waits"))
            return
        count = len(one.jobs)
        if self._read is not None and self._read.saw_deaths and not all(job.live for job in one.jobs):
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
