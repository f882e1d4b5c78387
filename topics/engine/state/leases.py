"""The volatile side of one queue: which jobs are leased, delayed or returned, and what is claimed next.

Jobs above `cursor` were never leased and cost nothing here: they are rows of the index. Each one leased since is a Job.
Heaps keep what is due and what comes next; an entry that is no longer true is passed over when it comes up, and a heap
that is mostly such entries is made anew. So every operation costs O(log n) of the jobs touched, whatever else waits.

Nothing happens by itself: `look` is called before anything is decided or told (R-Q-2).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topics.engine.index.index import Index
from topics.engine.state.control_frames import LeaseRow
from topics.engine.state.job import Holder, JobState, LeasedJob
from topics.engine.state.losses import Floors
from topics.engine.values.ports import TimerPort
from topics.engine.values.topic_config import TopicConfig

if TYPE_CHECKING:
    from topics.engine.queue.claim import ClaimWindow

LEASED, DELAYED, RETURNED, ENDING, MOVING = JobState
_STALE_MIN = 1024
"""A heap this much longer than what it stands for is made anew."""


class Counters(NamedTuple):
    """R-Q-13; count = ready + in_flight + delayed."""

    ready: int
    in_flight: int


class ClaimedJobs(NamedTuple):
    """What a claim pass found."""

    jobs: list[LeasedJob]
    """To be leased now: returned ones first, then fresh ones, each ascending (R-Q-3)."""
    poison: list[LeasedJob]
    """Delivered too often: to be moved to the dead-letter topic (R-Q-22)."""


class Leases:
    """`jobs` are those leased at least once and not gone; `dead_lettered` counts moves since this process started."""

    __slots__ = (
        "_by_seq",
        "_floors",
        "_index",
        "_returned",
        "_swept",
        "_times",
        "alarm",
        "alarm_ms",
        "cohort",
        "cursor",
        "dead_lettered",
        "delayed",
        "jobs",
        "leased",
        "streams",
    )

    def __init__(self, index: Index, floors: Floors) -> None:
        self._index = index
        self._floors = floors
        self.jobs: dict[int, LeasedJob] = {}
        self.cursor = 0
        """Live jobs up to here are all in `jobs`; those above it that are not were never leased."""
        self.leased = 0
        """Live jobs that are leased or whose ack is on its way."""
        self.delayed = 0
        self.dead_lettered = 0
        self.cohort: ClaimWindow | None = None
        """The claims that wait for the same pass, see claim.py."""
        self.streams: dict[object, None] = {}
        """Open push streams, see push.py."""
        self.alarm: TimerPort | None = None
        self.alarm_ms = 0
        """For what the alarm was set."""
        self._times: list[tuple[int, int]] = []
        """Heap of (until, seq) of leases and delays."""
        self._returned: list[int] = []
        """Heap of the seqs of returned jobs."""
        self._by_seq: list[int] = []
        """Heap of the seqs of all jobs: what retention takes, it takes from below."""
        self._swept = 0

    # --- looking -----------------------------------------------------------------------------------------------------
    def look(self, now_ms: int) -> None:
        """What time and retention have taken since is gone: leases expired, delays over, jobs lost."""
        if self._floors.dead_through > self._swept:
            self._sweep()
        times = self._times
        while times and times[0][0] < now_ms:
            until, seq = heappop(times)
            job = self.jobs.get(seq)
            if job is not None and job.until == until and (job.state is LEASED or job.state is DELAYED):
                self.release(job)

    def next_due(self) -> int | None:
        """Nothing becomes claimable by time before this, ms, if at all; None: nothing does."""
        return self._times[0][0] if self._times else None

    def counters(self, now_ms: int) -> Counters:
        self.look(now_ms)
        return Counters(self._index.live - self.leased - self.delayed, self.leased)

    def _sweep(self) -> None:
        """Caps, expiry and prefix deletes take the oldest: jobs up to the floor have left the counters (R-Q-13)."""
        self._swept = dead = self._floors.dead_through
        by_seq = self._by_seq
        while by_seq and by_seq[0] <= dead:
            job = self.jobs.get(heappop(by_seq))
            if job is not None:
                self._lose(job)

    def forget(self, seqs: Iterable[int]) -> None:
        """These records were deleted one by one."""
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None:
                self._lose(job)

    def forget_dead(self) -> None:
        """Records were deleted, more than there are jobs here."""
        seqs = np.sort(np.fromiter(self.jobs, np.uint64, len(self.jobs)))
        self.forget(seqs[~self._index.alive(seqs)].tolist())

    def _lose(self, job: LeasedJob) -> None:
        """The record is gone; a lease on it may still be answered for (R-DEL-10)."""
        if not job.live:
            return
        job.live = False
        if job.state is LEASED or job.state is ENDING:
            self.leased -= 1
        elif job.state is not MOVING:
            if job.state is DELAYED:
                self.delayed -= 1
            del self.jobs[job.seq]

    # --- claiming ----------------------------------------------------------------------------------------------------
    def take(self, limit: int, head: int, config: TopicConfig) -> ClaimedJobs:
        """The next claimable jobs, at most `limit`, and the poison among them; `look` first, then `lease` each."""
        jobs: list[LeasedJob] = []
        poison: list[LeasedJob] = []
        most = config.max_deliveries if config.dead_letter is not None else 0
        returned, known = self._returned, self.jobs
        while returned and len(jobs) < limit:
            job = known.get(heappop(returned))
            if job is None or job.state is not RETURNED:
                continue
            if 0 < most <= job.deliveries:
                job.state = MOVING
                poison.append(job)
            else:
                jobs.append(job)
        while len(jobs) < limit and self.cursor < head:
            seqs = self._index.live_seqs(self.cursor, head, limit - len(jobs))
            self.cursor = seqs[-1] if seqs else head
            for seq in seqs:
                if seq not in known:  # a lease that survived a restart lies above the cursor
                    known[seq] = job = LeasedJob(seq)
                    heappush(self._by_seq, seq)
                    jobs.append(job)
        self._make_anew()
        return ClaimedJobs(jobs, poison)

    def put_back(self, job: LeasedJob) -> None:
        """A job taken and not leased after all."""
        heappush(self._returned, job.seq)

    def lease(self, jobs: Iterable[LeasedJob], lease_id: int, until_ms: int, node: str, holder: Holder | None) -> None:
        """The jobs are handed out until then, under lease ids from this one on."""
        times = self._times
        for job in jobs:
            job.state = LEASED
            job.lease_id = lease_id
            job.until = until_ms
            job.deliveries += 1
            job.node = node
            job.holder = holder
            self.leased += 1
            heappush(times, (until_ms, job.seq))
            lease_id += 1
            if holder is not None:
                holder.on_leased(job)

    # --- the end of a lease ------------------------------------------------------------------------------------------
    def release(self, job: LeasedJob) -> None:
        """A leased, delayed, ending or moving job is claimable again; its deliveries stay counted."""
        self._leave(job)
        if job.live:
            job.state = RETURNED
            heappush(self._returned, job.seq)
        else:
            self.jobs.pop(job.seq, None)

    def delay(self, job: LeasedJob, until_ms: int) -> None:
        """A leased job is handed back, to be claimed once now > until_ms."""
        self._leave(job)
        if job.live:
            job.state = DELAYED
            job.until = until_ms
            self.delayed += 1
            heappush(self._times, (until_ms, job.seq))
        else:
            self.jobs.pop(job.seq, None)

    def extend(self, job: LeasedJob, until_ms: int) -> None:
        job.until = until_ms
        heappush(self._times, (until_ms, job.seq))
        self._make_anew()  # a job may be extended again and again with no claim in between

    def end(self, job: LeasedJob) -> None:
        """A leased job's ack is on its way: the lease can no longer expire or be acked again."""
        job.state = ENDING

    def finish(self, job: LeasedJob) -> None:
        """The job is done (or moved), its record dead: nothing of it stays."""
        self._leave(job)
        self.jobs.pop(job.seq, None)

    def finish_all(self, jobs: Iterable[LeasedJob]) -> None:
        """`finish` each."""
        known = self.jobs
        for job in jobs:
            if job.state is ENDING and job.holder is None:
                self.leased -= job.live
            else:
                self._leave(job)
            known.pop(job.seq, None)

    def _leave(self, job: LeasedJob) -> None:
        """Out of the counter of its state."""
        state = job.state
        if state is LEASED or state is ENDING:
            self.leased -= job.live
            holder, job.holder = job.holder, None
            if holder is not None:
                holder.on_lease_ended(job)
        elif state is DELAYED:
            self.delayed -= 1

    def _make_anew(self) -> None:
        """Heaps of jobs long gone shrink."""
        jobs = self.jobs  # with leased ones whose records are gone, which `leased` does not count
        if len(self._times) > 2 * len(jobs) + _STALE_MIN:
            self._times = [(job.until, job.seq) for job in jobs.values() if job.state in (LEASED, DELAYED)]
            heapify(self._times)
        if len(self._by_seq) > 2 * len(jobs) + _STALE_MIN:
            self._by_seq = sorted(jobs)

    # --- recovery ----------------------------------------------------------------------------------------------------
    def image(self) -> list[LeaseRow]:
        """Every live job that was leased, for a snapshot; in an order that gives it back."""
        return [
            LeaseRow(job.seq, job.lease_id if job.state in (LEASED, ENDING) else 0, job.until, job.deliveries, job.node)
            for job in self.jobs.values()
            if job.live
        ]

    def restore(self, lease: LeaseRow) -> None:
        """A lease as it was logged; the last call of a seq counts."""
        job = self.jobs.get(lease.seq)
        if job is None:
            job = self.jobs[lease.seq] = LeasedJob(lease.seq)
        job.lease_id, job.until, job.deliveries, job.node = lease.lease_id, lease.until, lease.deliveries, lease.node

    def restore_end(self, seq: int) -> None:
        """The lease on this seq ended, and the job is ready."""
        job = self.jobs.get(seq)
        if job is not None:
            job.lease_id = 0

    def recovered(self, *, keep: bool) -> None:
        """All rows are there: leases on what is live hold, expired ones are found out by whoever looks first."""
        jobs, self.jobs = self.jobs, {}
        for seq in sorted(jobs) if keep else ():
            if self._index.next_live(seq) != seq:
                continue
            job = self.jobs[seq] = jobs[seq]
            heappush(self._by_seq, seq)
            if job.lease_id:
                job.state = LEASED
                self.leased += 1
                heappush(self._times, (job.until, seq))
            else:
                heappush(self._returned, seq)
