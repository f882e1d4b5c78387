"""The copy of a capture in a new backup, made in turns; what has not changed is linked.

The log is copied first, because what a writer of a busy log waits for is its files. Then come the
segments and packs: a file that has not changed since the newest backup before is linked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import xxhash

from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.backup.backup_files import NewTree, Original, copy_in_turns
from topics.store.backup.backup_manifest import BackupFile, read_manifest
from topics.store.checkpoint.capture import Capture, HeldFile
from topics.store.disk.directory_format import Marker
from topics.store.disk.time_slices import a_step_a_pass
from topics.store.disk.uncached_reads import UncachedReads
from topics.store.disk.whole_files import FileCalls, write_new_file
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


class Before(NamedTuple):
    """The newest complete backup in a directory."""

    path: str
    """Its directory; "": there is none."""
    known: dict[str, BackupFile]
    """Its files that may be linked instead of copied, by path."""


async def files_before(loop: Loop, path: str) -> Before:
    """Return what may be linked of a backup. path: its directory; "": there is none."""
    known: dict[str, BackupFile] = {}
    if path:
        with contextlib.suppress(OSError, StorageError):
            manifest = await read_manifest(loop.files, path)
            if manifest.boot == loop.ring.boot_id():
                known = {file.path: file for file in manifest.files if file.source}
    return Before(path, known)


class CaptureCopy:
    """The copy of one capture in a backup that is being written."""

    def __init__(
        self, loop: Loop, log: Captured, tree: NewTree, before: Before, is_stopped: Callable[[], bool]
    ) -> None:
        """is_stopped: asked between pieces; True ends the copy with a StorageError."""
        self._loop = loop
        self._files = loop.files
        self._log = log
        self._tree = tree
        self._before = before
        self._is_stopped = is_stopped
        self._on_target = loop.files.to_thread
        self.listed: list[BackupFile] = []
        self.copied_bytes = 0
        self.linked_files = 0

    async def copy_log(self) -> None:
        """Copy the log up to the instant, bypassing the page cache where its writes do.

        Raises: OSError; StorageError, it is stopped.
        """
        capture = self._log.capture
        uncached = UncachedReads(self._files)
        for held in capture.log:
            reads, fd = uncached.of_log(held.stored, held.size)
            padding = -held.size % BLOCK_BYTES  # a log file is made of whole blocks
            source = Original(reads, fd, held.path, held.size)
            self.listed.append(await self._copied(source, self._log.below + held.name, padding))
        capture.release_log()

    async def copy_rest(self) -> None:
        """Copy all else of the instant. Raises: as `copy_log`."""
        await self._write_snapshots()
        for held in self._log.capture.sealed:
            await self._add_sealed(held)
        await self._write(self._log.below + MARKER_NAME, [msgspec.json.encode(self._log.marker)])

    async def _write_snapshots(self) -> None:
        capture = self._log.capture
        body_sum = await a_step_a_pass(self._loop.next_pass, sum_in_steps(capture.store, capture.catalog))
        for number in range(capture.snapshot_number, capture.snapshot_number + COPIES):
            pieces = pack_snapshot(number, capture.taken_ms, capture.store, capture.catalog, body_sum)
            await self._write(self._log.below + snapshot_path(number), pieces)
        capture.store = capture.catalog = ()

    async def _add_sealed(self, held: HeldFile) -> None:
        name = self._log.below + held.name
        await self._add(held.path, name, held.size, may_link=held.is_sealed)
        if held.is_sealed and held.has_index:
            with contextlib.suppress(FileNotFoundError):  # it is derived from the data again
                await self._add(index_path(held.path), index_path(name), -1, may_link=True)

    async def _add(self, path: str, name: str, size: int, *, may_link: bool) -> None:
        source = self._identity(path) if may_link else ""
        known = self._before.known.get(name)
        if source and known is not None and known.source == source and await self._is_linked(name):
            self.linked_files += 1
            self.listed.append(known)
            return
        fd = await self._files.open(path, os.O_RDONLY)
        try:
            size = self._files.file_size(path) if size < 0 else size
            file = await self._copied(Original(self._files, fd, path, size), name)
        finally:
            await self._files.close(fd)
        file.source = source
        self.listed.append(file)

    def _identity(self, path: str) -> str:
        """Return the identity of a file as it was at the instant; "" if that is not certain."""
        if self._log.capture.has_changed(path):
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
            await self._on_target(self._files.link, f"{self._before.path}/{name}", new)
        except OSError:  # another file system, too many links, or it was removed
            return False
        return True

    async def _copied(self, source: Original, name: str, padding: int = 0) -> BackupFile:
        """Copy a file as it was at the instant, with zeros after it, synced."""
        files, digest = self._files, xxhash.xxh3_64()

        def on_piece(piece: memoryview, offset: int) -> None:
            self._check_stopped()
            self._log.capture.put_back(source.path, piece, offset)
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
        file = await write_listed(self._files, self._tree, name, pieces)
        self.copied_bytes += file.bytes
        self.listed.append(file)

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise StorageError("the backup was not completed: the log is being closed")


async def write_listed(files: FileCalls, tree: NewTree, name: str, pieces: list[bytes | memoryview]) -> BackupFile:
    """Write a file of a backup; return how its manifest lists it. Raises: OSError."""
    await write_new_file(files, await tree.place(name), *pieces)
    digest, size = xxhash.xxh3_64(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return BackupFile(name, size, digest.hexdigest())
