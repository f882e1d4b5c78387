"""The jobs of one queue that were leased at least once, by seq and by their last failure.

Both are divided into blocks, each with a dict of its own. So no dict that grows is large, and what
looks at all jobs (a snapshot, a delete) looks at some blocks a step.

A job that was never leased is only a record above the cursor of its queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.transitions import Transitions
from topics.common.values.answers import Attempt

BLOCK_BITS = 10
BLOCK_SEQS = 1 << BLOCK_BITS
SEQ_MASK = BLOCK_SEQS - 1
_BLOCK_BYTES = BLOCK_SEQS // 8
_FAILURE_BITS = 8
_BLOCKS_A_STEP = 4
_STALE_MIN = 1024
"""The order is made anew once it has this many more entries than twice the blocks."""


class JobState(IntEnum):
    LEASED = 1
    DELAYED = 2
    """Handed back to be claimed later."""
    RETURNED = 3
    """Claimable again: expired, handed back, released, or after its delay."""
    ENDING = 4
    """Its ack is being committed; still counted as in flight."""
    MOVING = 5
    """Its copy to the dead-letter topic is being committed; still counted as ready."""
    DEALT = 6
    """Dealt to a claim that leases it in a later turn; counted as in flight."""


JOB_STATES = Transitions(
    {
        JobState.LEASED: (JobState.DELAYED, JobState.RETURNED, JobState.ENDING),
        JobState.DELAYED: (JobState.RETURNED,),
        JobState.RETURNED: (JobState.RETURNED, JobState.LEASED, JobState.DEALT, JobState.MOVING),
        JobState.ENDING: (JobState.RETURNED,),
        JobState.MOVING: (JobState.RETURNED, JobState.DELAYED),
        JobState.DEALT: (JobState.LEASED, JobState.RETURNED),
    }
)
"""A job that a claim takes stays RETURNED until it is leased, dealt, moved or put back."""


class Holder(Protocol):
    """A holder of leases that is notified of their begin and end: a push stream."""

    def on_leased(self, job: LeasedJob) -> None: ...

    def on_lease_ended(self, job: LeasedJob) -> None: ...


class JobBlock:
    """Jobs of `BLOCK_SEQS` consecutive seqs, the first of which is a multiple of that.

    Each of its sets of jobs is a number with a bit a seq, so that a delete of very many records
    counts their jobs without a look at each.
    """

    __slots__ = ("dead", "delayed", "is_returning", "jobs", "leased", "number", "returned")

    def __init__(self, number: int) -> None:
        self.number = number
        self.jobs: dict[int, LeasedJob] = {}
        """By seq."""
        self.leased = 0
        """Jobs that are leased or whose ack is in flight, and whose record is there."""
        self.delayed = 0
        """Likewise those that a nack has delayed."""
        self.returned = 0
        """Likewise those that can be claimed again."""
        self.dead = 0
        """Jobs that are in no set any more because their record is gone, and of which neither the
        object nor the queue's list of failed jobs says so yet; -1: all.
        """
        self.is_returning = False
        """Whether the queue's heap of blocks with returned jobs has this one."""


class LeasedJob:
    """One job. A lease holds, and a delay lasts, while now <= `until` (ms, wall clock)."""

    __slots__ = (
        "attempts",
        "block",
        "deliveries",
        "failure",
        "holder",
        "is_lost",
        "lease_id",
        "node",
        "seq",
        "state",
        "until",
    )

    def __init__(self, seq: int, block: JobBlock) -> None:
        self.seq = seq
        self.block = block
        self.state = JobState.RETURNED
        self.deliveries = 0
        self.lease_id = 0
        self.until = 0
        self.node = ""
        self.holder: Holder | None = None
        self.attempts: tuple[Attempt, ...] = ()
        """Its last attempts, ascending. Changed by `Leases.note`."""
        self.failure = 0
        """The number of its last failure in the queue, 0 without attempts: see `FailedJobs`."""
        self.is_lost = False
        """Whether the queue has dropped the job because its record is gone."""

    @property
    def live(self) -> bool:
        """False if the record was deleted, expired or evicted; its lease may still be answered
        (R-DEL-10).
        """
        if self.is_lost:
            return False
        dead = self.block.dead
        return not (dead and dead >> (self.seq & SEQ_MASK) & 1)

    @property
    def reason(self) -> str:
        """The last reason among its attempts; "" for none."""
        return next((attempt.reason for attempt in reversed(self.attempts) if attempt.reason), "")


class JobBlocks:
    """The jobs by seq."""

    __slots__ = ("_count", "_last", "_order", "blocks")

    def __init__(self) -> None:
        self.blocks: dict[int, JobBlock] = {}
        """By number. An empty block is removed, except the one that was added last."""
        self._last = JobBlock(-1)
        self._count = 0
        self._order: list[int] = []
        """The numbers of blocks, and of some that were removed, ascending: most come in order."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Iterate over the seqs, in no order."""
        for block in self.blocks.values():
            yield from block.jobs

    def get(self, seq: int) -> LeasedJob | None:
        block = self.blocks.get(seq >> BLOCK_BITS)
        return None if block is None else block.jobs.get(seq)

    def block_of(self, seq: int) -> JobBlock:
        """Return the block that has a seq, which is made if there is none."""
        number = seq >> BLOCK_BITS
        block = self.blocks.get(number)
        if block is None:
            if not self._last.jobs:
                self.blocks.pop(self._last.number, None)
            block = self._last = self.blocks[number] = JobBlock(number)
            order = self._order
            at = bisect_left(order, number)
            if at == len(order) or order[at] != number:
                order.insert(at, number)
            if len(order) > 2 * len(self.blocks) + _STALE_MIN:
                self._order = sorted(self.blocks)
        return block

    def add(self, seq: int, block: JobBlock) -> LeasedJob:
        """Add a job, which is not there, to its block."""
        job = block.jobs[seq] = LeasedJob(seq, block)
        self._count += 1
        return job

    def remove(self, job: LeasedJob) -> None:
        """Remove a job, which is in no set of its block, if it is there."""
        block = job.block
        if block.jobs.pop(job.seq, None) is not None:
            self._count -= 1
            if not block.jobs and block is not self._last:
                del self.blocks[block.number]

    def remove_all(self, jobs: Sequence[LeasedJob]) -> None:
        """Call `remove` for each job."""
        last = self._last
        for job in jobs:
            block = job.block
            if block.jobs.pop(job.seq, None) is not None:
                self._count -= 1
                if not block.jobs and block is not last:
                    del self.blocks[block.number]

    def take_through(self, seq: int) -> list[JobBlock]:
        """Return the blocks whose seqs are all at most `seq`, once: a later call does not."""
        order = self._order
        count = bisect_left(order, seq + 1 >> BLOCK_BITS)
        if not count:
            return []
        numbers = order[:count]
        del order[:count]
        return [block for block in map(self.blocks.get, numbers) if block is not None]

    def clear(self) -> Iterator[None]:
        """Remove all jobs, some a step. A job and its block know each other until then."""
        while self.blocks:
            for _ in range(min(_BLOCKS_A_STEP, len(self.blocks))):
                _number, block = self.blocks.popitem()
                block.leased = block.delayed = block.returned = 0
                self._count -= len(block.jobs)
                block.jobs.clear()
            yield


def bits_of(jobs: Sequence[LeasedJob]) -> Iterator[tuple[JobBlock, int]]:
    """Yield blocks with the bits of some of their jobs: of each run of seqs in a block."""
    at, count = 0, len(jobs)
    while at < count:
        first = jobs[at]
        block, seq, begin = first.block, first.seq, at
        at += 1
        while at < count and jobs[at].seq == seq + at - begin and jobs[at].block is block:
            at += 1
        yield block, (1 << at - begin) - 1 << (seq & SEQ_MASK)


def bits_by_block(first: int, which: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield (number of a block, bits of its seqs) of the seqs `first + i` for which which[i]."""
    begin = first & ~SEQ_MASK
    aligned = np.zeros(first - begin + len(which) + SEQ_MASK & ~SEQ_MASK, np.bool_)
    aligned[first - begin : first - begin + len(which)] = which
    packed = np.packbits(aligned, bitorder="little").tobytes()
    for at in range(0, len(packed), _BLOCK_BYTES):
        bits = int.from_bytes(packed[at : at + _BLOCK_BYTES], "little")
        if bits:
            yield (begin >> BLOCK_BITS) + at // _BLOCK_BYTES, bits


class FailedJobs:
    """The jobs with attempts, in the order of their last failures."""

    __slots__ = ("_blocks", "_last")

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, LeasedJob]] = {}
        """Jobs by the number of their failure, in blocks by its upper bits; ascending, none empty.
        """
        self._last = 0

    def add(self, job: LeasedJob) -> None:
        """Note that a job has failed, now after all others."""
        last = self._last
        if job.failure:
            if job.failure == last:
                return
            self.discard(job)
        self._last = job.failure = last = last + 1
        block = self._blocks.get(last >> _FAILURE_BITS)
        if block is None:
            block = self._blocks[last >> _FAILURE_BITS] = {}
        block[last] = job

    def discard(self, job: LeasedJob) -> None:
        """Forget the job if it is there."""
        if job.failure:
            number = job.failure >> _FAILURE_BITS
            block = self._blocks[number]
            del block[job.failure]
            if not block:
                del self._blocks[number]
            job.failure = 0

    def clear(self) -> Iterator[None]:
        """Forget all jobs, some a step."""
        while self._blocks:
            for job in self._blocks.popitem()[1].values():
                job.failure = 0
            yield

    def newest_first(self) -> Iterator[LeasedJob]:
        for block in reversed(self._blocks.values()):
            yield from reversed(block.values())

    def in_steps(self) -> Iterator[list[LeasedJob]]:
        """Yield some jobs a step, ascending by failure, while jobs may fail and go between steps.

        A job that fails meanwhile comes again.
        """
        through, found = 0, True
        while found:
            found = False
            for number in [each for each in self._blocks if each >= through >> _FAILURE_BITS]:
                block = self._blocks.get(number, {})
                jobs = [job for failure, job in block.items() if failure > through]
                if jobs:
                    through, found = jobs[-1].failure, True
                    yield jobs
