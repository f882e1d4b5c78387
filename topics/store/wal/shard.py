"""One shard of the log: it commits what is staged, batch after batch, and moves from file to file.

One commit is in flight at a time; what is staged meanwhile is the next batch. Acks need the full
write count and, for a synced batch, the sync's result; callbacks run in the order in which they
were attached, some of them in a pass, and the next commit begins after the last. A failed write or
sync latches the whole log; a full disk fails what is staged, and the log continues in another file.

Decisions are made in write_batch.py, commit_choice.py and measured_places.py, batches fill in
staging.py, log_end.py gives them their place, background_sync.py syncs beside commits, and
wal_files.py has the files.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from topics.common.tuples import make_tuple
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.loop.tasks import Event
from topics.loop.timers import Timer
from topics.store.disk.disk_space import DiskSpace
from topics.store.disk.log_sizes import LogSizes
from topics.store.format._codec import ffi
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET
from topics.store.format.rows import PLACED, Framed, Rows
from topics.store.in_memory.hot_tail import HotTail, TailBuffer
from topics.store.wal.background_sync import COMMIT_SYNCS, BackgroundSync, Durable
from topics.store.wal.commit_choice import DSYNC_BYTES_MAX, WINDOW_BYTES_MAX, Choice, Held, Until, choose
from topics.store.wal.commit_delay_tuner import CommitDelayTuner
from topics.store.wal.commitment import AT_ONCE, Commitment, Parts, Target, failed
from topics.store.wal.counters import LogCounters
from topics.store.wal.in_place_limit import InPlaceLimit
from topics.store.wal.log_bound import LogBound
from topics.store.wal.log_end import LogEnd
from topics.store.wal.measured_places import MeasuredPlaces
from topics.store.wal.next_batch import NextPlace
from topics.store.wal.preallocation import Preallocation
from topics.store.wal.staging import BATCH_ROLL_BYTES, Staging
from topics.store.wal.wal_files import WalDirectory, WalFile
from topics.store.wal.write_batch import (
    Batch,
    CarriedFrames,
    Commit,
    Done,
    Durability,
    LoneWritten,
    Primitive,
    Verdict,
)
from topics.store.wal.write_latch import WriteLatch

_log = logging.getLogger(__name__)

_FRAME_ROOM = 128
"""Bytes of a frame beside its record's JSON, unless tag or node are unusually long."""
_PLACED_BYTES = PLACED.size
_WAITED_SYNCS_FEW = 64
"""Number of syncs that callers waited for, below which a file has mostly unsynced writes.

Zeroing the next one would then write every byte twice.
"""
_NEXT_BYTES_MAX = WINDOW_BYTES_MAX - 1
"""The most bytes of a batch that is committed as the one before it: `choose` differs for more."""
_FILLED_BUT = 4
"""The part of a file that may be left over if a batch or a checkpoint moved the log to the next."""
ANSWERS_A_PASS = 256
"""Callbacks of a commit that a pass runs: of topics that are created they take some 35 us each."""


class Shard:
    """One shard. `flush` is called at the end of every pass of the loop."""

    def __init__(
        self,
        loop: Loop,
        directory: WalDirectory,
        *,
        tail: HotTail,
        admission: WriteLatch,
        space: DiskSpace,
        counters: LogCounters,
        bound: LogBound,
        last_batch_no: int,
        commit: str,
        sync_every_ns: int | None,
        max_unsynced: int,
        window_ns: int,
        gather_ns: int,
        in_place_max_ns: int,
        sizes: LogSizes,
        prepared_files: int,
        is_one_shard: bool,
    ) -> None:
        self._loop = loop
        self._files = loop.files
        self._clock = loop.clock
        self._directory = directory
        self._admission = admission
        self._space = space
        self._counters = counters
        self._bound = bound
        self._sizes = sizes
        self.setting = commit if directory.direct_works else Primitive.LINK.value
        self.exclusive = False
        self._has_callers = False
        """Whether callers drive the loop, see `commit_in_place`."""
        self._unanswered = 0
        """Number of callbacks of the last commit that later passes run."""
        self._is_one_shard = is_one_shard
        self.waits_alone: Callable[[], bool] = _never
        """Whether no other call waits for the thread, which may then wait for a sync."""
        self.max_unsynced = max_unsynced
        self.window_ns = window_ns
        """Delay of a commit after the end of the previous one, to gather more."""
        self._delay = CommitDelayTuner(gather_ns)
        self._window_timer: Timer | None = None
        self._window_ends_ns = 0
        """Time at which the timer starts the next pass."""
        self._places = MeasuredPlaces(loop)
        self._next: tuple[TailBuffer, Primitive] | None = None
        """The chunk of the next lone write and how it is committed, as `next_place` has said."""
        self._moved = Event()
        """Set whenever an operation ended that `drain` may wait for."""
        self.preallocation = Preallocation(
            loop,
            directory,
            space=space,
            admission=admission,
            sizes=sizes,
            bound=bound,
            count=prepared_files,
            on_failed=self._on_no_file,
            on_broken=self._latch,
            on_ended=self._moved.set,
        )
        self.staging = Staging(admission, tail.kept_bytes)
        self._in_place_limit = InPlaceLimit(loop.clock, in_place_max_ns)
        self._durable = Durability(last_batch_no)
        self._end = LogEnd(loop.clock, directory, self._durable)
        self._sync = BackgroundSync(
            loop,
            self._durable,
            admission,
            counters,
            every_ns=sync_every_ns,
            current_fd=self._fd_to_sync,
            on_failed=self._latch,
            on_ended=self._moved.set,
        )
        self._commitment = Commitment(
            loop.clock,
            self._end,
            self._durable,
            tail=tail,
            latch=admission,
            counters=counters,
            bound=bound,
            on_failed=self._latch,
        )

    async def open(self) -> None:
        """Prepare the first file, if there is space for one. Raises OSError."""
        await self.preallocation.open()

    def when_durable(self, done: Durable, *, waited: bool = False) -> None:
        """Call `done` once all that is committed so far is on stable storage, or cannot be.

        waited: a caller waits for it, within a pass.
        """
        self._sync.when_durable(done, waited=waited)

    def when_flushed(self, done: Durable) -> None:
        """Call `done` once all that is staged so far is on stable storage, or cannot be.

        A batch that failed was reported to its writers. What is before it is waited for.
        """
        self.when_settled(lambda: self._sync.when_durable(done, waited=True))

    def when_settled(self, done: Callable[[], None]) -> None:
        """Call `done` once all that is staged so far was committed, or has failed."""
        if self.staging.is_empty and not self._is_busy:
            done()
        else:
            self.staging.when_committed(False, lambda _commit: done())

    def note_shared(self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64]) -> None:
        """See `Durability`."""
        self._durable.note_shared(topic_id, first_seq, source_id, seqs)

    def unsynced_from(self, topic_id: int) -> int | None:
        """Return the first committed seq of a topic that no sync has covered; None: all are."""
        return self._durable.unsynced_from(topic_id)

    @property
    def backlog_bytes(self) -> int:
        """Bytes staged or in flight."""
        in_flight = self._in_flight  # once: another thread may end it
        return self.staging.size + (in_flight.used if in_flight is not None else 0)

    def blocks(self, size: int, promised: int) -> str:
        """Return why an append of `size` bytes would wait here; "" if it would not.

        promised: bytes of appends that come before it. Any thread may ask; the answer is of the
        past for all but the one that drives.
        """
        before = self.backlog_bytes + promised
        unsynced = self._durable.unsynced_bytes + before
        if self.max_unsynced and unsynced and unsynced + size > self.max_unsynced:
            return "unsynced"
        preparing = self.preallocation.preparing and not self.preallocation.ready
        return "file" if preparing and before + size > self.room else ""

    @property
    def end_bytes(self) -> int:
        """Bytes of the current file after its header."""
        return max(0, self._end.file.position - WAL_FIRST_BATCH_OFFSET) if self._end.file is not None else 0

    @property
    def current(self) -> tuple[StoredFile, int] | None:
        """The current file and the end of what was committed there; None while there is nothing."""
        return (self._end.file.stored, self._end.file.position) if self._end.file and self.end_bytes else None

    @property
    def last_batch_no(self) -> int:
        """Number of the last batch that was written."""
        return self._durable.written

    @property
    def file_no(self) -> int:
        """Number of the current file; 0 while none holds anything."""
        return self._end.file.number if self._end.file is not None and self.end_bytes else 0

    @property
    def queue_depth(self) -> int:
        """Number of callbacks that wait for their batch."""
        in_flight = self._in_flight
        return self.staging.waiters + self._unanswered + (len(in_flight.waiters) if in_flight is not None else 0)

    @property
    def _in_flight(self) -> Batch | None:
        return self._commitment.batch

    @property
    def _is_busy(self) -> bool:
        """Whether a commit is in flight, or was and is not answered."""
        return self._commitment.batch is not None or self._unanswered > 0

    # --- committing --------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Commit the next batch, if there is one and nothing delays it.

        The delay ends in a later pass. A sync that callers wait for begins after the commit.
        """
        staging = self.staging
        if not staging.is_empty:
            self._counters.on_queue_depth(self.queue_depth)
            if not self._is_busy:
                self._send_next()
            staging.close_large()
        if self._sync.due:
            self._start_due_sync()

    def _start_due_sync(self) -> None:
        """Begin a sync that callers wait for.

        It is made in place if it is small and the thread waits for nothing else: through the ring
        it needs a worker of the kernel, and two more turns of threads.
        """
        self._sync.due = False
        self._start_waited_sync(in_place=self._may_sync_in_place())

    def _may_sync_in_place(self) -> bool:
        durable = self._durable
        return (
            self.waits_alone()
            and not self._is_busy
            and not durable.sealed
            and durable.unsynced_bytes <= DSYNC_BYTES_MAX
            and self._in_place_limit.allows()
        )

    def _start_waited_sync(self, *, in_place: bool) -> None:
        clock = self._clock
        self._end.waited_syncs += 1
        began_ns = clock.monotonic_ns()
        self._sync.start(in_place=in_place)
        if in_place and clock.monotonic_ns() - began_ns > self._in_place_limit.max_ns:
            self._in_place_limit.on_slow(sync_running=False)

    def commit_in_place(self) -> None:
        """Let commits block the thread from here on, which waits for nothing else."""
        self.exclusive = self._has_callers = True

    def set_exclusive(self, waits_alone: Callable[[], bool] | None) -> None:
        """Let commits and syncs block the thread from here on, or not (None)."""
        self.exclusive = waits_alone is not None
        self.waits_alone = waits_alone or _never

    def write_lone(
        self,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        node: bytes | None,
        *,
        fsync: bool,
        carried: CarriedFrames | None = None,
    ) -> LoneWritten | None:
        """Stage and commit a request in this call, if one in-place write is all it takes.

        fsync: it is synced by then. carried: frames of the same shard for the same batch.

        Return None if nothing was done. A failed write counts as not done, too: the usual way then
        meets the same error, or finds the log latched.
        """
        staging = self.staging
        if self._is_busy or not staging.is_empty or self._admission.closed or self._bound.pressed:
            return None  # other batches come first, or the usual way reports why it is refused
        if carried is None:
            return self._write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)
        filling, copies = staging.filling, None
        try:
            to, kind, seq, to_ts_ms, payload, is_copied = carried
            staging.stage_control(to, kind, seq, to_ts_ms, payload, counted=False)
            if is_copied:
                copies = staging.stage_records(to, seq, to_ts_ms, rows, fsync=False, node=node, counted=False)
            written = self._write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)
        finally:
            filling.clear()
        if written is None or copies is None:
            return written
        start, length, *_ = PLACED.unpack_from(written[0], _PLACED_BYTES * (rows.count - 1))
        return *written[:3], make_tuple(Framed, (start + length, copies.placed))

    def _write_lone(
        self, topic_id: int, first_seq: int, ts_ms: int, rows: Rows, node: bytes | None, *, fsync: bool
    ) -> LoneWritten | None:
        """Commit a request, and what is staged for its batch. Return as `write_lone`."""
        staging = self.staging
        filling = staging.filling
        size = filling.used + rows.size + rows.count * _FRAME_ROOM
        choice = choose(self, size, fsync=fsync, lone=True)
        if type(choice) is Held and choice.until is Until.TIMER and not self._has_callers:
            self._sync.plan()  # callers' threads learn of a timer from a pass
            choice = choose(self, size, fsync=fsync, lone=True)
        if not isinstance(choice, Choice) or not choice.in_place:
            return None
        commitment, primitive, placed = self._commitment, choice.primitive, staging.placed_for(rows.count)
        outcome = commitment.commit_rows(
            self._write_now, filling, primitive, size, topic_id, first_seq, ts_ms, rows, node, fsync, placed
        )
        if outcome is None and filling.frames:
            return None  # the rows are to be written without what they carry
        if outcome is None:
            staged = self._write_staged(primitive, size, topic_id, first_seq, ts_ms, rows, node, fsync)
            if staged is None:
                return None
            packed, outcome = staged
        else:
            packed = ffi.unpack(placed, _PLACED_BYTES * rows.count)
            if type(outcome) is not Commit and not self.exclusive:
                self._watch(self._unfinished_ns)
        if type(outcome) is not Commit:
            commitment.take_back()
            return None
        return packed, outcome, self._move_on, None

    def next_place(self, *, fsync: bool) -> tuple[NextPlace, bool] | None:
        """Return the place of the next lone write, and whether it is synced then (`write_next`).

        This holds until anything but such writes happens to the log, within bounds that the place
        has: each would be committed by the same choice. Return None if it may not be made in place.
        """
        self._next = None
        if self._is_busy or not self.staging.is_empty or self._admission.closed or self._bound.pressed:
            return None
        if self.window_ns:
            return None  # each waits for it
        room = min(self.room, self._bound.room)
        if self.max_unsynced:
            room = min(room, self.max_unsynced - self._durable.unsynced_bytes)
        most = min(room, _NEXT_BYTES_MAX)
        choice = choose(self, most, fsync=fsync, lone=True)
        found = self._commitment.next_place(most, room)
        if found is None or type(choice) is not Choice or not choice.in_place:
            return None
        chunk, place = found
        self._next = chunk, choice.primitive
        return place, choice.primitive.syncs

    def write_next(self, at: int, used: int, count: int, checksum: int) -> tuple[Commit, Callable[[], None]] | None:
        """Commit a batch that was framed at the next place; return as `write_lone`.

        Return None also if the place is not the next one any more.
        """
        staging, commitment, following = self.staging, self._commitment, self._next
        if following is None or self._admission.closed or self._is_busy or not staging.is_empty:
            return None
        (chunk, primitive), file = following, self._end.file
        if file is None or file.position != chunk.start + at:
            return None
        filling, write = staging.filling, self._write_now
        outcome = commitment.commit_sealed(write, filling, primitive, (chunk, at, used, count, checksum))
        if type(outcome) is Commit:
            return outcome, self._move_on
        self._next = None
        if not self.exclusive:
            self._watch(self._unfinished_ns)
        commitment.take_back()
        return None

    def _move_on(self) -> None:
        """Do what a lone write leaves for after its answer."""
        took_ns = self._commitment.move_on()
        if took_ns is not None and not self.exclusive:
            self._watch(took_ns)
        if self.max_unsynced:
            self._sync_in_time()

    def _write_staged(  # noqa: PLR0917 - as `write_lone`
        self,
        primitive: Primitive,
        size: int,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        node: bytes | None,
        fsync: bool,
    ) -> tuple[bytes, Commit | Verdict] | None:
        """Commit a request as a batch: around its bytes, or staged in memory that is emptied.

        Return as `write_lone`, and how the commit ended; None if the request takes more than `size`
        bytes, and nothing was done.
        """
        staging, commitment = self.staging, self._commitment
        batch = staging.filling
        try:
            placed = staging.placed_for(rows.count)
            target: Target | Parts | None = None
            if node is None:
                target = commitment.prepare_apart(batch, primitive, topic_id, first_seq, ts_ms, rows, fsync, placed)
            if target is not None:
                packed = ffi.unpack(placed, _PLACED_BYTES * rows.count)
            else:
                packed = staging.stage_records(topic_id, first_seq, ts_ms, rows, fsync=fsync, node=node).placed
                if batch.used > size:
                    return None
                target = commitment.prepare(batch, primitive)
            return packed, self._write_in_place(target, primitive)
        finally:  # also after an exception: the next request gets the same seqs
            batch.clear()
            if size > BATCH_ROLL_BYTES:
                staging.limit_memory()

    def sync_lone(self) -> bool:
        """Bring all there is to stable storage in this call, if one sync in place is all it takes.

        Return False if it takes more, or if the sync failed, which the usual way then reports.
        """
        durable = self._durable
        if self._is_busy or not self.staging.is_empty:
            return False
        if durable.unsynced and not self._sync.running and self._may_sync_in_place():
            self._start_waited_sync(in_place=True)
        return not durable.unsynced

    # --- what `choose` asks ------------------------------------------------------------------------------------------
    @property
    def unsynced(self) -> bool:
        """See `ShardView`."""
        return self._durable.written > self._durable.synced

    @property
    def unsynced_bytes(self) -> int:
        """See `ShardView`."""
        return self._durable.unsynced_bytes

    @property
    def syncing(self) -> bool:
        """See `ShardView`."""
        return self._sync.running or bool(self._durable.sealed)

    @property
    def sync_planned(self) -> bool:
        """See `ShardView`."""
        return self._sync.planned

    @property
    def room(self) -> int:
        """See `ShardView`."""
        file = self._end.file
        return 0 if file is None or self._end.leaves_file else file.size - file.position

    @property
    def held_ns(self) -> int:
        """See `ShardView`."""
        return self._bound.held_ns() if self._bound.pressed else 0

    @property
    def delay_ns(self) -> int:
        """See `ShardView`."""
        return self._delay.delay_ns

    @property
    def idle_ns(self) -> int:
        """See `ShardView`."""
        return self._clock.monotonic_ns() - self._commitment.ended_ns

    @property
    def quick(self) -> bool:
        """See `ShardView`."""
        return self._in_place_limit.allows()

    @property
    def quick_beside_sync(self) -> bool:
        """See `ShardView`."""
        return not self._sync.running or self._in_place_limit.allows_beside_sync()

    @property
    def is_only(self) -> bool:
        """See `ShardView`."""
        return self._is_one_shard and not self._has_callers

    def _send_next(self) -> None:
        if self._admission.read_only:
            self._fail_staged(self._admission.read_only_error())
            return
        batch = self.staging.head
        if not batch.frames:
            self._settle_empty(batch)
            return
        while True:
            lone = self.exclusive or (len(batch.waiters) == 1 and self._loop.has_one_sender())
            choice = choose(self, batch.used, fsync=batch.wants_sync, lone=lone)
            if isinstance(choice, Choice):
                break
            if not self._on_held(choice, batch):
                return
        # In exclusive use it is prepared at once, or the rest of it.
        mirror = None if self.exclusive and batch.prepared is None else batch.mirror
        while mirror is not None and not self._commitment.prepare_piece(batch, mirror):
            if not self.exclusive:
                self._loop.call_later(0, _nothing)  # for the next piece
                return
        choice = self._places.choose(choice)
        batch, primitive = self.staging.take(), choice.primitive
        try:
            target = self._commitment.prepare(batch, primitive)
        except Exception:  # no memory: nothing was written, and the next pass tries again
            self.staging.put_back(batch)
            raise
        if choice.in_place:
            self._conclude(batch, self._write_in_place(target, primitive))
            self._loop.again()
        else:
            self._write_through_ring(*target)

    def _on_held(self, held: Held, batch: Batch) -> bool:
        """Start the file, sync or timer that the batch waits for. Return True if it is there."""
        if held.until is Until.FILE:
            return self._to_next_file(batch.used)
        if held.until is Until.TIMER:
            self._sync.plan()
            return True
        if held.until is Until.TIME:
            self._come_again(held.ns)
        else:
            self._sync.start()  # if a file that the log has left owes one
        return False

    def _come_again(self, held_ns: int) -> None:
        """Have a timer end the delay of the next commit.

        By then the writers that the last commit answered are likely to have written again, or the
        log has been too long (`LogBound`).
        """
        ends_ns = self._clock.monotonic_ns() + held_ns
        if self._window_timer is not None:
            if self._window_ends_ns <= ends_ns:
                return
            self._window_timer.cancel()
        self._window_ends_ns = ends_ns
        self._window_timer = self._loop.call_later(held_ns, self._on_window)

    def _on_window(self) -> None:
        self._window_timer = None

    def _settle_empty(self, batch: Batch) -> None:
        """Answer callbacks with nothing staged: they wait for what was committed before."""
        if batch.wants_sync and self._durable.unsynced:
            self._sync.start()
            return
        self._answer(self.staging.take().waiters, AT_ONCE)
        self._loop.again()

    # --- the two drivers of a commitment -----------------------------------------------------------------------------
    def _write_in_place(self, target: Target | Parts, primitive: Primitive) -> Commit | Verdict:
        """Commit what was prepared by one write that the thread waits for."""
        fd, blocks, offset = target
        outcome = self._commitment.finish(self._write_now(fd, blocks, offset, primitive.is_dsync))
        if not self.exclusive:
            self._watch(outcome.write_ns if type(outcome) is Commit else self._unfinished_ns)
        return outcome

    def _write_now(self, fd: int, blocks: memoryview | list[Buffer], offset: int, dsync: bool) -> int:
        """Write blocks, or parts, while the thread waits; return the raw result."""
        try:
            if isinstance(blocks, list):
                return self._files.write_parts_now(fd, blocks, offset)
            return self._files.write_now(fd, blocks, offset, dsync=dsync)
        except Exception as error:
            _log.exception("a write of the log failed by a bug of ours")
            # Which of its bytes the disk has is unknown.
            self._latch(f"a write in place ended by {error!r}")
            return -errno.EIO

    @property
    def _unfinished_ns(self) -> int:
        """Time since the begin of the write in place that has failed just now."""
        return self._clock.monotonic_ns() - self._commitment.submitted_ns

    def _watch(self, took_ns: int) -> None:
        """Count a commit in place of a server, and note how long it took."""
        self._counters.in_place += 1
        limit = self._in_place_limit
        if took_ns > limit.max_ns:
            limit.on_slow(sync_running=self._sync.running)
            self._next = None

    def _write_through_ring(self, fd: int, blocks: memoryview, offset: int) -> None:
        """Submit a prepared commit, or its rest; `_on_results` gets its results."""
        primitive = self._commitment.primitive
        if primitive.is_chain:
            self._files.commit_nowait(fd, blocks, offset, self._on_results)
        else:
            self._files.write_nowait(fd, blocks, offset, self._on_results, dsync=primitive.is_dsync)

    def _on_results(self, write_res: int, sync_res: int = 0) -> None:
        batch = self._in_flight
        assert batch is not None, "a completion came for a commit that was not submitted"
        self._conclude(batch, self._commitment.finish(write_res, sync_res))

    def _conclude(self, batch: Batch, outcome: Commit | Verdict) -> None:
        """Answer the batch's callbacks.

        The rest of a short write is written through the ring, so this does not recur.
        """
        if isinstance(outcome, Commit):
            self._moved.set()
            self._on_committed(batch, outcome)
        elif outcome is Verdict.REST:
            self._places.forget()
            self._write_through_ring(*self._commitment.rest())
        elif outcome is Verdict.FULL:
            self._moved.set()
            self._on_write_full(batch)
        else:
            self._moved.set()
            self._fail(batch, self._admission.read_only_error())
            self._fail_staged(self._admission.read_only_error())

    def _on_committed(self, batch: Batch, commit: Commit) -> None:
        commitment = self._commitment
        if not commitment.primitive.syncs:
            self._sync.plan()
            if self.max_unsynced:
                self._sync_in_time()
        else:
            self._delay.note(batch.frames, commitment.submitted_ns, self._commitment.ended_ns)
            self._places.note(commit.write_ns)
            if self._sync.owed:
                self._sync.report()
        waiters = batch.waiters
        self.staging.give_back(batch)
        self._answer(waiters, commit)
        if batch.prepared is not None:
            # releasing so much memory takes a turn, too
            self._loop.call_later(0, partial(_drop, batch))

    def _answer(self, waiters: list[Done], commit: Commit) -> None:
        """Run callbacks of a batch that has ended well, and have the next passes run the others.

        Callers that drive the loop wait for all of them. Until the last, no other batch is sent.
        """
        most = len(waiters) if self._has_callers else ANSWERS_A_PASS
        some, others = waiters[:most], waiters[most:]
        self._unanswered = len(others)
        if others:
            self._loop.call_soon(partial(self._answer_others, self._loop.passes, others, commit))
        else:
            self._moved.set()
        answering_ns = self._clock.monotonic_ns()
        for done in some:
            done(commit)
        self._counters.answer.add(self._clock.monotonic_ns() - answering_ns)

    def _answer_others(self, number: int, waiters: list[Done], commit: Commit) -> None:
        """Continue in a pass after that of this number, whose tasks may follow its completions."""
        if self._loop.passes == number:
            self._loop.call_soon(partial(self._answer_others, -1, waiters, commit))
        else:
            self._answer(waiters, commit)

    def _sync_in_time(self) -> None:
        """Begin a sync from half of the bound of unsynced bytes on, before commits wait for one."""
        if 2 * self._durable.unsynced_bytes > self.max_unsynced:
            self._sync.start()

    def begin_sync(self) -> None:
        """Begin a sync of what is written and not synced, unless one runs."""
        self._sync.start()

    def _fd_to_sync(self) -> int:
        """Return the file for a background sync, besides files that were left."""
        if self._in_flight is not None and self._commitment.primitive.syncs:
            return COMMIT_SYNCS
        assert self._end.file is not None, "unsynced bytes are in a file"
        return self._end.file.stored.fd

    # --- failing -----------------------------------------------------------------------------------------------------
    def _latch(self, reason: str) -> None:
        """Make all shards read-only from here on.

        Commits in flight fail when their completions come.
        """
        self._admission.latch(reason)
        self._moved.set()

    def on_latch(self) -> None:
        """Fail what is staged after a shard failed. A batch in flight is answered first."""
        self._moved.set()
        self._sync.on_latch()
        if not self._is_busy:
            self._fail_staged(self._admission.read_only_error())

    def _fail(self, batch: Batch, error: StorageError) -> None:
        """Run all callbacks of a batch in this pass.

        They take no turns, as those of a commit do: what one topic has staged has to fail together,
        and so has what was staged on top of it, for its seqs are given out again. There are as many
        as requests that write in flight, once for each file that runs full, and once for a latched
        log. In the engine 10,000 writes to as many topics take 19 ms of CPU, to one topic 2, and
        10,000 that create topics 38. Their answers take turns (http/plan/failure_turns.py).
        """
        commit = failed(error)
        for done in batch.waiters:
            done(commit)

    def _fail_staged(self, error: StorageError) -> None:
        for batch in self.staging.take_all():
            self._fail(batch, error)

    def _on_no_file(self, error: StorageError) -> None:
        """Fail what is staged: there is no next file.

        A request for another file fails with it, though this one has room.
        """
        self._end.cancel_rotation()
        self._fail_staged(error)

    def _on_write_full(self, batch: Batch) -> None:
        """Leave the file at its last good batch: the file system had no block left for a commit."""
        assert self._end.file is not None, "a file is left only when nothing is in flight"
        self._space.note_full()
        self._leave(self._end.file)
        self._fail(batch, self._admission.disk_full_error())
        self._fail_staged(self._admission.disk_full_error())

    # --- from file to file -------------------------------------------------------------------------------------------
    def request_rotation(self) -> None:
        """Have the next batch open another file.

        The log then has left all files with bytes so far.
        """
        self._end.request_rotation()

    def _to_next_file(self, batch_bytes: int) -> bool:
        """Move to the prepared file; False if it is not ready, and then it is being prepared."""
        if not self.preallocation.takes(batch_bytes):
            return False
        if self._end.file is not None:
            self._counters.rotations += 1
            self.preallocation.zeroes = not self._is_bulk(self._end.file)
            if not self._end.leaves_file:
                self._sizes.on_filled(self._end.file.size)
            self._leave(self._end.file)
        self._end.begin(self.preallocation.take())
        return True

    def _is_bulk(self, file: WalFile) -> bool:
        """Return whether unsynced writes have filled the file, or will fill the next.

        They gain nothing by zeros, and all would wait for them.
        """
        filled = self._has_callers or file.position >= file.size - file.size // _FILLED_BUT
        return filled and self._end.waited_syncs < _WAITED_SYNCS_FEW

    def _leave(self, file: WalFile) -> None:
        self._end.leave(file)
        self._sync.start()

    def on_space(self) -> None:
        """Prepare files again: the disk is no longer full."""
        self.preallocation.prepare()

    async def when_synced(self, stored: StoredFile) -> None:
        """Wait until every file that the log has left is synced, or the log is read-only."""
        while not self._admission.read_only and any(file.fd == stored.fd for file in self._durable.sealed):
            self._sync.start()
            self._moved.clear()
            await self._moved.wait()

    # --- ending ------------------------------------------------------------------------------------------------------
    async def drain(self) -> None:
        """Return when all that was staged is on stable storage, or the log is read-only."""
        while not self._admission.read_only:
            staged = not self.staging.is_empty or self._is_busy
            if not staged and not self._durable.unsynced:
                return
            if not staged:
                self._sync.start()
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Drain, and close the current and the prepared files.

        The file table has those that the log has left.

        A file prepared without zeros is removed, because the next start takes a file that it finds
        as zeroed.
        """
        await self.drain()
        self.preallocation.stop()
        self._sync.stop()
        while self._is_busy or self._sync.running or self.preallocation.preparing:
            self._moved.clear()
            await self._moved.wait()
        for file in [*self.preallocation.ready, *([self._end.file] if self._end.file is not None else [])]:
            file.stored.active = False
            for fd in (file.stored.fd, file.stored.direct_fd):
                if fd >= 0:
                    await self._files.close(fd)
            file.stored.fd = file.stored.direct_fd = -1
        for file in self.preallocation.ready:
            if not file.stored.zeroed:
                with contextlib.suppress(OSError):
                    await self._files.unlink(file.stored.path)


def _never() -> bool:
    return False


def _drop(_batch: Batch) -> None:
    """Release a batch whose last reference is the timer's."""


def _nothing() -> None:
    """Do nothing; the timer makes the loop run another pass at once."""
