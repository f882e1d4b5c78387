"""The store as a whole: opened (store_start.py), used through its parts, closed cleanly."""

from __future__ import annotations

import contextlib
import logging

from topics.config import Config
from topics.loop.loop import Loop
from topics.store.archive.archiver import Archiver
from topics.store.archive.served_archive import ServedArchive
from topics.store.backup.backups import Backups
from topics.store.backup.core_orders import CoresToCopy
from topics.store.disk.data_directory import LockedDirectory, check_marker, lock_directory
from topics.store.disk.directory_format import DirectoryFormat
from topics.store.format.catalog import Catalog
from topics.store.recovery.recovery import Progress
from topics.store.store_start import StoreParts, StoreStart, close_files

log = logging.getLogger(__name__)

_SOON_NS = 1_000_000_000
"""A close that waits longer for copies says so."""


class Store:
    """The log, files, reader and checkpointer of one data directory.

    Created by `Store.open`.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        directory: LockedDirectory,
        directory_format: DirectoryFormat,
        parts: StoreParts,
        *,
        cores: CoresToCopy | None,
    ) -> None:
        self._loop = loop
        self._config = config
        self._directory = directory
        self.format = directory_format
        self.files = parts.files
        self.log = parts.log
        self.reader = parts.reader
        self.checkpointer = parts.checkpointer
        self.backups = Backups(loop, config, parts.checkpointer, directory_format, cores)
        self.archiver: Archiver | None = None
        """The archive of the log; None: there is none."""
        if config.archive_dir and not directory.is_frozen:
            self.archiver = Archiver(loop, config, parts.log, self.backups, loop.clock.now_ms() - parts.recovery.ms)
            parts.log.releases.append(self.archiver.may_go)
            self.archiver.start()
        self.archive = ServedArchive(loop, config.archive_dir, self.archiver)
        self.requested = parts.requested
        self.power_lost = parts.power_lost
        self.skipped_snapshots = parts.skipped_snapshots
        self.recovery = parts.recovery
        self._opener = parts.opener
        self._latch_note = parts.latch_note

    @classmethod
    async def open(
        cls,
        loop: Loop,
        config: Config,
        catalog: Catalog,
        *,
        directory: LockedDirectory | None = None,
        on_progress: Progress = lambda share: None,
        cores: CoresToCopy | None = None,
    ) -> Store:
        """Recover config.data_dir and fill the catalog.

        Everything in the catalog is durable on return.

        directory: locked already, by `lock_directory` or `lock_to_read`; None: it is locked
            here.
        cores: see `Backups`.
        Raises: LockedError, CorruptError, FormatError, StorageError or OSError; the lock is
            released then.
        """
        locked = directory or lock_directory(loop.ring, config)
        start = StoreStart(loop, config, catalog, is_frozen=locked.is_frozen)
        try:
            directory_format = DirectoryFormat(loop, locked.path, await check_marker(loop, locked))
            parts = await start.run(on_progress, directory_format)
            return cls(loop, config, locked, directory_format, parts, cores=cores)
        except Exception as error:
            # the error that stopped the start is the one to report
            with contextlib.suppress(OSError):
                await start.fail(error)
            locked.release()
            raise
        except BaseException:
            locked.release()
            raise

    async def close(self, *, checkpoint: bool = True) -> None:
        """Drain the log, take a last checkpoint and release the lock.

        The checkpoint makes the next start exact. The archive and a backup end after it, and get a
        bounded time for that, because another disk may not answer.

        A read-only log is closed as it is. Nothing may be staged any more.

        Raises: OSError or StorageError if the checkpoint failed; everything is closed then, too.
        """
        self._latch_note.stop()
        self.backups.stop()
        self.checkpointer.stop()
        needs_base = self.archiver is not None and self.archiver.stop()
        try:
            await self.format.settle()
            await self.log.drain()
            if checkpoint and not self.log.read_only:
                await self.checkpointer.run(clean=True, on_captured=self.backups.take if needs_base else None)
        finally:
            await self._end_copies()
            self.backups.leave()
            await self.log.close()
            await self._latch_note.wait()  # also when it was this end that the disk failed
            await self._opener.end()
            await close_files(self._loop, self.files)
            await self._latch_note.try_last()
            self._directory.release()

    async def _end_copies(self) -> None:
        """Let a backup and the archive end, for a bounded time."""
        copies = [("a backup", self.backups.end(), "it is left incomplete")]
        if self.archiver is not None:
            where = f"the archive in {self._config.archive_dir}"
            copies.append((where, self.archiver.end(), "the next start archives what is left in the data directory"))
        ends = [(what, self._loop.spawn(end, "end of copies"), left) for what, end, left in copies]
        ms = self._config.archive_close_wait_ms
        by_ns = self._loop.clock.monotonic_ns() + ms * 1_000_000
        for what, end, left in ends:
            if await self._loop.done_within(end, min(_SOON_NS, by_ns - self._loop.clock.monotonic_ns())):
                continue
            log.warning("the log is closed once %s has ended, or in %d ms (TOPICS_ARCHIVE_CLOSE_WAIT_MS)", what, ms)
            if not await self._loop.done_within(end, by_ns - self._loop.clock.monotonic_ns()):
                log.error("%s has not ended: its disk does not answer, or is slow; %s", what, left)
                end.cancel()

    def release(self) -> None:
        """Release the directory's lock, also after a failure that prevents closing; idempotent."""
        self._directory.release()
