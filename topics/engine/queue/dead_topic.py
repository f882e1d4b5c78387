"""Dead letters of a topic on this core: found as the jobs that they were, and deleted.

Source: wire contract 8.8, R-Q-37, R-Q-38.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec
import numpy as np

from topics.engine.json.strict_json import check
from topics.engine.queue.dead_messages import DeadFound, DeadReplied, Executed, FindOrder, RemoveOrder, Room
from topics.engine.queue.dead_records import ADDED, STEP_ROWS, DeadCore, dead_among, members, step_seqs, within_step
from topics.engine.queue.job_removal import BeforeRemoval, RemoveJobsCore, remove_jobs
from topics.engine.read.frame_read import FrameRead, with_topic
from topics.engine.state.control_frames import encode, removal, to_runs
from topics.engine.state.staged_operations import Operation, OperationCore
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst, WakeCore, wake
from topics.engine.write.retention import when_retained
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import PAYLOAD_BYTES, Frame, FrameType
from topics.store.format.rows import RowRecord


class DeadTopicCore(DeadCore, RemoveJobsCore, OperationCore, WakeCore, Protocol):
    """The part of the core that dead letters need which become jobs again."""


class DeadLetterRemoval(Operation[DeadTopicCore]):
    """The deletion of dead letters that were redriven, silent as that of jobs."""

    __slots__ = ("done", "seqs")

    def __init__(
        self, core: DeadTopicCore, topic: Topic, seqs: list[int], done: Callable[[TopicsError | None], None]
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


class DeadTopics:
    """The dead-letter topics of this core. before: called before dead letters may be deleted."""

    def __init__(self, core: DeadTopicCore, catch_up: CatchUpFirst, before: BeforeRemoval) -> None:
        self.core = core
        self.catch_up = catch_up
        self.before = before

    def find(self, order: FindOrder, room: Callable[[], Room], done: DeadReplied) -> None:
        """Find the next dead letters, as many as one step decodes and the queue has room for.

        room: asked once they are read.
        """
        topic = self.core.registry.visible(order.dead_letter)
        if topic is None or order.topic_id not in {0, topic.id}:
            done(DeadFound())
            return
        search = _Search(self, topic, order, room, done)
        if order.topic_id:
            search.begin(None)
        else:
            self.catch_up(topic, search.retain)

    def remove(self, order: RemoveOrder, done: DeadReplied) -> None:
        """Delete dead letters. It is no error that they, or the topic, are gone."""
        dead, core = self.core.registry.named(order.dead_letter), self.core
        if dead is None or dead.id != order.topic_id or dead.life is Life.GONE:
            done(Executed())
            return
        if dead.life is Life.DELETING:
            dead.parked.append(partial(self.remove, order, done))
            return
        operation = DeadLetterRemoval(core, dead, order.seqs, lambda error: done(error or Executed()))
        try:
            if dead.stage_class == "ephemeral":
                operation.stage_unlogged()
                return
            payload = removal(dead, seqs=to_runs(order.seqs))
            with core.log.use_reserve():
                core.log.stage_control(dead.id, FrameType.CONSUME, payload.upto, core.clock.now_ms(), encode(payload))
            operation.stage(synced=dead.stage_class == "fsync")
        except TopicsError as error:
            done(error)


class _Search:
    """One look for dead letters."""

    def __init__(
        self, owner: DeadTopics, topic: Topic, order: FindOrder, room: Callable[[], Room], done: DeadReplied
    ) -> None:
        self._owner = owner
        self._core = owner.core
        self._topic = topic
        self._order = order
        self._room = room
        self._done = done

    def retain(self) -> None:
        when_retained(self._core, self._topic, self._core.clock.now_ms(), self.begin)

    def begin(self, error: TopicsError | None) -> None:
        topic = self._topic
        if error is not None:
            self._done(error)
            return
        if topic.life is Life.GONE:
            self._done(DeadFound())
            return
        order = self._order
        seqs = step_seqs(topic, order.after, topic.head, order.most) if order.seqs is None else self._named(order.seqs)
        if not seqs:
            self._done(DeadFound(topic.id, topic.head))
            return
        read = FrameRead(self._core.reader, topic, topic.index.at(np.array(seqs, np.uint64)))
        read.begin(lambda result: self._on_read(result, seqs))

    def _named(self, seqs: list[int]) -> list[int]:
        """Return the first of these seqs that are live."""
        topic = self._topic
        seqs = [seq for seq in seqs if seq <= topic.head]
        if seqs:
            asked = np.array(seqs, np.uint64)
            seqs = asked[topic.index.alive(asked)].tolist()
        return within_step(topic, seqs[:STEP_ROWS]) if seqs else []

    def _on_read(self, read: FrameRead | StorageError, seqs: list[int]) -> None:
        topic, done = self._topic, self._done
        if isinstance(read, StorageError):
            done(read)
            return
        try:
            frames = [frame for _piece, found in dead_among(topic, self._order.queue, read) for frame in found]
            jobs = [job_of(frame) for frame in frames]
        except CorruptError as error:
            done(with_topic(topic, error, read))
            return
        count = _within_room(jobs, self._room())
        # Those without room come with the next step, which is refused.
        last = seqs[-1] if count == len(jobs) else frames[count].seq - 1
        ours = [frame.seq for frame in frames[:count]]
        found = DeadFound(topic.id, topic.head, last, len(seqs), ours, jobs[:count])
        if found.seqs:
            self._owner.before(topic, found.seqs, lambda error: done(error or found))
        else:
            done(found)


def _within_room(jobs: list[RowRecord], room: Room) -> int:
    """Return how many of the jobs there is room for; at least the first is tried."""
    if room is None or not jobs:
        return len(jobs)
    size, count = 0, 0
    for job in jobs:
        size += job.size
        if count == room[0] or size > room[1]:
            break
        count += 1
    return max(count, 1)


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
