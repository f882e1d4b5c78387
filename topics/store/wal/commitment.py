"""The commit that a shard is making: sealed, placed, judged and counted, however it is written.

Two drivers call the same two halves: `shard.py` through the ring, and `in_place_commits.py`.
`prepare` returns which bytes to write where, the driver has them written, and `finish` judges the
results. For a lone request `commit_rows` does both around one write in place; the end of the log
moves on after the answer (`move_on`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from typing_extensions import Buffer

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.errors import StorageError
from topics.store.commits.next_batch import NextPlace
from topics.store.commits.primitive import Primitive, Verdict, judge, rest_begins
from topics.store.commits.quick_writes import Unpublished
from topics.store.commits.synced_batches import SyncedBatches
from topics.store.commits.write_batch import Batch, Commit, Done, Prepared
from topics.store.format._codec import ffi, lib
from topics.store.format.codec import Pointer
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    FLAG_FSYNC,
    FRAME_HEADER_BYTES,
    FRAME_TRAILER_BYTES,
)
from topics.store.format.rows import ROW, Rows
from topics.store.in_memory.hot_tail import HotTail, TailBuffer
from topics.store.wal.counters import LogCounters
from topics.store.wal.log_bound import LogBound
from topics.store.wal.log_end import LogEnd
from topics.store.wal.wal_files import WalFile
from topics.store.wal.write_latch import WriteLatch

_REST_ATTEMPTS_MAX = 64
_DONE = Verdict.DONE
_checksum = ffi.new("uint64_t[1]")
"""Where a call in C puts a batch's checksum."""

AT_ONCE = Commit(None)
"""The result for callbacks that need no commit."""


def in_memory(file_id: int) -> Commit:
    """Return the result for rows in a file of memory, which need no commit."""
    return Commit(None, file_id)


Target = tuple[int, memoryview, int]
"""A descriptor, the blocks to write to it, and their offset in the file."""
Parts = tuple[int, list[Buffer], int]
"""A descriptor, buffers to write to it one after the other, and their offset in the file."""
Written = tuple[WalFile, int, int, int, int, int, int, bool]
"""A batch that is written: its file, bytes, frames, uncounted frames, checksum; when the write
began and ended (ns); whether it is synced.
"""
Sealed = tuple[TailBuffer, int, int, int, int]
"""A batch in the hot tail: the chunk, its place in it, its bytes, frames and checksum."""
WriteNow = Callable[[int, memoryview, int, bool], int]
"""Function that writes a target and returns the raw result. The bool: with RWF_DSYNC."""


def failed(error: StorageError) -> Commit:
    """Return the end of a batch of which nothing is published."""
    return Commit(error)


class Commitment:
    """The commit of one shard, which has at most one batch in flight.

    on_failed(why): the contents of the disk are unknown.
    """

    __slots__ = (
        "_attempts",
        "_batches",
        "_blocks",
        "_bound",
        "_checksum",
        "_clock",
        "_counters",
        "_end",
        "_expected",
        "_latch",
        "_offset",
        "_on_failed",
        "_passed_over",
        "_tail",
        "_written",
        "batch",
        "ended_ns",
        "owed",
        "primitive",
        "submitted_ns",
    )

    def __init__(
        self,
        clock: Clock,
        end: LogEnd,
        batches: SyncedBatches,
        *,
        tail: HotTail,
        latch: WriteLatch,
        counters: LogCounters,
        bound: LogBound,
        on_failed: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._end = end
        self._batches = batches
        self._tail = tail
        self._latch = latch
        self._counters = counters
        self._bound = bound
        self._on_failed = on_failed
        self.batch: Batch | None = None
        """The batch in flight, or None."""
        self.owed: deque[tuple[list[Done], Commit]] = deque()
        """Callbacks of batches that have ended, which this pass or later ones run."""
        self.primitive = Primitive.BARE
        """The primitive of this commit, or of the last one until the next is prepared."""
        self.submitted_ns = 0
        self.ended_ns = -(1 << 62)
        """When the last commit ended."""
        self._blocks = memoryview(b"")
        self._offset = 0
        self._checksum = 0
        self._attempts = 0
        self._expected = 0
        """Bytes that the write is to write."""
        self._written: Written | None = None
        """The batch that is written, until `move_on`."""
        self._passed_over: memoryview | None = None
        """The bytes before the batch's end that are in its block, if the batch is written from its
        own memory and the hot tail does without it.
        """

    @property
    def is_busy(self) -> bool:
        """Whether a batch is in flight, or was and is not answered."""
        return self.batch is not None or bool(self.owed)

    def prepare_piece(self, batch: Batch, mirror: TailBuffer) -> bool:
        """Do a piece of `prepare` for a large batch; False: call again in another pass."""
        end = self._end
        assert end.file is not None, "there is room in a file"
        at = BLOCK_BYTES if end.header else end.file.position % BLOCK_BYTES
        if batch.prepared is None or batch.prepared.at != at:
            batch.prepared = Prepared(at)
        return batch.prepared.go_on(batch, mirror)

    def prepare(self, batch: Batch, primitive: Primitive) -> Target:
        """Seal a batch and mirror it in the hot tail; return what the driver writes.

        The batch has room in the file.
        """
        end, used = self._end, batch.used
        file, header = end.file, end.header
        assert file is not None, "there is room in a file"
        batches, size, now_ms = self._batches, used - BATCH_HEADER_BYTES, self._clock.now_ms()
        sealed = batch.pointer, file.epoch, batches.written + 1, batches.synced, end.chain, size, batch.frames, now_ms
        if batch.prepared is None:
            self._checksum = lib.tp_seal_batch(*sealed)
            fresh = used
        else:
            self._checksum = lib.tp_seal_summed(*sealed, batch.prepared.body_sum)
            fresh = BATCH_HEADER_BYTES
        stored, position = file.stored, file.position
        data = memoryview(batch.memory)[:used]
        self._passed_over = None
        if used > self._tail.large_bytes and not (header or primitive.is_direct or batch.mirror):
            begin, blocks = position, data
            self._passed_over = data[used - (position + used) % BLOCK_BYTES :]
        elif header:  # the first batch of a file has the file's header written
            block, begin = header + bytes(BLOCK_BYTES - len(header)), 0
            blocks = self._tail.place(stored.file_id, 0, data, head=block, room=batch.mirror, fresh=fresh)
        else:
            begin = position & -BLOCK_BYTES
            blocks = self._tail.place(stored.file_id, position, data, room=batch.mirror, fresh=fresh)
        self.batch = batch
        self.primitive = primitive
        self._blocks, self._expected = blocks, len(blocks)
        self._offset = begin
        self._attempts = 0
        self.submitted_ns = self._clock.monotonic_ns()
        return stored.direct_fd if primitive.is_direct else stored.fd, blocks, begin

    def commit_rows(  # noqa: PLR0917 - one call a lone write
        self,
        write: WriteNow,
        batch: Batch,
        primitive: Primitive,
        size: int,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        node: bytes | None,
        fsync: bool,
        placed: Pointer,
    ) -> Commit | Verdict | None:
        """Commit one request's rows, framed in their place in the hot tail; return as `finish`.

        After a Commit the end of the log has not moved yet, so that the answer comes first:
        `move_on` is called before anything else.

        write: writes blocks in place. primitive: one write. batch: it holds the frames that follow
        the rows', or none, and stands for all of them if the write fails. size: the bytes for which
        there is room in the file.
        placed: room for a PLACED of each row; their starts count from the body.

        Return None, and nothing was done, if the rows take more, are better passed over, or come
        with the file's header.
        """
        end, tail = self._end, self._tail
        file = end.file
        assert file is not None, "there is room in a file"
        if end.header or size > tail.large_bytes:
            return None
        stored, position, batches = file.stored, file.position, self._batches
        written, synced, chain = batches.written + 1, batches.synced, end.chain
        chunk = tail.chunk_at(stored.file_id, position, size)
        at = position - chunk.start
        buffer, spans, count, _size = rows
        more_frames = batch.frames
        more = batch.pointer + BATCH_HEADER_BYTES if more_frames else b""
        used: int = lib.tp_frame_batch(
            chunk.pointer,
            at,
            chunk.capacity,
            buffer if type(buffer) is bytes else ffi.from_buffer(buffer),
            len(buffer),
            spans,
            count,
            topic_id,
            first_seq,
            ts_ms,
            FLAG_FSYNC if fsync else 0,
            node or b"",
            len(node) if node else 0,
            node is not None,
            more,
            batch.used - BATCH_HEADER_BYTES,
            more_frames,
            file.epoch,
            written,
            synced,
            chain,
            self._clock.now_ms(),
            placed,
            _checksum,
        )
        if not 0 < used <= size:
            return None
        return self.commit_sealed(write, batch, primitive, (chunk, at, used, count + more_frames, _checksum[0]))

    def commit_sealed(self, write: WriteNow, batch: Batch, primitive: Primitive, sealed: Sealed) -> Commit | Verdict:
        """Write a batch that is sealed in the hot tail at the end of the log. See `commit_rows`."""
        chunk, at, used, frames, checksum = sealed
        file, start, clock = self._end.file, chunk.start, self._clock
        assert file is not None, "there is room in a file"
        assert self._written is None, "the end of the log was not moved"
        stored = file.stored
        chunk.used = end_at = at + used
        begin = at & -BLOCK_BYTES
        blocks = chunk.view[begin : (end_at + BLOCK_BYTES - 1) & -BLOCK_BYTES]
        fd = stored.direct_fd if primitive.is_direct else stored.fd
        syncs = primitive.syncs
        began_ns = clock.monotonic_ns()
        res = write(fd, blocks, begin + start, primitive.is_dsync)
        if res == len(blocks) and not self._latch.read_only:  # as `judge` judges one write
            ended_ns = clock.monotonic_ns()
            self._written = file, used, frames, batch.uncounted, checksum, began_ns, ended_ns, syncs
            base, took_ns = file.position + BATCH_HEADER_BYTES, ended_ns - began_ns
            if syncs:
                return make_tuple(Commit, (None, stored.file_id, base, took_ns, took_ns, None))
            return make_tuple(Commit, (None, stored.file_id, base, took_ns, 0, self._batches.topics))
        self.submitted_ns = began_ns
        return self._finish_sealed(batch, primitive, blocks, begin + start, res)

    def _finish_sealed(
        self, batch: Batch, primitive: Primitive, blocks: memoryview, offset: int, res: int
    ) -> Commit | Verdict:
        """Judge a write of blocks of the hot tail that was not whole."""
        self.batch, self.primitive = batch, primitive
        self._blocks, self._expected, self._passed_over = blocks, len(blocks), None
        self._offset, self._attempts = offset, 0
        return self.finish(res)

    def take_back_quick(self, batch: Batch, expected: int, res: int) -> None:
        """Judge the write of a quick append that was not whole, at the end of the log.

        The append is repeated in the usual way, unless that write has failed: then the log is
        latched. expected: the bytes to write. res: the raw result.
        """
        file = self._end.file
        assert file is not None, "a file is left only when nothing is in flight"
        begin = file.position & -BLOCK_BYTES
        chunk = self._tail.chunk_at(file.stored.file_id, begin, 0)
        blocks = chunk.view[begin - chunk.start :][:expected]
        self._finish_sealed(batch, Primitive.BARE, blocks, begin, res)
        self.take_back()

    def next_place(self, most: int, room: int) -> tuple[TailBuffer, NextPlace] | None:
        """Return the place of the next batch; None if it begins a file or a chunk.

        most, room: bytes of a batch, and of all from there on.
        """
        end, batches = self._end, self._batches
        file = end.file
        if file is None or end.header or most <= 0:
            return None
        chunk = self._tail.chunk_at(file.stored.file_id, file.position, 0)
        at = file.position - chunk.start
        return chunk, make_tuple(
            NextPlace,
            (
                chunk.address,
                at,
                chunk.capacity,
                min(most, self._tail.large_bytes),
                room,
                file.epoch,
                batches.written + 1,
                batches.synced,
                end.chain,
            ),
        )

    def prepare_apart(  # noqa: PLR0917 - one call a lone write
        self,
        batch: Batch,
        primitive: Primitive,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        fsync: bool,
        placed: Pointer,
    ) -> Parts | None:
        """Make a batch of one large record without a node around the caller's bytes.

        Return what is written. No byte of the record is copied. A short write leaves nothing: the
        usual way writes it all.

        Return None, and nothing was done, for other rows, and for a batch that comes with the
        file's header or past the page cache.
        """
        end, tail, buffer = self._end, self._tail, rows.buffer
        file = end.file
        assert file is not None, "there is room in a file"
        if end.header or primitive.is_direct or rows.count != 1 or rows.size <= tail.large_bytes:
            return None
        if type(buffer) is not bytes:
            return None  # its owner may change it before it is written
        stored, position, batches, clock = file.stored, file.position, self._batches, self._clock
        head, trailer = bytearray(BATCH_HEADER_BYTES + FRAME_HEADER_BYTES), bytearray(FRAME_TRAILER_BYTES)
        used: int = lib.tp_frame_apart(
            ffi.from_buffer(head),
            ffi.from_buffer(trailer),
            buffer,
            len(buffer),
            rows.spans,
            topic_id,
            first_seq,
            ts_ms,
            FLAG_FSYNC if fsync else 0,
            file.epoch,
            batches.written + 1,
            batches.synced,
            end.chain,
            clock.now_ms(),
            placed,
            _checksum,
        )
        if not used:
            return None
        self._checksum = _checksum[0]
        batch.used, batch.frames = used, 1
        self.batch, self.primitive = batch, primitive
        begin, size = ROW.unpack(rows.spans)[:2]
        data = memoryview(buffer)[begin : begin + size]
        last = (position + used) % BLOCK_BYTES
        end_of_batch = bytes(data[-BLOCK_BYTES:]) + trailer
        self._passed_over = memoryview(end_of_batch)[len(end_of_batch) - last :]
        self._blocks, self._expected = memoryview(b""), used
        self._offset, self._attempts = position, 0
        self.submitted_ns = clock.monotonic_ns()
        return stored.fd, [head, data, trailer], position

    def finish(self, write_res: int, sync_res: int = 0) -> Commit | Verdict:
        """Judge the results: return the batch's Commit, or the reason why there is none.

        After REST the driver writes `rest` before anything else.
        """
        primitive, batch, file = self.primitive, self.batch, self._end.file
        assert batch is not None, "a completion came for a commit that was not submitted"
        assert file is not None, "a file is left only when nothing is in flight"
        verdict = judge(primitive, self._expected, write_res, sync_res)
        # a background sync may have failed meanwhile
        if verdict is not _DONE or self._latch.read_only:
            return self._on_unfinished(verdict, write_res, sync_res)
        self.batch = None
        end_of_batch, ended_ns = file.position + batch.used, self._clock.monotonic_ns()
        syncs, began_ns, base = primitive.syncs, self.submitted_ns, file.position + BATCH_HEADER_BYTES
        sync_ns, unsynced = (ended_ns - began_ns, None) if syncs else (0, self._batches.topics)
        commit = make_tuple(Commit, (None, file.stored.file_id, base, ended_ns - began_ns, sync_ns, unsynced))
        self._written = file, batch.used, batch.frames, batch.uncounted, self._checksum, began_ns, ended_ns, syncs
        self.move_on()
        if self._passed_over is not None:
            self._tail.pass_over(file.stored.file_id, end_of_batch, self._passed_over)
            self._passed_over = None
        return commit

    def move_on(self, quick: Unpublished | None = None) -> int | None:
        """Move the end of the log past the batch that is written, and count it.

        quick: these batches are written instead of one.
        Returns: how long the write took (ns); None, and nothing is done, if the end has moved.
        """
        written = self._written
        if written is None:
            return None
        self._written = None
        file, used, frames, uncounted, checksum, began_ns, ended_ns, synced = written
        took_ns = ended_ns - began_ns
        end, batches, counters = self._end, self._batches, self._counters
        self.ended_ns = ended_ns
        if quick is None:
            count, size = 1, used
            counters.commit.add(took_ns)
            if synced:
                end.waited_syncs += 1
                counters.count_sync(took_ns)
        else:
            count, size = quick.batches, quick.used
            counters.commit.add_all(quick.writes)
            if synced:
                end.waited_syncs += count
                for sync_ns in quick.sync_ns:
                    counters.count_sync(sync_ns)
        batches.on_written(synced=synced, size=size, batches=count)
        file.position = (file.position + used + BATCH_ALIGN - 1) & -BATCH_ALIGN
        end.chain = checksum
        end.header = b""
        counters.all_frames += frames
        if uncounted:
            counters.uncounted_frames += uncounted
        counters.bytes_written += size
        self._bound.on_written(size)
        return took_ns

    def follow(self, chunk: TailBuffer, quick: Unpublished, *, synced: bool) -> Commit:
        """Move the end of the log past batches that were written in their places in a chunk.

        Return their commit, whose base is that of the first one.
        """
        file = self._end.file
        assert file is not None, "a file is left only when nothing is in flight"
        assert file.position == chunk.start + quick.begin, "other batches came after these"
        base, chunk.used = file.position + BATCH_HEADER_BYTES, quick.end
        unsynced = None if synced else self._batches.topics
        span, ended_ns = quick.end - quick.begin, quick.ended_ns
        self._written = file, span, quick.rows, 0, quick.checksum, ended_ns, ended_ns, synced
        self.move_on(quick)
        return make_tuple(Commit, (None, file.stored.file_id, base, 0, 0, unsynced))

    def on_write_raised(self, error: Exception) -> None:
        """Note that a write in place raised: which of its bytes the disk has is unknown."""
        self._on_failed(f"a write in place ended by {error!r}")

    def rest(self) -> Target:
        """Return the rest of a short write, as a commit of its own."""
        assert self._end.file is not None, "a file is left only when nothing is in flight"
        return self._end.file.stored.fd, self._blocks, self._offset

    def take_back(self) -> None:
        """Forget a batch that was not written whole; the next one takes its place."""
        end = self._end
        assert end.file is not None, "a file is left only when nothing is in flight"
        self.batch = None
        if self._passed_over is None:
            self._tail.take_back(end.file.stored.file_id, 0 if end.header else end.file.position)

    def _on_unfinished(self, verdict: Verdict, write_res: int, sync_res: int) -> Verdict:
        file = self._end.file
        assert file is not None, "a file is left only when nothing is in flight"
        if verdict is Verdict.REST:
            self._attempts = 0 if write_res >= BLOCK_BYTES else self._attempts + 1
            if self._attempts < _REST_ATTEMPTS_MAX:
                begin = rest_begins(write_res)
                self._blocks = self._blocks[begin:]
                self._expected = len(self._blocks)
                self._offset += begin
                if not self.primitive.syncs:
                    self.primitive = Primitive.BARE
                else:
                    self.primitive = Primitive.LINK  # RWF_DSYNC would leave the first part unsynced
                return verdict
            verdict = Verdict.FAILED
        if verdict is Verdict.FAILED:
            self._on_failed(f"a commit to {file.stored.path} failed (write {write_res}, sync {sync_res})")
        self.batch = None
        return Verdict.FAILED if self._latch.read_only else verdict
