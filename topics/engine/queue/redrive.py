"""Redrives: dead letters become jobs of their queue again, and are deleted once these are durable.

Source: wire contract 8.8, R-Q-37 to -39.

As in a move to the dead letters, the two topics may be in different shards of the log, whose ends
differ after a power cut. Therefore the copies are on stable storage before the deletion is staged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from topics.engine.json.strict_json import check
from topics.engine.queue.dead_records import (
    ADDED,
    SLOTS_MAX,
    STEP_ROWS,
    DeadCore,
    dead_among,
    dead_letter_name,
    members,
    step_seqs,
    within_step,
)
from topics.engine.queue.job_removal import BeforeRemoval, RemoveJobsCore, remove_jobs
from topics.engine.queue.lookup import find_queue
from topics.engine.read.frame_read import FrameRead, with_topic
from topics.engine.state import refusals
from topics.engine.state.control_frames import encode, removal, to_runs
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst, WakeCore, wake
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.admission import cap_room, check_backlog
from topics.engine.write.retention import when_retained
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import PAYLOAD_BYTES, Frame, FrameType
from topics.store.format.rows import RowRecord, Rows, pack_rows

AppendMoved = Callable[[Topic, Rows, Done[AppendResult]], None]
"""See `Appender.append_moved`."""


class RedriveCore(DeadCore, RemoveJobsCore, OperationCore, WakeCore, Protocol):
    """The part of the core that redrives need."""


class RedriveRequest(NamedTuple):
    """A redrive of dead letters. Source: wire contract, 8.8."""

    queue: str
    seqs: Sequence[int] | None
    """Seqs of the dead-letter topic; None: all above `from_seq`."""
    from_seq: int = 0
    most: int = 0
    """Most dead letters of a redrive of all; clamped, 0 is the most allowed."""


class RedriveTurn(NamedTuple):
    dead_letter: str | None
    """The name of the dead-letter topic; None: the queue has none."""
    redriven: int
    skipped: list[int]
    next_from_seq: int
    """The cursor of the next redrive of all; 0 after one of named seqs."""
    head_seq: int


class DeadLetterRemoval(Operation[RedriveCore]):
    """The deletion of dead letters that were redriven, silent as that of jobs."""

    __slots__ = ("done", "seqs")

    def __init__(
        self, core: RedriveCore, topic: Topic, seqs: list[int], done: Callable[[TopicsError | None], None]
    ) -> None:
        super().__init__(core, topic)
        self.seqs = seqs
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        has_gaps = bool(topic.floors.gaps)
        remove_jobs(self.core, topic, to_runs(self.seqs))
        if topic.queue is not None:
            topic.queue.forget(self.seqs)
        if has_gaps:  # readers see another floor
            wake(self.core, topic)
        self.done(None)

    def fail(self, error: TopicsError) -> None:
        self.done(error)


class Redrives:
    """The redrives of an engine: those out of one topic one after another (R-Q-38).

    append: see `Appender.append_moved`. before: called before dead letters are deleted.
    """

    def __init__(self, core: RedriveCore, catch_up: CatchUpFirst, append: AppendMoved, before: BeforeRemoval) -> None:
        self.core = core
        self.catch_up = catch_up
        self.append = append
        self.before = before
        self._lines: dict[Topic, deque[Callable[[], None]]] = {}
        """By dead-letter topic that a redrive is in progress for, those that wait."""

    def redrive(self, request: RedriveRequest, done: Done[RedriveTurn]) -> None:
        """Redrive dead letters; see `Engine.redrive`."""
        core = self.core
        try:
            found = find_queue(core, request.queue, lambda: self.redrive(request, done))
            if found is None:
                return
            name = dead_letter_name(core, request.queue)
            dead = None if name is None else core.registry.visible(name)
            if dead is None:
                done(RedriveTurn(name, 0, list(request.seqs or ()), 0, 0))
                return
            check_backlog(core.log)
        except TopicsError as error:
            done(error)
            return
        redrive = Redrive(self, found[0], dead, request, self._ending(dead, done))
        line = self._lines.get(dead)
        if line is None:
            self._lines[dead] = deque()
            redrive.begin()
        else:
            line.append(redrive.begin)

    def _ending(self, dead: Topic, done: Done[RedriveTurn]) -> Done[RedriveTurn]:
        """Return a `done` that lets the next redrive out of this topic begin."""

        def end(result: RedriveTurn | TopicsError) -> None:
            line = self._lines[dead]
            if line:
                self.core.loop.call_later(0, line.popleft())
            else:
                del self._lines[dead]
            done(result)

        return end


class Redrive:
    """One redrive, step by step: a pass of the loop each, at least."""

    def __init__(
        self, owner: Redrives, queue: Topic, dead: Topic, request: RedriveRequest, done: Done[RedriveTurn]
    ) -> None:
        self._owner = owner
        self._core = owner.core
        self._queue = queue
        self._dead = dead
        self._done = done
        most = owner.core.config.max_claim
        self._left = min(request.most or most, most)
        """Number of dead letters that a redrive of all may still take."""
        self._cursor = request.from_seq
        self._scanned = 0
        self._asked = None if request.seqs is None else list(request.seqs)
        """The seqs in the request's order; None: all."""
        self._todo = sorted(set(request.seqs or ()))
        """The seqs that no step has looked at."""
        self._redriven: list[int] = []
        self._part: list[int] = []
        """The dead letters of this step."""

    def begin(self) -> None:
        self._owner.catch_up(self._dead, self._retain)

    def _retain(self) -> None:
        when_retained(self._core, self._dead, self._core.clock.now_ms(), self._on_retained)

    def _on_retained(self, error: TopicsError | None) -> None:
        if error is not None:
            self._done(error)
        else:
            self._step()

    def _step(self) -> None:
        dead = self._dead
        if self._queue.life is Life.GONE:
            self._done(refusals.topic_not_found(self._queue.name))
            return
        if dead.life is Life.GONE:
            self._answer()
            return
        seqs = self._next_named() if self._asked is not None else self._next_of_all()
        if not seqs:
            self._answer()
            return
        read = FrameRead(self._core.reader, dead, dead.index.at(np.array(seqs, np.uint64)))
        read.begin(lambda result: self._on_read(result, seqs))

    def _next_named(self) -> list[int]:
        """Return the next of the named seqs that are live; no step looks at the others."""
        dead = self._dead
        todo = [seq for seq in self._todo if seq <= dead.head]
        if todo:
            seqs = np.array(todo, np.uint64)
            todo = seqs[dead.index.alive(seqs)].tolist()
        part = within_step(dead, todo[:STEP_ROWS]) if todo else []
        self._todo = todo[len(part) :]
        return part

    def _next_of_all(self) -> list[int]:
        looks = SLOTS_MAX - self._scanned
        seqs = step_seqs(self._dead, self._cursor, self._dead.head, min(looks, self._left))
        self._scanned += len(seqs)
        if not seqs and looks and self._left:
            self._cursor = self._dead.head
        return seqs

    def _on_read(self, read: FrameRead | StorageError, seqs: list[int]) -> None:
        if isinstance(read, StorageError):
            self._done(read)
            return
        try:
            frames = [frame for _piece, found in dead_among(self._dead, self._queue.name, read) for frame in found]
            copies = [job_of(frame) for frame in frames]
        except CorruptError as error:
            self._done(with_topic(self._dead, error, read))
            return
        count = self._within_room(copies)
        if count < len(copies):  # the others come with the next step, which is refused
            behind = frames[count].seq
            self._todo = [seq for seq in seqs if seq >= behind] + self._todo
            self._cursor = behind - 1
        else:
            self._cursor = seqs[-1]
        if not count:
            self._core.loop.call_later(0, self._step)
            return
        self._part = [frame.seq for frame in frames[:count]]
        rows = pack_rows(copies[:count])
        self._owner.before(self._dead, self._part, lambda error: self._on_forwarded(error, rows))

    def _within_room(self, copies: list[RowRecord]) -> int:
        """Return how many of the copies the queue has room for; at least the first is tried."""
        room = cap_room(self._queue)
        if room is None or not copies:
            return len(copies)
        size, count = 0, 0
        for copy in copies:
            size += copy.size
            if count == room[0] or size > room[1]:
                break
            count += 1
        return max(count, 1)

    def _on_forwarded(self, error: TopicsError | None, rows: Rows) -> None:
        if error is not None:
            self._done(error)
            return

        def append(error: TopicsError | None) -> None:
            if error is not None:
                self._done(error)
            else:
                self._owner.append(self._queue, rows, self._on_copied)

        when_retained(self._core, self._queue, self._core.clock.now_ms(), append)

    def _on_copied(self, result: AppendResult | TopicsError) -> None:
        if isinstance(result, TopicsError):
            self._done(result)
        else:
            self._delete_part()

    def _delete_part(self) -> None:
        """Delete the dead letters whose jobs are durable by now."""
        dead, core = self._dead, self._core
        if dead.life is Life.GONE:
            self._on_deleted(None)
            return
        if dead.life is Life.DELETING:
            dead.parked.append(self._delete_part)
            return
        operation = DeadLetterRemoval(core, dead, self._part, self._on_deleted)
        try:
            if dead.stage_class == "ephemeral":
                operation.stage_unlogged()
                return
            payload = removal(dead, seqs=to_runs(self._part))
            with core.log.use_reserve():
                core.log.stage_control(dead.id, FrameType.CONSUME, payload.upto, core.clock.now_ms(), encode(payload))
            operation.stage(synced=dead.stage_class == "fsync")
        except TopicsError as error:
            self._done(error)

    def _on_deleted(self, error: TopicsError | None) -> None:
        if error is not None:
            self._done(error)
            return
        self._redriven += self._part
        self._left -= len(self._part)
        self._core.loop.call_later(0, self._step)

    def _answer(self) -> None:
        done = set(self._redriven)
        skipped: list[int] = []
        for seq in self._asked or ():
            if seq in done:
                done.discard(seq)
            else:
                skipped.append(seq)
        cursor, head = (self._cursor, self._dead.head) if self._asked is None else (0, 0)
        self._done(RedriveTurn(self._dead.name, len(self._redriven), skipped, cursor, head))


def job_of(frame: Frame) -> RowRecord:
    """Return the job that a dead letter was, without what was added to its `meta` (R-Q-37)."""
    kept = {key: value for key, value in members(frame.meta).items() if key not in ADDED}
    meta = msgspec.json.encode(kept) if kept else None
    is_bytes = frame.payload_kind == PAYLOAD_BYTES
    # of the compact form, not as it is spelled
    size = len(frame.data) if is_bytes else check(frame.data, "a dead letter").compact_bytes
    if meta is not None:
        size += check(meta, "its meta").compact_bytes
    return RowRecord(frame.data, frame.tag, frame.node, meta, size, is_bytes)
