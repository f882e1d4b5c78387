"""The start of a store: recovered, written on, and then given to its owner as `StoreParts`.

After recovery has read everything, the log continues in new files. The first write to them is the
tail that recovery read but that is not known to be synced. After a failed sync the page cache may
have shown it although the disk does not have it, so it is written again and synced before any
client gets an answer that depends on it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import numpy as np

from topics.config import Config
from topics.errors import DiskFullError
from topics.loop.loop import Loop, PassEnd
from topics.loop.tasks import Future
from topics.store.archive.archive_note import mark_losses
from topics.store.checkpoint.checkpoint_parts import CheckpointParts
from topics.store.checkpoint.checkpointer import Checkpointer
from topics.store.checkpoint.requested_checkpoints import RequestedCheckpoints
from topics.store.checkpoint.snapshot_taker import FoundSnapshot
from topics.store.commits.write_batch import Commit
from topics.store.disk.directory_format import DirectoryFormat
from topics.store.disk.disk_space import is_full, lacks_space
from topics.store.disk.open_files import OpenFiles
from topics.store.disk.time_slices import a_step_a_pass
from topics.store.disk.uncached_reads import is_direct
from topics.store.disk.whole_files import lacks_descriptors
from topics.store.format.catalog import Catalog
from topics.store.format.file_table import FileTable, StoredFile
from topics.store.format.log_format import FrameType, wal_file_no
from topics.store.format.row_columns import indices_by_topic
from topics.store.layouts.directory_names import TOPICS_DIRECTORY
from topics.store.read.compressed_reads import CompressedReads
from topics.store.read.file_prefetch import FilePrefetch
from topics.store.read.reader import Reader
from topics.store.recovery.log_replay import TailPart
from topics.store.recovery.recovery import APPLIED_A_PASS, Progress, Recovered, recover, unlink_all
from topics.store.recovery.recovery_counters import RecoveryCounters
from topics.store.recovery.session_note import LatchNote, SessionNote, note_lost_writes, read_session, write_session
from topics.store.segments.snapshot_files import write_snapshot
from topics.store.segments.store_part import ReplayStart, StorePart, pack_store_part
from topics.store.segments.tiers import Tiers
from topics.store.wal.sharded_log import ShardedLog, ShardStart
from topics.store.wal.wal_files import name_spares, wait_to_be_archived

log = logging.getLogger(__name__)


class StoreParts(NamedTuple):
    """A store that has started, in its parts."""

    files: FileTable
    log: ShardedLog
    opener: OpenFiles
    reader: Reader
    checkpointer: Checkpointer
    requested: RequestedCheckpoints
    latch_note: LatchNote
    power_lost: bool
    """Whether the machine went down since the directory was last used."""
    skipped_snapshots: list[str]
    """Paths of newer snapshots that were damaged."""
    recovery: RecoveryCounters


class StoreStart:
    """The start of one store in a directory that is locked. `fail` follows a `run` that raised.

    is_frozen: nothing is written. The log is not continued, and the tail stays where it is.
    """

    def __init__(self, loop: Loop, config: Config, catalog: Catalog, *, is_frozen: bool = False) -> None:
        self._loop = loop
        self._is_frozen = is_frozen
        self._config = config
        self._catalog = catalog
        self.files = catalog.files
        self.log = ShardedLog(loop, config, self.files)
        self.opener = OpenFiles(loop)
        prefetch = FilePrefetch(loop.files, config.prefetch_bytes)
        self.files.on_removed.append(prefetch.forget)
        self.reader = Reader(
            loop.files, self.files, self.log.tail, self.opener, CompressedReads(loop), prefetch=prefetch
        )
        self.power_lost = False
        self.skipped_snapshots: list[str] = []
        self._found_snapshot = 0
        """Number of the newest snapshot when the log was opened; 0: none."""
        self._lost_writes = False
        """Whether the session before noted that a write or sync failed."""

    async def run(self, progress: Progress, directory_format: DirectoryFormat) -> StoreParts:
        """Recover, and fill the catalog: everything in it is durable on return."""
        loop, config, directory = self._loop, self._config, self._config.data_dir
        began_ns = loop.clock.monotonic_ns()
        session = await read_session(loop, directory)
        self._lost_writes = session is not None and session.lost_writes
        found = await recover(
            loop,
            Tiers.of(config),
            self._catalog,
            file_bytes=config.wal_file_bytes,
            progress=progress,
            lost_writes=self._lost_writes,
            is_frozen=self._is_frozen,
        )
        _report_cuts(found)
        loaded = found.loaded
        number = self._found_snapshot = loaded.number if loaded is not None else await self._write_first_snapshot()
        self.power_lost = loaded is not None and self._lost_power(found, session)
        self.skipped_snapshots = loaded.skipped if loaded is not None else []
        for path in self.skipped_snapshots:
            log.error("snapshot %s is damaged and was passed over", path)
        if self._is_frozen:
            await self._freeze_log(found)
        else:
            await self._continue_log(found)
        has_gaps = await a_step_a_pass(loop.next_pass, self._catalog.recovered(power_lost=self.power_lost))
        parts = CheckpointParts(
            loop,
            config,
            wal=self.log,
            reader=self.reader,
            table=self.files,
            opener=self.opener,
            catalog=self._catalog.checkpoints,
            manifest=found.manifest,
            directory_format=directory_format,
        )
        checkpointer = Checkpointer(parts, self._found_before(found, number))
        requested = RequestedCheckpoints(loop, checkpointer, self.log)
        latch_note = LatchNote(loop, directory, self.log.space, lambda: checkpointer.snapshot_number)
        if not self._is_frozen:
            await self._begin_session(found, checkpointer, latch_note, has_gaps=has_gaps)
        progress(1.0)
        return StoreParts(
            self.files,
            self.log,
            self.opener,
            self.reader,
            checkpointer,
            requested,
            latch_note,
            self.power_lost,
            self.skipped_snapshots,
            RecoveryCounters(
                (loop.clock.monotonic_ns() - began_ns) // 1_000_000,
                found.frames,
                sum(cut.size for cut in found.cuts),
            ),
        )

    async def _begin_session(
        self, found: Recovered, checkpointer: Checkpointer, latch_note: LatchNote, *, has_gaps: bool
    ) -> None:
        """Make what was found durable, and note that a process uses the directory from now on."""
        loop, config, directory = self._loop, self._config, self._config.data_dir
        has_all_in_log = not (has_gaps or self.power_lost or self._has_other_shards(found))
        if not has_all_in_log or not config.archive_dir:
            without = "the log was opened without it: TOPICS_ARCHIVE_DIR is not set, or topics move between cores"
            why = "" if config.archive_dir else without
            await self._or_with_reserve(lambda: mark_losses(loop.files, directory, why))
        await self._or_with_reserve(lambda: self._settle(found, checkpointer, has_gaps=has_gaps))
        await self._or_with_reserve(lambda: write_session(loop, directory, checkpointer.snapshot_number))
        self.log.write_latch.on_latch.append(latch_note.begin)
        if self.log.read_only:  # the latch came before the callback
            latch_note.begin()
        checkpointer.start()

    async def _freeze_log(self, found: Recovered) -> None:
        """Leave the log as it is, and its tail on stable storage where it is."""
        for replay in found.shards.values():
            try:
                await replay.sync_tail()
            except OSError as error:
                if error.errno != errno.EROFS:  # nothing is unsynced there
                    raise
        self.log.freeze()

    async def _continue_log(self, found: Recovered) -> None:
        """Free what is not needed, continue the log in new files, and write its tail there."""
        loop, directory = self._loop, self._config.data_dir
        if self._config.archive_dir:
            await self._keep_for_archive(found)
        await unlink_all(loop, self._unneeded(found))
        for shard, start in found.replay.items():
            if shard in found.surveys and shard < self._shards:
                survey = found.surveys[shard]
                spares = await name_spares(loop.files, survey.spares, start.file_no)
                found.surveys[shard] = survey._replace(spares=spares)
        if TOPICS_DIRECTORY in loop.files.list_directory(directory):
            # a killed process may not have synced it
            await loop.files.sync_directory(f"{directory}/{TOPICS_DIRECTORY}")
        if self._lacks_space_for_tails(found):
            for replay in found.shards.values():
                await replay.sync_tail()
        await self.log.open(self._starts(found))
        loop.on_pass_end(self.log.flush, PassEnd.COMMITS)
        await self._rewrite_tails(found)

    async def _keep_for_archive(self, found: Recovered) -> None:
        """Let files wait to be archived that a killed process had no time to reuse.

        Nothing else of theirs is needed: a snapshot or a later file has it.
        """
        for shard, survey in found.surveys.items():
            first = found.replay[shard].file_no if shard in found.replay else 0
            for paths in (survey.stale, survey.spares):
                for path in list(paths):
                    number = wal_file_no(path.rpartition("/")[2])
                    if number is not None and number < first:
                        await wait_to_be_archived(self._loop.files, path)
                        paths.remove(path)

    async def _or_with_reserve(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a step; if a full disk fails it, release the reserve and run it again.

        A start on a full disk may use the reserve, because deleting needs a server. A checkpoint
        that found the disk full has released the reserve itself, so there is space for another try.
        """
        space = self.log.space
        had_reserve = space.holds_reserve
        try:
            await step()
        except (DiskFullError, OSError) as error:
            if not lacks_space(error) or not had_reserve:
                raise
            log.warning("the disk is full; the start uses the reserve: %s", error)
            space.note_full()  # first, or log files that are prepared ahead take the space
            await space.release_reserve()
            await step()

    async def _write_first_snapshot(self) -> int:
        """Write the snapshot of an empty directory, before anything else.

        A directory without a snapshot is then known to have lost it.
        """
        loop, directory = self._loop, self._config.data_dir
        loop.files.make_directory(f"{directory}/snapshots")
        await loop.files.sync_directory(directory)
        part = StorePart({}, [], [], loop.ring.boot_id(), self._shards)
        return await write_snapshot(
            loop.files,
            directory,
            after=0,
            now_ms=loop.clock.now_ms(),
            store=[pack_store_part(part)],
            catalog=self._catalog.checkpoints.snapshot(),
        )

    @property
    def _shards(self) -> int:
        return max(1, self._config.wal_shards)

    def _lost_power(self, found: Recovered, session: SessionNote | None) -> bool:
        assert found.loaded is not None, "asked of a directory that was used"
        stored = found.loaded.store
        if self._lost_writes:
            return True  # no clean snapshot follows a note of lost writes, whatever its number
        if stored.log_cut:
            return True  # records that a rebuild gave up may have been acknowledged
        if stored.clean and (session is None or session.snapshot < found.loaded.number):
            return False
        return (session.boot if session is not None else stored.boot) != self._loop.ring.boot_id()

    def _unneeded(self, found: Recovered) -> list[str]:
        """Return the paths of log files with nothing needed that no shard takes into use again."""
        surveys = found.surveys.items()
        return [path for _, survey in surveys for path in survey.stale] + [
            path for shard, survey in surveys if shard >= self._shards for path in survey.spares
        ]

    def _starts(self, found: Recovered) -> list[ShardStart]:
        """Return where each shard continues.

        Batches not known to be synced are numbered, and written, again.
        """
        starts = []
        for shard in range(self._shards):
            survey, replay = found.surveys.get(shard), found.shards.get(shard)
            first = max(
                survey.last_file_no + 1 if survey is not None else 1,
                found.replay[shard].file_no if shard in found.replay else 1,
            )
            last_batch_no = min(replay.synced_upto, replay.last_batch_no) if replay is not None else 0
            starts.append(ShardStart(first, last_batch_no, tuple(survey.spares) if survey is not None else ()))
        return starts

    def _lacks_space_for_tails(self, found: Recovered) -> bool:
        """Return whether there may be no space to write the tails again.

        They are then synced where they are: what was read past the page cache is what the disk has.
        If no read bypassed it, the start has to wait for space.
        """
        ring, directory = self._loop.ring, self._config.data_dir
        if not is_direct(ring.direct_block_bytes(directory)):
            return False
        tails = sum(replay.tail_bytes for shard, replay in found.shards.items() if shard < self._shards)
        # they are created first
        files = self._shards * self.log.sizes.file + self.log.space.reserve_bytes
        return tails > 0 and self.log.space.lacks(tails + files)

    async def _rewrite_tails(self, found: Recovered) -> None:
        """Stage each shard's unsynced tail as one batch, sync it and move its rows there.

        It is one batch, because the first whole batch of a new file replaces the old file, whole or
        not at all. A shard that is no longer in use keeps its tail, synced where it is: `_settle`
        copies everything into segments before any request is served, but snapshots until then have
        deletes that only the tail records.
        """
        waits: list[tuple[list[TailPart], list[int], Future[Commit]]] = []
        taken_over: list[StoredFile] = []
        for shard, replay in found.shards.items():
            if shard >= self._shards:
                await replay.sync_tail()
                continue
            parts = await replay.tail()
            if not parts:
                continue
            staging = self.log.shards[shard].staging
            with self.log.use_reserve():
                starts = [staging.stage_frames(part.body, len(part.frames)) for part in parts]
            future: Future[Commit] = Future()
            staging.when_committed(True, future.set_result)
            taken_over += replay.superseded(replay.synced_upto + 1)
            waits.append((parts, starts, future))
        for parts, starts, future in waits:
            commit = await future
            if commit.error is not None:
                raise commit.error
            await self._move(parts, starts, commit)
        for replay in found.shards.values():
            await unlink_all(self._loop, replay.lost)
        # A server that is killed again and again then needs no more space than one killed once.
        for stored in taken_over:
            stored.superseded = True
            if not stored.live_rows:
                await self.log.retire(stored)

    async def _move(self, parts: list[TailPart], starts: list[int], commit: Commit) -> None:
        """Point the rows of the tail to their new places, those of some topics in a pass."""
        frames = np.concatenate([part.frames for part in parts])
        shifts = np.repeat(starts, [len(part.frames) for part in parts]) + commit.base
        is_record = frames["type"] == FrameType.RECORD
        records, offsets = frames[is_record], (frames["offset"] + shifts.astype(np.uint64))[is_record]
        for number, (topic_id, where) in enumerate(indices_by_topic(records["topic_id"]), 1):
            self._catalog.moved(topic_id, records["seq"][where], commit.file_id, offsets[where].astype(np.uint32))
            if number % APPLIED_A_PASS == 0:
                await self._loop.next_pass()

    async def _settle(self, found: Recovered, checkpointer: Checkpointer, *, has_gaps: bool) -> None:
        """Make durable what the first answer needs: crash gaps, a log of another shard count."""
        if self._has_other_shards(found):
            assert found.loaded is not None, "the directory was used"
            # A topic may be in another shard from now on: what stayed in this one would be replayed
            # in any order.
            await checkpointer.run(moves=False, whole=found.loaded.store.shards != self._shards)
            return
        if self._lost_writes:  # also flags in segments and packs that the page cache still shows
            await checkpointer.steps.flag_deleted()
        stored = found.loaded.store if found.loaded is not None else None
        if has_gaps or self.power_lost or (stored is not None and (stored.rebuilt or stored.log_cut)):
            await checkpointer.snapshots.take(clean=False)

    def _found_before(self, found: Recovered, number: int) -> FoundSnapshot:
        """Return what checkpoints need of the snapshot with which the log continues."""
        stored = found.loaded.store if found.loaded is not None else None
        return FoundSnapshot(
            number,
            found.replay,
            replay_shards=stored.shards if stored is not None else self._shards,
            retired_shards={
                shard: ReplayStart(survey.last_file_no + 1, marked=False)
                for shard, survey in found.surveys.items()
                if shard >= self._shards
            },
            doubtful=stored.flagging if stored is not None else (),
        )

    def _has_other_shards(self, found: Recovered) -> bool:
        """Return whether the log had another number of shards."""
        in_use_no_more = any(survey.used for shard, survey in found.surveys.items() if shard >= self._shards)
        return found.loaded is not None and (found.loaded.store.shards != self._shards or in_use_no_more)

    async def fail(self, error: Exception) -> None:
        """Close everything after a failed start.

        If a disk failed, note it for the next start, because the page cache may show what the disk
        lacks.
        """
        with contextlib.suppress(OSError):
            # a task that zeroes a file would continue in a reused descriptor
            await self.log.close()
        await self.opener.end()
        await close_files(self._loop, self.files)  # the note needs a descriptor
        broke = isinstance(error, OSError) and not is_full(error) and not lacks_descriptors(error)
        if (broke or self.log.read_only) and not self._is_frozen:
            await note_lost_writes(self._loop, self._config.data_dir, self._found_snapshot, self.log.space)


def _report_cuts(found: Recovered) -> None:
    for cut in found.cuts:
        log.warning(
            "recovery cut off %d bytes of %s from byte %d on: the log ends before a batch that is not whole",
            cut.size,
            cut.path,
            cut.offset,
        )


async def close_files(loop: Loop, files: FileTable) -> None:
    """Close the descriptors of all files."""
    for file in files:
        for fd in (file.fd, file.direct_fd):
            if fd >= 0:
                await loop.files.close(fd)
        file.fd = file.direct_fd = -1
