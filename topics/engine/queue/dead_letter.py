"""Moves of poison jobs to the dead-letter topic: the copy is durable before the job is deleted.

Source: R-Q-22 to -27.

Queue and dead-letter topic may be in different shards of the log, whose ends differ after a power
cut. Therefore, with any class of the dead-letter topic, the copy is on stable storage before the
deletion is even staged (R-DUR-14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from topics.engine.json.strict_json import check, keep_last
from topics.engine.queue.alarm import AlarmCore, tend
from topics.engine.queue.dead_records import within_step
from topics.engine.queue.fetch import decode_jobs
from topics.engine.queue.job_removal import BeforeRemoval, JobRemoval, JobRemovalCore, stage_job_removal
from topics.engine.queue.queue_results import AckResult
from topics.engine.shared.job_counts import JobCounts
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.leases import Leases
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import wake
from topics.engine.values.job import JobState, LeasedJob
from topics.engine.values.ports import ReaderPort
from topics.engine.values.results import AppendResult, Done
from topics.engine.values.topic_config import TopicConfig
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.format.log_format import PAYLOAD_BYTES, Frame
from topics.store.format.rows import RowRecord, Rows, pack_rows


class DeadLetterCore(JobRemovalCore, AlarmCore, Protocol):
    """The part of the core that a move of jobs needs."""

    job_counts: JobCounts
    reader: ReaderPort
    registry: Registry
    turns: ReadTurns


Then = Callable[[TopicsError | None], None]
_BYTES_A_MOVE = 3072
"""Share of a pass's budget for reads that the copy of a job takes, besides its record."""
CLAIM_WAIT_NS = 1_000_000_000
"""How long a claim waits for jobs that it has found to be moved to another core."""


class PoisonJobs(NamedTuple):
    """Jobs that are moved together."""

    topic: Topic
    leases: Leases
    jobs: list[LeasedJob]
    """At most `MOST_POISON`, in state MOVING. `DeadLetters.move` sorts them."""
    then: Then
    """Called at the end, with the error that prevented it."""
    until_ns: int = 0
    """Until when the claims that found them wait for another core."""


BeginFar = Callable[["DeadLetters", PoisonJobs], None]
"""See `FarMoves.begin`."""


class DeadLetters:
    """The moves of poison jobs.

    append_copies: see `Appender`. before: called when the copies are durable; no limit may refuse,
    because the copies would be created repeatedly. begin_far: begins a move to another core.
    """

    def __init__(
        self,
        core: DeadLetterCore,
        append_copies: Callable[[str, Rows, Done[AppendResult]], None],
        before: BeforeRemoval,
        begin_far: BeginFar,
    ) -> None:
        self.core = core
        self.append_copies = append_copies
        self.before = before
        self._begin_far = begin_far

    def move(self, poison: PoisonJobs) -> None:
        """Move these jobs, which may come in any order.

        A job whose copy cannot be written is claimable again; one that cannot be read, after a
        lease, and `then` gets no error for it.
        """
        topic, name = poison.topic, poison.topic.config.dead_letter
        poison.jobs.sort(key=lambda job: job.seq)
        if name is not None and self.core.registry.are_apart(topic.name, name):
            self._begin_far(self, poison)
        else:
            self.core.turns.take(Move(self, poison).begin)


class Move:
    """Some poison jobs being moved together."""

    def __init__(self, moves: DeadLetters, poison: PoisonJobs) -> None:
        self._moves = moves
        self._core = moves.core
        self._topic, self._leases, self._jobs, self._then, self._until_ns = poison
        self._rest: list[LeasedJob] = []
        """The jobs that are moved after these: their records are too many bytes for one pass."""

    def begin(self) -> None:
        self._leases.apply_time(self._core.clock.now_ms())
        self._jobs = [job for job in self._jobs if self._is_ours(job)]
        if self._jobs and self._topic.life is not Life.GONE:
            most = self._most()
            self._jobs, self._rest = self._jobs[:most], self._jobs[most:]
            self._core.turns.spend(most * _BYTES_A_MOVE)
            decode_jobs(self._core.reader, self._topic, self._jobs, self._on_read)
        else:
            self._end(None)

    def _most(self) -> int:
        """Return how many of the jobs are moved in this pass."""
        return len(within_step(self._topic, [job.seq for job in self._jobs]))

    def _end(self, error: TopicsError | None) -> None:
        """Move the rest in another pass, if there is one and nothing has failed."""
        if self._rest and error is None:
            rest = PoisonJobs(self._topic, self._leases, self._rest, self._then, self._until_ns)
            self._core.loop.call_later(0, partial(self._moves.move, rest))
        else:
            self._then(error)

    def _is_ours(self, job: LeasedJob) -> bool:
        if not job.live:
            self._leases.finish(job)
            return False
        return job.state is JobState.MOVING

    def _give_up(self, error: TopicsError) -> None:
        """Release the jobs, which stay in the queue with their counts (R-Q-26)."""
        for job in (*self._jobs, *self._rest):
            self._leases.release(job)
        tend(self._core, self._topic, again=True)
        self._then(error)

    def _on_read(self, frames: Sequence[Frame | CorruptError] | StorageError) -> None:
        if isinstance(frames, StorageError):
            self._give_up(frames)
            return
        if self._topic.life is Life.GONE:
            self._end(None)
            return
        config, name = self._topic.config, self._destination()
        if name is None:  # removed from the configuration while the bytes were read
            wake(self._core, self._topic)  # they are ordinary jobs now
            self._give_up(StorageError("no dead-letter topic"))
            return
        self._leases.apply_time(self._core.clock.now_ms())
        there = [(job, frame) for job, frame in self._sound(frames) if self._is_ours(job)]
        if not there:  # deleted while they were read (R-DEL-7), or damaged
            self._end(None)
            return
        self._jobs = [job for job, _frame in there]
        copies = [dead_letter_of(frame, self._topic.name, config, job.reason) for job, frame in there]
        self._write(name, copies)

    def _destination(self) -> str | None:
        """Return the name of the dead-letter topic; None: no longer one of this core."""
        name = self._topic.config.dead_letter
        return None if name is None or self._core.registry.are_apart(self._topic.name, name) else name

    def _write(self, name: str, copies: list[RowRecord]) -> None:
        self._moves.append_copies(name, pack_rows(copies), self._on_copied)

    def _sound(self, frames: Sequence[Frame | CorruptError]) -> Iterator[tuple[LeasedJob, Frame]]:
        """Yield the jobs that can be moved, and put those aside that cannot be read.

        These are claimable after a lease, which tries again; the others do not wait for them.
        """
        until_ms = self._core.clock.now_ms() + self._topic.config.lease_ms
        for job, frame in zip(self._jobs, frames, strict=True):
            if not isinstance(frame, CorruptError):
                yield job, frame
            elif self._is_ours(job):
                self._leases.delay(job, until_ms)

    def _on_copied(self, result: object) -> None:
        """Let routers forward the jobs, now that their copies are durable; then delete them.

        result: a TopicsError, if they are not.
        """
        if isinstance(result, TopicsError):
            self._give_up(result)
            return
        seqs = [job.seq for job in self._jobs]
        self._moves.before(self._topic, seqs, self._on_forwarded)

    def _on_forwarded(self, error: TopicsError | None) -> None:
        """Delete the jobs, which no router out of the queue needs any more (R-RTR-18)."""
        if error is not None:
            self._give_up(error)
        else:
            self._delete()

    def _delete(self) -> None:
        topic = self._topic
        if topic.life is Life.GONE:
            self._end(None)
            return
        if topic.life is Life.DELETING:
            topic.parked.append(self._delete)
            return
        jobs = self._jobs = [job for job in self._jobs if self._is_ours(job)]
        if not jobs:
            self._end(None)
            return
        operation = JobRemoval(self._core, topic, jobs, [], self._on_deleted)
        try:
            stage_job_removal(self._core, topic, jobs, self._core.clock.now_ms(), operation)
        except TopicsError as error:
            self._give_up(error)

    def _on_deleted(self, result: AckResult | TopicsError) -> None:
        if isinstance(result, AckResult):
            self._leases.dead_lettered += result.done
            self._core.job_counts.dead_lettered += result.done
            self._end(None)
        else:  # they were released already
            self._jobs = []
            self._give_up(result)


def dead_letter_of(job: Frame, queue: str, config: TopicConfig, reason: str = "") -> RowRecord:
    """Return the copy of one job, whose meta names its origin (R-Q-24) and a reason (R-Q-35)."""
    told = b'"$dead_letter_from":"%b","$dead_letter_deliveries":"%d","$dead_letter_src_seq":"%d"%b}' % (
        queue.encode(),
        config.max_deliveries,
        job.seq,
        b',"$dead_letter_reason":' + msgspec.json.encode(reason) if reason else b"",
    )
    meta = b"{" + told
    if job.meta is not None and job.meta.startswith(b"{") and job.meta != b"{}":
        meta = keep_last(job.meta[:-1] + b"," + told)
    is_bytes = job.payload_kind == PAYLOAD_BYTES
    # of the compact form, not as it is spelled
    data_size = len(job.data) if is_bytes else check(job.data, "a job").compact_bytes
    size = data_size + check(meta, "its meta").compact_bytes
    return RowRecord(job.data, job.tag, job.node, meta, size, is_bytes)
