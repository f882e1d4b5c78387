"""Writes: checks, seqs, frames into the log, and what happens when they are committed.

The unit is the AppendBatch: all writes of one pass of the loop to one topic, with one callback from the log and one
visit to the index. Source: wire contract 7.5, R-SEQ, R-CAP-5, R-IDEM.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.common.tuples import make_tuple
from topics.engine.shared.core import Core
from topics.engine.state import refusals
from topics.engine.state.control_frames import ReservationPayload, encode
from topics.engine.state.identity import Identity, Waiting
from topics.engine.state.staged_operations import Operation, Turn
from topics.engine.state.topic import Life, Topic
from topics.engine.state.topic_numbers import TakesRows
from topics.engine.values.results import AppendRequest, AppendResult, Done
from topics.engine.write.admission import check_admission
from topics.engine.write.evictions import eviction_payload, has_to_wait, log_evictions
from topics.engine.write.lifecycle import Lifecycle
from topics.engine.write.retention import expire
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType
from topics.store.format.rows import PLACED, PLACED_DTYPE, Framed, Rows, tags_in
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.wal.commit import Commit
from topics.store.wal.commitment import AT_ONCE

_PLACED_BYTES = PLACED.size

Write = tuple[int, Identity | None, bool, Done[AppendResult]]
"""One request: count of its records, identity, created (the topic), done."""


class AppendBatch(Operation):
    """Writes of consecutive seqs, committed together."""

    __slots__ = ("appender", "file_id", "first_seq", "fsync", "placed", "reserves", "rows", "size", "tags", "writes")

    def __init__(self, appender: Appender, topic: Topic, *, fsync: bool) -> None:
        super().__init__(appender.core, topic)
        self.appender = appender
        self.fsync = fsync
        self.first_seq = topic.next_seq
        self.rows = 0
        self.size = 0
        self.file_id = 0
        """Of frames that are there already, and count as rows of it: in memory (class `ephemeral`), or those that a
        router copies by position; 0: the commit says where they are."""
        self.reserves = False
        """A reservation lies in the same commit."""
        self.writes: list[Write] = []
        self.placed = bytearray()
        """A packed PLACED a record: columns over all writes."""
        self.tags: list[bytes | None] | NDArray[np.uint32] | None = None
        """A tag a record, or its number in the index; None while none has one."""

    def add(self, write: Write, rows: Rows, framed: Framed, ts: int) -> None:
        """One request."""
        count, size = rows.count, rows.size
        tags = tags_in(rows)
        if tags is not None:
            self._add_tags(tags)
        elif isinstance(self.tags, list):
            self.tags += [None] * count
        self.take(write, count, size, framed, ts)

    def take(self, write: Write, count: int, size: int, framed: Framed, ts: int) -> None:
        """Add one request whose tags are there already."""
        self.placed += framed.placed
        self.writes.append(write)
        self.rows += count
        self.size += size
        self.hold(count, size, ts)

    def hold(self, count: int, size: int, ts: int) -> None:
        """Give out seqs to records, which are pending from now on."""
        self.topic.take(count, size, ts)
        self.core.usage.pending_bytes += size

    def _add_tags(self, tags: list[bytes | None]) -> None:
        """Tags of the rows being added, `self.rows` being those before them."""
        if self.tags is None:
            self.tags = [None] * self.rows
        assert isinstance(self.tags, list), "numbers are those of one request, which is a batch of its own"
        self.tags += tags

    def _undo_pending(self) -> None:
        self.topic.unstage(self, self.rows, self.size)
        self.core.usage.pending_bytes -= self.size

    # --- committed ---------------------------------------------------------------------------------------------------
    def apply(self, commit: Commit) -> None:
        """Publishes: index extended, head visible, caps applied, writers answered, waiters woken."""
        self._undo_pending()
        topic, core = self.topic, self.core
        file_id = self.file_id or commit.file_id
        self._publish(file_id, commit.base)
        topic.show(self.first_seq + self.rows - 1)
        topic.retain_caps()
        if topic.waiters:
            core.awake[topic] = None
        if topic.routers:
            core.forwardable[topic] = None
        if not self.file_id or not core.usage.is_memory(file_id):  # copies by position name the file of the originals
            core.in_log.add(topic.id)
        write_ns, sync_ns = commit.write_ns, commit.sync_ns if self.fsync else 0
        first = self.first_seq
        for count, identity, created, done in self.writes:
            last = first + count - 1
            result = make_tuple(AppendResult, (first, last, last, count, created, False, write_ns, sync_ns))
            if identity is not None:
                self.appender.on_published(topic, identity, first, in_memory=self.file_id != 0)
            done(result)
            first += count

    def _publish(self, file_id: int, base: int) -> None:
        """The rows into the index."""
        publish(self.topic, self.first_seq, file_id, base, self.placed, self.tags)

    # --- failed ------------------------------------------------------------------------------------------------------
    def fail(self, error: TopicsError) -> None:
        """Nothing becomes visible; the seqs are burned, since the frames may still be found after a restart."""
        self._undo_pending()
        topic = self.topic
        if self.file_id and self.rows:
            self.core.usage.left(self.file_id, self.rows)
        if isinstance(self.tags, np.ndarray):
            topic.index.give_back_tags(self.tags)
        if self.reserves:
            topic.lose_reservation()
        for write in self.writes:
            _count, identity, _created, done = write
            waiting: Waiting = []
            if identity is not None:
                identity.fail(self.core, topic)
                waiting = topic.end_identity(identity.name)
            done(error)
            for request, later in waiting:
                self.appender.append(request, later)


def check_meant(topic: Topic, request: AppendRequest) -> None:
    """Raises RequestError incarnation_mismatch: the topic is not the one that the write means (R-INC-4)."""
    present = topic.incarnation if topic.visible else None
    if present != request.incarnation:
        raise refusals.incarnation_mismatch(request.topic, present)


def publish(  # noqa: PLR0917 - one call a batch
    topic: Topic,
    first_seq: int,
    file_id: int,
    base: int,
    placed: bytes | bytearray,
    tags: list[bytes | None] | NDArray[np.uint32] | None,
) -> None:
    """Rows into the index; `placed` holds a packed PLACED each, whose starts count from file offset `base`."""
    if len(placed) == _PLACED_BYTES and not isinstance(tags, np.ndarray):
        start, length, size, flags, ts = PLACED.unpack(placed)
        tag = tags[0] if tags is not None else None
        topic.index.append_row(first_seq, file_id, base + start, length, size, ts, flags, tag)
    elif tags is None and topic.index.append_placed(first_seq, file_id, base, placed):
        ts = PLACED.unpack_from(placed, len(placed) - _PLACED_BYTES)[4]
    else:
        rows = np.frombuffer(placed, PLACED_DTYPE)
        offsets = rows["start"] + np.uint32(base)
        topic.index.append_rows(
            first_seq, file_id, offsets, rows["length"], rows["size"], rows["ts"], rows["flags"], tags
        )
        ts = int(rows["ts"][-1])
    topic.last_write_ms = ts


class LateRefusal(Operation):
    """A write that brought its topic about and is refused: told once the topic is there, since it stays (7.5)."""

    __slots__ = ("done", "error")

    def __init__(self, core: Core, topic: Topic, error: TopicsError, done: Done[AppendResult]) -> None:
        super().__init__(core, topic)
        self.error = error
        self.done = done

    def apply(self, commit: Commit) -> None:
        self.done(self.error)

    def fail(self, error: TopicsError) -> None:
        self.done(error)


class Appender:
    """`append` takes writes; what is staged by the end of a pass is one batch a topic."""

    def __init__(self, core: Core, lifecycle: Lifecycle) -> None:
        self.core = core
        self._lifecycle = lifecycle
        self.has_quota = core.config.max_total_bytes > 0
        self._by_name = core.registry.by_name

    def takes_plain(self, name: str) -> bool:
        """See `Engine.takes_plain`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.plain and topic.life is Life.LIVE and not self.has_quota

    def will_take_plain(self, name: str) -> bool:
        """See `Engine.will_take_plain`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.plain and not self.has_quota

    def key_in_flight(self, name: str, key: bytes) -> bool:
        """See `Engine.key_in_flight`."""
        topic = self._by_name.get(name)
        return topic is not None and topic.waiting_for(key) is not None

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None:
        """See `Engine.append`. A topic without admission or expiry, no identity: the short way."""
        topic = self.core.registry.named(request.topic)
        try:
            if (
                topic is None
                or not topic.plain
                or request.identity is not None
                or topic.life is not Life.LIVE
                or self.has_quota
                or request.violation is not None
                or request.incarnation is not None
                or request.frames is not None
            ):
                self._append_checked(topic, request, done)
            else:
                self._stage(topic, request.rows, request.node, self.core.clock.now_ms(), None, False, done)
        except TopicsError as error:
            done(error)

    def append_alone(self, request: AppendRequest) -> AppendResult | None:
        """See `Engine.append_alone`: the short way of `append` and of AppendBatch, in one go."""
        topic, rows = self._by_name.get(request.topic), request.rows
        if (
            topic is None
            or not topic.plain
            or topic.stage_class == "ephemeral"
            or topic.life is not Life.LIVE
            or topic.pending
            or topic.waiters
            or topic.routers
            or request.identity is not None
            or self.has_quota
            or request.violation is not None
            or request.incarnation is not None
        ):
            return None
        core, count, first = self.core, rows.count, topic.next_seq
        if topic.lacks(count) or topic.is_short(first):
            return None
        ts = topic.stamp(core.clock.now_ms())
        fsync = topic.stage_class == "fsync"
        written = core.log.write_alone(topic.id, first, ts, rows, request.node, fsync=fsync)
        if written is None:
            return None
        framed, commit = written
        publish(topic, first, commit.file_id, commit.base - framed.start, framed.placed, tags_in(rows))
        last = topic.write_through(count, ts)
        topic.retain_caps()
        core.in_log.add(topic.id)
        return make_tuple(AppendResult, (first, last, last, count, False, False, commit.write_ns, commit.sync_ns))

    def append_copies(self, name: str, rows: Rows, done: Done[AppendResult]) -> None:
        """Records the server itself puts into a topic, which is created when it is missing (R-Q-25).

        Nothing is refused for want of room in the topic, and whatever its class they are on stable storage before
        `done` hears of them: what they are copies of is deleted then.
        """
        topic = self.core.registry.named(name)
        if topic is not None and topic.life is Life.DELETING:
            topic.parked.append(lambda: self.append_copies(name, rows, done))
            return
        if topic is not None and has_to_wait(topic):
            Turn(self.core, topic, lambda: self.append_copies(name, rows, done), done).wait()
            return
        try:
            if topic is None:
                topic = self._lifecycle.create_for(AppendRequest(name, rows))
            topic.stop_filling()
            self._stage(topic, rows, None, self.core.clock.now_ms(), None, False, done, synced=True)
            topic.stop_filling()
        except TopicsError as error:
            done(error)

    # --- checks ------------------------------------------------------------------------------------------------------
    def _append_checked(self, topic: Topic | None, request: AppendRequest, done: Done[AppendResult]) -> None:
        """All checks, in the order of 7.5; raises the first that fails."""
        if topic is not None and topic.life is Life.DELETING:
            topic.parked.append(lambda: self.append(request, done))
            return
        created = topic is None
        if topic is None:
            topic = self._lifecycle.create_for(request)
        elif request.violation is not None:
            raise request.violation
        elif request.incarnation is not None:
            check_meant(topic, request)
        core, config = self.core, topic.config
        now_ms = core.clock.now_ms()
        if config.ttl_ms:
            expiry = expire(core, topic, now_ms)
            if expiry is not None and config.discard == "reject":
                # What expired makes room, once that is durable.
                expiry.then.append(lambda error: done(error) if error is not None else self.append(request, done))
                return
        if has_to_wait(topic):
            Turn(core, topic, lambda: self.append(request, done), done).wait()
            return
        try:
            identity = request.identity
            if identity is not None:
                if self._is_duplicate(topic, identity, now_ms, request, done):
                    return
                if identity.is_piece:
                    core.stager.take(topic, request, now_ms, created=created, done=done)
                    return
            check_admission(core, topic, request.rows, now_ms)
            if request.frames is None or created:  # the topic and its first records are one batch: both are, or neither
                self._stage(topic, request.rows, request.node, now_ms, identity, created, done)
            else:
                self._stage_gathered(topic, request, request.frames, now_ms, identity, created, done)
        except TopicsError as error:
            if not created:
                raise
            LateRefusal(core, topic, error, done).stage_unlogged()

    def _is_duplicate(
        self, topic: Topic, identity: Identity, now_ms: int, request: AppendRequest, done: Done[AppendResult]
    ) -> bool:
        """Answers a duplicate (R-IDEM-3), or lets it wait for the write it repeats (R-IDEM-5)."""
        known = identity.find(self.core, topic, now_ms)
        if known is not None:
            done(known.answer(request))
            return True
        waiting = topic.waiting_for(identity.name)
        if waiting is None:
            return False
        waiting.append((request, done))
        return True

    def on_published(self, topic: Topic, identity: Identity, first_seq: int, *, in_memory: bool) -> None:
        """Enter a published write, with the publication itself (R-IDEM-6), and answer the duplicates that waited."""
        known = identity.publish(self.core, topic, first_seq, in_memory=in_memory)
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
        node: bytes | None,
        now_ms: int,
        identity: Identity | None,
        created: bool,
        done: Done[AppendResult],
        *,
        synced: bool = False,
    ) -> None:
        """Gives out seqs and puts the frames into the log's filling batch. Raises, and then nothing was staged."""
        count = rows.count
        first = topic.next_seq
        ts = topic.stamp(now_ms)
        extension = b"" if identity is None else identity.begin(self.core, topic, rows, node, now_ms)
        filling: TakesRows | None = topic.filling
        in_memory: AppendBatch | None = None
        if topic.stage_class == "ephemeral":
            file_id, framed = self.core.memory.stage_records(topic.id, first, ts, rows, node=node, extension=extension)
            filling = in_memory = AppendBatch(self, topic, fsync=False)
            in_memory.file_id = file_id
            topic.enqueue(in_memory)
        else:
            fsync = topic.stage_class == "fsync"
            reserves = topic.lacks(count)
            if reserves or filling is None:
                filling = None
                if created:  # its creation is staged already, and found room
                    self.core.check_backlog()
                else:
                    self.core.check_log()
            reserved = reserve(self.core, topic, first + count - 1, now_ms, count) if reserves else 0
            framed = self.core.log.stage_records(topic.id, first, ts, rows, fsync=fsync, node=node, extension=extension)
            if filling is None:
                filling = self._open(topic, reserved, fsync=fsync, synced=synced)
            if topic.memory_through:
                records, size = topic.pending_records + count, topic.pending_bytes + rows.size
                log_evictions(self.core, topic, topic.config, records=records, size=size)
            if topic.is_short(first):
                self.grow(topic, first + count - 1, now_ms, count)
        if identity is not None:
            topic.begin_identity(identity.name)
            identity.hold(self.core, topic)
        filling.add((count, identity, created, done), rows, framed, ts)
        if in_memory is not None:
            in_memory.on_commit(AT_ONCE)

    def append_piece(self, topic: Topic, request: AppendRequest, identity: Identity, done: Done[AppendResult]) -> None:
        """Stage a piece's records in the staging area. Raises, and then nothing was staged."""
        now_ms = self.core.clock.now_ms()
        if request.frames is None:
            self._stage(topic, request.rows, request.node, now_ms, identity, False, done)
        else:
            self._stage_gathered(topic, request, request.frames, now_ms, identity, False, done)

    def _stage_gathered(  # noqa: PLR0917 - as `_stage`
        self,
        topic: Topic,
        request: AppendRequest,
        frames: PrebuiltFrames,
        now_ms: int,
        identity: Identity | None,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """`_stage` of a write whose rows are frames already: a batch of its own."""
        core, rows, first = self.core, request.rows, topic.next_seq
        last = first + rows.count - 1
        frames.extend(b"" if identity is None else identity.begin(core, topic, rows, request.node, now_ms))
        reserved = 0
        if topic.stage_class != "ephemeral":
            if created:
                core.check_backlog()
            else:
                core.check_log()
            if topic.lacks(rows.count):
                reserved = reserve(core, topic, last, now_ms, rows.count)
        ts = topic.stamp(now_ms)
        batch, framed = self._place(topic, frames, rows.size, ts, synced=reserved > 0)
        if reserved:
            batch.reserves = True
            topic.reserve(reserved)
        if identity is not None:
            topic.begin_identity(identity.name)
            identity.hold(core, topic)
        batch.add((rows.count, identity, created, done), rows, framed, ts)
        if not batch.file_id and topic.is_short(first):
            self.grow(topic, last, now_ms, rows.count)
        self._queue(batch)

    def append_gathered(  # noqa: PLR0917 - called in one place
        self,
        topic: Topic,
        frames: PrebuiltFrames,
        size: int,
        tags: NDArray[np.uint32] | None,
        identity: Identity,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Gives out seqs to frames that were put together before: in class `disk` they are reserved already.

        The identity is begun and held. Raises, and then nothing was staged.
        """
        if topic.stage_class != "ephemeral":
            self.core.check_log()
        ts = topic.stamp(self.core.clock.now_ms())
        batch, framed = self._place(topic, frames, size, ts)
        batch.tags = tags
        batch.take((frames.count, identity, created, done), frames.count, size, framed, ts)
        self._queue(batch)

    def _place(
        self, topic: Topic, frames: PrebuiltFrames, size: int, ts: int, *, synced: bool = False
    ) -> tuple[AppendBatch, Framed]:
        """Numbers frames from the topic's next seq on and stages them as a batch of their own.

        synced: also where the topic's class does not ask for it.
        """
        core, first = self.core, topic.next_seq
        fsync = topic.stage_class == "fsync"
        topic.stop_filling()
        batch = AppendBatch(self, topic, fsync=fsync)
        if topic.stage_class == "ephemeral":
            batch.file_id, framed = core.memory.stage_gathered(topic.id, frames, first, ts)
        else:
            records, pending = topic.pending_records + frames.count, topic.pending_bytes + size
            floors = eviction_payload(topic, topic.config, records=records, size=pending)
            framed = core.log.stage_gathered(
                topic.id, frames, first, ts, fsync=fsync, synced=fsync or synced, done=batch.on_commit, floors=floors
            )
        return batch, framed

    @staticmethod
    def _queue(batch: AppendBatch) -> None:
        batch.topic.enqueue(batch)
        if batch.file_id:
            batch.on_commit(AT_ONCE)

    def _open(self, topic: Topic, reserved: int, *, fsync: bool, synced: bool) -> AppendBatch:
        """A batch for this pass's further writes; with a reservation, they wait until that is on stable storage."""
        batch = AppendBatch(self, topic, fsync=fsync)
        if reserved:
            batch.reserves = True
            topic.reserve(reserved)
        batch.stage(synced=synced or fsync or bool(reserved))
        topic.fill(batch)
        self.core.filled.append(topic)
        return batch

    def grow(self, topic: Topic, last_seq: int, now_ms: int, count: int) -> None:
        """The next reservation, before the last one is used up: no write waits for it to be on stable storage."""
        log = self.core.log
        upto = reserve(self.core, topic, last_seq, now_ms, count)
        generation = topic.reserve_ahead()

        def on_commit(commit: Commit) -> None:
            if commit.error is None:
                log.when_durable(topic.id, on_durable)
            else:
                topic.reserved_ahead(generation, 0)

        def on_durable() -> None:
            topic.reserved_ahead(generation, upto)

        log.when_committed(topic.id, False, on_commit)


def reserve(core: Core, topic: Topic, last_seq: int, now_ms: int, count: int) -> int:
    """Stages a reservation of seqs beyond `last_seq`, a write of `count`; returns the highest. Source: R-DUR-6."""
    reserved = topic.next_reservation(last_seq, count)
    payload = encode(ReservationPayload(topic.generation))
    core.log.stage_control(topic.id, FrameType.HEAD_RESERVATION, reserved, now_ms, payload)
    return reserved
