"""The archive of an open store: its log is copied as it grows, and bases are made now and then.

A step waits until the log is synced, copies what is new, and replaces the note. A log file that is
no longer needed is reused only once it is archived; until then it waits under another name, and the
log continues in a new one. So a slow target delays no writer. Once more than
`archive_keep_bytes` wait, they are given up: the archive has a hole then, and begins anew with a
base, which is a backup.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import msgspec

from topics.common.values.archive_state import HOLE
from topics.common.values.backup_result import BackupResult
from topics.common.values.time_texts import time_text
from topics.config import Config
from topics.errors import CorruptError, FormatError, StorageError
from topics.loop.files import SyncFailedError
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.loop.timers import Timer
from topics.store.archive.archive_bases import ArchiveBases
from topics.store.archive.archive_note import (
    NOTE_OF_CORES,
    ArchiveNote,
    Hole,
    OwnTimeline,
    ShardEnd,
    name_timeline,
    new_timeline,
    own_timeline,
    read_note,
    timeline_names,
    write_note,
)
from topics.store.archive.archive_place import ArchivePlace
from topics.store.archive.archive_retention import kept_from, remove_old, remove_old_joints, remove_old_timelines
from topics.store.archive.archived_log import archived_directory
from topics.store.archive.joint_timeline import CoreTimes, write_joint_map
from topics.store.archive.log_copy import LogCopy, MissingLogError, OtherLogError
from topics.store.archive.log_sources import take_ends
from topics.store.archive.waiting_log import WaitingLog
from topics.store.backup.backup_manifest import log_files_after
from topics.store.backup.backups import Backups
from topics.store.disk.whole_files import list_if_there, unlink_if_there
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import wal_file_no
from topics.store.wal.sharded_log import ShardedLog
from topics.store.wal.wal_files import shard_and_number

log = logging.getLogger(__name__)

_RETRY_MAX_MS = 10_000
_IDLE_NOTE_MS = 60_000
"""Interval of the notes of a log to which nothing is written."""
_FOLLOWED_NOTE_MS = 1_000
"""That of one of several cores, as long as a mirror asks for its time."""


class ArchiveStats(NamedTuple):
    """Numbers of an archive."""

    upto_ms: int
    """Unix ms: all that was acknowledged until then is archived. 0: not known yet."""
    lag_ms: int
    """Age of the newest time that can be restored; while there is none, ms since the start."""
    waiting_bytes: int
    """Bytes of log files that wait to be archived."""
    copied_bytes: int
    failures: int
    holes: int
    """Holes of the timeline, those of earlier processes included, and between those of this one."""
    error: str
    """Why the last step failed; "" if it did not."""


NO_ARCHIVE = ArchiveStats(0, 0, 0, 0, 0, 0, "")


def _text_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


class Archiver:
    """The archive of one store. Made with the store, it runs from `start` to `end`."""

    def __init__(self, loop: Loop, config: Config, store_log: ShardedLog, backups: Backups, opened_ms: int) -> None:
        """opened_ms: Unix ms before which this process has written no log."""
        self._loop = loop
        self._files = loop.files
        self._config = config
        self._log = store_log
        self._bases = ArchiveBases(loop, config, backups)
        self._waiting = WaitingLog(loop, config, store_log)
        self._copy: LogCopy | None = None
        self._note = ArchiveNote()
        self._line = ""
        """The name of the first timeline of this log's line."""
        self._place = ArchivePlace(loop, config.archive_dir)
        self._core = CoreTimes.of(loop, config.archive_dir, opened_ms)
        """The times that the notes of one of several cores have; None: there is only one."""
        self._has_lost = False
        """Whether an earlier process has left word of losses that are not noted yet."""
        self._breaks = 0
        """Timelines that were begun because nothing could be added to the one before."""
        self._made_ms = loop.clock.now_ms()
        self._restorable_ns = loop.clock.monotonic_ns()
        """Loop time at which all that had been written could be restored; before, the start's."""
        self._timer: Timer | None = None
        self._running: Future[None] | None = None
        self._retry_ms = config.archive_every_ms
        self._stopped = False
        self._is_asked = False
        """Whether a mirror has asked for the time since the last note."""
        self._equal_ms = 0
        """Unix ms at which the archive had all of the log, by its note or later without one."""
        self._copied_before = 0
        self._failures = 0
        self._error = ""

    @property
    def stats(self) -> ArchiveStats:
        copied = self._copied_before + (self._copy.copied_bytes if self._copy is not None else 0)
        note = self._note
        clock = self._loop.clock
        # The clock may have been set back, also before the start: then the time since is known.
        since_ms = (clock.monotonic_ns() - self._restorable_ns) // 1_000_000
        lag_ms = max(since_ms, clock.now_ms() - (self._restorable_ms or self._made_ms))
        failures = self._failures + self._bases.failures
        # A target that fails takes no note of the hole that it has got.
        is_unnoted = note.open_hole is None and (self._has_lost or self._waiting.lacks_given_up(note.shards))
        holes = len(note.holes) + self._breaks + is_unnoted
        return ArchiveStats(note.upto_ms, lag_ms, self._waiting.bytes, copied, failures, holes, self._error)

    @property
    def bases(self) -> tuple[str, ...]:
        """The names of the bases of the timeline, oldest first."""
        return self._bases.names

    @property
    def timeline(self) -> str:
        """The name of the timeline that the log is copied to; "" while there is none."""
        return "" if self._copy is None else os.path.basename(self._copy.timeline)

    @property
    def note(self) -> ArchiveNote:
        """How far that timeline is, durably; an empty one while there is none."""
        if self._copy is None:
            return ArchiveNote()
        if self._core is not None:
            # Later times could come again after a start, and none would notice (R-CORE-16).
            return self._note
        # That of an idle log is written once a minute.
        return msgspec.structs.replace(self._note, upto_ms=self._equal_ms)

    def note_asked(self) -> None:
        """Have the next steps note the time of an idle core soon: a mirror asks for it."""
        self._is_asked = True

    @property
    def _restorable_ms(self) -> int:
        """Unix ms up to which all that was written can be restored; 0: nothing can."""
        hole = self._note.open_hole
        if not self._bases.last_ms:
            return 0
        return self._equal_ms if hole is None else hole.from_ms

    # --- what the log asks -------------------------------------------------------------------------------------------
    def may_go(self, file: StoredFile) -> bool:
        """Return whether a log file that is no longer needed may be reused."""
        shard, number = shard_and_number(file)
        end = self._note.shards.get(shard)
        if end is not None and (number < end.file_no or (number == end.file_no and file.size <= end.size)):
            return True
        return not self._waiting.add(file)

    # --- when --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin at once: the first step finds the timeline."""
        self._waiting.look()
        self._arm(0)

    def stop(self) -> bool:
        """Plan no more steps. Return whether a base is missing, which `end` makes then."""
        self._stopped = True
        self._bases.stop()
        if self._timer is not None:
            self._timer.cancel()
        return not self._error and self._bases.is_needed(self._note)

    async def end(self) -> None:
        """Archive what the log has by now, if the target worked last, and end.

        If a base is missing, one of the last checkpoint is made: a program that opens its log for a
        moment at a time always ends before its first base is copied.
        """
        if self._running is not None:
            await self._running
        if not self._error:
            await self._run(Future())
        copy = self._copy if self._bases.is_needed(self._note) and not self._error else None
        if copy is not None and await self._bases.make_last(copy.timeline):
            await self._run(Future())
        await self._waiting.leave_word()

    def _arm(self, ms: int) -> None:
        self._timer = self._loop.call_later(ms * 1_000_000, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._running = ended = Future[None]()  # from here on, an end in between waits for the step
        self._loop.spawn(self._run(ended), "archive", is_optional=True)

    async def _run(self, ended: Future[None]) -> None:
        """Make a step, and plan the next one, whatever the step raises."""
        every_ms = self._config.archive_every_ms
        try:
            await self._step()
            self._retry_ms = every_ms
            if self._error:
                log.warning("the archive works again")
            self._error = ""
        except Exception as error:
            self._failures += 1
            text = _text_of(error)
            if text != self._error:
                is_known = isinstance(error, OSError | StorageError)
                where = self._config.archive_dir
                log.error("nothing is archived in %s (TOPICS_ARCHIVE_DIR): %s", where, text, exc_info=not is_known)
            self._error = text
            self._retry_ms = min(max(self._retry_ms * 2, every_ms), max(_RETRY_MAX_MS, every_ms))
        finally:
            self._running = None
            ended.set_result(None)
        if not self._stopped and not self._log.read_only:
            self._arm(self._retry_ms)

    # --- a step ------------------------------------------------------------------------------------------------------
    async def _step(self) -> None:
        await self._waiting.leave_word()
        copy = self._copy
        if copy is None or not await self._is_as_noted(copy.timeline):
            copy = await self._open()
        if self._waiting.given_up:
            await self._note_given_up(copy.timeline)
        began_ns = self._loop.clock.monotonic_ns()
        if self._core is not None:
            self._core.look()  # just before: no log is noted without its times that came twice
        ends = take_ends(self._loop, self._log, self._config.data_dir)
        try:
            await self._synced()
            shards = await copy.step(ends, self._note.shards)
        except MissingLogError as error:
            after = (error.shard, error.number)
            await self._note_hole(copy.timeline)
            await self._waiting.remove(lambda shard, number: shard == after[0] and number < after[1])
            return
        except OtherLogError as error:
            self._line = ""
            await self._begin_timeline(copy.timeline, str(error))
            return
        except SyncFailedError as error:
            # A later sync may report success although the disk lacks what this one was to write.
            await self._begin_timeline(copy.timeline, f"was not synced ({error})")
            raise
        finally:
            ends.release()
        base, holes, hole = self._bases.made, self._note.holes, self._note.open_hole
        # The clock may have been set back since.
        upto_ms = max(ends.upto_ms, self._note.upto_ms, base.taken_ms if base is not None else 0)
        if base is not None and hole is not None:
            hole = await self._ended_hole(hole, base)
            holes, upto_ms = (*holes[:-1], hole), max(upto_ms, hole.to_ms or 0)
        note = self._as_noted(ArchiveNote(upto_ms=upto_ms, shards=shards, holes=holes))
        # Nothing is new in an idle log but the time, which is noted rarely: a note takes two syncs.
        is_idle = base is None and msgspec.structs.replace(self._note, upto_ms=upto_ms) == note
        every_ms = _FOLLOWED_NOTE_MS if self._is_asked and self._core is not None else _IDLE_NOTE_MS
        is_late = self._stopped or upto_ms - self._note.upto_ms >= every_ms
        if not is_idle or is_late or (self._core is not None and await self._core.others_have_moved()):
            await self._write_note(copy.timeline, note)
        self._equal_ms = upto_ms
        if base is not None:
            self._bases.noted(base)
        if self._restorable_ms == upto_ms:
            self._restorable_ns = began_ns
        whole = {(source.shard, source.number) for source in ends.sources if source.whole}
        await self._waiting.remove(lambda shard, number: (shard, number) in whole)
        if base is not None and self._config.archive_retain_ms:
            await self._remove_old(copy.timeline, ends.upto_ms)
        await self._bases.list_names(copy.timeline)
        self._bases.begin_if_due(copy.timeline, self._note)

    async def _remove_old(self, timeline: str, now_ms: int) -> None:
        """Remove what is too old. Timelines of before stay until this one has all that is kept."""
        loop, of_core = self._loop, self._config.archive_dir
        retain_ms, apart_ms = self._config.archive_retain_ms, self._config.archive_base_every_ms
        before_ms = await kept_from(loop, of_core, now_ms - retain_ms)
        if before_ms is None:
            return
        kept_ms = await remove_old(loop, timeline, before_ms, retain_ms, apart_ms)
        if kept_ms is not None:
            await remove_old_timelines(loop, timeline, self._line, kept_ms, has_joints=bool(apart_ms))
            await remove_old_joints(loop, of_core, self._line, before_ms, retain_ms=retain_ms, apart_ms=apart_ms)

    async def _is_as_noted(self, timeline: str) -> bool:
        """Return whether the target has the note that was written last.

        It has not after it was replaced, emptied, mounted or unmounted. Raises: OSError.
        """
        try:
            return await read_note(self._files, timeline) == self._note
        except (CorruptError, FormatError):
            return False

    async def _open(self) -> LogCopy:
        """Find the timeline of the data directory, or begin one; note losses of a start."""
        files, config, place = self._files, self._config, self._place
        own = await own_timeline(files, config.data_dir)
        self._line, place.mount = (own.line or own.name, own.mount) if own is not None else ("", "")
        self._has_lost = own is not None and own.has_lost
        note = None
        if own is not None and own.name and not own.is_new:
            timeline = f"{config.archive_dir}/{own.name}"
            try:
                note = await read_note(files, timeline)
            except CorruptError as error:
                log.error("%s", error)
            if note is None:
                await place.check_there(own.name)
                await self._begin_timeline(timeline, await place.why_lost())
                own = await own_timeline(files, config.data_dir)
        if own is None or not own.name:
            others = await files.to_thread(timeline_names, files, config.archive_dir)
            own = OwnTimeline(new_timeline(self._loop, others), is_new=True, line=self._line)
            await name_timeline(files, config.data_dir, own)
        timeline, self._line = f"{config.archive_dir}/{own.name}", own.line or own.name
        if is_new := note is None:
            await place.check_mounted()
            note = self._as_noted(ArchiveNote())
            await place.make_timeline(timeline)
            await write_note(files, timeline, note)
        if (mount := await place.mount_point()) != place.mount or is_new:
            place.mount, own = mount, own._replace(is_new=False, mount=mount)
            await name_timeline(files, config.data_dir, own)
        if is_new:
            self._waiting.given_up.clear()  # before its first base
        if self._core is not None:
            await self._core.continue_from(note)
            await write_joint_map(self._loop, config.archive_dir, config.data_dir, self._line)
        self._leave_copy()
        self._note, self._equal_ms = note, note.upto_ms
        await self._bases.open(timeline)
        copy = LogCopy(self._loop, config.data_dir, timeline)
        if own.has_lost:
            await self._note_hole(timeline)
            self._has_lost = False
            await self._name(own.name)
        self._copy = copy
        return copy

    async def _begin_timeline(self, timeline: str, why: str) -> None:
        """Begin another timeline, because nothing can be added to this one."""
        log.error("%s %s: the log continues in another timeline", timeline, why)
        name = new_timeline(self._loop, [os.path.basename(timeline)])
        begun = OwnTimeline(name, is_new=True, line=self._line, mount=self._place.mount)
        await name_timeline(self._files, self._config.data_dir, begun)
        self._has_lost = False
        self._breaks += 1
        self._leave_copy()

    async def _note_given_up(self, timeline: str) -> None:
        """Record a hole for the files that were given up, unless a step has copied them since.

        The numbers of the batches after them need not show it: a start after a kill numbers some
        batches again.
        """
        given_up = dict(self._waiting.given_up)
        if self._waiting.lacks_given_up(self._note.shards):
            await self._note_hole(timeline)
        await self._name(os.path.basename(timeline))
        for shard, file in given_up.items():
            if self._waiting.given_up.get(shard) == file:
                del self._waiting.given_up[shard]

    async def _name(self, timeline: str) -> None:
        """Have the data directory name its timeline, without word of losses."""
        await name_timeline(
            self._files, self._config.data_dir, OwnTimeline(timeline, line=self._line, mount=self._place.mount)
        )

    def _leave_copy(self) -> None:
        if self._copy is not None:
            self._copied_before += self._copy.copied_bytes
            self._copy = None

    async def _note_hole(self, timeline: str) -> None:
        """Record in the note that log is missing from its end to the next base."""
        note = self._note
        self._bases.begin_anew()
        holes = note.holes if note.open_hole is not None else (*note.holes, note.hole_after())
        await self._remove_unnoted(timeline)
        # Files from before the hole stay as they are: restores to earlier times use them.
        shards = {shard: ShardEnd(end.file_no, end.size, HOLE) for shard, end in note.shards.items()}
        await self._write_note(timeline, ArchiveNote(upto_ms=note.upto_ms, shards=shards, holes=holes))
        log.error("the archive has a hole from %s to its next base", time_text(holes[-1].from_ms))

    async def _ended_hole(self, hole: Hole, base: BackupResult) -> Hole:
        """Return a hole with its end. Its times are in order, also if the clock was set back."""
        first_files = await self._files.to_thread(log_files_after, self._files, base.path)
        return msgspec.structs.replace(hole, to_ms=max(base.taken_ms, hole.from_ms + 1), next_files=first_files)

    async def _remove_unnoted(self, timeline: str) -> None:
        """Remove files that were copied and not noted: what comes next may not follow them."""
        for shard, end in self._note.shards.items():
            directory = f"{timeline}/{archived_directory(shard)}"
            for name in await self._files.to_thread(list_if_there, self._files, directory):
                if (wal_file_no(name) or 0) > end.file_no:
                    await unlink_if_there(self._files, f"{directory}/{name}")

    async def _write_note(self, timeline: str, note: ArchiveNote) -> None:
        """Replace the note. It counts only once it is on stable storage."""
        note = self._as_noted(note)
        self._is_asked = False
        await write_note(self._files, timeline, note)
        self._note = note

    def _as_noted(self, note: ArchiveNote) -> ArchiveNote:
        """Return a note with what all notes of this log have."""
        if self._core is None:
            return msgspec.structs.replace(note, line=self._line)
        return msgspec.structs.replace(note, version=NOTE_OF_CORES, line=self._line, of_core=self._core.of_core)

    async def _synced(self) -> None:
        """Return once all that is committed is on stable storage. Raises: StorageError."""
        done: Future[StorageError | None] = Future()
        self._log.when_flushed(None, done.set_result)
        if (error := await done) is not None:
            raise error
