"""The backups of an open store, one at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from topics.common.values.backup_result import BackupProgress, BackupResult
from topics.config import Config, is_in
from topics.errors import DiskFullError, RequestError, StorageError, TopicsError, UsageError
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.loop.tasks import Future
from topics.store.backup.backup_counters import BackupCounters
from topics.store.backup.backup_logs import check_log
from topics.store.backup.backup_manifest import backup_ms, backup_names, read_manifest
from topics.store.backup.backup_mounts import check_mounted, note_mount
from topics.store.backup.capture_copy import Captured
from topics.store.backup.core_copy import CoreCopies
from topics.store.backup.core_orders import CoresToCopy, GiveUp, Replied
from topics.store.backup.cores_copies import CoresCopies
from topics.store.backup.free_places import BACKUPS, taken
from topics.store.backup.shared_files import shared_files
from topics.store.backup.write_backup import BackupWriter, OwnCopies, failure_of
from topics.store.checkpoint.capture import Capture, SharedInstant
from topics.store.checkpoint.checkpointer import Checkpointer
from topics.store.cores.core_directories import read_cores
from topics.store.disk.directory_format import DirectoryFormat

Done = Callable[[BackupResult | TopicsError], None]


class Backups:
    """Makes backups of one store."""

    def __init__(
        self,
        loop: Loop,
        config: Config,
        checkpointer: Checkpointer,
        directory_format: DirectoryFormat,
        cores: CoresToCopy | None = None,
    ) -> None:
        """cores: all that backups hold, of which this is one; None: there are no others."""
        self._loop = loop
        self._config = config
        self._checkpointer = checkpointer
        self._format = directory_format
        self._running: Future[None] | None = None
        self._stopped = False
        self._writer: BackupWriter | None = None
        """The writer of the backup in progress; None if there is none, or if it is a base."""
        self._progress = BackupProgress(0, "none")
        self._last: Capture | None = None
        self._cores = cores
        self._core_copies = None if cores is None else CoreCopies(loop, config.data_dir, cores.own, self._capture)
        """The copies of this core that a core orders; None: there are no other cores."""
        self._all_copies: CoresCopies | None = None
        """The copies of all cores that are being written."""
        self.counters = BackupCounters()
        if config.backup_dir:
            loop.spawn(self._look_back(config.backup_dir), "newest backup", is_optional=True)

    @property
    def progress(self) -> BackupProgress:
        """Progress of the newest backup that is no base of an archive."""
        if self._writer is None:
            return self._progress
        return self._progress._replace(copied_bytes=self._writer.copied_bytes, files=self._writer.file_count)

    def begin(self, root: str, done: Done, within: str = "") -> int:
        """Begin a backup of now below `root`: everything acknowledged before the call is in it.

        done: called once, with a StorageError if it could not be completed, and a UsageError if
            `root` is in a directory of this log or in an archive, or has backups of another log.
            The log is as it was then.
        within: a directory that `root` has to be in, links followed; "": any.
        Returns: the number of the backup.
        Raises: RequestError, another backup is being written.
        """
        self._begin(root, done, within)
        return self._progress.number

    def execute(self, order: bytes, done: Replied) -> GiveUp:
        """Execute an order of the core that writes a backup of all."""
        assert self._core_copies is not None, "an order where there are no other cores"
        return self._core_copies.execute(order, done)

    def leave_cores(self) -> None:
        """Give up what is copied together with other cores: this one stops, and is asked first."""
        if self._core_copies is not None:
            self._core_copies.stop()
        if self._all_copies is not None:
            self._all_copies.stop()

    def begin_base(self, root: str, done: Done) -> None:
        """Begin a backup, as `begin` does, which is in an archive.

        It is in no progress and no counter, which are about backups that a caller asked for.
        """
        self._begin(root, done, is_base=True)

    def take(self, capture: Capture) -> None:
        """Take the capture of the last checkpoint, when this log is being closed."""
        self._last = capture

    async def write_last(self, root: str) -> BackupResult | None:
        """Write the capture that was taken as a base; return None if there is none.

        Raises: StorageError, OSError.
        """
        if self._last is None:
            return None
        real = await self._loop.files.to_thread(partial(self._real_place, root, is_base=True))
        return await self._writer_of(self._last, real, lambda: False).write()

    def leave(self) -> None:
        """Release the capture that was taken, if there is one."""
        if self._last is not None:
            self._last.release()

    def _begin(self, root: str, done: Done, within: str = "", *, is_base: bool = False) -> None:
        if self._running is not None:
            raise RequestError("backup_running", "another backup is being written: wait until it has ended")
        self._running = Future()
        if not is_base:
            self._progress = BackupProgress(self._progress.number + 1, "running")
        run = self._run(root, done, self._running, within, is_base=is_base)
        self._loop.spawn(run, "backup", is_optional=True)

    def stop(self) -> None:
        """Have the backup that is being written end soon: the log is being closed."""
        self._stopped = True
        self.leave_cores()

    async def end(self) -> None:
        """Return once the backup that was stopped has ended."""
        if self._running is not None:
            await self._running
        if self._core_copies is not None:
            await self._core_copies.end()

    async def _run(self, root: str, done: Done, ended: Future[None], within: str, *, is_base: bool) -> None:
        outcome: BackupResult | TopicsError
        try:
            try:
                root = await self._loop.files.to_thread(partial(self._real_place, root, is_base=is_base, within=within))
                outcome = await (self._write_base(root) if is_base else self._write_asked(root))
            except TopicsError as error:
                outcome = error
            except Exception as error:
                outcome = failure_of(root, error)
            if not is_base:
                self._note(outcome)
        finally:
            self._writer = self._running = None
            ended.set_result(None)
        done(outcome)

    async def _look_back(self, root: str) -> None:
        """Count the newest backup of earlier processes as the last one that ended well.

        Its name has a later time than its manifest if the clock had been ahead before it was made.
        """
        files = self._loop.files
        with contextlib.suppress(OSError, StorageError):  # the next backup reports it
            names = await files.to_thread(backup_names, files, root)
            if not names or self.counters.done_ms:
                return
            self._look_back_to(backup_ms(names[-1]))
            self._look_back_to((await read_manifest(files, f"{root}/{names[-1]}")).taken_ms)

    def _look_back_to(self, ms: int) -> None:
        if not self.counters.done:
            self.counters.done_ms = min(ms, self._loop.clock.now_ms())

    def _note(self, outcome: BackupResult | TopicsError) -> None:
        counters = self.counters
        if isinstance(outcome, BackupResult):
            self._progress = self.progress._replace(state="done", result=outcome)
            counters.done += 1
            counters.copied_bytes += self._progress.copied_bytes
            counters.done_ms = self._loop.clock.now_ms()
        else:
            self._progress = self.progress._replace(state="failed", error=str(outcome))
            counters.failed += 1

    def _real_place(self, root: str, *, is_base: bool, within: str = "") -> str:
        config = self._config
        if self._cores is not None:
            above, cold_dir = os.path.dirname(config.data_dir), os.path.dirname(config.cold_dir)
            config = replace(config, data_dir=above, cold_dir=cold_dir)
        return real_place(self._loop.ring, config, root, is_base=is_base, within=within)

    async def _write_base(self, root: str) -> BackupResult:
        await self._named()
        capture = await self._capture()
        try:
            return await self._writer_of(capture, root, lambda: self._stopped).write()
        finally:
            capture.release()

    async def _write_asked(self, root: str) -> BackupResult:
        if self._cores is not None:
            return await self._write_cores(self._cores, root)
        files, lstat, data_dir = self._loop.files, self._loop.ring.lstat, self._config.data_dir
        await check_mounted(files, lstat, data_dir, root)
        await check_log(files, root, await self._named())
        capture = await self._capture()
        try:
            self._writer = self._writer_of(capture, root, lambda: self._stopped)
            made = await self._writer.write()
        finally:
            capture.release()
        with contextlib.suppress(OSError):  # the backup is there; the next one notes it again
            await note_mount(files, lstat, data_dir, root)
        return made

    async def _write_cores(self, cores: CoresToCopy, root: str) -> BackupResult:
        if self._stopped:
            raise _closing()
        loop = self._loop
        layout = await read_cores(loop.files, os.path.dirname(self._config.data_dir))
        assert layout is not None, "a core of a directory without cores"
        shared = await shared_files(loop, layout, root)
        copies = self._all_copies = CoresCopies(loop, cores)
        try:
            for error in await copies.give_up():  # of a life of this core before
                raise error
            self._writer = BackupWriter(loop, copies, root, shared)
            made = await self._writer.write()
        finally:
            self._all_copies = None
        with contextlib.suppress(OSError):  # the backup is there; the next one notes it again
            await note_mount(loop.files, loop.ring.lstat, layout.path, root)
        return made

    async def _named(self) -> str:
        """Return the id of the log; "": one of several cores has that of its directory."""
        if self._stopped:
            raise _closing()
        return "" if self._format.is_of_core else await self._format.name_log()

    def _writer_of(self, capture: Capture, root: str, is_stopped: Callable[[], bool]) -> BackupWriter:
        captured = Captured(capture, self._format.marker_of_copy(capture.format_number))
        return BackupWriter(self._loop, OwnCopies(self._loop, [captured], is_stopped), root)

    async def _capture(self, instant: SharedInstant | None = None) -> Capture:
        """Return a capture of the end of the next checkpoint, or of a later instant.

        Raises: StorageError, also if that instant is given up; OSError.
        """
        if self._stopped:
            raise _closing()
        taken: Future[Capture] = Future()

        async def run() -> None:
            try:
                await self._checkpointer.run(on_captured=taken.set_result, instant=instant)
            except (OSError, StorageError) as error:
                taken.set_error(error)  # one of its later steps does not concern the capture
            taken.set_error(
                _closing()
                if self._stopped
                else DiskFullError("no space for a checkpoint of the whole log, which a backup begins with: free some")
            )

        self._loop.spawn(run(), "checkpoint of a backup")
        return await taken


def real_place(ring: Ring, config: Config, root: str, *, is_base: bool = False, within: str = "") -> str:
    """Return the directory that backups are made in, as files in it are opened: without links.

    is_base: of an archive. within: a directory that it has to be in; "": any.
    Raises: UsageError, no backup can be there.
    """
    if within and not is_in(root, within):
        raise UsageError(f"{root} leads out of {within} by a link: name a directory without one")
    for mine in filter(None, (config.data_dir, config.cold_dir)):
        if is_in(root, mine):
            raise UsageError(f"backups cannot be in {mine}, which they are to replace: name a directory elsewhere")
    archive = config.archive_dir
    if archive and not is_base and is_in(root, archive):
        raise UsageError(f"backups cannot be in {archive}, which is the archive: name a directory elsewhere")
    if (real := os.path.realpath(root)) != os.path.abspath(root):
        root = real

    def is_there(path: str) -> bool:
        try:
            ring.lstat(path)
        except OSError:
            return False
        return True

    if not is_base and (found := taken(root, BACKUPS, is_there, ring.list_directory)):
        raise UsageError(f"backups cannot be {found}: name a directory elsewhere")
    return root


def _closing() -> StorageError:
    return StorageError("the log is being closed: there is no backup of it")
