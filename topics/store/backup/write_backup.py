"""The writing of a backup. Source: docs/backup.md.

A backup is written under another name, synced, and renamed last. Its writer holds a lock in it,
because the next one removes what interrupted ones left.
"""

from __future__ import annotations

import contextlib
import logging
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from topics.common.values.backup_result import UNWRITTEN, BackupResult
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.backup.backup_files import NewTree, pack_description, remove_tree
from topics.store.backup.backup_manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    MANIFEST_OF_CORES,
    MANIFEST_VERSION,
    PARTIAL,
    BackupFile,
    BackupManifest,
    backup_name,
    backup_names,
    is_partial,
)
from topics.store.backup.capture_copy import CaptureCopy, Captured, files_before, write_listed
from topics.store.disk.data_directory import make_with_parents, sync_parents
from topics.store.disk.disk_space import is_full
from topics.store.disk.whole_files import list_if_there, write_new_file

log = logging.getLogger(__name__)


class CopiedFiles(NamedTuple):
    """All that was copied, of one instant."""

    files: list[BackupFile]
    taken_ms: int
    """Unix ms of the instant."""
    format_number: int
    """The highest format of the directories."""


class BackupCopies(Protocol):
    """Copies all of a backup, and counts what it has copied by now."""

    began_ms: int
    """The time in the name of the backup, Unix ms."""

    @property
    def file_count(self) -> int: ...
    @property
    def copied_bytes(self) -> int: ...
    @property
    def linked_files(self) -> int: ...

    async def copy(self, tree: NewTree, before: str) -> CopiedFiles:
        """Copy all to a new backup. before: the newest complete one; "": there is none.

        Raises: OSError; TopicsError.
        """


class OwnCopies:
    """The copies of captures of this process, all of one instant."""

    def __init__(self, loop: Loop, logs: Sequence[Captured], is_stopped: Callable[[], bool]) -> None:
        """is_stopped: asked between pieces; True ends the backup with a StorageError."""
        self._loop = loop
        self._logs = logs
        self._is_stopped = is_stopped
        self._copies: list[CaptureCopy] = []
        self.began_ms = max(log.capture.taken_ms for log in logs)

    @property
    def file_count(self) -> int:
        return sum(len(copy.listed) for copy in self._copies)

    @property
    def copied_bytes(self) -> int:
        return sum(copy.copied_bytes for copy in self._copies)

    @property
    def linked_files(self) -> int:
        return sum(copy.linked_files for copy in self._copies)

    async def copy(self, tree: NewTree, before: str) -> CopiedFiles:
        known = await files_before(self._loop, before)
        self._copies = [CaptureCopy(self._loop, log, tree, known, self._is_stopped) for log in self._logs]
        for copy in self._copies:
            await copy.copy_log()
        for copy in self._copies:
            await copy.copy_rest()
        files = [file for copy in self._copies for file in copy.listed]
        return CopiedFiles(files, self.began_ms, max(log.capture.format_number for log in self._logs))


class BackupWriter:
    """Writes a backup below `root`."""

    def __init__(self, loop: Loop, copies: BackupCopies, root: str, shared: Mapping[str, bytes] | None = None) -> None:
        """shared: by their names, the files that several cores share; None: it is of one core."""
        self._loop = loop
        self._files = loop.files
        self._copies = copies
        self._root = root
        self._shared = shared
        self._path = ""
        self._tree = NewTree(loop.files, "")
        self._on_target = loop.files.to_thread

    @property
    def file_count(self) -> int:
        """Files that are written so far."""
        return self._copies.file_count

    @property
    def copied_bytes(self) -> int:
        return self._copies.copied_bytes

    async def write(self) -> BackupResult:
        """Write the backup durably; return what was written.

        Raises: OSError; StorageError, also if another process writes a backup there. What was
            written of it is removed then, as far as possible.
        """
        ring, root = self._loop.ring, self._root
        made_in = await self._on_target(make_with_parents, ring, root)
        if made_in:
            await sync_parents(self._loop, root, made_in)
        await self._remove_interrupted()
        names = await self._on_target(list_if_there, self._files, root)
        self._path = f"{root}/{backup_name(self._copies.began_ms, names)}"
        self._tree = NewTree(self._files, f"{self._path}{PARTIAL}")
        await self._on_target(ring.make_directory, self._tree.root)
        lock = await self._lock(self._tree.root)
        try:
            return await self._write_locked()
        finally:
            await self._on_target(ring.unlock, lock)

    async def _lock(self, partial: str) -> int:
        """Lock an incomplete backup. Raises: StorageError, another process writes it; OSError."""
        try:
            return await self._on_target(self._loop.ring.lock, f"{partial}/{LOCK_NAME}")
        except BlockingIOError:
            raise StorageError(
                f"another log is being backed up to {self._root}: name a directory of its own for each log"
            ) from None

    async def _remove_interrupted(self) -> None:
        """Remove what interrupted backups left.

        Raises: StorageError, another process writes one; OSError.
        """
        for name in await self._on_target(list_if_there, self._files, self._root):
            if is_partial(name):
                path = f"{self._root}/{name}"
                with contextlib.suppress(FileNotFoundError):  # it has just been completed
                    seen = await self._on_target(self._loop.ring.lstat, path)
                    if stat.S_ISLNK(seen.st_mode):  # it leads elsewhere
                        await remove_tree(self._files, path)
                        continue
                    lock = await self._lock(path)
                    try:
                        await remove_tree(self._files, path)
                    finally:
                        await self._on_target(self._loop.ring.unlock, lock)

    async def _write_locked(self) -> BackupResult:
        try:
            names = await self._on_target(backup_names, self._files, self._root)
            copied = await self._copies.copy(self._tree, f"{self._root}/{names[-1]}" if names else "")
            files = await self._complete(copied)
        except BaseException:
            with contextlib.suppress(OSError):
                await remove_tree(self._files, self._tree.root)
            raise
        copies, size = self._copies, sum(file.bytes for file in files)
        return BackupResult(self._path, copied.taken_ms, len(files), size, copies.copied_bytes, copies.linked_files)

    async def _complete(self, copied: CopiedFiles) -> list[BackupFile]:
        """Write what is shared and the manifest, sync all names, and give the backup its name.

        Return all its files.
        """
        files, listed = self._files, list(copied.files)
        for name, data in (self._shared or {}).items():
            listed.append(await write_listed(files, self._tree, name, [data]))
        version = MANIFEST_VERSION if self._shared is None else MANIFEST_OF_CORES
        boot = self._loop.ring.boot_id()
        manifest = BackupManifest(version, copied.taken_ms, copied.format_number, boot, listed)
        await write_new_file(files, await self._tree.place(MANIFEST_NAME), pack_description(manifest))
        await self._tree.sync()
        await files.rename(self._tree.root, self._path)
        with contextlib.suppress(OSError):  # a complete backup may have it
            await files.unlink(f"{self._path}/{LOCK_NAME}")
        await files.sync_directory(self._root)
        return listed


def failure_of(root: str, error: Exception) -> StorageError:
    """Return the error of a backup that failed for any reason: its caller waits for an answer."""
    if not isinstance(error, OSError):
        log.error("a backup in %s failed", root, exc_info=error)
        return StorageError(f"the backup in {root} failed by a bug ({error!r}): the log of the server has more")
    where = error.filename or root
    reason = error.strerror or str(error)
    remedy = "make room there, or name another directory" if is_full(error) else "name another directory"
    return StorageError(f"{UNWRITTEN}{where}: {reason}: {remedy}")
