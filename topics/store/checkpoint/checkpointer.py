"""Checkpoint: copies of the log's records in segments and packs, so that its files are reusable.

    cut       every shard begins another file with a mark; everything before it is published, and is
              in files the log has left
    copy      live records of those files, topic by topic (evacuation.py); the catalog then reads
              the copies; all synced
    flag      records deleted individually get their flag in segments and packs, once a snapshot has
              the floors of that instant; synced (delete_flags.py)
    drop      segments and runs without a live record are removed from the manifest
    snapshot  the catalog's part and the store's, of one instant; the log is synced up to it first,
              so that a snapshot never has anything that a power cut removes; written twice
              (snapshot_files.py)
    recycle   log files before the cut, and files no longer in use
    compact   sealed segments and packs of which little lives are written anew (compaction.py), and
              a snapshot that lists them, after which the earlier ones are removed
    forget    the frames of runs that were dropped are flagged, in packs that stay for other topics
              (dropped_runs.py)
    move      older sealed segments to the cold directory, if there is one (tiering.py), and a
              snapshot that lists them there

On a full disk, or one that copies of the whole log would fill, the cut begins no file, and only as
much is copied as space allows (low_space.py).

Recovery needs nothing from before the snapshot, and nothing after it undoes anything. A crash at
any point leaves the last snapshot, the log after it, and files that it does not list.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from topics.errors import NoLogFileError, StorageError
from topics.loop.tasks import Future
from topics.store.checkpoint.capture import Capture, Captures, SharedInstant
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.checkpoint.checkpoint_parts import CheckpointParts
from topics.store.checkpoint.checkpoint_steps import CheckpointSteps
from topics.store.checkpoint.files_to_empty import FilesToEmpty
from topics.store.checkpoint.low_space import LowSpace, live_rows
from topics.store.checkpoint.snapshot_taker import FoundSnapshot, SnapshotTaker
from topics.store.disk.disk_space import lacks_space
from topics.store.disk.time_slices import REST_SHARE, TimeSlices
from topics.store.disk.whole_files import lacks_descriptors
from topics.store.format.log_format import BLOCK_BYTES

log = logging.getLogger(__name__)

_LOOK_EVERY_NS = 1_000_000_000
_CALM_REST_SHARE = 8
"""Length of a rest in lengths of the slice before it, while the log is short."""
_CALM_SEGMENTS, _URGENT_SEGMENTS = 2, 8
"""Segments that are filled side by side, and once the work is urgent or nothing else is done.

A kernel worker copies the bytes of each and waits for its syncs. More workers than a core can run
take the cores from the loop and from its clients, even if the loop rests.
"""
_URGENT_PART = 0.5
"""Part of the way from a due checkpoint to delayed commits; at its end the work is urgent."""
OnShown = Callable[[bool], None]
"""The callback when the snapshot is written.

All deletes published before its checkpoint began are then in the files that it lists. The same
holds for records if it is called with True; with False some are only in the log, for lack of space.
"""
OnCaptured = Callable[[Capture], None]
"""The callback that takes a capture of the end of a checkpoint, and releases it later."""


class Checkpointer:
    """The checkpoints of a store, one at a time; started by bytes of log, by time, or by `run`."""

    def __init__(self, parts: CheckpointParts, found: FoundSnapshot) -> None:
        loop, config, wal = parts.loop, parts.config, parts.wal
        self._loop = loop
        self._config = config
        self._log = wal
        self._table = parts.table
        self._opener = parts.opener
        self._turns = turns = TimeSlices(loop, config.checkpoint_us_per_pass * 1000, self._rest_share)
        self._low_space = LowSpace(parts.catalog, parts.manifest, parts.table, wal, config, turns)
        self._files_to_empty = FilesToEmpty(wal, parts.table, self._low_space, has_retired=bool(found.retired_shards))
        self.counters = CheckpointCounters()
        captures = Captures()
        self.snapshots = SnapshotTaker(parts, turns, captures, found)
        self.steps = CheckpointSteps(
            parts._replace(config=replace(config, segment_max_bytes=wal.sizes.segment_max)),
            snapshots=self.snapshots,
            captures=captures,
            turns=turns,
            segments_at_a_time=self._segments_at_a_time,
            counters=self.counters,
        )
        self._running: Future[None] | None = None
        self._stopped = False
        self._beginning = False
        """Whether a checkpoint is due to start and has not begun."""
        self._emptied = True
        """Whether the last checkpoint emptied the log, except for writes that arrived during it."""
        self._ended_ns = 0
        """Time at which the last checkpoint ended or failed."""
        self._frames_seen = 0
        self._bytes_seen = 0
        self._copied_part = 1.0
        """Bytes of copies per byte of log in the last checkpoint of the whole log.

        It exceeds 1 where routers make several copies.
        """
        self._met_full_disk = False
        """Whether the last attempt ended for lack of space."""
        self._live_at_attempt = -1
        """Live rows at the last attempt on a full disk; -1: none since there was space."""

    @property
    def snapshot_number(self) -> int:
        """Number of the newest snapshot."""
        return self.snapshots.number

    # --- when --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Check once a second whether a checkpoint is due."""
        self._ended_ns = self._loop.clock.monotonic_ns()
        self._loop.call_later(_LOOK_EVERY_NS, self._look)
        bound = self._log.bound
        bound.on_emptied(self._log.held_bytes)
        bound.on_pressed.append(self._begin)
        if bound.pressed:
            self._begin()

    def stop(self) -> None:
        """Start no more checkpoints.

        A running one completes what the log waits for, but moves no more segments.

        It rests only for single passes, since no other work runs beside it.
        """
        self._stopped = True
        self._turns.hurry()
        self.steps.stop()

    def _look(self) -> None:
        if self._stopped:
            return
        self._loop.call_later(_LOOK_EVERY_NS, self._look)
        counters = self._log.counters
        due_bytes = min(self._log.sizes.checkpoint, self._low_space.affordable_bytes(self._copied_part))
        by_bytes = counters.bytes_written - self._bytes_seen >= due_bytes
        by_bytes |= self._log.bound.pressed
        since_ms = (self._loop.clock.monotonic_ns() - self._ended_ns) // 1_000_000
        by_time = since_ms >= self._config.checkpoint_every_ms and (
            counters.all_frames != self._frames_seen or self.steps.is_work_left
        )
        by_space = self._is_space_wanted()
        if by_bytes or by_time or by_space:
            self._begin()

    def _begin(self) -> None:
        """Start a checkpoint, unless one runs."""
        if self._running is None and not self._beginning and not self._stopped and not self._log.read_only:
            self._beginning = True
            self._loop.spawn(self._run_logged(), "checkpoint")

    def _is_space_wanted(self) -> bool:
        """Return whether the disk is full and another attempt may help.

        It may if records died since the last one, whose space can be freed, or if there is space
        for more copies.
        """
        if not self._log.disk_full:
            self._live_at_attempt, self._files_to_empty.room_bytes = -1, None
            return False
        if self._live_at_attempt < 0 or live_rows(self._table) < self._live_at_attempt:
            return True
        room_bytes, next_bytes = self._files_to_empty.room_bytes, self.snapshots.next_bytes
        return room_bytes is not None and not self._log.space.lacks(room_bytes + next_bytes + BLOCK_BYTES)

    async def _run_logged(self) -> None:
        self._beginning = False
        try:
            await self.run()
        except (OSError, StorageError) as error:
            log.error("checkpoint failed: %s", error)

    async def until_idle(self) -> None:
        """Wait until no checkpoint runs. The caller may start one before another task does."""
        while self._running is not None:
            await self._running

    async def run(
        self,
        *,
        clean: bool = False,
        moves: bool = True,
        whole: bool = False,
        on_shown: OnShown = lambda is_whole: None,
        on_captured: OnCaptured | None = None,
        instant: SharedInstant | None = None,
    ) -> None:
        """Run one checkpoint, after the one in progress, if any.

        clean: the last one before the log is closed.
        moves: also move segments to the cold directory, after everything that the log waits for;
            the last one never does.
        whole: leave nothing in the log, on a full disk, too, or fail.
        on_shown: see `OnShown`. on_captured: see `OnCaptured`. instant: of the capture; None: the
            end of the checkpoint. Until it has come, no other checkpoint runs.

        Raises OSError or StorageError. A full disk and a lack of descriptors are tried again later.
        Any other error of a write or sync latches the log, because the contents of the disk are
        unknown then.
        """
        await self.until_idle()
        if self._stopped and not clean:
            return  # the one that it waited for was the last one: the log's files are closed
        self._running = done = Future[None]()
        try:
            take = None if on_captured is None else partial(self._capture, on_captured, instant)
            await self._checkpoint(clean, moves and not clean, whole=whole, on_shown=on_shown, take=take)
            self.counters.error = ""
            self._met_full_disk = False
        except (OSError, StorageError) as error:
            self.counters.failed += 1
            self.counters.error = str(error)
            if lacks_space(error):
                await self._on_full_disk()
            elif isinstance(error, NoLogFileError) or (isinstance(error, OSError) and lacks_descriptors(error)):
                # For the next one. A read opens its file again.
                await self._opener.close_idle()
            elif isinstance(error, OSError):
                self._log.write_latch.latch(f"a checkpoint failed: {error}")
            raise
        finally:
            self._running = None
            self._ended_ns = self._loop.clock.monotonic_ns()
            done.set_result(None)
        # Written since the cut, perhaps while `_begin` could start none because this one ran.
        if self._log.bound.pressed and self._emptied:  # otherwise the next check tries again
            self._begin()

    def _rest_share(self) -> float:
        """Return the length of the next rest in lengths of the slice before it."""
        return _CALM_REST_SHARE - (_CALM_REST_SHARE - REST_SHARE) * self._urgency()

    def _segments_at_a_time(self) -> int:
        is_urgent = self._turns.is_short or self._urgency() == 1.0
        return _URGENT_SEGMENTS if is_urgent else _CALM_SEGMENTS

    def _urgency(self) -> float:
        """Return how urgent the work is, from 0 to 1.

        A checkpoint has time while the log is no longer than where one begins. From there on it
        gets more of the loop, and all that it may have before commits are delayed for its sake.
        """
        due, delayed = self._log.sizes.checkpoint, self._log.bound.checkpoint_bytes
        way = (delayed or 2 * due) - due
        if way <= 0 or self._log.disk_full or self._met_full_disk:
            return 1.0
        return min(1.0, max(0.0, (self._log.bound.bytes - due) / (_URGENT_PART * way)))

    async def _on_full_disk(self) -> None:
        """Release the reserve if a snapshot needs its space; the next attempt manages with less."""
        self._met_full_disk = True
        if self._log.disk_full and await self._log.space.release_reserve():
            self._live_at_attempt = -1

    # --- how ---------------------------------------------------------------------------------------------------------
    async def _checkpoint(
        self, clean: bool, moves: bool, *, whole: bool, on_shown: OnShown, take: Callable[[], Awaitable[None]] | None
    ) -> None:
        began_ns, given_ns = self._loop.clock.monotonic_ns(), self._turns.given_ns
        counters, bound = self._log.counters, self._log.bound
        bytes_seen = counters.bytes_written
        held_bytes = bound.bytes
        self._turns.resume()
        scarce = self._log.disk_full or self._met_full_disk or await self._low_space.is_tight(self.snapshots.next_bytes)
        if scarce:
            self._live_at_attempt = live_rows(self._table) if self._log.disk_full else -1
            self._files_to_empty.room_bytes = None
            await self._log.drop_spares()
            scarce = not whole
        replay = await (self.steps.cut_here() if scarce else self.steps.cut())
        frames_seen = counters.all_frames
        if scarce:
            self._turns.resume()
            chosen = await self._files_to_empty.affordable(replay, self.snapshots.least_bytes)
        else:
            chosen = self._files_to_empty.all_before(replay)
        is_whole = chosen.is_whole
        evacuation = await self.steps.copy(chosen)
        await self.steps.flag_deleted()
        await self.steps.drop()
        self.steps.check_emptied(chosen.files)
        self.snapshots.begin_replay(replay)
        await self.snapshots.take(clean=clean)
        self.steps.remove()
        for file in chosen.files:
            await self._log.retire(file)
        self._frames_seen, self._bytes_seen = frames_seen, bytes_seen
        context = evacuation.context
        took_ns = self._loop.clock.monotonic_ns() - began_ns
        self.counters.count(context.copied_rows, context.copied_bytes, took_ns // 1_000_000)
        self._emptied = is_whole
        bound.on_emptied(self._log.held_bytes)
        if is_whole:
            bound.on_checkpoint(held_bytes, took_ns - (self._turns.given_ns - given_ns))
            self._copied_part = context.copied_bytes / max(1, held_bytes)
        on_shown(is_whole)
        if take is not None and is_whole:
            await take()
        if moves:
            await self.steps.compact()
        await self.steps.flag_dropped()
        if moves:
            await self.steps.move_to_cold()

    async def _capture(self, on_captured: OnCaptured, instant: SharedInstant | None) -> None:
        capture = await self.snapshots.capture(instant)
        if capture is not None:
            on_captured(capture)
