"""Lone writes: a write that is the only one of its pass is committed in place, and then answered.

The answer is sent between the commit and the publication, since only the commit has to come before
it. Source: wire contract 7.5, R-SEQ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.engine.shared.core import OpenStreak
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import wake
from topics.engine.values.results import AppendResult
from topics.engine.write.append import AppendCore, notify, publish_lone
from topics.engine.write.format_wait import FormatWait
from topics.engine.write.retention import is_expired
from topics.store.commits.write_batch import CarriedFrames, Commit, LoneWritten
from topics.store.format.rows import Framed, Rows, tags_in
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.wal.commitment import in_memory

LoneRecords = tuple[int, list[bytes | None] | None, int]
"""Records of a lone write: their bytes, their tags (None: no record has one), `$ts`."""


class StepWithWrite(Protocol):
    """The step of a router in the batch of a write: see routers/carried_step.py."""

    frames: CarriedFrames

    def publish(self, commit: Commit, placed: bytes, copies: Framed | None) -> None: ...


class StepOf(Protocol):
    """Callback for the step that forwards the next rows of a topic with routers; None: no step."""

    def __call__(self, source: Topic, rows: Rows, node: bytes | None, now_ms: int) -> StepWithWrite | None: ...


class LoneCore(AppendCore, Protocol):
    """The part of the core that lone writes need."""

    clock: Clock
    memory: EphemeralFrames
    streak: OpenStreak | None


def answer_and_publish(
    core: AppendCore,
    topic: Topic,
    result: AppendResult,
    written: LoneWritten,
    records: LoneRecords,
    *,
    on_committed: Callable[[AppendResult], None] | None,
    step: StepWithWrite | None = None,
) -> None:
    """Answer a lone write that is committed, and then publish it."""
    placed, commit, move_on, copies = written
    size, tags, ts = records
    try:
        if on_committed is not None:
            on_committed(result)
    finally:  # the records are in the log, whatever became of the answer
        try:
            assert topic.next_seq == result.first_seq, "its seqs were given out again: the answer may only send"
            move_on()
            publish_lone(core, topic, result.count, size, placed, tags, ts, commit, commit.base)
            if step is not None:
                step.publish(commit, placed, copies)
        except BaseException as error:
            # A next write would get the same seqs; a restart finds the records in the log.
            core.log.latch(f"a committed write of topic {topic.name} was not published: {error!r}")
            raise
        if step is not None:
            wake(core, topic)
        elif topic.waiters or topic.routers:
            notify(core, topic)


class LoneAppender:
    """Commits lone writes in place, by the short way."""

    def __init__(self, core: LoneCore, format_wait: FormatWait, step_of: StepOf) -> None:
        """step_of: decides which lone writes carry the step of a router."""
        self._core = core
        self._step_of = step_of
        self._format_wait = format_wait
        self._format = format_wait.format

    def append(
        self, topic: Topic, rows: Rows, node: bytes | None, on_committed: Callable[[AppendResult], None] | None
    ) -> AppendResult | None:
        """See `Engine.append_rows_lone`."""
        if topic.pending:
            return None
        if on_committed is None and (topic.waiters or topic.routers):
            return None
        if not self._format.takes_all and self._format_wait.concerns(rows.spans):
            return None
        core, count, first = self._core, rows.count, topic.next_seq
        last = first + count - 1
        if last > topic.ample and (topic.lacks(count) or topic.is_short(first)):
            return None
        if core.streak is not None:
            core.streak.end()
        now_ms = core.clock.now_ms()
        if not topic.needs_only_seqs:
            if topic.expires and is_expired(topic, now_ms):
                return None
            if topic.stage_class == "ephemeral":
                return self._append_in_memory(topic, rows, node, now_ms, on_committed)
        ts = topic.stamp(now_ms)
        fsync = topic.stage_class == "fsync"
        step = self._step_of(topic, rows, node, now_ms) if topic.routers else None
        if step is None:
            written = core.log.write_lone(topic.id, first, ts, rows, node, fsync=fsync)
        else:
            written = core.log.write_lone(topic.id, first, ts, rows, node, fsync=fsync, carried=step.frames)
            if written is None:
                step, written = None, core.log.write_lone(topic.id, first, ts, rows, node, fsync=fsync)
        if written is None:
            return None
        commit = written[1]
        sync_ns = commit.sync_ns if fsync else 0
        result = make_tuple(AppendResult, (first, last, last, count, False, False, commit.write_ns, sync_ns))
        of_rows = rows.size, tags_in(rows), ts
        answer_and_publish(core, topic, result, written, of_rows, on_committed=on_committed, step=step)
        return result

    def _append_in_memory(
        self,
        topic: Topic,
        rows: Rows,
        node: bytes | None,
        now_ms: int,
        on_committed: Callable[[AppendResult], None] | None,
    ) -> AppendResult:
        """Append to a topic of class `ephemeral`, as `append`."""
        core, count, first, ts = self._core, rows.count, topic.next_seq, topic.stamp(now_ms)
        file_id, framed = core.memory.stage_records(topic.id, first, ts, rows, node=node)
        last = first + count - 1
        result = make_tuple(AppendResult, (first, last, last, count, False, False, 0, 0))
        written = framed.placed, in_memory(file_id), _nothing, None
        answer_and_publish(core, topic, result, written, (rows.size, tags_in(rows), ts), on_committed=on_committed)
        return result


def _nothing() -> None:
    """Move nothing on: records in memory have no place in the log."""
