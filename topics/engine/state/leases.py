"""The volatile state of one queue: the leased, delayed and returned jobs, and the next to claim.

Jobs above `cursor` were never leased and take no memory here: they are rows of the index. Those of
records with a delay are apart until it ends (`held_back.py`). Each job leased since is a LeasedJob.
Heaps order deadlines and seqs. An outdated entry is skipped when it is popped, and a heap of mostly
outdated entries is rebuilt. Every operation thus costs O(log n) for each job that it touches,
whatever else waits.

Nothing happens by itself: `apply_time` is called before each decision and each report (R-Q-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.values.answers import Attempt, FailedJob
from topics.engine.index.held_back import HeldBack
from topics.engine.index.index import Index
from topics.engine.state.control_frames import AttemptRow, LeaseRow, attempt_row, from_runs
from topics.engine.state.tombstones import Floors
from topics.engine.values.job import Holder, JobState, LeasedJob
from topics.engine.values.ports import TimerPort
from topics.engine.values.topic_config import TopicConfig

LEASED, DELAYED, RETURNED, ENDING, MOVING = JobState
_STALE_MIN = 1024
"""A heap is rebuilt once it has this many more entries than twice its jobs."""


class OpenWindow(Protocol):
    """The time within which claims are collected, to be served together: see queue/claim.py."""

    def close(self) -> None:
        """End the window now."""


class Counters(NamedTuple):
    """Counters of a queue (R-Q-13): count = ready + in_flight + delayed."""

    ready: int
    in_flight: int


class ClaimedJobs(NamedTuple):
    """The result of a claim pass."""

    jobs: list[LeasedJob]
    """Jobs to be leased now: returned ones first, then fresh ones, each ascending (R-Q-3)."""
    poison: list[LeasedJob]
    """Jobs delivered too often, to be moved to the dead-letter topic (R-Q-22)."""


class Leases:
    """The leases of one queue.

    `jobs` holds those that were leased at least once and are not gone. `dead_lettered` counts moves
    since this process started.
    """

    __slots__ = (
        "_by_seq",
        "_floors",
        "_index",
        "_most_attempts",
        "_returned",
        "_swept",
        "_times",
        "alarm",
        "alarm_ms",
        "cursor",
        "dead_lettered",
        "delayed",
        "failed",
        "held",
        "jobs",
        "leased",
        "streams",
        "window",
    )

    def __init__(self, index: Index, floors: Floors, most_attempts: int = 8) -> None:
        """most_attempts: number of attempts that are kept per job."""
        self._index = index
        self._floors = floors
        self._most_attempts = most_attempts
        self.jobs: dict[int, LeasedJob] = {}
        self.failed: dict[int, LeasedJob] = {}
        """The jobs with attempts, the one that failed last at the end."""
        self.cursor = 0
        """All live jobs up to this seq are in `jobs`; of the later ones only those that were
        leased.
        """
        self.leased = 0
        """The number of live jobs that are leased or whose ack is in flight."""
        self.delayed = 0
        """The number of live jobs that a nack has delayed."""
        self.held: HeldBack | None = None
        """The jobs whose record's delay has not ended; None if the queue never had such a job."""
        self.dead_lettered = 0
        self.window: OpenWindow | None = None
        """The window in which claims wait for the same pass; None if none is open."""
        self.streams: dict[object, None] = {}
        """Open push streams, see push.py."""
        self.alarm: TimerPort | None = None
        self.alarm_ms = 0
        """The time for which the alarm is set, ms."""
        self._times: list[tuple[int, int]] = []
        """Heap of (until, seq) of leases and delays."""
        self._returned: list[int] = []
        """Heap of the seqs of returned jobs."""
        self._by_seq: list[int] = []
        """Heap of the seqs of all jobs, because retention removes the lowest first."""
        self._swept = 0

    # --- time and retention ------------------------------------------------------------------------------------------
    def apply_time(self, now_ms: int) -> None:
        """Apply the effects of time and retention: expired leases, ended delays, lost jobs."""
        if self._floors.dead_through > self._swept:
            self._sweep()
        times = self._times
        while times and times[0][0] < now_ms:
            until, seq = heappop(times)
            job = self.jobs.get(seq)
            if job is not None and job.until == until and (job.state is LEASED or job.state is DELAYED):
                if job.state is LEASED:
                    self.note(job, "expired", until)
                self.release(job)
        held = self.held
        if held is not None and held.dues:
            for seq in held.take_due(now_ms):
                self.jobs[seq] = LeasedJob(seq)
                heappush(self._by_seq, seq)
                heappush(self._returned, seq)

    def hold_back(self, jobs: Sequence[tuple[int, int]]) -> None:
        """Hold back new jobs, (seq, due ms), ascending: claimable once now >= due."""
        if self.held is None:
            self.held = HeldBack()
        self.held.add(jobs)

    def next_due(self) -> int | None:
        """Return a time (ms) before which no job becomes claimable, None for never."""
        until = self._times[0][0] if self._times else None
        due = self.held.dues.first() if self.held is not None else None
        if due is None:
            return until
        return due - 1 if until is None else min(until, due - 1)

    def counters(self, now_ms: int) -> Counters:
        self.apply_time(now_ms)
        held = len(self.held.dues) if self.held is not None else 0
        return Counters(self._index.live - self.leased - self.delayed - held, self.leased)

    def delayed_shown(self) -> int | None:
        """Return the number of delayed jobs; None if none is delayed by its record."""
        held = len(self.held.dues) if self.held is not None else 0
        return self.delayed + held if held else None

    def _sweep(self) -> None:
        """Drop jobs up to the floor, which caps, expiry or prefix deletes removed (R-Q-13)."""
        self._swept = dead = self._floors.dead_through
        by_seq = self._by_seq
        while by_seq and by_seq[0] <= dead:
            job = self.jobs.get(heappop(by_seq))
            if job is not None:
                self._lose(job)
        if self.held is not None:
            gone = list(self.held.dues.discard_through(dead))
            if gone:
                self._index.usage.reclaim.run(_freed(gone))

    def forget(self, seqs: Iterable[int]) -> None:
        """Drop jobs whose records were deleted one by one."""
        if self.held is not None:
            seqs = list(seqs)
            self.held.dues.discard(seqs)
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None:
                self._lose(job)

    def forget_dead(self) -> None:
        """Drop jobs whose records were deleted, in one pass over all jobs."""
        parts = self.held.dues.parts() if self.held is not None else ()
        for known in (self.jobs, *([seq for seq, _due in part] for part in parts)):
            seqs = np.sort(np.fromiter(known, np.uint64, len(known)))
            self.forget(seqs[~self._index.alive(seqs)].tolist())

    def _lose(self, job: LeasedJob) -> None:
        """Drop a job whose record is gone; a lease on it may still be answered (R-DEL-10)."""
        if not job.live:
            return
        job.live = False
        self.failed.pop(job.seq, None)
        if job.state is LEASED or job.state is ENDING:
            self.leased -= 1
        elif job.state is not MOVING:
            if job.state is DELAYED:
                self.delayed -= 1
            self._drop(job)

    def last_failed(self, most: int) -> list[FailedJob]:
        """Return the jobs with attempts, the one that failed last first."""
        return [
            FailedJob(job.seq, job.deliveries, job.attempts) for job in islice(reversed(self.failed.values()), most)
        ]

    # --- claiming ----------------------------------------------------------------------------------------------------
    def take(self, limit: int, head: int, config: TopicConfig) -> ClaimedJobs:
        """Return the next claimable jobs, `limit` at most, and the poison jobs found among them.

        Call `apply_time` before, and `lease` the returned jobs after.
        """
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
            upto = head
            if self.held is not None:
                self.cursor, upto = self.held.free_after(self.cursor, head)
            seqs = self._index.live_seqs(self.cursor, upto, limit - len(jobs))
            self.cursor = seqs[-1] if seqs else upto
            for seq in seqs:
                if seq not in known:  # A lease that survived a restart may be above the cursor.
                    known[seq] = job = LeasedJob(seq)
                    heappush(self._by_seq, seq)
                    jobs.append(job)
        self._make_anew()
        return ClaimedJobs(jobs, poison)

    def put_back(self, job: LeasedJob) -> None:
        """Make a job that `take` has returned claimable again."""
        heappush(self._returned, job.seq)

    def lease(self, jobs: Iterable[LeasedJob], lease_id: int, until_ms: int, node: str, holder: Holder | None) -> None:
        """Lease the jobs until `until_ms`, with consecutive lease ids from `lease_id` on."""
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
    def note(self, job: LeasedJob, ended: str, at_ms: int, reason: str = "") -> None:
        """Record how a lease ended; call it before `release` or `delay`. ended, reason: as in
        `Attempt`.
        """
        if job.live:
            self._add_attempt(job, Attempt(job.deliveries, job.node, ended, at_ms, reason))

    def _add_attempt(self, job: LeasedJob, attempt: Attempt) -> None:
        """Add an attempt, unless it is known: the log may state again what a snapshot holds."""
        known = job.attempts
        if self._most_attempts and not (known and known[-1].delivery >= attempt.delivery):
            job.attempts = (*known, attempt)[-self._most_attempts :]
            self.failed.pop(job.seq, None)
            self.failed[job.seq] = job

    def release(self, job: LeasedJob) -> None:
        """Make a leased, delayed, ending or moving job claimable; its deliveries stay counted."""
        self._leave(job)
        if job.live:
            job.state = RETURNED
            heappush(self._returned, job.seq)
        else:
            self._drop(job)

    def delay(self, job: LeasedJob, until_ms: int) -> None:
        """Hand a leased job back, to be claimed once now > until_ms."""
        self._leave(job)
        if job.live:
            job.state = DELAYED
            job.until = until_ms
            self.delayed += 1
            heappush(self._times, (until_ms, job.seq))
        else:
            self._drop(job)

    def extend(self, job: LeasedJob, until_ms: int) -> None:
        job.until = until_ms
        heappush(self._times, (until_ms, job.seq))
        self._make_anew()  # A job may be extended many times without a claim in between.

    def end(self, job: LeasedJob) -> None:
        """Note that a leased job's ack is in flight.

        The lease can no longer expire or be acked again.
        """
        job.state = ENDING

    def finish(self, job: LeasedJob) -> None:
        """Drop a job that is done (or moved) and whose record is dead."""
        self._leave(job)
        self._drop(job)

    def finish_all(self, jobs: Iterable[LeasedJob]) -> None:
        """Call `finish` for each job."""
        known = self.jobs
        for job in jobs:
            if job.state is ENDING and job.holder is None:
                self.leased -= job.live
            else:
                self._leave(job)
            known.pop(job.seq, None)
            if job.attempts:
                self.failed.pop(job.seq, None)

    def _drop(self, job: LeasedJob) -> None:
        self.jobs.pop(job.seq, None)
        if job.attempts:
            self.failed.pop(job.seq, None)

    def _leave(self, job: LeasedJob) -> None:
        """Remove the job from the counter of its state."""
        state = job.state
        if state is LEASED or state is ENDING:
            self.leased -= job.live
            holder, job.holder = job.holder, None
            if holder is not None:
                holder.on_lease_ended(job)
        elif state is DELAYED:
            self.delayed -= 1

    def _make_anew(self) -> None:
        """Rebuild heaps that are mostly entries of dropped jobs."""
        # These include leased jobs whose records are gone, which `leased` does not count.
        jobs = self.jobs
        if len(self._times) > 2 * len(jobs) + _STALE_MIN:
            self._times = [(job.until, job.seq) for job in jobs.values() if job.state in (LEASED, DELAYED)]
            heapify(self._times)
        if len(self._by_seq) > 2 * len(jobs) + _STALE_MIN:
            self._by_seq = sorted(jobs)

    # --- recovery ----------------------------------------------------------------------------------------------------
    def image(self) -> list[LeaseRow]:
        """Return every live job that was leased, for a snapshot, in the order for `restore`."""
        return [
            LeaseRow(job.seq, job.lease_id if job.state in (LEASED, ENDING) else 0, job.until, job.deliveries, job.node)
            for job in self.jobs.values()
            if job.live and job.deliveries
        ]

    def attempts(self) -> list[AttemptRow]:
        """Return the attempts of all live jobs, for a snapshot, in `restore_attempts`' order."""
        return [attempt_row([job.seq], one) for job in self.failed.values() if job.live for one in job.attempts]

    def restore(self, lease: LeaseRow) -> None:
        """Restore a lease from the log. The last call for a seq wins."""
        job = self.jobs.get(lease.seq)
        if job is None:
            job = self.jobs[lease.seq] = LeasedJob(lease.seq)
        elif job.lease_id and lease.deliveries > job.deliveries:  # no frame states an expiry
            self.note(job, "expired", job.until)
        job.lease_id, job.until, job.deliveries, job.node = lease.lease_id, lease.until, lease.deliveries, lease.node

    def forget_all(self) -> None:
        """Drop all restored leases."""
        self.jobs.clear()
        self.failed.clear()

    def restore_attempts(self, row: AttemptRow) -> None:
        """Restore attempts of jobs whose leases were restored."""
        for seq in from_runs(row.seqs):
            job = self.jobs.get(seq)
            if job is not None:
                self._add_attempt(job, Attempt(row.delivery, row.node, row.ended, row.at, row.reason))

    def restore_end(self, seq: int) -> None:
        """Restore the end of the lease on this seq: the job is ready."""
        job = self.jobs.get(seq)
        if job is not None:
            job.lease_id = 0

    def recovered(self, *, keep: bool) -> None:
        """Enter the restored leases of live records, once all rows are known.

        keep: False drops them all. Expired leases are found by the next `apply_time`.
        """
        jobs, self.jobs = self.jobs, {}
        failed, self.failed = self.failed, {}
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
        self.failed = {seq: job for seq, job in failed.items() if seq in self.jobs}
        if self.held is not None:
            self.held.recovered(lambda seq: self._index.next_live(seq) == seq, self.jobs)

    def dues_of(self, seqs: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
        """Return the time (ms) from which on each of these jobs is claimable, 0 for now.

        None: none of them is held back.
        """
        found = None if self.held is None else self.held.dues.of(seqs)
        return found if found is not None and found.any() else None

    def restore_held(self, seqs: NDArray[np.uint64], dues: NDArray[np.uint64]) -> None:
        """Restore the delays that have not ended, of the records that a recovery has found."""
        if self.held is None:
            self.held = HeldBack()
        self.held.dues.add(zip(seqs.tolist(), dues.tolist(), strict=True))


def _freed(parts: list[object]) -> Iterator[None]:
    while parts:
        parts.pop()
        yield
