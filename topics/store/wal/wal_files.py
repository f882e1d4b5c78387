"""The files of one shard: prepared ahead, left when full, kept for reuse when nothing in them is needed any more.

A file is born under a temporary name, allocated, zeroed and synced, then renamed to the number it will have; or it is a
spare, renamed alone: what it holds bears another epoch. Spares keep a name of their own (`spare-*`), so that recovery
never replays them.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from topics.errors import DiskFullError
from topics.loop.files import SyncFailedError
from topics.loop.loop import Loop
from topics.store.disk.disk_space import is_full
from topics.store.disk.log_sizes import LogSizes
from topics.store.disk.uncached_reads import goes_direct
from topics.store.disk.whole_files import FileCalls
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import (
    WAL_FIRST_BATCH_OFFSET,
    WalHeader,
    boot_hash,
    spare_file_name,
    wal_file_name,
    wal_file_no,
)

log = logging.getLogger(__name__)

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_ZEROS = memoryview(bytes(1 << 20))
_ZERO_PAUSE_NS = 2_000_000
_SPARE_UNWRITTEN_PART = 16
"""A file that was not zeroed is good for another use if it was filled but for this part."""


class Spare(NamedTuple):
    """A file to be used again."""

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
        """0 until the file is taken into use."""
        self.position = WAL_FIRST_BATCH_OFFSET
        """Where the next batch goes."""


def place(file: StoredFile) -> tuple[int, int]:
    """(shard, number) of a log file."""
    directory, _, name = file.path.rpartition("/")
    number = wal_file_no(name)
    assert number is not None, "the log writes to files of the log"
    return int(directory.rpartition("-")[2]), number


async def name_spares(files: FileCalls, paths: Sequence[str], below: int) -> list[str]:
    """Spare files, those of a lower number under the name of a spare: a checkpoint was killed before it recycled them.

    Some of them are used again soon. Under names of the log the others would be taken for its beginning, with a hole
    behind them, by a rebuild that finds no snapshot. The sync that makes the first of them count again covers this.
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


class WalDirectory:
    """Makes, retires and recycles the files of one shard. `path` is the shard's directory; it exists."""

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
        # Not the name an earlier run left behind: that one is being cleared away while we write ours.
        self._temporary = f"{path}/prepare-{loop.ring.random_bytes(4).hex()}.tmp"
        self.in_a_hurry = True
        """Somebody waits for the next file."""
        self._spares = deque(Spare(path, loop.ring.file_size(path)) for path in spares)
        self._boot_id = boot_hash(loop.ring.boot_id())
        self.direct_works = goes_direct(loop.ring.direct_block_bytes(path))

    @property
    def needs_space(self) -> bool:
        """No spare is there to make the next file of."""
        return not any(self._sizes.is_of_use(spare.size) for spare in self._spares)

    async def prepare(self, size: int, *, zeroed: bool = True) -> WalFile:
        """The next file, of at least `size` bytes, ready to be written: durable under its final name.

        zeroed False: its space is only reserved, which reads as zeros, too. A sync in it then has metadata to write,
        but nothing is written twice: for what is synced in the background. It is not used again unless it was filled.

        Raises DiskFullError, leaving nothing behind; OSError for anything else.
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
        """One that holds as much; those that the log has outgrown go."""
        await self._remove([spare for spare in self._spares if not self._sizes.is_of_use(spare.size)])
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
        """A file system may lack space for a name, an inode or a descriptor, too."""
        if is_full(error):
            raise DiskFullError(f"no space for a log file of {size} bytes") from error
        raise error

    async def _zero(self, fd: int, size: int) -> None:
        """Reserves and zeroes a file, synced, so that commits into it change no metadata.

        Piece by piece with pauses, since the disk is the commits' too; at full speed when a batch waits for the file.
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
        """Makes a prepared file larger, for a batch that needs one of its own. Raises like `prepare`."""
        try:
            await self._loop.files.allocate_zeroed(file.stored.fd, size)
        except OSError as error:
            self._raise(error, size)
        file.size = size

    def begin(self, file: WalFile, first_batch_no: int, now_ms: int) -> WalHeader:
        """Takes a prepared file into use; its header is written with its first batch."""
        epoch = int.from_bytes(self._loop.ring.random_bytes(8), "little") | 1
        header = WalHeader(self._shard, file.number, epoch, first_batch_no, self._boot_id, now_ms)
        file.epoch = epoch
        file.stored.active = True
        return header

    async def retire(self, stored: StoredFile, *, keep: bool = True) -> None:
        """Takes back a file whose records all lie elsewhere, durably, and that nobody reads: a spare, or deleted.

        keep False: deleted in any case. Raises OSError: the file is still there, and in the table, to be asked again.
        """
        assert not stored.active, "the log is still writing to this file"
        files = self._loop.files
        size = self._loop.ring.file_size(stored.path)
        directory, name = os.path.split(stored.path)
        number = wal_file_no(name) if keep and directory == self._path else None
        written = stored.zeroed or stored.size >= size - size // _SPARE_UNWRITTEN_PART
        spare = ""
        kept = len(self._spares) < self._sizes.spares_max
        if number is not None and written and kept and self._sizes.is_of_use(size):
            spare = f"{self._path}/{spare_file_name(number)}"
            await files.rename(stored.path, spare)
        else:
            await files.unlink(stored.path)
        self._table.remove(stored)
        for fd in (stored.fd, stored.direct_fd):
            if fd >= 0:
                await files.close(fd)
        if spare:
            self._spares.append(Spare(spare, size))

    async def drop_spares(self) -> None:
        """Gives the spares' space back to a full disk. One that cannot go stays a spare."""
        await self._remove(list(self._spares))

    async def _remove(self, spares: list[Spare]) -> None:
        """Unlinks these spares, which nobody takes or removes meanwhile."""
        self._spares = deque(spare for spare in self._spares if spare not in spares)
        for spare in spares:
            try:
                await self._loop.files.unlink(spare.path)
            except OSError as error:
                log.warning("removing %s failed, it is kept for reuse: %s", spare.path, error)
                self._spares.append(spare)
