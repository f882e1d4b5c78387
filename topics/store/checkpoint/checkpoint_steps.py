"""The steps of a checkpoint. Their order is in checkpointer.py, and so is the rule for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import numpy as np

from topics.errors import StorageError
from topics.loop.tasks import Future
from topics.store.checkpoint.capture import Captures
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.checkpoint.checkpoint_parts import CheckpointParts
from topics.store.checkpoint.compaction import Compaction
from topics.store.checkpoint.copy_context import CopyContext, Unsynced
from topics.store.checkpoint.delete_flags import DeleteFlags
from topics.store.checkpoint.dropped_runs import flag_dropped_runs
from topics.store.checkpoint.evacuation import Evacuation
from topics.store.checkpoint.files_to_empty import ChosenFiles
from topics.store.checkpoint.snapshot_taker import SnapshotTaker
from topics.store.checkpoint.tiering import Tiering
from topics.store.commits.write_batch import Commit
from topics.store.disk.time_slices import TimeSlices
from topics.store.format.catalog import Deletions
from topics.store.format.file_table import FileKind, StoredFile
from topics.store.format.log_format import FrameType, wal_file_no
from topics.store.layouts.directory_names import SECOND_DIRECTORY_FORMAT, index_path
from topics.store.segments.data_files import Segment
from topics.store.segments.store_part import ReplayStart
from topics.store.segments.tiers import Tiers


class CheckpointSteps:
    """The steps of the checkpoints of a store, and what one leaves to the next."""

    def __init__(
        self,
        parts: CheckpointParts,
        *,
        snapshots: SnapshotTaker,
        captures: Captures,
        turns: TimeSlices,
        segments_at_a_time: Callable[[], int],
        counters: CheckpointCounters,
    ) -> None:
        """segments_at_a_time: returns how many segments are filled side by side."""
        self._loop = parts.loop
        self._config = parts.config
        self._log = parts.wal
        self._reader = parts.reader
        self._table = parts.table
        self._opener = parts.opener
        self._catalog = parts.catalog
        self._manifest = parts.manifest
        self._format = parts.directory_format
        self._snapshots = snapshots
        self._captures = captures
        self._turns = turns
        self._segments_at_a_time = segments_at_a_time
        self._counters = counters
        self._compaction = Compaction(parts.catalog, parts.manifest, parts.table, parts.config, turns)
        self._tiering = Tiering(parts.loop, parts.config, parts.manifest, parts.table, parts.opener)
        self._unsynced = Unsynced({}, {})
        self._unflagged: list[Deletions] = []
        """Deleted records whose flag is not on the disk yet; outlives a checkpoint that failed."""
        self._given_up: list[int] = []
        """Ids of segments and packs that the next snapshot does not list.

        They are removed once it is written.
        """
        self._stopped = False

    @property
    def is_work_left(self) -> bool:
        """Whether a checkpoint has work although nothing was written since the last one."""
        return self._compaction.waiting or any(pack.dropped for pack in self._manifest.packs.values())

    def stop(self) -> None:
        """Begin nothing more that the log does not wait for."""
        self._stopped = True
        self._tiering.stopped = True

    async def cut(self) -> dict[int, ReplayStart]:
        """Make every shard begin another file with a mark; return where replay begins there."""
        self._log.request_rotation()
        return await self._mark(range(len(self._log.shards)))

    async def cut_here(self) -> dict[int, ReplayStart]:
        """Cut without another file, for which a full disk may have no space.

        There may be no space for a mark either, which only a shard needs whose file holds nothing.
        """
        shards = self._log.shards
        numbers = {shard: wal.file_no for shard, wal in enumerate(shards) if wal.file_no}
        replay = await self._mark([shard for shard in range(len(shards)) if shard not in numbers])
        await self._snapshots.sync_log()
        return {**replay, **{shard: ReplayStart(number) for shard, number in numbers.items()}}

    async def _mark(self, shards: Iterable[int]) -> dict[int, ReplayStart]:
        """Write marks in these shards; return the files that they are in."""
        payload = msgspec.json.encode({"snapshot": self._snapshots.number})
        waits: dict[int, Future[Commit]] = {}
        with self._log.use_reserve():
            for shard in shards:
                staging, now_ms = self._log.shards[shard].staging, self._loop.clock.now_ms()
                staging.stage_control(0, FrameType.CHECKPOINT, self._snapshots.number, now_ms, payload)
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

    async def copy(self, chosen: ChosenFiles) -> Evacuation:
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
            counters=self._counters,
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
            self._snapshots.doubtful = frozenset()
            return
        about = {entry.file_id for entry in self._unflagged}
        await self._snapshots.take(clean=False, flagging=self._manifest.paths_of(about))
        files = self._loop.files
        flagging = DeleteFlags(files, files.write_nowait, Tiers.of(self._config), self._manifest, self._captures)
        await flagging.flag(self._unflagged)
        self._unflagged.clear()
        self._snapshots.doubtful = frozenset()

    async def drop(self) -> None:
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

    def check_emptied(self, files: list[StoredFile]) -> None:
        """Check that no record still needs a log file that is about to be recycled.

        That bug would lose records.
        """
        for file in files:
            if file.live_rows:
                raise StorageError(f"{file.path}: {file.live_rows} records were not copied; the log file is kept")

    def remove(self) -> None:
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

    async def compact(self) -> None:
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
        await self._snapshots.take(clean=False)
        self.remove()

    def _room_for_copies(self) -> int:
        """Return how many bytes may be written beside the log and the next snapshot.

        Below the mark appends are refused already, so what is above the mark is no measure there.
        """
        try:
            free = self._log.space.free_bytes() - self._snapshots.next_bytes
        except OSError:
            return 1 << 62  # the file system does not report it
        above = free - self._config.disk_low_water_bytes
        return above if above > 0 else free

    async def flag_dropped(self) -> None:
        """Flag the frames of runs that were dropped, in packs that stay for other topics."""
        await flag_dropped_runs(self._loop.files, self._config.data_dir, self._manifest, self._turns, self._captures)

    async def move_to_cold(self) -> None:
        """Move segments after everything that the log waits for.

        A slow cold directory then only delays the next checkpoint.
        """
        due = self._tiering.due()
        if due and self._tiering.compresses:
            await self._format.raise_to(SECOND_DIRECTORY_FORMAT)
        moved = await self._tiering.copy(due)
        self._counters.cold_failed = self._tiering.broken
        if not moved:
            return
        codecs = self._tiering.mark(moved)
        try:
            await self._snapshots.take(clean=False)
        except (OSError, StorageError):
            self._tiering.unmark(moved, codecs)  # the next checkpoint copies them again
            raise
        self._tiering.drop_hot(moved)
