"""Writes captures as a backup. Source: docs/backup.md.

The log is copied first, because what a writer of a busy log waits for is its files. Then come the
segments and packs: a file that has not changed since the newest backup before is linked. A backup
is written under another name, synced, and renamed last. Its writer holds a lock in it, because the
next one removes what interrupted ones left.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import xxhash

from topics.common.values.backup_result import BackupResult
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.backup.backup_files import NewTree, Original, copy_in_turns, pack_description, remove_tree
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
    read_manifest,
)
from topics.store.checkpoint.capture import Capture, HeldFile
from topics.store.disk.data_directory import make_with_parents, sync_parents
from topics.store.disk.directory_format import CORES, Marker
from topics.store.disk.time_slices import a_step_a_pass
from topics.store.disk.uncached_reads import UncachedReads
from topics.store.disk.whole_files import list_if_there, write_new_file
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.layouts.directory_names import MARKER_NAME, index_path, snapshot_path
from topics.store.layouts.snapshot_format import pack_snapshot, sum_in_steps
from topics.store.segments.snapshot_files import COPIES

_SETTLED_NS = 2_000_000_000
"""A file that changed less than this before a backup may change again at the same time stamp."""


class Captured(NamedTuple):
    """A capture with its place in a backup: all of it, or the directory of one of several cores."""

    capture: Capture
    marker: Marker
    """The marker of the directory of its copy."""
    below: str = ""
    """That directory in the backup, with a slash at its end; "": the backup itself."""

    @classmethod
    def of_one_core(cls, capture: Capture, log_id: str = "") -> Captured:
        """Return all of a backup. log_id: as in the marker of the data directory."""
        return cls(capture, Marker(capture.format_number, CORES, log=log_id))


class BackupWriter:
    """Writes captures of one instant below `root`."""

    def __init__(
        self,
        loop: Loop,
        logs: Sequence[Captured],
        root: str,
        is_stopped: Callable[[], bool],
        shared: Mapping[str, bytes] | None = None,
    ) -> None:
        """is_stopped: asked between pieces; True ends the backup with a StorageError.

        shared: by their names, the files that several cores share; None: it is of one core.
        """
        self._loop = loop
        self._files = loop.files
        self._logs = logs
        self._root = root
        self._is_stopped = is_stopped
        self._shared = shared
        self._taken_ms = max(log.capture.taken_ms for log in logs)
        self._boot = loop.ring.boot_id()
        self._path = ""
        self._tree = NewTree(loop.files, "")
        self._listed: list[BackupFile] = []
        self._before = ""
        """The newest complete backup."""
        self._known: dict[str, BackupFile] = {}
        """Files of the newest complete backup that may be linked instead of copied, by path."""
        self.copied_bytes = 0
        self._linked_files = 0
        self._on_target = loop.files.to_thread

    @property
    def file_count(self) -> int:
        """Files that are written so far."""
        return len(self._listed)

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
        self._path = f"{root}/{backup_name(self._taken_ms, names)}"
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
        files = self._files
        try:
            await self._find_before()
            for log in self._logs:
                await self._copy_log(log)
            for log in self._logs:
                await self._write_snapshots(log)
                for held in log.capture.sealed:
                    await self._add_sealed(log, held)
            await self._complete()
        except BaseException:
            with contextlib.suppress(OSError):
                await remove_tree(files, self._tree.root)
            raise
        size = sum(file.bytes for file in self._listed)
        return BackupResult(self._path, self._taken_ms, self.file_count, size, self.copied_bytes, self._linked_files)

    async def _find_before(self) -> None:
        """Find the newest backup whose files may be linked."""
        files = self._files
        names = await self._on_target(backup_names, files, self._root)
        if not names:
            return
        self._before = f"{self._root}/{names[-1]}"
        with contextlib.suppress(OSError, StorageError):
            manifest = await read_manifest(files, self._before)
            if manifest.boot == self._boot:
                self._known = {file.path: file for file in manifest.files if file.source}

    # --- files -------------------------------------------------------------------------------------------------------
    async def _copy_log(self, log: Captured) -> None:
        """Copy the log up to the instant, bypassing the page cache where its writes do."""
        uncached = UncachedReads(self._files)
        for held in log.capture.log:
            reads, fd = uncached.of_log(held.stored, held.size)
            padding = -held.size % BLOCK_BYTES  # a log file is made of whole blocks
            source = Original(reads, fd, held.path, held.size)
            self._listed.append(await self._copied(log.capture, source, log.below + held.name, padding))
        log.capture.release_log()

    async def _write_snapshots(self, log: Captured) -> None:
        capture = log.capture
        body_sum = await a_step_a_pass(self._loop.next_pass, sum_in_steps(capture.store, capture.catalog))
        for number in range(capture.snapshot_number, capture.snapshot_number + COPIES):
            pieces = pack_snapshot(number, capture.taken_ms, capture.store, capture.catalog, body_sum)
            await self._write(log.below + snapshot_path(number), pieces)
        capture.store = capture.catalog = ()

    async def _add_sealed(self, log: Captured, held: HeldFile) -> None:
        name = log.below + held.name
        await self._add(log.capture, held.path, name, held.size, may_link=held.is_sealed)
        if held.is_sealed and held.has_index:
            with contextlib.suppress(FileNotFoundError):  # it is derived from the data again
                await self._add(log.capture, index_path(held.path), index_path(name), -1, may_link=True)

    async def _add(self, capture: Capture, path: str, name: str, size: int, *, may_link: bool) -> None:
        source = self._identity(capture, path) if may_link else ""
        known = self._known.get(name)
        if source and known is not None and known.source == source and await self._is_linked(name):
            self._linked_files += 1
            self._listed.append(known)
            return
        fd = await self._files.open(path, os.O_RDONLY)
        try:
            size = self._files.file_size(path) if size < 0 else size
            file = await self._copied(capture, Original(self._files, fd, path, size), name)
        finally:
            await self._files.close(fd)
        file.source = source
        self._listed.append(file)

    def _identity(self, capture: Capture, path: str) -> str:
        """Return the identity of a file as it was at the instant; "" if that is not certain."""
        if capture.has_changed(path):
            return ""
        seen = self._loop.ring.lstat(path)
        if seen.st_mtime_ns > self._loop.clock.now_ms() * 1_000_000 - _SETTLED_NS:
            return ""
        about = f"{seen.st_dev} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
        return xxhash.xxh3_64_hexdigest(about.encode())

    async def _is_linked(self, name: str) -> bool:
        """Link a file of the backup before; return whether it could be."""
        try:
            new = await self._tree.place(name)
            await self._on_target(self._files.link, f"{self._before}/{name}", new)
        except OSError:  # another file system, too many links, or it was removed
            return False
        return True

    async def _copied(self, capture: Capture, source: Original, name: str, padding: int = 0) -> BackupFile:
        """Copy a file as it was at the instant, with zeros after it, synced."""
        files, digest = self._files, xxhash.xxh3_64()

        def on_piece(piece: memoryview, offset: int) -> None:
            self._check_stopped()
            capture.put_back(source.path, piece, offset)
            digest.update(piece)
            self.copied_bytes += len(piece)

        write_fd = await files.open(await self._tree.place(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            await copy_in_turns(self._loop, source, write_fd, on_piece)
            if padding:
                digest.update(bytes(padding))
                await files.write_all(write_fd, bytes(padding), source.size)
            await files.fsync(write_fd)
        finally:
            await files.close(write_fd)
        return BackupFile(name, source.size + padding, digest.hexdigest())

    async def _write(self, name: str, pieces: list[bytes | memoryview]) -> None:
        self._check_stopped()
        await write_new_file(self._files, await self._tree.place(name), *pieces)
        digest, size = xxhash.xxh3_64(), 0
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        self.copied_bytes += size
        self._listed.append(BackupFile(name, size, digest.hexdigest()))

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise StorageError("the backup was not completed: the log is being closed")

    # --- the end -----------------------------------------------------------------------------------------------------
    async def _complete(self) -> None:
        """Write markers and the manifest, sync all names, and give the backup its name."""
        files = self._files
        for log in self._logs:
            await self._write(log.below + MARKER_NAME, [msgspec.json.encode(log.marker)])
        for name, data in (self._shared or {}).items():
            await self._write(name, [data])
        version = MANIFEST_VERSION if self._shared is None else MANIFEST_OF_CORES
        number = max(log.capture.format_number for log in self._logs)
        manifest = BackupManifest(version, self._taken_ms, number, self._boot, self._listed)
        await write_new_file(files, await self._tree.place(MANIFEST_NAME), pack_description(manifest))
        await self._tree.sync()
        await files.rename(self._tree.root, self._path)
        with contextlib.suppress(OSError):  # a complete backup may have it
            await files.unlink(f"{self._path}/{LOCK_NAME}")
        await files.sync_directory(self._root)
