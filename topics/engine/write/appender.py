"""Incoming writes: checks, seqs, and frames into the log. `Append` (append.py) publishes them.

All writes of one pass to one topic are one operation, with one callback from the log and one visit
to the index. Source: wire contract 7.5, R-SEQ, R-CAP-5, R-IDEM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.common.tuples import make_tuple
from topics.engine.shared.core import OpenStreak
from topics.engine.shared.held_appends import HeldAppends
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest, Identity, IdentityCore
from topics.engine.state.staged_operations import Operation, OperationCore, Turn
from topics.engine.state.topic import Life, Topic
from topics.engine.state.topic_numbers import TakesRows
from topics.engine.state.wakes import wake
from topics.engine.values.results import AppendResult, Done
from topics.engine.values.topic_config import DEFAULT
from topics.engine.write.admission import (
    LogRoomCore,
    QuotaCore,
    check_admission,
    check_backlog,
    check_log,
    exceeded_cap,
    expire_for_quota,
)
from topics.engine.write.append import Append, AppendCore, append_to, notify, publish_lone
from topics.engine.write.evictions import EvictionCore, has_to_wait, log_evictions
from topics.engine.write.format_wait import NEWER_FLAGS, FormatWait
from topics.engine.write.lifecycle import Lifecycle
from topics.engine.write.reservations import reserve, reserve_ahead
from topics.engine.write.retention import expire, is_expired
from topics.errors import TopicsError
from topics.store.commits.write_batch import CarriedFrames, Commit, LoneWritten
from topics.store.format.rows import (
    TAG,
    TIMES,
    Framed,
    Rows,
    any_delayed,
    any_timed,
    delays_in,
    flags_in,
    tags_in,
    ttls_in,
)
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.wal.commitment import AT_ONCE, in_memory


def check_meant(topic: Topic, request: AppendRequest) -> None:
    """Check that the topic has the incarnation that the write requires (R-INC-4).

    Raises: RequestError incarnation_mismatch.
    """
    present = topic.incarnation if topic.visible else None
    if present != request.incarnation:
        raise refusals.incarnation_mismatch(request.topic, present)


def _nothing() -> None:
    """Move nothing on: records in memory have no place in the log."""


LoneRecords = tuple[int, list[bytes | None] | None, int]
"""Records of a lone write: their bytes, their tags (None: no record has one), `$ts`."""


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


class AppenderCore(AppendCore, QuotaCore, EvictionCore, LogRoomCore, IdentityCore, Protocol):
    """The part of the core that the taking of writes needs."""

    memory: EphemeralFrames
    filled: list[Topic]
    routed: dict[Topic, None]
    held_appends: HeldAppends
    streak: OpenStreak | None


class Pieces(Protocol):
    """The receiver of pieces of parts (producers/stager.py)."""

    def take(
        self,
        appender: Appender,
        topic: Topic,
        request: AppendRequest,
        now_ms: int,
        *,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Take a piece of a part that has no other write in progress.

        appender: it appends the pieces, and the whole part after the last one.
        Raises: TopicsError; nothing was done then.
        """

    def appended(self, topic: Topic, identity: Identity) -> None:
        """Delete the pieces of a part that was appended; other identities have none."""


class StepWithWrite(Protocol):
    """The step of a router in the batch of a write: see routers/carried_step.py."""

    frames: CarriedFrames

    def publish(self, commit: Commit, placed: bytes, copies: Framed | None) -> None: ...


class StepOf(Protocol):
    """Callback for the step that forwards the next rows of a topic with routers; None: no step."""

    def __call__(self, source: Topic, rows: Rows, node: bytes | None, now_ms: int) -> StepWithWrite | None: ...


class LateRefusal(Operation[OperationCore]):
    """A refused write that created its topic.

    The refusal is sent once the topic is durable, because the topic stays (7.5).
    """

    __slots__ = ("done", "error")

    def __init__(self, core: OperationCore, topic: Topic, error: TopicsError, done: Done[AppendResult]) -> None:
        super().__init__(core, topic)
        self.error = error
        self.done = done

    def apply(self, commit: Commit) -> None:
        self.done(self.error)

    def fail(self, error: TopicsError) -> None:
        self.done(error)


class Appender:
    """Takes writes by `append`. At the end of a pass, the staged writes are one batch a topic."""

    def __init__(
        self, core: AppenderCore, lifecycle: Lifecycle, pieces: Pieces, format_wait: FormatWait, step_of: StepOf
    ) -> None:
        """step_of: decides which lone writes carry the step of a router."""
        self._core = core
        self._step_of = step_of
        self._format_wait = format_wait
        self._format = format_wait.format
        self._lifecycle = lifecycle
        self._pieces = pieces
        self._by_name = core.registry.by_name

    def takes_plain(self, name: str) -> bool:
        """See `Engine.takes_plain`."""
        return self.plain_topic(name) is not None

    def plain_topic(self, name: str) -> Topic | None:
        """See `Engine.plain_topic`."""
        topic = self._by_name.get(name)
        return topic if topic is not None and topic.writable else None

    def will_take_plain(self, name: str) -> bool:
        """See `Engine.will_take_plain`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.plain

    def key_in_flight(self, name: str, key: bytes) -> bool:
        """See `Engine.key_in_flight`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.waiting_for(key) is not None

    def _plain(self, request: AppendRequest) -> Topic | None:
        """Return the topic of a write that may take the short way; None for other writes.

        A write by the short way needs nothing except its seqs.
        """
        if request.identity is not None or request.violation is not None or request.incarnation is not None:
            return None
        return self.plain_topic(request.topic)

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None:
        """See `Engine.append`."""
        if self._format_wait.waiting and self._format_wait.join(request, done):
            return
        rows = request.rows
        flags = flags_in(rows.spans)
        topic = None if flags & TIMES else self._plain(request)
        try:
            if topic is not None and request.frames is None:
                if flags & NEWER_FLAGS and not self._format.takes_all and self.waits_for_format(topic, request, done):
                    return
                now_ms = self._core.clock.now_ms()
                if not topic.needs_only_seqs and topic.expires:
                    expire(self._core, topic, now_ms)
                self._stage(topic, rows, flags, request.node, now_ms, None, False, done)
            else:
                self._append_checked(self._core.registry.named(request.topic), request, done)
        except TopicsError as error:
            done(error)

    def append_lone(
        self, request: AppendRequest, on_committed: Callable[[AppendResult], None] | None = None
    ) -> AppendResult | None:
        """Commit a write in place, by the short way. See `Engine.append_lone`."""
        topic = None if any_timed(request.rows.spans) else self._plain(request)
        return None if topic is None else self.append_rows_lone(topic, request.rows, request.node, on_committed)

    def append_rows_lone(
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
        """Append to a topic of class `ephemeral`, as `append_rows_lone`."""
        core, count, first, ts = self._core, rows.count, topic.next_seq, topic.stamp(now_ms)
        file_id, framed = core.memory.stage_records(topic.id, first, ts, rows, node=node)
        last = first + count - 1
        result = make_tuple(AppendResult, (first, last, last, count, False, False, 0, 0))
        written = framed.placed, in_memory(file_id), _nothing, None
        answer_and_publish(core, topic, result, written, (rows.size, tags_in(rows), ts), on_committed=on_committed)
        return result

    def append_copies(self, name: str, rows: Rows, done: Done[AppendResult]) -> None:
        """Append records that the server copies into a topic, which is created if missing (R-Q-25).

        The topic's limits refuse nothing. In any class the records are on stable storage when
        `done` is called, because the originals are deleted after that.
        """
        topic = self._core.registry.named(name)
        if topic is not None and topic.life is Life.DELETING:
            topic.parked.append(lambda: self.append_copies(name, rows, done))
            return
        if topic is not None and has_to_wait(topic):
            Turn(self._core, topic, lambda: self.append_copies(name, rows, done), done).wait()
            return
        try:
            if topic is None:
                topic = self._lifecycle.create_for(AppendRequest(name, rows, config=DEFAULT))
            topic.stop_filling()
            now_ms = self._core.clock.now_ms()
            self._stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done, synced=True)
            topic.stop_filling()
        except TopicsError as error:
            done(error)

    def append_moved(self, topic: Topic, rows: Rows, done: Done[AppendResult]) -> None:
        """Append records that the server moves on request, which the topic's limits may refuse.

        As those of `append_copies`, they are on stable storage when `done` is called.
        """
        if topic.life is Life.GONE:
            done(refusals.topic_not_found(topic.name))
        elif topic.life is Life.DELETING:
            topic.parked.append(lambda: self.append_moved(topic, rows, done))
        elif has_to_wait(topic):
            Turn(self._core, topic, lambda: self.append_moved(topic, rows, done), done).wait()
        else:
            try:
                now_ms = self._core.clock.now_ms()
                check_admission(self._core, topic, rows, now_ms)
                topic.stop_filling()
                self._stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done, synced=True)
                topic.stop_filling()
            except TopicsError as error:
                done(error)

    # --- checks ------------------------------------------------------------------------------------------------------
    def _append_checked(self, topic: Topic | None, request: AppendRequest, done: Done[AppendResult]) -> None:
        """Make all checks in the order of 7.5; raise the first that fails."""
        core = self._core
        if topic is not None and topic.life is Life.DELETING:
            done = core.held_appends.hold(done)
            topic.parked.append(lambda: self.append(request, done))
            return
        created = topic is None
        now_ms = core.clock.now_ms()
        if topic is None:
            if not self._format.takes_all and self._waits_to_create(request, done):
                return
            if request.frames is not None:
                # The batch that the creation begins has no room for the losses of other topics.
                expire_for_quota(core, request.rows.size, now_ms)
            topic = self._lifecycle.create_for(request)
        elif request.violation is not None:
            raise request.violation
        elif request.incarnation is not None:
            check_meant(topic, request)
        if topic.queue is None and any_delayed(request.rows.spans):
            raise refusals.not_a_queue_for_delays(topic.name)
        config = topic.config
        if topic.expires:
            expiry = expire(core, topic, now_ms)
            if expiry is not None and config.discard == "reject":
                # Expired records make room once their loss is durable.
                done = core.held_appends.hold(done)
                expiry.then.append(lambda error: done(error) if error is not None else self.append(request, done))
                return
        if has_to_wait(topic):
            done = core.held_appends.hold(done)
            Turn(core, topic, lambda: self.append(request, done), done).wait()
            return
        try:
            identity = request.identity
            if identity is not None:
                if self._is_duplicate(topic, identity, now_ms, request, done):
                    return
                if identity.is_piece:
                    self._pieces.take(self, topic, request, now_ms, created=created, done=done)
                    return
            check_admission(core, topic, request.rows, now_ms)
            if not self._format.takes_all and self.waits_for_format(topic, request, done):
                return
            if request.frames is None:
                rows = request.rows
                self._stage(topic, rows, flags_in(rows.spans), request.node, now_ms, identity, created, done)
            else:
                self._stage_prebuilt(topic, request, request.frames, now_ms, identity, created, done)
        except TopicsError as error:
            if not created:
                raise
            LateRefusal(core, topic, error, done).stage_unlogged()

    def waits_for_format(self, topic: Topic, request: AppendRequest, done: Done[AppendResult]) -> bool:
        """Let a write that passed its other checks wait for the format of its records.

        Returns: whether it waits; the caller returns then, and `append` repeats the write.
        Raises: TopicsError, as `_stage`; the format is not raised then.
        """
        core, rows, identity = self._core, request.rows, request.identity
        if not self._format_wait.lacks(rows.spans):
            return False
        if identity is not None and not identity.is_piece:
            identity.begin(core, topic, rows, request.node, core.clock.now_ms())
        if topic.stage_class != "ephemeral":
            check_log(core)
            core.log.check_writable()
        request.check_frames()
        return self._format_wait.hold(request, done, self.append)

    def _waits_to_create(self, request: AppendRequest, done: Done[AppendResult]) -> bool:
        """Let a write that will create its topic wait, as `waits_for_format`."""
        if not self._format_wait.lacks(request.rows.spans):
            return False
        config = self._lifecycle.check_creation(request)
        if config.discard == "reject" and exceeded_cap(config, request.rows.count, request.rows.size):
            return False  # the write is refused once the topic exists, and stages no record
        self._core.log.check_writable()
        return self._format_wait.hold(request, done, self.append)

    def _is_duplicate(
        self, topic: Topic, identity: Identity, now_ms: int, request: AppendRequest, done: Done[AppendResult]
    ) -> bool:
        """Answer a duplicate (R-IDEM-3), or let it wait for the write it repeats (R-IDEM-5).

        Returns: False, and nothing is done, if it is no duplicate.
        """
        known = identity.find(self._core, topic, now_ms)
        if known is not None:
            done(known.answer(request))
            return True
        waiting = topic.waiting_for(identity.name)
        if waiting is None:
            return False
        waiting.append((request, done))
        return True

    def _begin(self, topic: Topic, identity: Identity, done: Done[AppendResult]) -> Done[AppendResult]:
        """Enter a write in flight under an identity; return its `done`."""
        topic.begin_identity(identity.name)
        identity.hold(self._core, topic)
        return self._ending(topic, identity, done)

    def _ending(self, topic: Topic, identity: Identity, done: Done[AppendResult]) -> Done[AppendResult]:
        """Return a `done` that first ends the identity, and then answers waiting duplicates."""
        in_memory = topic.stage_class == "ephemeral"

        def end(result: AppendResult | TopicsError) -> None:
            if not isinstance(result, TopicsError):
                self._on_published(topic, identity, result.first_seq, in_memory=in_memory)
                done(result)
                return
            identity.fail(self._core, topic)
            waiting = topic.end_identity(identity.name)
            done(result)
            for request, later in waiting:
                self.append(request, later)

        return end

    def _on_published(self, topic: Topic, identity: Identity, first_seq: int, *, in_memory: bool) -> None:
        """Enter a published write (R-IDEM-6), and answer the waiting duplicates."""
        known = identity.publish(self._core, topic, first_seq, in_memory=in_memory)
        self._pieces.appended(topic, identity)
        for request, done in topic.end_identity(identity.name):
            if request.identity is not None and request.identity.is_piece:
                self.append(request, done)
            else:
                done(known.answer(request))

    # --- staging -----------------------------------------------------------------------------------------------------
    def _stage(  # noqa: PLR0917 - one call a request
        self,
        topic: Topic,
        rows: Rows,
        flags: int,
        node: bytes | None,
        now_ms: int,
        identity: Identity | None,
        created: bool,
        done: Done[AppendResult],
        *,
        synced: bool = False,
    ) -> None:
        """Give out seqs and put the frames into the log's filling batch.

        flags: `flags_in` the rows.
        Raises: TopicsError; nothing is staged then.
        """
        core, count, first = self._core, rows.count, topic.next_seq
        ts, last = topic.stamp(now_ms), first + count - 1
        extension = b"" if identity is None else identity.begin(core, topic, rows, node, now_ms)
        filling: TakesRows | None = topic.filling
        in_memory: Append | None = None
        if topic.stage_class == "ephemeral":
            file_id, framed = core.memory.stage_records(topic.id, first, ts, rows, node=node, extension=extension)
            filling = in_memory = append_to(core, topic, fsync=False)
            in_memory.file_id = file_id
            topic.enqueue(in_memory)
        else:
            fsync, reserves = topic.stage_class == "fsync", last > topic.ample and topic.lacks(count)
            if reserves or filling is None or filling.batch_number != core.log.batch_number(topic.id):
                filling = None
                self._check_room(created)
            reserved = reserve(core.log, topic, count, now_ms) if reserves else 0
            framed = core.log.stage_records(topic.id, first, ts, rows, fsync=fsync, node=node, extension=extension)
            if filling is None:
                filling = self._open(topic, reserved, fsync=fsync, synced=synced)
            if topic.memory_through:
                records, size = topic.pending_records + count, topic.pending_bytes + rows.size
                log_evictions(core, topic, topic.config, records=records, size=size)
        if identity is not None:
            done = self._begin(topic, identity, done)
        if flags & TIMES:
            filling.note_times(first, ts, delays_in(rows), ttls_in(rows))
        tags = tags_in(rows) if flags & TAG else None
        filling.add((count, created, done), count, rows.size, framed, ts, tags)
        if in_memory is not None:
            in_memory.on_commit(AT_ONCE)
        elif last > topic.ample and topic.is_short(first):
            reserve_ahead(core.log, topic, count, now_ms)

    def _check_room(self, created: bool) -> None:
        """Check that the log accepts records. Raises: RequestError throttled.

        The creation of a topic has checked the log's length already.
        """
        if created:
            check_backlog(self._core.log)
        else:
            check_log(self._core)

    def _open(self, topic: Topic, reserved: int, *, fsync: bool, synced: bool) -> Append:
        """Return an operation for this pass's further writes.

        With a reservation, the writes wait for its sync.
        """
        append = append_to(self._core, topic, fsync=fsync)
        if reserved:
            append.rely_on((reserved,))
        append.stage(synced=synced or fsync or bool(reserved))
        append.batch_number = self._core.log.batch_number(topic.id)
        topic.fill(append)
        self._core.filled.append(topic)
        if topic.routers:
            self._core.routed[topic] = None
        return append

    def append_piece(self, topic: Topic, request: AppendRequest, identity: Identity, done: Done[AppendResult]) -> None:
        """Stage a piece's records in the staging area.

        Raises: TopicsError; nothing is staged then.
        """
        now_ms = self._core.clock.now_ms()
        if request.frames is None:
            rows = request.rows
            self._stage(topic, rows, flags_in(rows.spans), request.node, now_ms, identity, False, done)
        else:
            self._stage_prebuilt(topic, request, request.frames, now_ms, identity, False, done)

    def _stage_prebuilt(  # noqa: PLR0917 - as `_stage`
        self,
        topic: Topic,
        request: AppendRequest,
        frames: PrebuiltFrames,
        now_ms: int,
        identity: Identity | None,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Stage a write whose rows are frames already, as an operation of its own. See `_stage`."""
        core, rows, first = self._core, request.rows, topic.next_seq
        frames.extend(b"" if identity is None else identity.begin(core, topic, rows, request.node, now_ms))
        reserved = 0
        if topic.stage_class != "ephemeral":
            self._check_room(created)
            if not created:  # the batch of a creation has begun with it
                core.log.begin_batch(topic.id)
            if topic.lacks(rows.count):
                reserved = reserve(core.log, topic, rows.count, now_ms)
        ts = topic.stamp(now_ms)
        append, framed = self._number(topic, frames, rows.size, ts, synced=reserved > 0)
        if reserved:
            append.rely_on((reserved,))
        if identity is not None:
            done = self._begin(topic, identity, done)
        if any_timed(rows.spans):
            append.note_times(first, ts, delays_in(rows), ttls_in(rows))
        append.add((rows.count, created, done), rows.count, rows.size, framed, ts, tags_in(rows))
        if topic.is_short(first):
            reserve_ahead(core.log, topic, rows.count, now_ms)
        self._queue(append)

    def append_pending(  # noqa: PLR0917 - called in one place
        self,
        topic: Topic,
        frames: PrebuiltFrames,
        size: int,
        tags: NDArray[np.uint32] | None,
        identity: Identity,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Give out seqs to prebuilt frames; in class `disk` the seqs are reserved already.

        The identity has been begun and held.
        Raises: TopicsError; nothing is staged then.
        """
        if topic.stage_class != "ephemeral":
            check_log(self._core)
            self._core.log.begin_batch(topic.id)
        ts = topic.stamp(self._core.clock.now_ms())
        append, framed = self._number(topic, frames, size, ts)
        write = (frames.count, created, self._ending(topic, identity, done))
        append.add(write, frames.count, size, framed, ts, tags)
        self._queue(append)

    def _number(
        self, topic: Topic, frames: PrebuiltFrames, size: int, ts: int, *, synced: bool = False
    ) -> tuple[Append, Framed]:
        """Number frames from the topic's next seq on, and stage them as an operation of their own.

        What has been staged since `begin_batch` is in the same batch, so a crash preserves a topic
        and its first records, or neither.

        synced: sync them even if the topic's class does not require it.
        """
        core, first = self._core, topic.next_seq
        fsync = topic.stage_class == "fsync"
        topic.stop_filling()
        append = append_to(core, topic, fsync=fsync)
        if topic.stage_class == "ephemeral":
            append.file_id, framed = core.memory.stage_prebuilt(topic.id, frames, first, ts)
        else:
            records, pending = topic.pending_records + frames.count, topic.pending_bytes + size
            log_evictions(core, topic, topic.config, records=records, size=pending)
            framed = core.log.stage_prebuilt(
                topic.id, frames, first, ts, fsync=fsync, synced=fsync or synced, done=append.on_commit
            )
        return append, framed

    @staticmethod
    def _queue(append: Append) -> None:
        append.topic.enqueue(append)
        if append.file_id:
            append.on_commit(AT_ONCE)
