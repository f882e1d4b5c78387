"""Fills the log's batches: seqs are given out to rows, and their frames staged.

All writes of one pass to one topic are one operation, with one callback from the log and one visit
to the index. Source: wire contract 7.5, R-SEQ.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.engine.state.append_request import AppendRequest, Identity, IdentityCore
from topics.engine.state.topic import Topic
from topics.engine.state.topic_numbers import TakesRows
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.admission import LogRoomCore, check_backlog, check_log
from topics.engine.write.append import Append, AppendCore, append_to
from topics.engine.write.evictions import EvictionCore, log_evictions
from topics.engine.write.identified_writes import IdentifiedWrites
from topics.engine.write.reservations import reserve, reserve_ahead
from topics.store.format.rows import TAG, TIMES, Framed, Rows, any_timed, delays_in, flags_in, tags_in, ttls_in
from topics.store.in_memory.ephemeral import EphemeralFrames
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.wal.commitment import AT_ONCE


class FillingCore(AppendCore, EvictionCore, LogRoomCore, IdentityCore, Protocol):
    """The part of the core that the filling of batches needs."""

    memory: EphemeralFrames
    filled: list[Topic]
    routed: dict[Topic, None]


class BatchFiller:
    """Stages the rows of writes whose checks have passed."""

    def __init__(self, core: FillingCore, identified: IdentifiedWrites) -> None:
        self._core = core
        self._identified = identified

    def stage_request(  # noqa: PLR0917 - as `stage`
        self,
        topic: Topic,
        request: AppendRequest,
        now_ms: int,
        identity: Identity | None,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Stage the rows of a request, or the frames that it has in their place. See `stage`."""
        if request.frames is None:
            rows = request.rows
            self.stage(topic, rows, flags_in(rows.spans), request.node, now_ms, identity, created, done)
        else:
            self.stage_prebuilt(topic, request, request.frames, now_ms, identity, created, done)

    def stage(  # noqa: PLR0917 - one call a request
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
            done = self._identified.begin(topic, identity, done)
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

    def stage_prebuilt(  # noqa: PLR0917 - as `stage`
        self,
        topic: Topic,
        request: AppendRequest,
        frames: PrebuiltFrames,
        now_ms: int,
        identity: Identity | None,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        """Stage a write whose rows are frames already, as an operation of its own. See `stage`."""
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
            done = self._identified.begin(topic, identity, done)
        if any_timed(rows.spans):
            append.note_times(first, ts, delays_in(rows), ttls_in(rows))
        append.add((rows.count, created, done), rows.count, rows.size, framed, ts, tags_in(rows))
        if topic.is_short(first):
            reserve_ahead(core.log, topic, rows.count, now_ms)
        self._queue(append)

    def stage_pending(  # noqa: PLR0917 - called in one place
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
        write = (frames.count, created, self._identified.ending(topic, identity, done))
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
