"""The input of a shard's next commits: the filling batch, and earlier ones closed for size."""

from __future__ import annotations

from collections import deque

from typing_extensions import Buffer

from topics.common.tuples import make_tuple
from topics.store.commits.write_batch import Batch, Commit, Done
from topics.store.format._codec import ffi, lib
from topics.store.format.codec import Pointer, frame_topics_at
from topics.store.format.log_format import BATCH_HEADER_BYTES, FLAG_FSYNC, FLAG_ROUTED, check_batch_bytes
from topics.store.format.rows import PLACED, Framed, Rows, TopicRows
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames
from topics.store.wal.write_latch import WriteLatch

BATCH_ROLL_BYTES = 4 << 20
"""Size above which a filling batch is closed at the end of the pass, in any case."""
_BATCH_ROOM = 64 * 1024
_PLACED_ROWS = 64
_PLACED_ROWS_MAX = 16 * 1024
"""Most rows whose places are written into memory that stays."""
_PLACED_BYTES = PLACED.size


class Staging:
    """The staged batches of a shard.

    Requests are framed into the filling batch; `head` is the batch to be committed next, and `take`
    hands it over.
    """

    def __init__(self, latch: WriteLatch, kept_bytes: int = BATCH_ROLL_BYTES) -> None:
        """kept_bytes: most memory that stays with the filling batch after a lone write."""
        self._latch = latch
        self._kept_bytes = max(BATCH_ROLL_BYTES, kept_bytes)
        self.filling = Batch(_BATCH_ROOM)
        self.batch_number = 0
        """Changes whenever another batch is filled."""
        self._closed: deque[Batch] = deque()
        self._closed_bytes = 0
        """Bytes of `_closed`, which other threads may read."""
        self._spare: Batch | None = None
        self._placed_rows = _PLACED_ROWS
        self._placed: Pointer = ffi.new("char[]", _PLACED_BYTES * _PLACED_ROWS)

    def stage_records(
        self,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        *,
        fsync: bool,
        node: bytes | None = None,
        extension: bytes = b"",
        counted: bool = True,
        routed: bool = False,
    ) -> Framed:
        """Frame a request's rows into the filling batch.

        Raises LogReadOnlyError or DiskFullError; RequestError, they exceed a batch.
        """
        if self._latch.closed:
            self._latch.check()
        batch = self.filling
        buffer, spans, count, _size = rows
        length = len(buffer)
        flags = FLAG_FSYNC if fsync else 0
        if routed:
            flags |= FLAG_ROUTED
        if type(buffer) is not bytes:
            buffer = ffi.from_buffer(buffer)
        at = batch.used
        start = at - BATCH_HEADER_BYTES
        placed = self.placed_for(count)
        while True:
            written: int = lib.tp_frame_rows(
                batch.pointer,
                at,
                batch.room,
                buffer,
                length,
                spans,
                count,
                topic_id,
                first_seq,
                ts_ms,
                flags,
                node or b"",
                len(node) if node else 0,
                node is not None,
                extension,
                len(extension),
                start,
                placed,
            )
            if written >= 0:
                break
            check_batch_bytes(-written)
            batch.grow(-written)
        assert written or not count, "a row points outside its buffer"
        batch.used = at + written
        batch.frames += count
        if not counted:
            batch.uncounted += count
        return make_tuple(Framed, (start, ffi.unpack(placed, _PLACED_BYTES * count)))

    def placed_for(self, count: int) -> Pointer:
        """Return room for a PLACED of each of `count` rows; the next call may return the same."""
        if count <= self._placed_rows:
            return self._placed
        placed: Pointer = ffi.new("char[]", _PLACED_BYTES * count)
        if count <= _PLACED_ROWS_MAX:
            self._placed_rows, self._placed = count, placed
        return placed

    def stage_topics(self, rows: TopicRows, *, fsync: bool) -> Framed:
        """Frame rows of several topics into the filling batch. Raises like `stage_records`."""
        if self._latch.closed:
            self._latch.check()
        batch = self.filling
        count = sum(rows.counts)
        at = batch.used
        start = at - BATCH_HEADER_BYTES
        placed = self.placed_for(count)
        flags = FLAG_FSYNC if fsync else 0
        while True:
            written = frame_topics_at(batch.pointer, at, batch.room, rows, flags, start, placed)
            if written > 0:
                break
            batch.grow(-written)
        batch.used = at + written
        batch.frames += count
        return make_tuple(Framed, (start, ffi.unpack(placed, _PLACED_BYTES * count)))

    def stage_control(
        self, topic_id: int, kind: int, seq: int, ts_ms: int, payload: bytes, *, counted: bool = True
    ) -> None:
        """Stage one control frame in the filling batch. Raises like `stage_records`."""
        if self._latch.closed:
            self._latch.check()
        batch = self.filling
        while True:
            written = lib.tp_frame_control(
                batch.pointer, batch.used, batch.room, kind, 0, topic_id, seq, ts_ms, payload, len(payload)
            )
            if written > 0:
                break
            batch.grow(-written)
        batch.used += written
        batch.frames += 1
        if not counted:
            batch.uncounted += 1

    def stage_frames(self, frames: Buffer, count: int) -> int:
        """Stage whole frames unchanged (recovery writes its tail again).

        Return their start in the body.
        """
        self._latch.check()
        view = memoryview(frames).cast("B")
        batch = self.filling
        start = batch.used
        if start + len(view) > batch.room:
            batch.grow(start + len(view))
        memoryview(batch.memory)[start : start + len(view)] = view
        batch.used += len(view)
        batch.frames += count
        return start - BATCH_HEADER_BYTES

    def begin_batch(self) -> None:
        """Close the filling batch, so that what is staged next is in another one.

        Raises like `stage_records`: control frames that the reserve admits come before records that
        it does not admit.
        """
        self._latch.check()
        if self.filling.frames or self.filling.waiters:
            self._close_filling()

    def stage_prebuilt(self, frames: PrebuiltFrames, synced: bool, done: Done) -> None:
        """Stage numbered frames as a batch, with the control frames staged since `begin_batch`.

        The control frames come after the records, because they would have to be moved otherwise.
        Raises LogReadOnlyError or DiskFullError.
        """
        self._latch.check()
        filling = self.filling
        frames.add_controls(memoryview(filling.memory)[BATCH_HEADER_BYTES : filling.used], filling.frames)
        batch = Batch(len(frames.memory), frames.memory)
        batch.used, batch.frames, batch.uncounted = frames.used, frames.count + frames.controls, filling.uncounted
        batch.mirror = frames.mirror
        batch.waiters, batch.wants_sync = [*filling.waiters, done], filling.wants_sync or synced
        filling.clear()
        self._closed.append(batch)
        self._closed_bytes += batch.used

    def when_committed(self, synced: bool, done: Done, parts: int = 1) -> None:
        """Call `done` when the filling batch has ended.

        `synced` requests stable storage by then. parts: callbacks of a pass that it counts as.
        """
        batch = self.filling
        batch.waiters.append(done)
        if parts > 1:
            batch.waiters += [_part] * (parts - 1)
        if synced:
            batch.wants_sync = True

    # --- batches -----------------------------------------------------------------------------------------------------
    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged, and no callback waits for what was."""
        filling = self.filling
        return not (filling.frames or filling.waiters or self._closed)

    @property
    def head(self) -> Batch:
        """The batch that is committed next."""
        return self._closed[0] if self._closed else self.filling

    def take(self) -> Batch:
        """Return the head; from here on another batch is filled."""
        if self._closed:
            self._closed_bytes -= self._closed[0].used
            return self._closed.popleft()
        batch = self.filling
        self._fill_another(self._empty_batch())
        return batch

    def put_back(self, batch: Batch) -> None:
        """Make the batch that was taken last the head again."""
        self._closed.appendleft(batch)
        self._closed_bytes += batch.used

    def take_all(self) -> list[Batch]:
        """Return all batches, for failures of all that is staged."""
        staged = [*self._closed, self.filling]
        self._closed.clear()
        self._closed_bytes = 0
        self._fill_another(Batch(_BATCH_ROOM))
        return staged

    def give_back(self, batch: Batch) -> None:
        """Take back a committed batch: it is emptied, and its memory is reused."""
        batch.clear()
        if batch.room <= BATCH_ROLL_BYTES and type(batch.memory) is bytearray:
            self._spare = batch

    def limit_memory(self) -> None:
        """Return the memory of the filling batch, which is empty, if a large write has grown it.

        Some of it stays, because for the next such write new memory would cost more than the write.
        """
        if self.filling.room > self._kept_bytes:
            self._fill_another(self._empty_batch())

    def close_large(self) -> None:
        """Close the filling batch if it has become large."""
        if self.filling.used > BATCH_ROLL_BYTES:
            self._close_filling()

    @property
    def size(self) -> int:
        """Bytes staged."""
        return self.filling.used - BATCH_HEADER_BYTES + self._closed_bytes

    @property
    def waiters(self) -> int:
        """Number of callbacks that wait for their batch."""
        filling = len(self.filling.waiters)
        return filling + sum([len(batch.waiters) for batch in self._closed]) if self._closed else filling

    def _close_filling(self) -> None:
        self._closed.append(self.filling)
        self._closed_bytes += self.filling.used
        self._fill_another(self._empty_batch())

    def _fill_another(self, batch: Batch) -> None:
        self.filling = batch
        self.batch_number += 1

    def _empty_batch(self) -> Batch:
        batch, self._spare = self._spare, None
        return batch or Batch(_BATCH_ROOM)


def _part(_commit: Commit) -> None:
    """A part of the callback before it."""
