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
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec
import numpy as np

from topics.config import Config
from topics.errors import NoLogFileError, StorageError
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.store.checkpoint.capture import Capture, Captures, HeldFile
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.checkpoint.compaction import Compaction
from topics.store.checkpoint.copy_context import CopyContext, Unsynced
from topics.store.checkpoint.delete_flags import DeleteFlags
from topics.store.checkpoint.dropped_runs import flag_dropped_runs
from topics.store.checkpoint.evacuation import Evacuation
from topics.store.checkpoint.files_to_empty import ChosenFiles, FilesToEmpty, is_before
from topics.store.checkpoint.low_space import LowSpace, live_rows
from topics.store.checkpoint.tiering import Tiering
from topics.store.commits.write_batch import Commit
from topics.store.disk.directory_format import DirectoryFormat
from topics.store.disk.disk_space import lacks_space
from topics.store.disk.open_files import OpenFiles
from topics.store.disk.time_slices import REST_SHARE, TimeSlices, a_step_a_pass
from topics.store.disk.whole_files import lacks_descriptors
from topics.store.format.catalog import CheckpointCatalog, Deletions
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import BLOCK_BYTES, FrameType, wal_file_no
from topics.store.format.segment_format import HOT, SECOND_DIRECTORY_FORMAT, index_path, snapshot_path, sum_in_steps
from topics.store.read.reader import Reader
from topics.store.segments.manifest import Manifest, PackedFiles, ReplayStart, Segment, StorePart
from topics.store.segments.snapshot_files import COPIES, snapshot_numbers, write_snapshot
from topics.store.segments.tiers import Tiers
from topics.store.wal.sharded_log import ShardedLog

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

    def __init__(
        self,
        loop: Loop,
        config: Config,
        *,
        wal: ShardedLog,
        reader: Reader,
        table: FileTable,
        opener: OpenFiles,
        catalog: CheckpointCatalog,
        manifest: Manifest,
        last_snapshot: int,
        replay: dict[int, ReplayStart],
        replay_shards: int,
        retired_shards: dict[int, ReplayStart],
        doubtful: Collection[str],
        directory_format: DirectoryFormat,
    ) -> None:
        """doubtful: paths of files whose flags the page cache may show and the disk lack
        (StorePart).
        """
        self._loop = loop
        self._config = config
        self._log = wal
        self._reader = reader
        self._table = table
        self._captures = Captures()
        self._opener = opener
        self._catalog = catalog
        self._manifest = manifest
        self._snapshot = last_snapshot
        self._replay = replay
        self._replay_shards = replay_shards
        """Number of shards that the log had from the replay's start on.

        It differs from the current one until a checkpoint has copied that log.
        """
        self._format = directory_format
        self._doubtful = frozenset(doubtful)
        """Paths that each snapshot names, in case this process is killed.

        They are named until the deletes that the log has of them are flagged.
        """
        self._retired_shards = retired_shards
        """Shards of an earlier count, and where their replay begins after a checkpoint."""
        self._turns = TimeSlices(loop, config.checkpoint_us_per_pass * 1000, self._rest_share)
        self._low_space = LowSpace(catalog, manifest, table, wal, config, self._turns)
        self._files_to_empty = FilesToEmpty(wal, table, self._low_space, has_retired=bool(retired_shards))
        self._compaction = Compaction(catalog, manifest, table, config, self._turns)
        self._tiering = Tiering(loop, config, manifest, table, opener)
        self._running: Future[None] | None = None
        self._unsynced = Unsynced({}, {})
        self._unflagged: list[Deletions] = []
        """Deleted records whose flag is not on the disk yet; outlives a checkpoint that failed."""
        self._given_up: list[int] = []
        """Ids of segments and packs that the next snapshot does not list.

        They are removed once it is written.
        """
        self._stopped = False
        self._beginning = False
        """Whether a checkpoint is due to start and has not begun."""
        self._emptied = True
        """Whether the last checkpoint emptied the log, except for writes that arrived during it."""
        self._ended_ns = 0
        """Time at which the last checkpoint ended or failed."""
        self._frames_seen = 0
        self._bytes_seen = 0
        self._last_bytes = self._found_bytes()
        """Bytes of the last snapshot that was taken, or that found no space."""
        self._copied_part = 1.0
        """Bytes of copies per byte of log in the last checkpoint of the whole log.

        It exceeds 1 where routers make several copies.
        """
        self._met_full_disk = False
        """Whether the last attempt ended for lack of space."""
        self._live_at_attempt = -1
        """Live rows at the last attempt on a full disk; -1: none since there was space."""
        self.counters = CheckpointCounters()

    @property
    def snapshot_number(self) -> int:
        """Number of the newest snapshot."""
        return self._snapshot

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
        self._tiering.stopped = True

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
            counters.all_frames != self._frames_seen
            or self._compaction.waiting
            or any(pack.dropped for pack in self._manifest.packs.values())
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
        room_bytes = self._files_to_empty.room_bytes
        return room_bytes is not None and not self._log.space.lacks(room_bytes + self._snapshot_bytes + BLOCK_BYTES)

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
    ) -> None:
        """Run one checkpoint, after the one in progress, if any.

        clean: the last one before the log is closed.
        moves: also move segments to the cold directory, after everything that the log waits for;
            the last one never does.
        whole: leave nothing in the log, on a full disk, too, or fail.
        on_shown: see `OnShown`. on_captured: see `OnCaptured`.

        Raises OSError or StorageError. A full disk and a lack of descriptors are tried again later.
        Any other error of a write or sync latches the log, because the contents of the disk are
        unknown then.
        """
        await self.until_idle()
        if self._stopped and not clean:
            return  # the one that it waited for was the last one: the log's files are closed
        self._running = done = Future[None]()
        try:
            await self._checkpoint(clean, moves and not clean, whole=whole, on_shown=on_shown, on_captured=on_captured)
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
        self, clean: bool, moves: bool, *, whole: bool, on_shown: OnShown, on_captured: OnCaptured | None
    ) -> None:
        began_ns, given_ns = self._loop.clock.monotonic_ns(), self._turns.given_ns
        counters, bound = self._log.counters, self._log.bound
        bytes_seen = counters.bytes_written
        held_bytes = bound.bytes
        self._turns.resume()
        scarce = self._log.disk_full or self._met_full_disk or await self._low_space.is_tight(self._snapshot_bytes)
        if scarce:
            self._live_at_attempt = live_rows(self._table) if self._log.disk_full else -1
            self._files_to_empty.room_bytes = None
            await self._log.drop_spares()
            scarce = not whole
        replay = await (self._cut_here() if scarce else self._cut())
        frames_seen = counters.all_frames
        if scarce:
            self._turns.resume()
            chosen = await self._files_to_empty.affordable(replay, self._least_bytes)
        else:
            chosen = self._files_to_empty.all_before(replay)
        is_whole = chosen.is_whole
        evacuation = await self._copy(chosen)
        await self.flag_deleted()
        await self._drop()
        self._check_emptied(chosen.files)
        self._replay = {**self._retired_shards, **replay}
        self._replay_shards = len(self._log.shards)
        await self.take_snapshot(clean=clean)
        self._remove()
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
        if on_captured is not None and is_whole:
            on_captured(await self._capture())
        if moves:
            await self._compact()
        await flag_dropped_runs(self._loop.files, self._config.data_dir, self._manifest, self._turns, self._captures)
        if moves:
            await self._move_to_cold()

    async def _compact(self) -> None:
        """Compact segments and packs with few live records, after the work that the log waits for.

        The snapshot that lists the new ones has the floors of that instant, too, so their missing
        records are to a replay what flagged ones are (`flag_deleted`).
        """
        chosen = await self._compaction.choose(self._room_for_copies())
        if self._stopped or not (chosen.segments or chosen.packs):
            return
        evacuation = self._evacuation()
        if chosen.segments:
            await self._format.raise_to(SECOND_DIRECTORY_FORMAT)
        for segments in chosen.segments:
            if not self._stopped and not await evacuation.write_anew(segments):
                self._compaction.leave(segment.file_id for segment in segments)
        for pack in chosen.packs:
            if not self._stopped and not await evacuation.write_pack_anew(pack):
                self._compaction.leave([pack.file_id])
        await evacuation.sync()
        await self.take_snapshot(clean=False)
        self._remove()

    def _room_for_copies(self) -> int:
        """Return how many bytes may be written beside the log and the next snapshot.

        Below the mark appends are refused already, so what is above the mark is no measure there.
        """
        try:
            free = self._log.space.free_bytes() - self._snapshot_bytes
        except OSError:
            return 1 << 62  # the file system does not report it
        above = free - self._config.disk_low_water_bytes
        return above if above > 0 else free

    async def _move_to_cold(self) -> None:
        """Move segments after everything that the log waits for.

        A slow cold directory then only delays the next checkpoint.
        """
        due = self._tiering.due()
        if due and self._tiering.compresses:
            await self._format.raise_to(SECOND_DIRECTORY_FORMAT)
        moved = await self._tiering.copy(due)
        self.counters.cold_failed = self._tiering.broken
        if not moved:
            return
        codecs = self._tiering.mark(moved)
        try:
            await self.take_snapshot(clean=False)
        except (OSError, StorageError):
            self._tiering.unmark(moved, codecs)  # the next checkpoint copies them again
            raise
        self._tiering.drop_hot(moved)

    async def _cut(self) -> dict[int, ReplayStart]:
        """Make every shard begin another file with a mark; return where replay begins there."""
        self._log.request_rotation()
        return await self._mark(range(len(self._log.shards)))

    async def _cut_here(self) -> dict[int, ReplayStart]:
        """Cut without another file, for which a full disk may have no space.

        There may be no space for a mark either, which only a shard needs whose file holds nothing.
        """
        shards = self._log.shards
        numbers = {shard: wal.file_no for shard, wal in enumerate(shards) if wal.file_no}
        replay = await self._mark([shard for shard in range(len(shards)) if shard not in numbers])
        await self._sync_log()
        return {**replay, **{shard: ReplayStart(number) for shard, number in numbers.items()}}

    async def _mark(self, shards: Iterable[int]) -> dict[int, ReplayStart]:
        """Write marks in these shards; return the files that they are in."""
        payload = msgspec.json.encode({"snapshot": self._snapshot})
        waits: dict[int, Future[Commit]] = {}
        with self._log.use_reserve():
            for shard in shards:
                staging = self._log.shards[shard].staging
                staging.stage_control(0, FrameType.CHECKPOINT, self._snapshot, self._loop.clock.now_ms(), payload)
                waits[shard] = Future[Commit]()
                staging.when_committed(True, waits[shard].set_result)
        self._log.bound.let_go()
        replay = {}
        for shard, future in waits.items():
            commit = await future
            if commit.error is not None:
                raise commit.error
            number = wal_file_no(self._table[commit.file_id].path.rpartition("/")[2])
            assert number is not None, "commits go to log files"
            replay[shard] = ReplayStart(number)
        return replay

    @property
    def _snapshot_bytes(self) -> int:
        """Estimated bytes of the next snapshot, by the last one.

        An older pair is removed only once it is written.
        """
        return COPIES * self._last_bytes

    @property
    def _least_bytes(self) -> int:
        """Estimated bytes of the next snapshot on a full disk.

        That is one copy, which may be somewhat larger; a second copy of the last one gives its
        space.
        """
        numbers = snapshot_numbers(self._loop.files, self._config.data_dir)
        return self._last_bytes // 4 + (self._last_bytes if len(numbers) < COPIES else 0)

    def _found_bytes(self) -> int:
        """Return the bytes of the snapshot that the start has found."""
        try:
            return self._loop.files.file_size(f"{self._config.data_dir}/{snapshot_path(self._snapshot)}")
        except OSError:
            return 0

    async def _copy(self, chosen: ChosenFiles) -> Evacuation:
        """Copy the live records of these log files."""
        evacuation = self._evacuation(all_shared=chosen.all_shared)
        ids = np.array(sorted(file.file_id for file in chosen.files), np.uint32)
        if len(ids):
            await evacuation.copy(self._catalog.topics_in_log(), ids)
        age_ms = self._config.segment_max_age_ms
        oldest = self._loop.clock.now_ms() - age_ms if age_ms else 0
        await evacuation.seal(await self._tails_before(oldest))
        await evacuation.sync()
        return evacuation

    async def _tails_before(self, created_ms: int) -> list[Segment]:
        """Return the unsealed segments that were created before and are worth sealing."""
        turns, found = self._turns, list[Segment]()
        turns.resume()
        for segments in self._manifest.segments.values():
            if turns.over:
                await turns.rest()
            tail = segments[-1]
            if tail.sealed or tail.created_ms >= created_ms:
                continue
            if tail.frames_end >= self._config.pack_run_bytes or self._compaction.is_sparse(tail):
                found.append(tail)
        return found

    def _evacuation(self, *, all_shared: bool = False) -> Evacuation:
        context = CopyContext(
            self._loop.files,
            self._reader,
            self._table,
            self._catalog,
            manifest=self._manifest,
            config=self._config,
            unsynced=self._unsynced,
            dead=self._unflagged,
            given_up=self._given_up,
            now_ms=self._loop.clock.now_ms(),
            random_bytes=self._loop.random_bytes,
            clock=self._loop.clock,
            counters=self.counters,
        )
        return Evacuation(
            context,
            turns=self._turns,
            loop=self._loop,
            segments_at_a_time=self._segments_at_a_time,
            all_shared=all_shared,
        )

    async def flag_deleted(self) -> None:
        """Flag the individually deleted records in segments and packs.

        A replay derives evictions by caps again, from the records that were live then. A flagged
        record would be missing there, so the current floors become durable first, in a snapshot
        that changes nothing else: the log after it is the same as before. It names the files, for a
        start after an interrupted flagging.
        """
        turns = self._turns
        turns.resume()
        for _ in self._catalog.prepare_deletions():
            if turns.over:
                await turns.rest()
        self._unflagged += self._catalog.take_deletions()
        if not self._unflagged:
            self._doubtful = frozenset()
            return
        about = {entry.file_id for entry in self._unflagged}
        await self.take_snapshot(clean=False, flagging=self._manifest.paths_of(about))
        files = self._loop.files
        flagging = DeleteFlags(files, files.write_nowait, Tiers.of(self._config), self._manifest, self._captures)
        await flagging.flag(self._unflagged)
        self._unflagged.clear()
        self._doubtful = frozenset()

    async def _drop(self) -> None:
        """Remove segments and runs without a live record from the manifest."""
        manifest, catalog, turns = self._manifest, self._catalog, self._turns
        turns.resume()
        for topic_id in manifest.topic_ids():
            if turns.over:
                await turns.rest()
            if catalog.is_untouched(topic_id):
                continue
            lowest = catalog.lowest_live_seq(topic_id) if catalog.exists(topic_id) else 1 << 64
            for segment in list(manifest.segments.get(topic_id, ())):
                if segment.last_seq < lowest or self._is_dead(topic_id, segment):
                    manifest.drop_segment(segment)
                    self._given_up.append(segment.file_id)
            runs = manifest.runs.get(topic_id)
            if runs and runs[0][1].last_seq < lowest:  # They are in the order of their seqs.
                dead_runs = {(pack.number, run.number) for pack, run in runs if run.last_seq < lowest}
                manifest.drop_runs(topic_id, dead_runs)
        packs = [pack for pack in manifest.packs.values() if not pack.runs]
        for pack in packs:
            del manifest.packs[pack.number]
            self._given_up.append(pack.file_id)

    def _is_dead(self, topic_id: int, segment: Segment) -> bool:
        """Return whether all records of a sealed segment were deleted individually."""
        stored = self._table.get(segment.file_id)
        if not segment.sealed or stored is None or stored.live_rows:
            return False
        here = np.array([segment.file_id], np.uint32)
        return not self._catalog.rows_in_files(
            topic_id, here, first_seq=segment.first_seq, last_seq=segment.last_seq, rows_max=1
        )

    def _check_emptied(self, files: list[StoredFile]) -> None:
        """Check that no record still needs a log file that is about to be recycled.

        That bug would lose records.
        """
        for file in files:
            if file.live_rows:
                raise StorageError(f"{file.path}: {file.live_rows} records were not copied; the log file is kept")

    async def take_snapshot(self, *, clean: bool, flagging: Collection[str] = ()) -> None:
        """Write a snapshot of the catalog and the files in use, of one instant.

        flagging: see StorePart.
        Raises: OSError.
        """
        files = await self._pack_files(self._manifest.segments.values())
        await self._prepare_snapshot()
        store = self._store_part(files, clean=clean, flagging=flagging)
        catalog = self._catalog.snapshot()
        self._last_bytes = sum(map(len, store)) + sum(map(len, catalog))
        await self._sync_log()
        self._snapshot = await write_snapshot(
            self._loop.files,
            self._config.data_dir,
            after=self._snapshot,
            now_ms=self._loop.clock.now_ms(),
            store=store,
            catalog=catalog,
            body_sum=await a_step_a_pass(self._loop.next_pass, sum_in_steps(store, catalog)),
        )

    async def _prepare_snapshot(self) -> None:
        """Let the catalog prepare its part; the snapshot has to be taken before the next await."""
        self._turns.resume()
        for _ in self._catalog.prepare_snapshot(self._config.checkpoint_topics_per_pass):
            await self._turns.rest()

    async def _pack_files(self, segments: Iterable[Sequence[Segment]]) -> PackedFiles:
        """Encode these segments and all packs. Nothing else changes them during a checkpoint."""
        turns, files = self._turns, PackedFiles()
        turns.resume()
        for some in segments:
            files.add_segments(some)
            if turns.over:
                await turns.rest()
        for pack in list(self._manifest.packs.values()):
            files.add_pack(pack)
            if turns.over:
                await turns.rest()
        return files

    def _store_part(self, files: PackedFiles, *, clean: bool, flagging: Collection[str]) -> list[bytes]:
        """Return the store's part of a snapshot of this instant, packed, in pieces."""
        part = StorePart(
            replay=self._replay,
            segments=[],
            packs=[],
            boot=self._loop.ring.boot_id(),
            shards=self._replay_shards,
            clean=clean,
            flagging=sorted({*flagging, *self._doubtful}),
        )
        return files.packed_with(part)

    async def _capture(self) -> Capture:
        """Return a capture of the end of a checkpoint, while nothing else changes or removes files.

        In a copy of it, the segments of the cold directory are in the same directory as all others.
        """
        capture = self._captures.begin(self._format.number, self._snapshot + 1)
        try:
            files = await self._pack_files([await self._hold_sealed(capture)])
            await self._prepare_snapshot()
            capture.store = self._store_part(files, clean=False, flagging=())
            capture.catalog = self._catalog.snapshot()
            await self._sync_log()
        except BaseException:
            capture.release()
            raise
        capture.taken_ms = self._loop.clock.now_ms()
        root = f"{self._config.data_dir}/"
        for file, end in self._log.files_to_ends():
            if not is_before(file, self._replay):
                capture.hold(capture.log, HeldFile(file, file.path, file.path.removeprefix(root), end))
        return capture

    async def _hold_sealed(self, capture: Capture) -> list[Segment]:
        """Hold all segments and packs; return the segments as the copy lists them."""
        turns, tiers, listed = self._turns, Tiers.of(self._config), list[Segment]()
        turns.resume()
        for segment in self._manifest.all_segments():
            if turns.over:
                await turns.rest()
            stored, size = self._table[segment.file_id], -1 if segment.sealed else segment.frames_end
            # Where it is listed: reads may use a file of before a move, which gets no delete flags.
            path = tiers.path(segment)
            held = HeldFile(stored, path, segment.path, size, is_sealed=segment.sealed, has_index=True)
            capture.hold(capture.sealed, held)
            listed.append(segment if segment.tier == HOT else msgspec.structs.replace(segment, tier=HOT))
        for pack in self._manifest.packs.values():
            stored = self._table[pack.file_id]
            capture.hold(capture.sealed, HeldFile(stored, stored.path, pack.path, -1, is_sealed=True))
        return listed

    async def _sync_log(self) -> None:
        """Make everything committed so far durable."""
        waits: list[Future[Commit]] = []
        for wal in self._log.shards:
            future: Future[Commit] = Future()
            wal.staging.when_committed(True, future.set_result)
            waits.append(future)
        self._log.bound.let_go()
        for future in waits:
            error = (await future).error
            if error is not None:
                raise error

    def _remove(self) -> None:
        """Unlink files that no snapshot lists any more, once their readers have finished."""
        self._opener.remove_owed()
        given_up, self._given_up[:] = self._given_up[:], []
        for file_id in given_up:
            stored = self._table.get(file_id)
            if stored is not None:
                stored.when_unread(partial(self._unlink, stored))

    def _unlink(self, file: StoredFile) -> None:
        """Unlink a file. It leaves the table at once, so that nothing begins to read it."""
        file.live_rows = 0  # by the catalog; rows below a floor may still be counted
        self._table.remove(file)
        self._opener.forget(file)
        index = [index_path(file.path)] if file.kind is FileKind.SEGMENT else []
        self._loop.spawn(self._opener.remove(file.fd, file.path, *index), "drop")
