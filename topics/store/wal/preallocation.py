"""Log files prepared before a shard needs them, so that no commit waits for preallocation. Files are wal_files.py's."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from topics.errors import DiskFullError, NoLogFileError, StorageError
from topics.loop.loop import Loop
from topics.store.disk.disk_space import DiskSpace
from topics.store.disk.log_sizes import LogSizes
from topics.store.format.log_format import BLOCK_BYTES, WAL_FIRST_BATCH_OFFSET, align_up
from topics.store.wal.wal_files import WalDirectory, WalFile
from topics.store.wal.write_latch import WriteLatch

_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
"""What preparing a file may fail with while the disk is fine."""
_RETRY_NS = 100_000_000
_ATTEMPTS_MAX = 10


class Preallocation:
    """Keeps `count` files of `sizes.file` bytes ready, and makes the one that a batch waits for.

    on_failed: no file can be had for the batch that waits; what is staged fails with this error.
    on_broken: the disk fails; the log becomes read-only, with this reason.
    on_ended: an attempt to prepare files has ended, well or not.
    """

    def __init__(
        self,
        loop: Loop,
        directory: WalDirectory,
        *,
        space: DiskSpace,
        admission: WriteLatch,
        sizes: LogSizes,
        count: int,
        on_failed: Callable[[StorageError], None],
        on_broken: Callable[[str], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._space = space
        self._admission = admission
        self._sizes = sizes
        self._count = max(1, count)
        self._on_failed = on_failed
        self._on_broken = on_broken
        self._on_ended = on_ended
        self.ready: deque[WalFile] = deque()
        self.preparing = False
        self.zeroes = True
        """Files are zeroed ahead, so that syncs in them change no metadata."""
        self._wanted_bytes = 0
        """Size of the file that a batch waits for; 0: none waits."""
        self._growing = False
        """The first file is being made larger, and zeroed."""
        self._failed_attempts = 0
        self._held_back = False
        """Preparing waits for a timer."""
        self._stopped = False

    async def open(self) -> None:
        """Prepares the first file, or none on a full disk: deletes then make one of the reserve. Raises OSError."""
        self.preparing = True  # the disk may be found to have space again meanwhile
        try:
            self.ready.append(await self._directory.prepare(self._size()))
        except DiskFullError:
            self._space.note_full()
        finally:
            self.preparing = False

    def takes(self, batch_bytes: int) -> bool:
        """The first file has room for a batch; otherwise one that has is being made."""
        needed = WAL_FIRST_BATCH_OFFSET + align_up(batch_bytes, BLOCK_BYTES)
        if self.ready and not self._growing and self.ready[0].size >= needed:
            self._wanted_bytes = 0
            return True
        self._wanted_bytes = needed
        self._directory.in_a_hurry = True
        self.prepare()
        return False

    def take(self) -> WalFile:
        """The first file; another one is prepared."""
        file = self.ready.popleft()
        assert all(file.number < other.number for other in self.ready), "files are used in the order of their numbers"
        self._directory.in_a_hurry = False
        self.prepare()
        return file

    def stop(self) -> None:
        """No file is prepared any more; what is being done ends by itself."""
        self._stopped = True

    def prepare(self) -> None:
        """Begins to make what is missing, unless that goes on already."""
        if not (self.preparing or self._held_back or self._stopped or self._admission.read_only):
            self.preparing = True
            self._loop.spawn(self._prepare(), "log file")

    async def _prepare(self) -> None:
        try:
            while self._is_wanted():
                size = self._size()
                if self.ready and self.ready[0].size < self._wanted_bytes:
                    self._growing = True
                    try:
                        await self._directory.grow(self.ready[0], size)
                    finally:
                        self._growing = False
                else:
                    if not self._wanted_bytes and self._directory.needs_space and self._space.takes_from_mark(size):
                        raise DiskFullError(f"a log file of {size} bytes would take space from the low-water mark")
                    self.ready.append(await self._directory.prepare(size, zeroed=self.zeroes))
            self._wanted_bytes = self._failed_attempts = 0
        except DiskFullError as error:
            await self._on_full(error)
        except OSError as error:
            if error.errno in _PASSING:
                self._on_passing_error(error)
            else:
                self._on_broken(f"preparing a log file failed: {error}")
        finally:
            self.preparing = False
            self._on_ended()

    def _is_wanted(self) -> bool:
        """A batch waits, or files are to be ready; not at the end, nor on a full disk, whose space others need."""
        if self._wanted_bytes and (not self.ready or self.ready[0].size < self._wanted_bytes):
            return True
        return len(self.ready) < self._count and not (self._stopped or self._admission.disk_full)

    def _size(self) -> int:
        """Of the next file: on a full disk a part of the reserve, whose space may be had already."""
        part = self._space.part_bytes
        size = min(self._sizes.file, part) if self._admission.disk_full and part else self._sizes.file
        return max(size, self._wanted_bytes)

    def _on_passing_error(self, error: OSError) -> None:
        """Tried again soon; a batch waits a second for that, then it fails."""
        self._failed_attempts += 1
        if self._wanted_bytes and self._failed_attempts >= _ATTEMPTS_MAX:
            self._wanted_bytes = self._failed_attempts = 0
            self._on_failed(NoLogFileError(f"no log file could be opened: {error}"))
        else:
            self._held_back = True
            self._loop.call_later(_RETRY_NS, self._prepare_again)

    def _prepare_again(self) -> None:
        self._held_back = False
        self.prepare()

    async def _on_full(self, error: StorageError) -> None:
        """No space for a file ahead. If a batch waits for one, part of the reserve makes it, or the batch fails."""
        self._space.note_full(self._sizes.file)
        wanted, self._wanted_bytes = self._wanted_bytes, 0
        if not wanted:
            return
        try:
            await self._directory.drop_spares()
            await self._space.release_reserve()
            while self.ready and self.ready[0].size < wanted:  # files are used in the order of their numbers
                await self._directory.retire(self.ready.popleft().stored, keep=False)
            if not self.ready:
                self.ready.append(await self._prepare_small(wanted))
            return
        except (DiskFullError, OSError):
            pass  # the batch learns the first reason
        self._wanted_bytes = 0  # it was asked for meanwhile, too
        self._on_failed(error)

    async def _prepare_small(self, wanted: int) -> WalFile:
        """A part of the reserve, or no more than the batch takes, where others were faster. Raises like `prepare`."""
        size = max(wanted, min(self._sizes.file, self._space.part_bytes))
        try:
            return await self._directory.prepare(size)
        except DiskFullError:
            if size == wanted:
                raise
            return await self._directory.prepare(wanted)
