"""One shard of the log: it commits what is staged, batch after batch, and moves from file to file.

One commit is in flight at a time; what is staged meanwhile is the next batch. Acks need the full
write count and, for a synced batch, the sync's result; the next commit begins after the last
callback. A failed write or sync latches the whole log; a full disk fails what is staged, and the
log continues in another file.

Decisions are made in primitive.py, commit_choice.py, from what shard_state.py says, and
measured_places.py; batches fill in staging.py, log_end.py gives them their place,
in_place_commits.py makes those that the thread waits for, commit_callbacks.py has the order of
callbacks, background_sync.py syncs beside commits, and wal_files.py has the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.loop.tasks import Event
from topics.loop.timers import Timer
from topics.store.commits.commit_choice import Choice, Held, Until, choose
from topics.store.commits.measured_places import MeasuredPlaces
from topics.store.commits.primitive import Primitive, Verdict
from topics.store.commits.synced_batches import SyncedBatches
from topics.store.commits.write_batch import Batch, Commit
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET
from topics.store.wal.background_sync import COMMIT_SYNCS, BackgroundSync, OnDurable
from topics.store.wal.commit_callbacks import CommitCallbacks
from topics.store.wal.commitment import AT_ONCE, Commitment, failed
from topics.store.wal.in_place_commits import InPlaceCommits
from topics.store.wal.log_end import LogEnd
from topics.store.wal.preallocation import Preallocation
from topics.store.wal.shard_state import ShardSettings, ShardState, SharedParts
from topics.store.wal.staging import Staging
from topics.store.wal.wal_files import WalDirectory, WalFile

_WAITED_SYNCS_FEW = 64
"""Number of syncs that callers waited for, below which a file has mostly unsynced writes.

Zeroing the next one would then write every byte twice.
"""
_FILLED_BUT = 4
"""The part of a file that may be left over if a batch or a checkpoint moved the log to the next."""


class Shard:
    """One shard. `flush` is called at the end of every pass of the loop."""

    def __init__(
        self, loop: Loop, directory: WalDirectory, parts: SharedParts, settings: ShardSettings, *, last_batch_no: int
    ) -> None:
        self._loop = loop
        self._files = loop.files
        self._clock = loop.clock
        self._latch = latch = parts.latch
        self._space = parts.space
        self._counters = counters = parts.counters
        self._sizes = parts.sizes
        self._window_timer: Timer | None = None
        self._window_ends_ns = 0
        """Time at which the timer starts the next pass."""
        self._places = MeasuredPlaces(loop)
        self._moved = Event()
        """Set whenever an operation ended that `drain` may wait for."""
        self.preallocation = Preallocation(
            loop,
            directory,
            space=parts.space,
            latch=latch,
            sizes=parts.sizes,
            bound=parts.bound,
            count=settings.prepared_files,
            on_failed=self._on_no_file,
            on_broken=self._latch_log,
            on_ended=self._moved.set,
        )
        self.staging = Staging(latch, parts.tail.kept_bytes)
        self._batches = batches = SyncedBatches(last_batch_no)
        self._end = end = LogEnd(loop.clock, directory, batches)
        self._sync = sync = BackgroundSync(
            loop,
            batches,
            latch,
            counters,
            every_ns=settings.sync_every_ns,
            max_unsynced=settings.max_unsynced,
            current_fd=self._fd_to_sync,
            on_failed=self._latch_log,
            on_ended=self._moved.set,
        )
        self._commitment = commitment = Commitment(
            loop.clock,
            end,
            batches,
            tail=parts.tail,
            latch=latch,
            counters=counters,
            bound=parts.bound,
            on_failed=self._latch_log,
        )
        self.state = ShardState(
            loop.clock,
            settings if directory.direct_works else settings._replace(commit=Primitive.LINK.value),
            batches=batches,
            end=end,
            sync=sync,
            bound=parts.bound,
            commitment=commitment,
        )
        self._callbacks = CommitCallbacks(
            loop, self.staging, commitment, state=self.state, counters=counters, on_last=self._moved.set
        )
        self.in_place = InPlaceCommits(
            loop,
            parts,
            self.state,
            staging=self.staging,
            batches=batches,
            end=end,
            sync=sync,
            commitment=commitment,
        )

    async def open(self) -> None:
        """Prepare the first file, if there is space for one. Raises OSError."""
        await self.preallocation.open()

    def when_durable(self, done: OnDurable, *, waited: bool = False) -> None:
        """Call `done` once all that is committed so far is on stable storage, or cannot be.

        waited: a caller waits for it, within a pass.
        """
        self._sync.when_durable(done, waited=waited)

    def when_flushed(self, done: OnDurable) -> None:
        """Call `done` once all that is staged so far is on stable storage, or cannot be.

        A batch that failed was reported to its writers. What is before it is waited for.
        """
        self.when_settled(lambda: self._sync.when_durable(done, waited=True))

    def when_settled(self, done: Callable[[], None]) -> None:
        """Call `done` once all that is staged so far was committed, or has failed."""
        if self.staging.is_empty and not self._commitment.is_busy:
            done()
        else:
            self.staging.when_committed(False, lambda _commit: done())

    def note_shared(self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64]) -> None:
        """See `SyncedBatches`."""
        self._batches.note_shared(topic_id, first_seq, source_id, seqs)

    def unsynced_from(self, topic_id: int) -> int | None:
        """Return the first committed seq of a topic that no sync has covered; None: all are."""
        return self._batches.unsynced_from(topic_id)

    @property
    def backlog_bytes(self) -> int:
        """Bytes staged or in flight."""
        in_flight = self._commitment.batch  # once: another thread may end it
        return self.staging.size + (in_flight.used if in_flight is not None else 0)

    def blocks(self, size: int, promised: int) -> str:
        """Return why an append of `size` bytes would wait here; "" if it would not.

        promised: bytes of appends that come before it. Any thread may ask; the answer is of the
        past for all but the one that drives.
        """
        before = self.backlog_bytes + promised
        unsynced = self._batches.unsynced_bytes + before
        most = self.state.max_unsynced
        if most and unsynced and unsynced + size > most:
            return "unsynced"
        preparing = self.preallocation.preparing and not self.preallocation.ready
        return "file" if preparing and before + size > self.state.room else ""

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
        return self._batches.written

    @property
    def file_no(self) -> int:
        """Number of the current file; 0 while none holds anything."""
        return self._end.file.number if self._end.file is not None and self.end_bytes else 0

    @property
    def queue_depth(self) -> int:
        """Number of callbacks that wait for their batch."""
        in_flight = self._commitment.batch
        depth = self.staging.waiters + (len(in_flight.waiters) if in_flight is not None else 0)
        return depth + self._callbacks.count if self._commitment.owed else depth

    # --- committing --------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Commit the next batch, if there is one and nothing delays it.

        The delay ends in a later pass. A sync that callers wait for begins after the commit.
        """
        staging = self.staging
        if not staging.is_empty:
            self._counters.on_queue_depth(self.queue_depth)
            if not self._commitment.is_busy:
                self._send_next()
            staging.close_large()
        if self._sync.due:
            self.in_place.start_due_sync()

    def _send_next(self) -> None:
        if self._latch.read_only:
            self._fail_staged(self._latch.read_only_error())
            return
        batch = self.staging.head
        if not batch.frames:
            self._settle_empty(batch)
            return
        state = self.state
        while True:
            lone = state.exclusive or (len(batch.waiters) == 1 and self._loop.has_one_sender())
            choice = choose(state, batch.used, fsync=batch.wants_sync, lone=lone)
            if isinstance(choice, Choice):
                break
            if not self._on_held(choice, batch):
                return
        # In exclusive use it is prepared at once, or the rest of it.
        mirror = None if state.exclusive and batch.prepared is None else batch.mirror
        while mirror is not None and not self._commitment.prepare_piece(batch, mirror):
            if not state.exclusive:
                self._loop.another_pass()  # for the next piece
                return
        choice = self._places.choose(choice)
        batch, primitive = self.staging.take(), choice.primitive
        try:
            target = self._commitment.prepare(batch, primitive)
        except Exception:  # no memory: nothing was written, and the next pass tries again
            self.staging.put_back(batch)
            raise
        if choice.in_place:
            self._conclude(batch, self.in_place.commit(target, primitive))
            if not (state.is_only and self.staging.is_empty):
                self._loop.again()  # callbacks have staged more, or others wait for their turn
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
        if batch.wants_sync and self._batches.unsynced:
            self._sync.start()
            return
        self._callbacks.run(self.staging.take().waiters, AT_ONCE)
        self._loop.again()

    def _write_through_ring(self, fd: int, blocks: memoryview, offset: int) -> None:
        """Submit a prepared commit, or its rest; `_on_results` gets its results."""
        primitive = self._commitment.primitive
        if primitive.is_chain:
            self._files.commit_nowait(fd, blocks, offset, self._on_results)
        else:
            self._files.write_nowait(fd, blocks, offset, self._on_results, dsync=primitive.is_dsync)

    def _on_results(self, write_res: int, sync_res: int = 0) -> None:
        batch = self._commitment.batch
        assert batch is not None, "a completion came for a commit that was not submitted"
        self._conclude(batch, self._commitment.finish(write_res, sync_res))

    def _conclude(self, batch: Batch, outcome: Commit | Verdict) -> None:
        """Answer the batch's callbacks.

        The rest of a short write is written through the ring, so this does not recur.
        """
        if isinstance(outcome, Commit):
            self._on_committed(batch, outcome)
        elif outcome is Verdict.REST:
            self._places.forget()
            self._write_through_ring(*self._commitment.rest())
        elif outcome is Verdict.FULL:
            self._on_write_full(batch)
        else:
            self._fail(batch, self._latch.read_only_error())

    def _on_committed(self, batch: Batch, commit: Commit) -> None:
        commitment = self._commitment
        if not commitment.primitive.syncs:
            self._sync.plan()
            if self.state.max_unsynced:
                self._sync.start_before_bound()
        else:
            self.state.delay.note(batch.frames, commitment.submitted_ns, commitment.ended_ns)
            self._places.note(commit.write_ns)
            if self._sync.owed:
                self._sync.report()
        waiters = batch.waiters
        self.staging.give_back(batch)
        self._callbacks.run(waiters, commit)
        if batch.prepared is not None:
            # releasing so much memory takes a turn, too
            self._loop.call_later(0, partial(_drop, batch))

    def begin_sync(self) -> None:
        """Begin a sync of what is written and not synced, unless one runs."""
        self._sync.start()

    def _fd_to_sync(self) -> int:
        """Return the file for a background sync, besides files that were left."""
        if self._commitment.batch is not None and self._commitment.primitive.syncs:
            return COMMIT_SYNCS
        assert self._end.file is not None, "unsynced bytes are in a file"
        return self._end.file.stored.fd

    # --- failing -----------------------------------------------------------------------------------------------------
    def _latch_log(self, reason: str) -> None:
        """Make all shards read-only from here on.

        Commits in flight fail when their completions come.
        """
        self._latch.latch(reason)
        self._moved.set()

    def on_latch(self) -> None:
        """Fail what is staged after a shard failed. A batch in flight is answered first."""
        self._moved.set()
        self._sync.on_latch()
        self._fail_staged(self._latch.read_only_error())

    def _fail(self, batch: Batch, error: StorageError) -> None:
        """Fail a batch, and what is staged up to the last of its callbacks: it may build on it."""
        self._callbacks.fail(batch.waiters, failed(error))

    def _fail_staged(self, error: StorageError) -> None:
        """Fail what is staged, once the batch in flight was answered."""
        if self._commitment.batch is None:
            self._callbacks.fail([], failed(error))
        else:
            self._callbacks.fail_after_batch(failed(error))

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
        self._fail(batch, self._latch.disk_full_error())

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
        filled = self.state.has_callers or file.position >= file.size - file.size // _FILLED_BUT
        return filled and self._end.waited_syncs < _WAITED_SYNCS_FEW

    def _leave(self, file: WalFile) -> None:
        self._end.leave(file)
        self._sync.start()

    def on_space(self) -> None:
        """Prepare files again: the disk is no longer full."""
        self.preallocation.prepare()

    async def when_synced(self, stored: StoredFile) -> None:
        """Wait until every file that the log has left is synced, or the log is read-only."""
        while not self._latch.read_only and any(file.fd == stored.fd for file in self._batches.sealed):
            self._sync.start()
            self._moved.clear()
            await self._moved.wait()

    # --- ending ------------------------------------------------------------------------------------------------------
    async def drain(self) -> None:
        """Return when all that was staged is on stable storage, or the log is read-only."""
        while not self._latch.read_only:
            staged = not self.staging.is_empty or self._commitment.is_busy
            if not staged and not self._batches.unsynced:
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
        while self._commitment.is_busy or self._sync.running or self.preallocation.preparing:
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


def _drop(_batch: Batch) -> None:
    """Release a batch whose last reference is the timer's."""
