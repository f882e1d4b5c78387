"""Commits and syncs of a shard that the thread waits for: of a batch, and of a lone write.

Through the ring each would take a worker of the kernel or another turn of the loop.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from typing_extensions import Buffer

from topics.common.tuples import make_tuple
from topics.loop.loop import Loop
from topics.store.commits.commit_choice import DSYNC_BYTES_MAX, WINDOW_BYTES_MAX, Choice, Held, Until, choose
from topics.store.commits.next_batch import NextPlace
from topics.store.commits.primitive import Primitive, Verdict
from topics.store.commits.quick_writes import Unpublished, WritePlace
from topics.store.commits.synced_batches import SyncedBatches
from topics.store.commits.write_batch import CarriedFrames, Commit, LoneWritten
from topics.store.format._codec import ffi
from topics.store.format.log_format import FRAME_ROOM_BYTES
from topics.store.format.rows import PLACED, Framed, Rows
from topics.store.in_memory.hot_tail import TailBuffer
from topics.store.wal.background_sync import BackgroundSync
from topics.store.wal.commitment import Commitment, Parts, Target
from topics.store.wal.log_end import LogEnd
from topics.store.wal.shard_state import ShardState, SharedParts
from topics.store.wal.staging import BATCH_ROLL_BYTES, Staging

_log = logging.getLogger(__name__)

_PLACED_BYTES = PLACED.size
_NEXT_BYTES_MAX = WINDOW_BYTES_MAX - 1
"""The most bytes of a batch that is committed as the one before it: `choose` differs for more."""


class InPlaceCommits:
    """The commits and syncs of one shard that the thread waits for."""

    def __init__(
        self,
        loop: Loop,
        parts: SharedParts,
        state: ShardState,
        *,
        staging: Staging,
        batches: SyncedBatches,
        end: LogEnd,
        sync: BackgroundSync,
        commitment: Commitment,
    ) -> None:
        self._files = loop.files
        self._clock = loop.clock
        self._latch = parts.latch
        self._bound = parts.bound
        self._counters = parts.counters
        self._state = state
        self._limit = state.limit
        self._max_unsynced = state.max_unsynced
        self._staging = staging
        self._batches = batches
        self._end = end
        self._sync = sync
        self._commitment = commitment
        self._next: tuple[TailBuffer, Primitive] | None = None
        """The chunk of the next lone write and how it is committed, as `next_place` has said."""

    # --- a batch -----------------------------------------------------------------------------------------------------
    def commit(self, target: Target | Parts, primitive: Primitive) -> Commit | Verdict:
        """Commit what was prepared by one write that the thread waits for."""
        fd, blocks, offset = target
        outcome = self._commitment.finish(self._write_now(fd, blocks, offset, primitive.is_dsync))
        if not self._state.exclusive:
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
            self._commitment.on_write_raised(error)
            return -errno.EIO

    @property
    def _unfinished_ns(self) -> int:
        """Time since the begin of the write in place that has failed just now."""
        return self._clock.monotonic_ns() - self._commitment.submitted_ns

    def _watch(self, took_ns: int) -> None:
        """Count a commit in place of a server, and note how long it took."""
        self._counters.in_place += 1
        limit = self._limit
        if took_ns > limit.max_ns:
            limit.on_slow(sync_running=self._sync.running)
            self._next = None

    # --- a lone write ------------------------------------------------------------------------------------------------
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
        staging = self._staging
        if self._commitment.is_busy or not staging.is_empty or self._latch.closed or self._bound.pressed:
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
        staging = self._staging
        filling = staging.filling
        size = filling.used + rows.size + rows.count * FRAME_ROOM_BYTES
        choice: Choice | Held | None = choose(self._state, size, fsync=fsync, lone=True)
        if isinstance(choice, Held):
            choice = self._choose_again(choice, size, fsync=fsync)
        if choice is None or not choice.in_place:
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
            if type(outcome) is not Commit and not self._state.exclusive:
                self._watch(self._unfinished_ns)
        if type(outcome) is not Commit:
            commitment.take_back()
            return None
        return packed, outcome, self._move_on, None

    def _choose_again(self, held: Held, size: int, *, fsync: bool) -> Choice | None:
        """Plan the sync in the background that a lone write waits for, and choose then.

        Callers' threads learn of a timer from a pass, so for them the usual way plans it.
        """
        if held.until is not Until.TIMER or self._state.has_callers:
            return None
        self._sync.plan()
        choice = choose(self._state, size, fsync=fsync, lone=True)
        return choice if isinstance(choice, Choice) else None

    def next_place(self, *, fsync: bool) -> tuple[NextPlace, bool] | None:
        """Return the place of the next lone write, and whether it is synced then (`write_next`).

        This holds until anything but such writes happens to the log, within bounds that the place
        has: each would be committed by the same choice. Return None if it may not be made in place.
        """
        self._next = None
        if self._commitment.is_busy or not self._staging.is_empty or self._latch.closed or self._bound.pressed:
            return None
        if self._state.window_ns:
            return None  # each waits for it
        room = min(self._state.room, self._bound.room)
        if self._max_unsynced:
            room = min(room, self._max_unsynced - self._batches.unsynced_bytes)
        most = min(room, _NEXT_BYTES_MAX)
        choice = choose(self._state, most, fsync=fsync, lone=True)
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
        staging, commitment, following = self._staging, self._commitment, self._next
        if following is None or self._latch.closed or commitment.is_busy or not staging.is_empty:
            return None
        (chunk, primitive), file = following, self._end.file
        if file is None or file.position != chunk.start + at:
            return None
        filling, write = staging.filling, self._write_now
        outcome = commitment.commit_sealed(write, filling, primitive, (chunk, at, used, count, checksum))
        if type(outcome) is Commit:
            return outcome, self._move_on
        self._next = None
        if not self._state.exclusive:
            self._watch(self._unfinished_ns)
        commitment.take_back()
        return None

    def next_quick(self, *, fsync: bool) -> tuple[NextPlace, WritePlace] | None:
        """Return `next_place`, and how batches are written there that are counted later: `follow`.

        They end where a sync is to begin in time, which is decided as they are counted.
        """
        found = self.next_place(fsync=fsync)
        if found is None or self._next is None or self._end.file is None:
            return None
        (place, syncs), (chunk, primitive), stored = found, self._next, self._end.file.stored
        if self._max_unsynced:
            place = place._replace(room=min(place.room, self._sync.room_before_sync))
            if place.room <= 0:
                return None
        fd = stored.direct_fd if primitive.is_direct else stored.fd
        address = self._files.write_address
        return place, WritePlace(chunk.start, chunk.view, fd, primitive.is_dsync, syncs, self._write_now, address)

    def follow(self, quick: Unpublished) -> Commit:
        """Count batches that quick appends wrote from the place that `next_quick` returned."""
        following, self._next = self._next, None
        assert following is not None, "their place is known"
        chunk, primitive = following
        commit = self._commitment.follow(chunk, quick, synced=primitive.syncs)
        if self._max_unsynced:
            self._sync.start_before_bound()
        return commit

    def take_back(self, expected: int, res: int) -> None:
        """See `QuickLog`."""
        self._next = None
        self._commitment.take_back_quick(self._staging.filling, expected, res)

    def _move_on(self) -> None:
        """Do what a lone write leaves for after its answer."""
        took_ns = self._commitment.move_on()
        if took_ns is not None and not self._state.exclusive:
            self._watch(took_ns)
        if self._max_unsynced:
            self._sync.start_before_bound()

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
        staging, commitment = self._staging, self._commitment
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
            return packed, self.commit(target, primitive)
        finally:  # also after an exception: the next request gets the same seqs
            batch.clear()
            if size > BATCH_ROLL_BYTES:
                staging.limit_memory()

    # --- a sync ------------------------------------------------------------------------------------------------------
    def start_due_sync(self) -> None:
        """Begin a sync that callers wait for.

        It is made in place if it is small and the thread waits for nothing else: through the ring
        it needs a worker of the kernel, and two more turns of threads.
        """
        self._sync.due = False
        self._start_waited_sync(in_place=self._may_sync())

    def _may_sync(self) -> bool:
        batches = self._batches
        return (
            self._state.has_no_waiters()
            and not self._commitment.is_busy
            and not batches.sealed
            and batches.unsynced_bytes <= DSYNC_BYTES_MAX
            and self._limit.allows()
        )

    def _start_waited_sync(self, *, in_place: bool) -> None:
        clock = self._clock
        self._end.waited_syncs += 1
        began_ns = clock.monotonic_ns()
        self._sync.start(in_place=in_place)
        if in_place and clock.monotonic_ns() - began_ns > self._limit.max_ns:
            self._limit.on_slow(sync_running=False)

    def sync_lone(self) -> bool:
        """Bring all there is to stable storage in this call, if one sync in place is all it takes.

        Return False if it takes more, or if the sync failed, which the usual way then reports.
        """
        batches = self._batches
        if self._commitment.is_busy or not self._staging.is_empty:
            return False
        if batches.unsynced and not self._sync.running and self._may_sync():
            self._start_waited_sync(in_place=True)
        return not batches.unsynced
