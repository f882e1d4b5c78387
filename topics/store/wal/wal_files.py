"""The files of one shard: prepared ahead, left when full, kept for reuse when no longer needed.

A file is created under a temporary name, allocated, zeroed and synced, then renamed to the number
it will have. A spare is only renamed: its contents have another epoch. Spares have names of their
own (`spare-*`), so that recovery never replays them.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from topics.errors import DiskFullError
from topics.loop.files import SyncFailedError
from topics.loop.loop import Loop
from topics.store.disk.disk_space import is_full
from topics.store.disk.log_sizes import LogSizes
from topics.store.disk.uncached_reads import is_direct
from topics.store.disk.whole_files import FileCalls
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import (
    WAL_FIRST_BATCH_OFFSET,
    WalHeader,
    boot_hash,
    spare_file_name,
    waiting_file_name,
    wal_file_name,
    wal_file_no,
)

log = logging.getLogger(__name__)

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_ZEROS = memoryview(bytes(1 << 20))
_ZERO_PAUSE_NS = 2_000_000
_SPARE_UNWRITTEN_PART = 16
"""A file that was not zeroed may be reused if it was filled except for this part."""


class Spare(NamedTuple):
    """A file to be reused."""

    path: str
    size: int


class WalFile:
    """A file of the log that is written to, or will be."""

    __slots__ = ("epoch", "number", "position", "size", "stored")

    def __init__(self, stored: StoredFile, number: int, size: int) -> None:
        self.stored = stored
        self.number = number
        self.size = size
        self.epoch = 0
        """The epoch; 0 until the file is taken into use."""
        self.position = WAL_FIRST_BATCH_OFFSET
        """Offset of the next batch."""


def shard_and_number(file: StoredFile) -> tuple[int, int]:
    """Return (shard, number) of a log file."""
    directory, _, name = file.path.rpartition("/")
    number = wal_file_no(name)
    assert number is not None, "the log writes to files of the log"
    return int(directory.rpartition("-")[2]), number


async def name_spares(files: FileCalls, paths: Sequence[str], below: int) -> list[str]:
    """Return the spares' paths, after giving those with a lower number the name of a spare.

    A checkpoint was killed before it recycled these files. A rebuild without a snapshot would take
    them for the beginning of the log, followed by a hole. The sync that makes the first of them
    count again covers the renames.
    """
    named = []
    for path in paths:
        directory, _, name = path.rpartition("/")
        number = wal_file_no(name)
        if number is not None and number < below:
            spare = f"{directory}/{spare_file_name(number)}"
            try:
                await files.rename(path, spare)
                path = spare
            except OSError as error:
                log.warning("renaming %s failed, it keeps its name: %s", path, error)
        named.append(path)
    return named


async def wait_to_be_archived(files: FileCalls, path: str) -> None:
    """Rename a log file so that it waits to be archived. Raises: OSError."""
    directory, _, name = path.rpartition("/")
    number = wal_file_no(name)
    assert number is not None, "only files of the log wait"
    await files.rename(path, f"{directory}/{waiting_file_name(number)}")


class WalDirectory:
    """The directory of one shard: creates, retires and recycles its files.

    `path` is the directory, which exists.
    """

    def __init__(
        self,
        loop: Loop,
        table: FileTable,
        path: str,
        *,
        shard: int,
        next_file_no: int,
        sizes: LogSizes,
        spares: list[str],
    ) -> None:
        self._loop = loop
        self._table = table
        self._path = path
        self._shard = shard
        self._next_file_no = next_file_no
        self._sizes = sizes
        # Another name than an earlier run's, whose file may be removed while this one is written.
        self._temporary = f"{path}/prepare-{loop.random_bytes(4).hex()}.tmp"
        self.in_a_hurry = True
        """Whether a batch waits for the next file."""
        self._spares = deque(Spare(path, loop.ring.file_size(path)) for path in spares)
        self._boot_id = boot_hash(loop.ring.boot_id())
        self.direct_works = is_direct(loop.ring.direct_block_bytes(path))

    @property
    def needs_space(self) -> bool:
        """Whether there is no spare for the next file."""
        return not any(self._sizes.is_of_use(spare.size) for spare in self._spares)

    async def prepare(self, size: int, *, zeroed: bool = True) -> WalFile:
        """Return the next file, of at least `size` bytes, ready for writes.

        It is durable under its final name.

        zeroed: False only reserves the space, which reads as zeros, too. A sync in the file then
            has metadata to write, but no byte is written twice: for batches that are synced in the
            background. The file is not reused unless it was filled.
        Raises: DiskFullError, with nothing left over; OSError for any other error.
        """
        files = self._loop.files
        number = self._next_file_no
        self._next_file_no += 1
        path = f"{self._path}/{wal_file_name(number)}"
        spare = await self._spare_for(size)
        if spare is not None:
            size, zeroed = spare.size, True
            try:
                await files.rename(spare.path, path)
            except OSError as error:
                self._spares.appendleft(spare)
                self._raise(error, size)
        else:
            await self._create(self._temporary, path, size, zeroed=zeroed)
        fd = direct_fd = -1
        try:
            await files.sync_directory(self._path)
            fd = await files.open(path, os.O_RDWR)
            if self.direct_works:
                direct_fd = await files.open(path, os.O_RDWR | _O_DIRECT)
        except OSError as error:
            with contextlib.suppress(OSError):
                if fd >= 0:
                    await files.close(fd)
            if self._sizes.is_of_use(size):
                self._spares.append(Spare(path, size))
            else:
                await files.unlink(path)
            if not isinstance(error, SyncFailedError):
                self._raise(error, size)
            raise
        stored = self._table.add(FileKind.WAL, path, fd=fd, direct_fd=direct_fd)
        stored.zeroed = zeroed
        return WalFile(stored, number, size)

    async def _spare_for(self, size: int) -> Spare | None:
        """Return a spare of at least this size.

        Remove those that are too small for the log by now, or that are not kept any more.
        """
        kept = self._sizes.spares_max > 0
        await self._remove([spare for spare in self._spares if not (kept and self._sizes.is_of_use(spare.size))])
        return self._spares.popleft() if self._spares and self._spares[0].size >= size else None

    async def _create(self, temporary: str, path: str, size: int, *, zeroed: bool) -> None:
        files = self._loop.files
        fd = -1
        try:
            fd = await files.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if zeroed:
                await self._zero(fd, size)
            else:
                files.allocate(fd, size)
                await files.fsync(fd)
            await files.close(fd)
            fd = -1
            await files.rename(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                if fd >= 0:
                    await files.close(fd)
            with contextlib.suppress(OSError):
                await files.unlink(temporary)
            self._raise(error, size)

    @staticmethod
    def _raise(error: OSError, size: int) -> NoReturn:
        """Raise DiskFullError for a full file system, also one without inodes, else the error."""
        if is_full(error):
            raise DiskFullError(f"no space for a log file of {size} bytes") from error
        raise error

    async def _zero(self, fd: int, size: int) -> None:
        """Reserve and zero a file, synced, so that commits into it change no metadata.

        It is done piece by piece with pauses, since commits use the same disk, or at full speed
        while a batch waits for the file.
        """
        files = self._loop.files
        files.allocate(fd, size)
        for offset in range(0, size, len(_ZEROS)):
            await files.write_all(fd, _ZEROS[: size - offset], offset)
            if not self.in_a_hurry:
                await files.fdatasync(fd)
                await self._loop.sleep(_ZERO_PAUSE_NS)
        await files.fsync(fd)

    async def grow(self, file: WalFile, size: int) -> None:
        """Enlarge a prepared file for a batch that needs one of its own. Raises like `prepare`.

        The space is only reserved: the batch that waits would have its bytes written twice.
        """
        files, fd = self._loop.files, file.stored.fd
        try:
            files.allocate(fd, size)
            await files.fsync(fd)
        except OSError as error:
            self._raise(error, size)
        file.stored.zeroed = False
        file.size = size

    def begin(self, file: WalFile, first_batch_no: int, now_ms: int) -> WalHeader:
        """Take a prepared file into use; its header is written with its first batch."""
        epoch = int.from_bytes(self._loop.random_bytes(8), "little") | 1
        header = WalHeader(self._shard, file.number, epoch, first_batch_no, self._boot_id, now_ms)
        file.epoch = epoch
        file.stored.active = True
        return header

    async def retire(self, stored: StoredFile, *, keep: bool = True) -> None:
        """Take back a file whose records are all elsewhere, durably.

        keep: False deletes it; True makes it a spare if it is of use and no reader holds it. A
            reader of a deleted file reads on: its descriptors stay until then.
        Raises: OSError, the file still exists and is still in the table; try again.
        """
        assert not stored.active, "the log is still writing to this file"
        files = self._loop.files
        size = self._loop.ring.file_size(stored.path)
        directory, name = os.path.split(stored.path)
        number = wal_file_no(name) if keep and directory == self._path else None
        written = stored.zeroed or stored.size >= size - size // _SPARE_UNWRITTEN_PART
        spare = ""
        kept = not stored.readers and len(self._spares) < self._sizes.spares_max
        if number is not None and written and kept and self._sizes.is_of_use(size):
            spare = f"{self._path}/{spare_file_name(number)}"
            await files.rename(stored.path, spare)
        else:
            await files.unlink(stored.path)
        self._table.leave_log(stored)
        stored.when_unread(partial(self._on_unread, stored))
        if spare:
            self._spares.append(Spare(spare, size))

    async def set_aside(self, stored: StoredFile) -> None:
        """Rename a retired file so that it waits to be archived. Raises: OSError, as `retire`."""
        assert not stored.active, "the log is still writing to this file"
        await wait_to_be_archived(self._loop.files, stored.path)
        self._table.leave_log(stored)
        stored.when_unread(partial(self._on_unread, stored))

    def _on_unread(self, stored: StoredFile) -> None:
        self._table.remove(stored)
        for fd in (stored.fd, stored.direct_fd):
            if fd >= 0:
                self._loop.files.close_nowait(fd)

    async def drop_spares(self) -> None:
        """Release the spares' space on a full disk. A file that cannot be removed stays a spare."""
        await self._remove(list(self._spares))

    async def _remove(self, spares: list[Spare]) -> None:
        """Unlink these spares; meanwhile they are neither taken nor removed by another task."""
        self._spares = deque(spare for spare in self._spares if spare not in spares)
        for spare in spares:
            try:
                await self._loop.files.unlink(spare.path)
            except OSError as error:
                log.warning("removing %s failed, it is kept for reuse: %s", spare.path, error)
                self._spares.append(spare)
