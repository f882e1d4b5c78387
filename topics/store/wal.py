"""One shard of the log: fills a batch, commits it while the next one fills, moves from file to file.

One commit is in flight at a time; what is staged meanwhile is the next batch. Acks need the full write count and, for a
synced batch, the sync's result; callbacks run in the order they were attached. A failed write or sync latches the whole
log; a full disk fails what is staged and goes on in another file. Decisions are commit.py's, files are walfile.py's.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial

from typing_extensions import Buffer

from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.loop.tasks import Event
from topics.loop.timers import Timer
from topics.store.admission import Admission
from topics.store.codec import Pointer, ffi, lib
from topics.store.commit import (
    Batch,
    Commit,
    Done,
    Durability,
    Primitive,
    Verdict,
    choose_primitive,
    judge,
    rest_begins,
)
from topics.store.counters import LogCounters
from topics.store.faster_way import FasterWay
from topics.store.files_ahead import FilesAhead
from topics.store.filetable import StoredFile
from topics.store.format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    FLAG_FSYNC,
    WAL_FIRST_BATCH_OFFSET,
    align_up,
)
from topics.store.hottail import HotTail
from topics.store.plain_rows import TopicRows
from topics.store.rows import PLACED, Framed, Rows
from topics.store.space import DiskSpace
from topics.store.walfile import WalDirectory, WalFile
from topics.tuples import make_tuple

_BATCH_ROOM = 64 * 1024
_BATCH_ROLL_BYTES = 4 << 20
"""A filling batch larger than this is closed at the end of the pass, even if it cannot be written yet."""
_WINDOW_BYTES_MAX = 256 * 1024
"""A batch of this size gains nothing by waiting for more."""
_PLACED_ROWS = 64
_REST_ATTEMPTS_MAX = 64
_SYNCED_COMMITS_FEW = 64
"""A file with fewer has mostly bare writes: zeroing the next one would write all there is twice."""
_IN_PLACE_PAUSE_NS = 1_000_000_000


class _Flight:
    """The commit in flight."""

    __slots__ = (
        "attempts",
        "base",
        "batch",
        "blocks",
        "checksum",
        "in_place",
        "is_group",
        "offset",
        "primitive",
        "submitted_ns",
    )

    def __init__(self, batch: Batch, primitive: Primitive, blocks: memoryview, offset: int, base: int) -> None:
        self.batch = batch
        self.primitive = primitive
        self.blocks = blocks
        self.offset = offset
        self.base = base
        self.attempts = 0
        self.in_place = False
        self.is_group = False
        """Its primitive was a choice of `FasterWay`."""
        self.checksum = 0
        self.submitted_ns = 0


class Wal:
    """One shard. `flush` is called at the end of every pass of the loop."""

    def __init__(
        self,
        loop: Loop,
        directory: WalDirectory,
        *,
        tail: HotTail,
        admission: Admission,
        space: DiskSpace,
        counters: LogCounters,
        last_batch_no: int,
        commit: str,
        sync_every_ns: int,
        window_ns: int,
        in_place_max_ns: int,
        file_bytes: int,
        prepared_files: int,
    ) -> None:
        self._loop = loop
        self._files = loop.files
        self._clock = loop.clock
        self._directory = directory
        self._tail = tail
        self._admission = admission
        self._space = space
        self._counters = counters
        self._setting = commit
        self._sync_every_ns = sync_every_ns
        self.window_ns = window_ns
        """How long after a commit's end the next one is held back to gather more; a lone write never waits."""
        self.in_place = False
        """Commits that need one write end before `flush` returns: for a thread that waits for nothing else."""
        self._in_place_max_ns = in_place_max_ns
        """So do small ones nobody waits to be synced, and lone ones of a connection that is alone, as long as none took
        longer; 0: never."""
        self._in_place_from_ns = 0
        """After one that took longer: when they may again."""
        self._groups = FasterWay(Primitive.LINK, Primitive.DSYNC)
        self._measures = commit == "auto" and directory.direct_works
        """Small synced groups go through the ring by whichever of the two is faster."""
        self._moved = Event()
        """Set whenever something ended that `drain` may wait for."""
        self.ahead = FilesAhead(
            loop,
            directory,
            space=space,
            admission=admission,
            file_bytes=file_bytes,
            count=prepared_files,
            on_failed=self._fail_staged,
            on_broken=self._latch,
            on_ended=self._moved.set,
        )

        self._filling = Batch(_BATCH_ROOM)
        self._closed_batches: deque[Batch] = deque()
        self._spare_batch: Batch | None = None
        self._flight: _Flight | None = None
        self._durable = Durability(last_batch_no)
        self._chain = 0
        self._header = b""
        """The file header, until the first batch takes it to the disk."""
        self._file: WalFile | None = None
        self._synced_commits = 0
        """In this file."""
        self._leave_file = False
        self._sync_timer: Timer | None = None
        self._sync_running = False
        self._owed: deque[tuple[int, Callable[[], None]]] = deque()
        """(batch number, whom to tell once that is on stable storage): see `when_durable`."""
        self._committed_ns = -(1 << 62)
        self._window_timer: Timer | None = None
        self._placed_rows = _PLACED_ROWS
        self._placed: Pointer = ffi.new("char[]", PLACED.size * _PLACED_ROWS)

    async def open(self) -> None:
        """Prepares the first file, if there is space for one. Raises OSError."""
        await self.ahead.open()

    # --- staging -----------------------------------------------------------------------------------------------------
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
    ) -> Framed:
        """Frames a request's rows into the filling batch. Raises LogReadOnlyError or DiskFullError."""
        if self._admission.closed:
            self._admission.check()
        batch = self._filling
        buffer, spans, count, _size = rows
        length = len(buffer)
        if type(buffer) is not bytes:
            buffer = ffi.from_buffer(buffer)
        if count > self._placed_rows:
            self._placed_rows = count
            self._placed = ffi.new("char[]", PLACED.size * count)
        at = batch.used
        start = at - BATCH_HEADER_BYTES
        placed = self._placed
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
                FLAG_FSYNC if fsync else 0,
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
            batch.grow(-written)
        assert written or not count, "a row points outside its buffer"
        batch.used = at + written
        batch.frames += count
        if not counted:
            batch.uncounted += count
        return make_tuple(Framed, (start, ffi.unpack(placed, PLACED.size * count)))

    def stage_topics(self, rows: TopicRows, *, fsync: bool) -> Framed:
        """Frames rows of several topics into the filling batch. Raises like `stage_records`."""
        if self._admission.closed:
            self._admission.check()
        batch = self._filling
        buffer, spans, topics, count = rows
        if count > self._placed_rows:
            self._placed_rows = count
            self._placed = ffi.new("char[]", PLACED.size * count)
        numbers = ffi.from_buffer("uint64_t[]", array("Q", topics))
        at = batch.used
        start = at - BATCH_HEADER_BYTES
        placed = self._placed
        while True:
            written = lib.tp_frame_topics(
                batch.pointer,
                at,
                batch.room,
                ffi.from_buffer(buffer),
                len(buffer),
                spans,
                numbers,
                len(topics) // 5,
                FLAG_FSYNC if fsync else 0,
                start,
                placed,
            )
            if written >= 0:
                break
            batch.grow(-written)
        assert written, "a row points outside its buffer"
        batch.used = at + written
        batch.frames += count
        return make_tuple(Framed, (start, ffi.unpack(placed, PLACED.size * count)))

    def stage_control(
        self, topic_id: int, kind: int, seq: int, ts_ms: int, payload: bytes, *, counted: bool = True
    ) -> None:
        """One control frame into the filling batch. Raises like `stage_records`."""
        if self._admission.closed:
            self._admission.check()
        batch = self._filling
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
        """Whole frames as they are (recovery writes its tail again); returns their start in the body."""
        self._admission.check()
        view = memoryview(frames).cast("B")
        batch = self._filling
        start = batch.used
        if start + len(view) > batch.room:
            batch.grow(start + len(view))
        memoryview(batch.memory)[start : start + len(view)] = view
        batch.used += len(view)
        batch.frames += count
        return start - BATCH_HEADER_BYTES

    def when_committed(self, synced: bool, done: Done) -> None:
        """Calls `done` when the filling batch has ended; `synced` asks for it to be on stable storage then."""
        batch = self._filling
        batch.waiters.append(done)
        if synced:
            batch.wants_sync = True

    def when_durable(self, done: Callable[[], None]) -> None:
        """Calls `done` once all that is committed by now is on stable storage; never if the log is latched before.

        No commit waits for that: a sync in the background is begun, or the one on its way is followed by another.
        """
        durable = self._durable
        if not durable.unsynced:
            done()
            return
        self._owed.append((durable.written, done))
        self._start_sync()

    @property
    def backlog_bytes(self) -> int:
        """Staged or in flight."""
        flight = self._flight
        return (
            (self._filling.used - BATCH_HEADER_BYTES)
            + sum(batch.used for batch in self._closed_batches)
            + (flight.batch.used if flight is not None else 0)
        )

    @property
    def queue_depth(self) -> int:
        """Callbacks that wait for their batch."""
        flight = self._flight
        return (
            len(self._filling.waiters)
            + sum(len(batch.waiters) for batch in self._closed_batches)
            + (len(flight.batch.waiters) if flight is not None else 0)
        )

    # --- committing --------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Sends the next batch off, if there is one and nothing holds it back; what holds it ends in a later pass."""
        filling = self._filling
        if not filling.frames and not filling.waiters and not self._closed_batches:
            return
        self._counters.queue_depth_peak = max(self._counters.queue_depth_peak, self.queue_depth)
        if self._flight is None:
            self._send_next()
        if self._filling.used > _BATCH_ROLL_BYTES:
            self._closed_batches.append(self._filling)
            self._filling = self._empty_batch()

    def _empty_batch(self) -> Batch:
        batch, self._spare_batch = self._spare_batch, None
        return batch or Batch(_BATCH_ROOM)

    def _send_next(self) -> None:
        if self._admission.read_only:
            self._fail_staged(self._admission.read_only_error())
            return
        batch = self._closed_batches[0] if self._closed_batches else self._filling
        if not batch.frames:
            self._settle_empty(batch)
            return
        if self.window_ns and batch.used < _WINDOW_BYTES_MAX and self._window_is_open():
            return
        if batch.wants_sync and not self._may_sync():
            return
        file = self._file
        if file is None or self._leave_file or file.position + batch.used > file.size:
            file = self._next_file(batch.used)
            if file is None or (batch.wants_sync and not self._may_sync()):
                return
        if self._closed_batches:
            self._closed_batches.popleft()
        else:
            self._filling = self._empty_batch()
        self._send(batch, file)

    def _window_is_open(self) -> bool:
        """A commit ended a moment ago: those it answered are likely to write again. The timer brings the next pass."""
        left_ns = self._committed_ns + self.window_ns - self._clock.monotonic_ns()
        if left_ns <= 0:
            return False
        if self._window_timer is None:
            self._window_timer = self._loop.call_later(left_ns, self._on_window)
        return True

    def _on_window(self) -> None:
        self._window_timer = None

    def _may_sync(self) -> bool:
        """No other sync runs on the file, and none is owed to an earlier one.

        Two syncs of one file at a time could share out one error between them: the wrong one would report success.
        """
        if self._sync_running:
            return False
        if self._durable.sealed:
            self._start_sync()
            return False
        return True

    def _settle_empty(self, batch: Batch) -> None:
        """Nothing was staged: the callbacks ask about what was committed before."""
        if batch.wants_sync and self._durable.unsynced:
            self._start_sync()
            return
        self._filling = self._empty_batch()
        self._moved.set()
        for done in batch.waiters:
            done(Commit(None))
        self._loop.again()

    def _send(self, batch: Batch, file: WalFile) -> None:
        durable = self._durable
        used = batch.used
        checksum = self._seal(batch, file)
        in_place = self.in_place or self._may_block(batch)
        primitive = choose_primitive(
            self._setting,
            wants_sync=batch.wants_sync,
            unsynced_precedes=durable.unsynced,
            direct_works=self._directory.direct_works,
            size=used,
            in_place=in_place,
        )
        # The chain although nothing calls for it: a small group.
        is_group = self._measures and primitive is Primitive.LINK and not durable.unsynced
        if is_group:
            primitive = self._groups.choose()
        if self.in_place and primitive is Primitive.BARE_DIRECT:
            primitive = Primitive.BARE  # the caller copies into the page cache faster than the device writes
        position = file.position
        data = memoryview(batch.memory)[:used]
        if self._header:
            block = self._header + bytes(BLOCK_BYTES - len(self._header))
            blocks = self._tail.place(file.stored.file_id, 0, memoryview(block + data))
            offset = 0
        else:
            blocks = self._tail.place(file.stored.file_id, position, data)
            offset = position & -BLOCK_BYTES
        flight = _Flight(batch, primitive, blocks, offset, position + BATCH_HEADER_BYTES)
        flight.in_place = in_place
        flight.is_group = is_group
        flight.checksum = checksum
        flight.submitted_ns = self._clock.monotonic_ns()
        self._flight = flight
        self._submit(flight, file)

    def _submit(self, flight: _Flight, file: WalFile) -> None:
        stored = file.stored
        primitive = flight.primitive
        if flight.in_place and primitive in (Primitive.BARE, Primitive.DSYNC):
            dsync = primitive is Primitive.DSYNC
            fd = stored.direct_fd if dsync else stored.fd
            write_res = self._files.write_now(fd, flight.blocks, flight.offset, dsync=dsync)
            if not self.in_place:
                self._counters.in_place += 1
                self._watch_the_time(flight)
            self._on_write(write_res)
            self._loop.again()
            return
        match primitive:
            case Primitive.BARE:
                self._files.write_nowait(stored.fd, flight.blocks, flight.offset, self._on_write)
            case Primitive.BARE_DIRECT:
                self._files.write_nowait(stored.direct_fd, flight.blocks, flight.offset, self._on_write)
            case Primitive.LINK:
                self._files.commit_nowait(stored.fd, flight.blocks, flight.offset, self._on_results)
            case Primitive.DIRECT:
                self._files.commit_nowait(stored.direct_fd, flight.blocks, flight.offset, self._on_results)
            case Primitive.DSYNC:
                self._files.write_nowait(stored.direct_fd, flight.blocks, flight.offset, self._on_write, dsync=True)

    def _seal(self, batch: Batch, file: WalFile) -> int:
        """Writes the header of the batch that follows all that is written to this file; returns its checksum."""
        durable = self._durable
        checksum: int = lib.tp_seal_batch(
            batch.pointer,
            file.epoch,
            durable.written + 1,
            durable.synced,
            self._chain,
            batch.used - BATCH_HEADER_BYTES,
            batch.frames,
            self._clock.now_ms(),
        )
        return checksum

    def _may_block(self, batch: Batch) -> bool:
        """A lone write of a connection that is alone: nobody gains by the loop going on meanwhile (perf/commits.py).

        And what nobody waits for to be synced, while no sync may hold it up: through the ring a buffered write always
        goes to a worker, which costs more than the copy into the page cache.
        """
        if self._in_place_max_ns <= 0 or self._clock.monotonic_ns() < self._in_place_from_ns:
            return False
        if not batch.wants_sync and not self._sync_running:
            return True
        return len(batch.waiters) == 1 and self._loop.is_alone()

    def _watch_the_time(self, flight: _Flight) -> None:
        """After a commit in place that took long, the next ones go through the ring for a while: the device is slow."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - flight.submitted_ns > self._in_place_max_ns:
            self._in_place_from_ns = now_ns + _IN_PLACE_PAUSE_NS

    def _on_write(self, write_res: int) -> None:
        self._on_results(write_res, 0)

    def _on_results(self, write_res: int, sync_res: int) -> None:
        flight, file = self._flight, self._file
        assert flight is not None, "a completion came for a commit nobody submitted"
        assert file is not None, "a file is left only when nothing is in flight"
        verdict = judge(flight.primitive, len(flight.blocks), write_res, sync_res)
        if verdict is Verdict.REST:
            flight.attempts = 0 if write_res >= BLOCK_BYTES else flight.attempts + 1
            if flight.attempts < _REST_ATTEMPTS_MAX:
                self._send_rest(flight, file, rest_begins(write_res))
                return
            verdict = Verdict.FAILED
        if verdict is Verdict.FAILED:
            self._latch(f"a commit to {file.stored.path} failed (write {write_res}, sync {sync_res})")
        self._flight = None
        self._moved.set()
        if self._admission.read_only:  # also when a background sync failed while this was in flight
            self._fail(flight.batch, self._admission.read_only_error())
            self._fail_staged(self._admission.read_only_error())
        elif verdict is Verdict.FULL:
            self._on_write_full(flight, file)
        else:
            self._on_committed(flight, file)

    def _send_rest(self, flight: _Flight, file: WalFile, begin: int) -> None:
        """The rest of a short write, as a commit of its own, before anything else goes to this file."""
        flight.is_group = False
        flight.blocks = flight.blocks[begin:]
        flight.offset += begin
        if not flight.primitive.syncs:
            flight.primitive = Primitive.BARE
        else:
            flight.primitive = Primitive.LINK  # RWF_DSYNC would leave the part written before unsynced
        self._submit(flight, file)

    def _on_committed(self, flight: _Flight, file: WalFile) -> None:
        batch = flight.batch
        synced = flight.primitive.syncs
        elapsed_ns = self._note_written(batch, file, flight.checksum, flight.submitted_ns, synced=synced)
        self._header = b""
        counters = self._counters
        if synced:
            self._synced_commits += 1
            counters.count_sync(elapsed_ns)
            if flight.is_group:
                self._groups.note(flight.primitive, elapsed_ns)
            if self._owed:
                self._tell_durable()
        elif self._sync_timer is None:
            self._sync_timer = self._loop.call_later(self._sync_every_ns, self._on_sync_timer)
        commit = Commit(None, file.stored.file_id, flight.base, elapsed_ns, elapsed_ns if synced else 0)
        waiters = batch.waiters
        batch.clear()
        if batch.room <= _BATCH_ROLL_BYTES:
            self._spare_batch = batch
        answering_ns = self._clock.monotonic_ns()
        for done in waiters:
            done(commit)
        counters.answer.add(self._clock.monotonic_ns() - answering_ns)

    def _note_written(self, batch: Batch, file: WalFile, checksum: int, submitted_ns: int, *, synced: bool) -> int:
        """The batch is in the file; returns how long that took, ns."""
        self._committed_ns = self._clock.monotonic_ns()
        elapsed_ns = self._committed_ns - submitted_ns
        self._durable.on_written(self._durable.written + 1, synced=synced)
        file.position = align_up(file.position + batch.used, BATCH_ALIGN)
        self._chain = checksum
        counters = self._counters
        counters.frames += batch.frames - batch.uncounted
        counters.uncounted_frames += batch.uncounted
        counters.batches += 1
        counters.bytes_written += batch.used
        counters.commit.add(elapsed_ns)
        return elapsed_ns

    # --- alone -------------------------------------------------------------------------------------------------------
    def write_alone(
        self, topic_id: int, first_seq: int, ts_ms: int, rows: Rows, node: bytes | None
    ) -> tuple[Framed, Commit] | None:
        """Stages and commits a request that nobody asks to be synced, in this call: for who has the loop to itself.

        None, and nothing was done, unless one write in place is all it takes; one that goes wrong was not done either:
        who then takes the usual way meets the same again, or finds the log latched.
        """
        file, batch = self._file, self._filling
        if (
            not self.in_place
            or file is None
            or self._flight is not None
            or self._leave_file
            or self._header
            or self._sync_timer is None
            or batch.frames
            or batch.waiters
            or self._closed_batches
            or self._admission.closed
            or self.window_ns
        ):
            return None
        framed = self.stage_records(topic_id, first_seq, ts_ms, rows, fsync=False, node=node)
        position, used = file.position, batch.used
        if position + used > file.size:
            batch.clear()
            return None
        checksum = self._seal(batch, file)
        stored = file.stored
        blocks = self._tail.place(stored.file_id, position, memoryview(batch.memory)[:used])
        submitted_ns = self._clock.monotonic_ns()
        res = self._files.write_now(stored.fd, blocks, position & -BLOCK_BYTES)
        if res != len(blocks):
            batch.clear()
            self._tail.take_back(stored.file_id, position)
            if judge(Primitive.BARE, len(blocks), res, 0) is Verdict.FAILED:
                self._latch(f"a commit to {stored.path} failed (write {res})")
            return None
        elapsed_ns = self._note_written(batch, file, checksum, submitted_ns, synced=False)
        batch.clear()
        return framed, make_tuple(Commit, (None, stored.file_id, position + BATCH_HEADER_BYTES, elapsed_ns, 0))

    # --- background sync ---------------------------------------------------------------------------------------------
    def _on_sync_timer(self) -> None:
        self._sync_timer = None
        self._start_sync()

    def _start_sync(self) -> None:
        """Syncs the oldest bytes that are not; beside bare writes only, never beside a commit's own sync."""
        durable = self._durable
        if self._sync_running or not durable.unsynced or self._admission.read_only:
            return
        if durable.sealed:
            sealed = durable.sealed[0]
            fd, upto = sealed.fd, sealed.last_batch_no
        elif self._flight is not None and self._flight.primitive.syncs:
            return  # that commit syncs all there is
        else:
            assert self._file is not None, "unsynced bytes lie in a file"
            fd, upto = self._file.stored.fd, durable.written
        self._sync_running = True
        self._files.fdatasync_nowait(fd, partial(self._on_sync, upto, self._clock.monotonic_ns()))

    def _on_sync(self, upto: int, submitted_ns: int, res: int) -> None:
        self._sync_running = False
        self._moved.set()
        if res < 0:
            self._latch(f"a sync of the log failed (errno {-res})")
            return
        self._durable.on_synced(upto)
        self._counters.count_sync(self._clock.monotonic_ns() - submitted_ns)
        if self._owed:
            self._tell_durable()
        if self._durable.sealed or self._owed:
            self._start_sync()
        elif self._durable.unsynced and self._sync_timer is None:
            self._sync_timer = self._loop.call_later(self._sync_every_ns, self._on_sync_timer)

    def _tell_durable(self) -> None:
        """What they were told of may stage more; the pass' end hooks take it along, or the next pass."""
        owed, synced = self._owed, self._durable.synced
        while owed and owed[0][0] <= synced:
            owed.popleft()[1]()

    # --- failing -----------------------------------------------------------------------------------------------------
    def _latch(self, reason: str) -> None:
        """Read-only from here on, all shards; what is in flight fails when its completion comes."""
        self._admission.latch(reason)
        self._moved.set()

    def on_latch(self) -> None:
        """Some shard failed: nothing staged here will be written. What is in flight is told first."""
        self._moved.set()
        if self._flight is None:
            self._fail_staged(self._admission.read_only_error())

    def _fail(self, batch: Batch, error: StorageError) -> None:
        commit = Commit(error)
        for done in batch.waiters:
            done(commit)

    def _fail_staged(self, error: StorageError) -> None:
        staged = [*self._closed_batches, self._filling]
        self._closed_batches.clear()
        self._filling = Batch(_BATCH_ROOM)
        for batch in staged:
            self._fail(batch, error)

    def _on_write_full(self, flight: _Flight, file: WalFile) -> None:
        """The file system had no block left for a commit: the file ends at its last good batch."""
        self._space.note_full()
        self._leave(file)
        self._fail(flight.batch, self._admission.disk_full_error())
        self._fail_staged(self._admission.disk_full_error())

    # --- from file to file -------------------------------------------------------------------------------------------
    def request_rotation(self) -> None:
        """The next batch opens another file, so that all there is now lies in files the log has left."""
        file = self._file
        self._leave_file = file is not None and file.position > WAL_FIRST_BATCH_OFFSET
        if file is not None and self._leave_file:
            file.stored.leaving = True

    def _next_file(self, batch_bytes: int) -> WalFile | None:
        """Moves to the file prepared; None when it is not ready, and then it is being made."""
        if not self.ahead.takes(batch_bytes):
            return None
        if self._file is not None:
            self._counters.rotations += 1
            self.ahead.zeroes = not self.in_place or self._synced_commits >= _SYNCED_COMMITS_FEW
            self._leave(self._file)
        self._synced_commits = 0
        file = self._file = self.ahead.take()
        header = self._directory.begin(file, self._durable.written + 1, self._clock.now_ms())
        self._header = header.pack()
        self._chain = header.checksum
        return file

    def _leave(self, file: WalFile) -> None:
        """The log goes on elsewhere; what is not synced here is synced before anything later counts as synced."""
        stored = file.stored
        stored.active = False
        stored.size = file.position
        self._durable.on_file_left(stored.file_id, stored.fd)
        self._file = None
        self._leave_file = False
        self._start_sync()

    def on_space(self) -> None:
        """The disk is no longer full."""
        self.ahead.prepare()

    async def when_synced(self, stored: StoredFile) -> None:
        """Returns when no sync is owed to a file the log has left, or the log is read-only."""
        while not self._admission.read_only and any(file.fd == stored.fd for file in self._durable.sealed):
            self._start_sync()
            self._moved.clear()
            await self._moved.wait()

    # --- ending ------------------------------------------------------------------------------------------------------
    async def drain(self) -> None:
        """Returns when all that was staged is on stable storage, or the log is read-only."""
        while not self._admission.read_only:
            staged = self._filling.frames or self._filling.waiters or self._closed_batches or self._flight is not None
            if not staged and not self._durable.unsynced:
                return
            if not staged:
                self._start_sync()
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Drains and closes the files that are written to. Those the log has left are the file table's.

        A file prepared without zeros goes: the next start takes what it finds for zeroed.
        """
        await self.drain()
        self.ahead.stop()
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        while self._flight is not None or self._sync_running or self.ahead.preparing:
            self._moved.clear()
            await self._moved.wait()
        for file in [*self.ahead.ready, *([self._file] if self._file is not None else [])]:
            file.stored.active = False
            for fd in (file.stored.fd, file.stored.direct_fd):
                if fd >= 0:
                    await self._files.close(fd)
            file.stored.fd = file.stored.direct_fd = -1
        for file in self.ahead.ready:
            if not file.stored.zeroed:
                with contextlib.suppress(OSError):
                    await self._files.unlink(file.stored.path)
