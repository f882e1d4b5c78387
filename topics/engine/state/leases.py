"""The volatile state of one queue: the leased, delayed and returned jobs, and the next to claim.

Jobs above `cursor` were never leased and take no memory here: they are rows of the index. Those of
records with a delay are apart until it ends (`held_back.py`). Each job leased since is a LeasedJob
in a block of seqs (`values/job.py`). A heap orders deadlines; an outdated entry is skipped when it
is popped, and a heap of mostly outdated entries is replaced a part at a time. Every operation thus
costs O(log n) for each job that it touches, whatever else waits.

Records that are gone by the thousand are counted by block at once, and their jobs are dropped in
steps. Leases that end by the thousand end in steps, too.

Nothing happens by itself: `apply_time` is called before each decision and each report (R-Q-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.values.answers import Attempt, FailedJob
from topics.engine.index.held_back import HeldBack
from topics.engine.index.index import Index
from topics.engine.state.control_frames import AttemptRow, JobsMove, LeaseRow, from_runs
from topics.engine.values.job import (
    BLOCK_BITS,
    JOB_STATES,
    SEQ_MASK,
    FailedJobs,
    Holder,
    JobBlock,
    JobBlocks,
    JobState,
    LeasedJob,
    bits_by_block,
    bits_of,
)
from topics.engine.values.ports import TimerPort
from topics.engine.values.topic_config import TopicConfig
from topics.errors import TopicsError
from topics.store.format.floors import Floors

LEASED, DELAYED, RETURNED, ENDING, MOVING, DEALT = JobState
_BEFORE_LEASED, _BEFORE_DELAYED, _BEFORE_RETURNED, _BEFORE_ENDING, _BEFORE_MOVING, _BEFORE_DEALT = map(
    JOB_STATES.before, JobState
)
"""A pass may change thousands of jobs: a look into a tuple is faster than a call for each."""
_STALE_MIN = 1024
"""The heap is replaced once it has this many more entries than twice its jobs."""
_MOVED = 2048
"""Entries of a heap that is being replaced that a claim looks at."""
_MOVED_BY_EXTEND = 8
_A_LOOK = 512
"""Most leases that one look ends, and delays by nack; a claim looks four times."""
_ENDS_A_STEP = 256
"""Likewise each of the steps after it."""
_LOOKS = 16
"""Entries that are looked at to end one, at most on average: others are outdated."""
_A_TAKE = 256
"""Blocks of returned jobs, and runs of seqs between jobs held back, that a claim looks at."""
_FEW_SEQS = 1024
"""Up to this number of seqs, their jobs are dropped one by one."""
_ROWS_A_STEP = 2048
MOST_POISON = 256
"""Poison jobs that one look for claimable jobs returns, and that are moved together."""


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
    is_cut: bool = False
    """Whether there may be more poison jobs before the claimable ones: `jobs` is empty then."""
    is_partial: bool = False
    """Whether the look ended before it had found as many as there may be."""


class Leases:
    """The leases of one queue.

    `jobs` holds those that were leased at least once and are not gone. `dead_lettered` counts moves
    since this process started.
    """

    __slots__ = (
        "_floors",
        "_index",
        "_is_ending",
        "_known",
        "_most_attempts",
        "_old_times",
        "_returning",
        "_swept",
        "_times",
        "_to_drop",
        "alarm",
        "alarm_ms",
        "cursor",
        "dead_lettered",
        "delayed",
        "failed",
        "held",
        "is_logged",
        "jobs",
        "leased",
        "move",
        "streams",
        "when_logged",
        "window",
    )

    def __init__(self, index: Index, floors: Floors, most_attempts: int = 8) -> None:
        """most_attempts: number of attempts that are kept per job."""
        self._index = index
        self._floors = floors
        self._most_attempts = most_attempts
        self.jobs = JobBlocks()
        self.failed = FailedJobs()
        """The jobs with attempts."""
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
        self.move: JobsMove | None = None
        """The last move of jobs to a dead-letter topic of another core."""
        self.is_logged = False
        """Whether changes are logged for a config that is not staged yet: write/first_leases.py."""
        self.when_logged: list[Callable[[TopicsError | None], None]] | None = None
        """Called when all leases are logged; None if no steps log them."""
        self.window: OpenWindow | None = None
        """The window in which claims wait for the same pass; None if none is open."""
        self.streams: dict[object, None] = {}
        """Open push streams, see push.py."""
        self.alarm: TimerPort | None = None
        self.alarm_ms = 0
        """The time for which the alarm is set, ms."""
        self._times: list[tuple[int, int]] = []
        """Heap of (until, seq) of leases and delays."""
        self._old_times: list[tuple[int, int]] = []
        """The heap that `_times` replaces; its valid entries are moved there, a part at a time."""
        self._is_ending = False
        """Whether steps end leases: a look leaves them to these while it finds returned jobs."""
        self._returning: list[int] = []
        """Heap of the numbers of blocks with returned jobs, and of some that have none."""
        self._known: list[tuple[int, int]] = []
        """Runs of seqs above the cursor, (first, last), descending, all of whose jobs are in
        `jobs`: their leases survived a restart.
        """
        self._swept = 0
        """The floor up to which jobs were dropped."""
        self._to_drop: dict[int, JobBlock] = {}
        """Blocks that have dead jobs, by number."""

    # --- time and retention ------------------------------------------------------------------------------------------
    def apply_time(self, now_ms: int) -> None:
        """Apply the effects of time and retention: expired leases, ended delays, lost jobs.

        Of very many leases that have ended, the others end in the next passes.
        """
        if self._floors.dead_through > self._swept:
            self._sweep()
        times, old = self._times, self._old_times
        is_due = (times and times[0][0] < now_ms) or (old and old[0][0] < now_ms)
        if is_due and not (self._is_ending and self._has_returned()) and self._end_some(now_ms, _A_LOOK):
            self._end_later(now_ms)
        held = self.held
        if held is not None and held.dues:
            for seq in held.take_due(now_ms):
                self._enter(self.jobs.add(seq, self.jobs.block_of(seq)))

    def _end_some(self, now_ms: int, most: int) -> bool:
        """End leases and delays whose time has passed, in order; return whether some are left."""
        for _ in range(_LOOKS * most):
            heap, old = self._times, self._old_times
            if old and (not heap or old[0] < heap[0]):
                heap = old
            if not heap or heap[0][0] >= now_ms:
                return False
            until, seq = heappop(heap)
            job = self.jobs.get(seq)
            if job is not None and job.until == until and (job.state is LEASED or job.state is DELAYED):
                if job.state is LEASED:
                    self.note(job, "expired", until)
                self.release(job)
                most -= 1
                if not most:
                    return True
        return True

    def _has_returned(self) -> bool:
        """Return whether the next claim finds returned jobs at once."""
        first = self.jobs.blocks.get(self._returning[0]) if self._returning else None
        return first is not None and first.returned != 0

    def _end_later(self, now_ms: int) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._index.usage.reclaim.run(self._end_all(now_ms))

    def _end_all(self, now_ms: int) -> Iterator[None]:
        while self._end_some(now_ms, _ENDS_A_STEP):
            yield
        self._is_ending = False

    def hold_back(self, seqs: Sequence[int], dues: Sequence[int]) -> None:
        """Hold back new jobs, ascending: each is claimable once now (ms) >= its due time."""
        if self.held is None:
            self.held = HeldBack()
        self.held.add(seqs, dues)

    def next_due(self) -> int | None:
        """Return a time (ms) before which no job becomes claimable, None for never."""
        until = min((heap[0][0] for heap in (self._times, self._old_times) if heap), default=None)
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
        before, dead = self._swept, self._floors.dead_through
        self._swept = dead
        self._kill_all(self.jobs.take_through(dead))
        first = dead & ~SEQ_MASK
        last = self.jobs.blocks.get(dead >> BLOCK_BITS)
        if last is not None and dead & SEQ_MASK != SEQ_MASK:
            for seq in range(max(first, before + 1), dead + 1):
                job = last.jobs.get(seq)
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

    def forget_rows(self, first: int, which: NDArray[np.bool_]) -> None:
        """Drop jobs whose records were deleted: the seqs `first` + i for which which[i].

        Of many, the objects are dropped in later passes.
        """
        if np.count_nonzero(which) <= _FEW_SEQS:
            self.forget((np.flatnonzero(which) + first).tolist())
            return
        is_held = self.held is not None and len(self.held.dues) > 0
        if not is_held and not len(self.jobs):
            return
        if self.held is not None and is_held:
            self._index.usage.reclaim.run(self.held.dues.discard_rows(first, which))
        self._kill(bits_by_block(first, which))

    def _kill(self, seqs: Iterable[tuple[int, int]]) -> None:
        """Take seqs from the sets of their blocks, and drop their jobs in steps.

        seqs: numbers of blocks, each with bits. Four million jobs are four thousand blocks.
        """
        blocks, killed = self.jobs.blocks, dict[int, JobBlock]()
        leased = delayed = 0
        for number, bits in seqs:
            block = blocks.get(number)
            if block is None:
                continue
            if block.leased:
                gone = block.leased & bits
                leased += gone.bit_count()
                block.leased ^= gone
            if block.delayed:
                gone = block.delayed & bits
                delayed += gone.bit_count()
                block.delayed ^= gone
            if block.returned:
                block.returned &= ~bits
            block.dead |= bits
            killed[number] = block
        self.leased -= leased
        self.delayed -= delayed
        self._drop_later(killed)

    def _kill_all(self, blocks: list[JobBlock]) -> None:
        """Take all seqs of these blocks from their sets, and drop their jobs in steps.

        Four million jobs below a floor are four thousand blocks, so nothing is called for each
        but what counts its bits.
        """
        leased = delayed = 0
        for block in blocks:
            leased += block.leased.bit_count()
            delayed += block.delayed.bit_count()
            block.leased = block.delayed = block.returned = 0
            block.dead = -1
        self.leased -= leased
        self.delayed -= delayed
        self._drop_later({block.number: block for block in blocks})

    def _drop_later(self, blocks: dict[int, JobBlock]) -> None:
        is_idle = not self._to_drop
        self._to_drop.update(blocks)
        if is_idle and blocks:
            self._index.usage.reclaim.run(self._drop_dead())

    def _drop_dead(self) -> Iterator[None]:
        """Drop the jobs of one block a step."""
        while self._to_drop:
            _number, block = self._to_drop.popitem()
            self._settle(block)
            if self._to_drop:
                yield

    def _settle(self, block: JobBlock) -> None:
        dead = block.dead
        jobs = [job for seq, job in block.jobs.items() if dead >> (seq & SEQ_MASK) & 1]
        block.dead = 0
        for job in jobs:
            self._lose(job)

    def released(self) -> Iterator[None]:
        """Forget all jobs in steps: the queue was deleted."""
        yield from self.failed.clear()
        yield from self.jobs.clear()
        for heap in (self._times, self._old_times):
            while heap:
                del heap[-_MOVED:]
                yield

    def _lose(self, job: LeasedJob) -> None:
        """Drop a job whose record is gone; a lease on it may still be answered (R-DEL-10)."""
        if job.is_lost:
            return
        self._uncount(job)
        job.is_lost = True
        self.failed.discard(job)
        if job.state is DELAYED or job.state is RETURNED:
            self.jobs.remove(job)

    def _uncount(self, job: LeasedJob) -> None:
        """Take a job from the set that it is in."""
        block, bit = job.block, 1 << (job.seq & SEQ_MASK)
        if block.leased & bit:
            block.leased ^= bit
            self.leased -= 1
        elif block.returned & bit:
            block.returned ^= bit
        elif block.delayed & bit:
            block.delayed ^= bit
            self.delayed -= 1

    def last_failed(self, most: int) -> list[FailedJob]:
        """Return the jobs with attempts, the one that failed last first."""
        jobs = islice(self.failed.newest_first(), most + _A_LOOK)
        return [FailedJob(job.seq, job.deliveries, job.attempts) for job in jobs if job.live][:most]

    def check(self) -> None:
        """Raise AssertionError if a counter or a set of a block is not what the jobs say."""
        blocks = self.jobs.blocks.values()
        assert self.leased == sum(block.leased.bit_count() for block in blocks), "leased jobs"
        assert self.delayed == sum(block.delayed.bit_count() for block in blocks), "delayed jobs"
        assert len(self.jobs) == sum(len(block.jobs) for block in blocks), "jobs"
        for block in blocks:
            sets = {LEASED: 0, DELAYED: 0, RETURNED: 0, MOVING: 0}
            for job in block.jobs.values():
                if job.live:
                    sets[LEASED if job.state is ENDING or job.state is DEALT else job.state] |= 1 << (
                        job.seq & SEQ_MASK
                    )
            found = {LEASED: block.leased, DELAYED: block.delayed, RETURNED: block.returned, MOVING: sets[MOVING]}
            assert found == sets, f"sets of jobs from {block.number << BLOCK_BITS} on"

    # --- claiming ----------------------------------------------------------------------------------------------------
    def take(self, limit: int, head: int, config: TopicConfig) -> ClaimedJobs:
        """Return the next claimable jobs, `limit` at most, and the poison jobs found among them.

        Once there are `MOST_POISON` of these, it returns only them. It looks at so many
        blocks of returned jobs and runs of held ones at most. Call `apply_time` before, and `lease`
        the returned jobs, or `deal` them, after.
        """
        jobs: list[LeasedJob] = []
        poison: list[LeasedJob] = []
        most = config.max_deliveries if config.dead_letter is not None else 0
        looks = _A_TAKE
        while self._returning and len(jobs) < limit and looks:
            looks -= 1
            if len(poison) == MOST_POISON:
                for job in jobs:
                    self._enter(job)
                return ClaimedJobs([], poison, is_cut=True)
            block = self.jobs.blocks.get(self._returning[0])
            if block is not None:
                for job in self._returned_of(block, min(limit - len(jobs), MOST_POISON - len(poison))):
                    if 0 < most <= job.deliveries:
                        if job.state not in _BEFORE_MOVING:
                            raise JOB_STATES.error(job.state, MOVING)
                        job.state = MOVING
                        poison.append(job)
                    else:
                        jobs.append(job)
                if block.returned:
                    continue
                block.is_returning = False
            heappop(self._returning)
        while len(jobs) < limit and self.cursor < head and looks:
            looks -= 1
            upto = head
            if self.held is not None:
                self.cursor, upto = self.held.free_after(self.cursor, head)
            if self._known:
                upto = self._skip_known(upto)
            seqs = self._index.live_seqs(self.cursor, upto, limit - len(jobs))
            self.cursor = seqs[-1] if seqs else max(upto, self.cursor)
            if seqs:
                block = self.jobs.block_of(seqs[0])
                for seq in seqs:
                    if seq >> BLOCK_BITS != block.number:
                        block = self.jobs.block_of(seq)
                    if seq not in block.jobs:  # A delay may have ended that began above the cursor.
                        jobs.append(self.jobs.add(seq, block))
        self._make_anew(_MOVED)
        return ClaimedJobs(jobs, poison, is_partial=not looks and len(jobs) < limit)

    def _returned_of(self, block: JobBlock, limit: int) -> list[LeasedJob]:
        """Take the first returned jobs of a block."""
        bits, base = block.returned, block.number << BLOCK_BITS
        jobs: list[LeasedJob] = []
        while bits and len(jobs) < limit:
            lowest = bits & -bits
            bits ^= lowest
            jobs.append(block.jobs[base + lowest.bit_length() - 1])
        block.returned = bits
        return jobs

    def _skip_known(self, upto: int) -> int:
        """Move the cursor to the end of a run of known jobs that follows it.

        Returns: `upto`, or the seq before the next run.
        """
        known = self._known
        while known and known[-1][0] <= self.cursor + 1:
            self.cursor = max(self.cursor, known.pop()[1])
        return min(upto, known[-1][0] - 1) if known else upto

    def put_back(self, job: LeasedJob) -> None:
        """Make a job that `take` has returned claimable again."""
        self._enter(job)

    def put_back_all(self, jobs: list[LeasedJob]) -> None:
        """Make moving jobs that were not moved claimable again; of very many, some a step."""
        self._index.usage.reclaim.run(self._put_back(jobs))

    def _put_back(self, jobs: list[LeasedJob]) -> Iterator[None]:
        while jobs:
            for job in jobs[-MOST_POISON:]:
                self.release(job)
            del jobs[-MOST_POISON:]
            yield

    def _enter(self, job: LeasedJob) -> None:
        """Enter a job that is in no set among the returned ones."""
        block = job.block
        if job.state not in _BEFORE_RETURNED:
            raise JOB_STATES.error(job.state, RETURNED)
        job.state = RETURNED
        block.returned |= 1 << (job.seq & SEQ_MASK)
        if not block.is_returning:
            block.is_returning = True
            heappush(self._returning, block.number)

    def move_on(self, job: LeasedJob) -> None:
        """Keep a job moving that was released, because it could not be deleted."""
        if job.live:
            job.block.returned &= ~(1 << (job.seq & SEQ_MASK))
            if job.state not in _BEFORE_MOVING:
                raise JOB_STATES.error(job.state, MOVING)
            job.state = MOVING

    def forget_moved(self) -> None:
        """Forget the last move if it has ended, so that the next one has another token."""
        if self.move is not None and not self.move.seqs:
            self.move = None

    @property
    def moving(self) -> int:
        """The number of jobs in the note of the move to another core, which has not ended."""
        runs = self.move.seqs if self.move is not None else []
        return sum(runs[1::2]) - sum(runs[::2]) + len(runs) // 2

    def moving_jobs(self) -> list[LeasedJob]:
        """Return the jobs of `move`, as far as they are there."""
        found = [self.jobs.get(seq) for seq in from_runs(self.move.seqs)] if self.move is not None else []
        return [job for job in found if job is not None]

    def deal(self, jobs: Sequence[LeasedJob]) -> None:
        """Keep jobs that `take` has returned for claims until they are leased, or released.

        Time does not end this, and they are in flight.
        """
        self._count_leased(jobs)
        for job in jobs:
            if job.state not in _BEFORE_DEALT:
                raise JOB_STATES.error(job.state, DEALT)
            job.state = DEALT

    def _count_leased(self, jobs: Sequence[LeasedJob]) -> None:
        for block, bits in bits_of(jobs):
            block.leased |= bits
        self.leased += len(jobs)

    def lease(self, jobs: Sequence[LeasedJob], lease_id: int, until_ms: int, node: str, holder: Holder | None) -> None:
        """Lease the jobs until `until_ms`, with consecutive lease ids from `lease_id` on.

        jobs: from `take`; either all of them were dealt, or none.
        """
        times = self._times
        if jobs and jobs[0].state is not DEALT:
            self._count_leased(jobs)
        for job in jobs:
            if job.state not in _BEFORE_LEASED:
                raise JOB_STATES.error(job.state, LEASED)
            job.state = LEASED
            job.lease_id = lease_id
            job.until = until_ms
            job.deliveries += 1
            job.node = node
            job.holder = holder
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
            self.failed.add(job)

    def release(self, job: LeasedJob) -> None:
        """Make a leased, dealt, delayed, ending or moving job claimable.

        Its deliveries stay counted.
        """
        block, bit = job.block, 1 << (job.seq & SEQ_MASK)
        if block.leased & bit and job.holder is None:  # usually
            block.leased ^= bit
            self.leased -= 1
            self._enter(job)
            return
        self._leave(job)
        if job.live:
            self._enter(job)
        else:
            self._drop(job)

    def delay(self, job: LeasedJob, until_ms: int) -> None:
        """Hand a leased job back, to be claimed once now > until_ms."""
        self._leave(job)
        if job.live:
            if job.state not in _BEFORE_DELAYED:
                raise JOB_STATES.error(job.state, DELAYED)
            job.state = DELAYED
            job.until = until_ms
            job.block.delayed |= 1 << (job.seq & SEQ_MASK)
            self.delayed += 1
            heappush(self._times, (until_ms, job.seq))
        else:
            self._drop(job)

    def extend(self, job: LeasedJob, until_ms: int) -> None:
        job.until = until_ms
        heappush(self._times, (until_ms, job.seq))
        # A job may be extended many times without a claim in between.
        self._make_anew(_MOVED_BY_EXTEND)

    def end_all(self, jobs: Sequence[LeasedJob]) -> None:
        """Note that the removal of these jobs is in flight, by acks or, of moving ones, by a move.

        A lease can no longer expire or be acked again.
        """
        for job in jobs:
            if job.state is not MOVING:
                if job.state not in _BEFORE_ENDING:
                    raise JOB_STATES.error(job.state, ENDING)
                job.state = ENDING

    def finish(self, job: LeasedJob) -> None:
        """Drop a job that is done (or moved) and whose record is dead."""
        self._leave(job)
        self._drop(job)

    def finish_all(self, jobs: Sequence[LeasedJob]) -> None:
        """Call `finish` for each job."""
        if all(job.state is ENDING and job.holder is None for job in jobs):  # usually
            for block, bits in bits_of(jobs):
                bits &= block.leased
                block.leased ^= bits
                self.leased -= bits.bit_count()
        else:
            for job in jobs:
                self._leave(job)
        self.jobs.remove_all(jobs)
        for job in jobs:
            if job.failure:
                self.failed.discard(job)

    def _drop(self, job: LeasedJob) -> None:
        self.jobs.remove(job)
        if job.failure:
            self.failed.discard(job)

    def _leave(self, job: LeasedJob) -> None:
        """Take the job from the set of its state, and notify its holder if it has one."""
        block, bit = job.block, 1 << (job.seq & SEQ_MASK)
        if block.leased & bit:
            block.leased ^= bit
            self.leased -= 1
        else:
            self._uncount(job)
        holder = job.holder
        if holder is not None and (job.state is LEASED or job.state is ENDING):
            job.holder = None
            holder.on_lease_ended(job)

    def _make_anew(self, most: int) -> None:
        """Replace a heap that is mostly entries of dropped jobs, `most` entries a call."""
        # The jobs include leased ones whose records are gone, which `leased` does not count.
        old = self._old_times
        if old:
            for until, seq in old[-most:]:
                job = self.jobs.get(seq)
                if job is not None and job.until == until and (job.state is LEASED or job.state is DELAYED):
                    heappush(self._times, (until, seq))
            # A heap without its last entries is one.
            del old[-most:]
        elif len(self._times) > 2 * len(self.jobs) + _STALE_MIN:
            self._old_times, self._times = self._times, []

    # --- recovery ----------------------------------------------------------------------------------------------------
    @property
    def is_long(self) -> bool:
        """Whether `image` and `attempts` return so many rows that they are for many steps."""
        return len(self.jobs) * (1 + self._most_attempts) > 8 * _ROWS_A_STEP

    def image(self) -> list[LeaseRow]:
        """Return every live job that was leased, for a snapshot, in the order for `restore`."""
        return [row for rows in self.image_in_steps() for row in rows]

    def image_in_steps(self) -> Iterator[list[LeaseRow]]:
        """Yield what `image` returns, some rows a step; jobs may change and go between steps."""
        rows: list[LeaseRow] = []
        for number in list(self.jobs.blocks):
            block = self.jobs.blocks.get(number)
            for job in block.jobs.values() if block is not None else ():
                if job.deliveries and job.live:
                    lease_id = job.lease_id if job.state is LEASED or job.state is ENDING else 0
                    rows.append(LeaseRow(job.seq, lease_id, job.until, job.deliveries, job.node))
            if len(rows) >= _ROWS_A_STEP:
                yield rows
                rows = []
        if rows:
            yield rows

    def attempts(self) -> list[AttemptRow]:
        """Return the attempts of all live jobs, for a snapshot, in `restore_attempts`' order."""
        return [row for rows in self.attempts_in_steps() for row in rows]

    def attempts_in_steps(self) -> Iterator[list[AttemptRow]]:
        """Yield what `attempts` returns, some rows a step; jobs may change and go between steps.

        A job that fails meanwhile may come again, with all its attempts.
        """
        rows: list[AttemptRow] = []
        for jobs in self.failed.in_steps():
            for job in jobs:
                if job.live:
                    seqs = [job.seq, job.seq]
                    rows += [AttemptRow(seqs, a.delivery, a.node, a.ended, a.at, a.reason) for a in job.attempts]
                    if len(rows) >= _ROWS_A_STEP:
                        yield rows
                        rows = []
        if rows:
            yield rows

    def restore(self, lease: LeaseRow) -> None:
        """Restore a lease from the log. The last call for a seq wins."""
        job = self.jobs.get(lease.seq)
        if job is None:
            job = self.jobs.add(lease.seq, self.jobs.block_of(lease.seq))
        elif job.lease_id and lease.deliveries > job.deliveries:  # no frame states an expiry
            self.note(job, "expired", job.until)
        job.lease_id, job.until, job.deliveries, job.node = lease.lease_id, lease.until, lease.deliveries, lease.node

    def forget_all(self) -> None:
        """Drop all restored leases."""
        for _ in chain(self.failed.clear(), self.jobs.clear()):
            pass

    def restore_attempts(self, row: AttemptRow, *, is_image: bool = False) -> None:
        """Restore attempts of jobs whose leases were restored.

        is_image: whether the rows come in the order of the jobs' last failures. While they were
        logged in steps, later attempts may have been logged before them.
        """
        attempt = Attempt(row.delivery, row.node, row.ended, row.at, row.reason)
        for seq in from_runs(row.seqs):
            job = self.jobs.get(seq)
            if job is None:
                continue
            self._add_attempt(job, attempt)
            if is_image and self._most_attempts:
                if all(known.delivery != attempt.delivery for known in job.attempts):
                    attempts = sorted((attempt, *job.attempts), key=_by_delivery)
                    job.attempts = tuple(attempts[-self._most_attempts :])
                self.failed.add(job)

    def restore_end(self, seq: int) -> None:
        """Restore the end of the lease on this seq: the job is ready."""
        job = self.jobs.get(seq)
        if job is not None:
            job.lease_id = 0

    def recovered(self, *, keep: bool) -> None:
        """Enter the restored leases of live records, once all rows are known.

        keep: False drops them all. Expired leases are found by the next `apply_time`.
        """
        if not keep:
            self.forget_all()
        moving = set(from_runs(self.move.seqs)) if self.move is not None else set[int]()
        for seq in moving:
            if self.jobs.get(seq) is None:
                self.jobs.add(seq, self.jobs.block_of(seq))
        seqs = np.sort(np.fromiter(self.jobs, np.uint64, len(self.jobs)))
        alive = self._index.alive(seqs)
        for seq, is_alive in zip(seqs.tolist(), alive.tolist(), strict=True):
            job = self.jobs.get(seq)
            assert job is not None, "a restored lease"
            if not is_alive:
                self._drop(job)
            elif seq in moving:
                job.state = JOB_STATES.check(job.state, MOVING)
            elif job.lease_id:
                job.state = JOB_STATES.check(job.state, LEASED)
                job.block.leased |= 1 << (seq & SEQ_MASK)
                self.leased += 1
                self._times.append((job.until, seq))
            else:
                self._enter(job)
        heapify(self._times)
        self._known = self._runs(seqs[alive].tolist())
        if self.held is not None:
            self.held.recovered(lambda seq: self._index.next_live(seq) == seq, self.jobs)

    def _runs(self, seqs: list[int]) -> list[tuple[int, int]]:
        """Return the runs of these seqs, descending, between which there are other live ones."""
        runs: list[tuple[int, int]] = []
        for seq in reversed(seqs):
            if runs and (runs[-1][0] == seq + 1 or self._index.next_live(seq + 1) == runs[-1][0]):
                runs[-1] = (seq, runs[-1][1])
            else:
                runs.append((seq, seq))
        return runs

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
        self.held.dues.add(seqs.tolist(), dues.tolist())


def _by_delivery(attempt: Attempt) -> int:
    return attempt.delivery


def _freed(parts: list[object]) -> Iterator[None]:
    while parts:
        parts.pop()
        yield
