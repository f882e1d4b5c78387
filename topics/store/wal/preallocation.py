"""Log files prepared before a shard needs them, so that no commit waits for preallocation.

wal_files.py creates the files.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from topics.errors import DiskFullError, NoLogFileError, StorageError
from topics.loop.loop import Loop
from topics.store.disk.disk_space import DiskSpace
from topics.store.disk.log_sizes import LogSizes
from topics.store.format.log_format import BLOCK_BYTES, WAL_FIRST_BATCH_OFFSET, align_up
from topics.store.wal.log_bound import LogBound
from topics.store.wal.wal_files import WalDirectory, WalFile
from topics.store.wal.write_latch import WriteLatch

_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
"""Errors of preparing a file while the disk is fine."""
_RETRY_NS = 100_000_000
_ATTEMPTS_MAX = 10


class Preallocation:
    """The supply of ready files: `count` of `sizes.file` bytes, and one that a batch waits for.

    on_failed: there is no file for the batch that waits; what is staged fails with this error.
    on_broken: the disk fails; the log becomes read-only, with this reason.
    on_ended: an attempt to prepare files has ended, well or not.
    """

    def __init__(
        self,
        loop: Loop,
        directory: WalDirectory,
        *,
        space: DiskSpace,
        latch: WriteLatch,
        sizes: LogSizes,
        bound: LogBound,
        count: int,
        on_failed: Callable[[StorageError], None],
        on_broken: Callable[[str], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._space = space
        self._latch = latch
        self._sizes = sizes
        self._bound = bound
        self._count = max(1, count)
        self._on_failed = on_failed
        self._on_broken = on_broken
        self._on_ended = on_ended
        self.ready: deque[WalFile] = deque()
        self.preparing = False
        self.zeroes = True
        """Files are zeroed when prepared, so that syncs in them change no metadata."""
        self._wanted_bytes = 0
        """Size of the file that a batch waits for; 0: none waits."""
        self._growing = False
        """The first file is being enlarged and zeroed."""
        self._failed_attempts = 0
        self._held_back = False
        """Preparing waits for a timer."""
        self._stopped = False
        self._is_withheld = False
        """A file was not prepared because the log is near its bound."""

    async def open(self) -> None:
        """Prepare the first file, or none on a full disk. Raises OSError.

        On a full disk deletes make a file of the reserve.
        """
        self.preparing = True  # the disk may be found to have space again meanwhile
        try:
            self.ready.append(await self._directory.prepare(self._size()))
        except DiskFullError:
            self._space.note_full()
        finally:
            self.preparing = False

    def takes(self, batch_bytes: int) -> bool:
        """Return whether the first file has room for a batch.

        Otherwise a file that has is being prepared.
        """
        needed = WAL_FIRST_BATCH_OFFSET + align_up(batch_bytes, BLOCK_BYTES)
        if self.ready and not self._growing and self.ready[0].size >= needed:
            self._wanted_bytes = 0
            return True
        self._wanted_bytes = needed
        self._directory.in_a_hurry = True
        self.prepare()
        return False

    def take(self) -> WalFile:
        """Return the first file and begin to prepare another."""
        file = self.ready.popleft()
        assert all(file.number < other.number for other in self.ready), "files are used in the order of their numbers"
        self._directory.in_a_hurry = False
        self.prepare()
        return file

    def on_room(self) -> None:
        """Prepare the file that was not prepared because the log was near its bound."""
        if self._is_withheld:
            self._is_withheld = False
            self.prepare()

    def stop(self) -> None:
        """Prepare no more files; the running attempt ends by itself."""
        self._stopped = True

    def prepare(self) -> None:
        """Begin to prepare the missing files, unless that is running."""
        if not (self.preparing or self._held_back or self._stopped or self._latch.read_only):
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
        """Return whether a file is needed: a batch waits, or too few are ready.

        The latter does not count at the end, on a full disk, whose space is needed for other files,
        and if the current file has room for all that the log's bound still admits.
        """
        if self._wanted_bytes and (not self.ready or self.ready[0].size < self._wanted_bytes):
            return True
        if len(self.ready) >= self._count or self._stopped or self._latch.disk_full:
            return False
        self._is_withheld = self._bound.is_met_within(self._sizes.file)
        return not self._is_withheld

    def _size(self) -> int:
        """Return the size of the next file.

        On a full disk it is a part of the reserve, whose space may be free already.
        """
        part = self._space.part_bytes
        size = min(self._sizes.file, part) if self._latch.disk_full and part else self._sizes.file
        return max(size, self._wanted_bytes)

    def _on_passing_error(self, error: OSError) -> None:
        """Try again soon. A batch waits for that up to a second, then it fails."""
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
        """Note that there is no space for a file.

        If a batch waits for one, part of the reserve makes it, or the batch fails.
        """
        self._space.note_full(self._sizes.file)
        wanted, self._wanted_bytes = self._wanted_bytes, 0
        if not wanted:
            return
        try:
            await self._directory.drop_spares()
            await self._space.release_reserve()
            # files are used in the order of their numbers
            while self.ready and self.ready[0].size < wanted:
                await self._directory.retire(self.ready.popleft().stored, keep=False)
            if not self.ready:
                self.ready.append(await self._prepare_small(wanted))
            return
        except (DiskFullError, OSError):
            pass  # the batch gets the first reason
        self._wanted_bytes = 0  # another batch may have asked meanwhile
        self._on_failed(error)

    async def _prepare_small(self, wanted: int) -> WalFile:
        """Return a file of a part of the reserve. Raises like `prepare`.

        It has only the batch's size if other files took the space.
        """
        size = max(wanted, min(self._sizes.file, self._space.part_bytes))
        try:
            return await self._directory.prepare(size)
        except DiskFullError:
            if size == wanted:
                raise
            return await self._directory.prepare(wanted)
