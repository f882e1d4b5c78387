"""Handling of a full disk: a low-water mark below which appends are refused, and a reserve file.

The reserve gives space to operations that free space. While `full`, deletes, acks and floors
continue: they are written to the rest of the current log file and then to a small file made of the
reserve. When there is space again, the reserve is created anew and appends resume without
intervention.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from topics.errors import DiskFullError
from topics.loop.loop import Loop
from topics.store.disk.log_sizes import LogSizes
from topics.store.disk.whole_files import unlink_if_there
from topics.store.format.log_format import BLOCK_BYTES, align_up

log = logging.getLogger(__name__)

_CHECK_NS = 1_000_000_000
_FILES_OF_RESERVE = 4
"""Number of log files per shard that a reserve is enough for.

After a kill one more is needed, and so is space for snapshots.
"""


def is_full(error: OSError) -> bool:
    """Return whether the file system has no space for this process.

    Every other error of a write is a failing disk.
    """
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def lacks_space(error: Exception) -> bool:
    """Return whether any error is a lack of space; a file that found none raises DiskFullError."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and is_full(error))


@contextmanager
def room_at(path: str, remedy: str) -> Iterator[None]:
    """Have an error for want of space on a disk name its place and the remedy."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise DiskFullError(f"{error.filename or path}: {error.strerror}: {remedy}") from error


class DiskSpace:
    """The watch over free space in the data directory, checked once a second."""

    def __init__(self, loop: Loop, directory: str, sizes: LogSizes) -> None:
        self._loop = loop
        self._directory = directory
        self._reserve_path = f"{directory}/reserve"
        self._sizes = sizes
        self.reserve_bytes = sizes.reserve
        """Size of the reserve that exists, or that is created next."""
        self._low_water_bytes = sizes.low_water
        self.full = False
        """Whether appends are refused."""
        self._wanted_bytes = 0
        """Size that found no space.

        With less free space it would fail again, and appends would stop again.
        """
        self.has_reserve = False
        self._working = False
        self._closed = False
        self.on_change: list[Callable[[], None]] = []
        """Callbacks after `full` changed."""

    @property
    def part_bytes(self) -> int:
        """Size of a log file on a full disk."""
        return align_up(self.reserve_bytes // (_FILES_OF_RESERVE * self._sizes.shards), BLOCK_BYTES)

    async def open(self) -> None:
        """Create the reserve (if there is no space for it, the disk is full) and start watching."""
        found = self._found_bytes()
        if found > self._sizes.reserve_max:
            await self._loop.files.unlink(self._reserve_path)  # its setting was larger before
        self.reserve_bytes = max(self._sizes.reserve, min(found, self._sizes.reserve_max))
        await self._make_reserve()
        self._check()

    def close(self) -> None:
        self._closed = True

    async def _make_reserve(self) -> None:
        """Create the reserve file at its full size, or not at all."""
        files = self._loop.files
        if self.reserve_bytes == 0:
            self.has_reserve = True
            return
        fd = await files.open(self._reserve_path, os.O_RDWR | os.O_CREAT)
        try:
            if self._loop.ring.file_size(self._reserve_path) < self.reserve_bytes:
                await files.allocate_zeroed(fd, self.reserve_bytes)
            self.has_reserve = True
        except OSError as error:
            if not is_full(error):
                raise
            await files.unlink(self._reserve_path)
            self.note_full()
        finally:
            await files.close(fd)

    def _found_bytes(self) -> int:
        try:
            return self._loop.ring.file_size(self._reserve_path)
        except FileNotFoundError:
            return 0

    async def _grow_reserve(self, size: int) -> None:
        """Enlarge the reserve after the log has grown.

        A task that needs the reserve meanwhile removes the file, and then `reserve_bytes` stays.
        """
        files = self._loop.files
        fd = await files.open(self._reserve_path, os.O_RDWR)
        try:
            await files.allocate_zeroed(fd, size)
        finally:
            await files.close(fd)
        if self.has_reserve:
            self.reserve_bytes = size

    def free_bytes(self) -> int:
        """Return the bytes that may still be written, without the reserve. Raises OSError."""
        return self._loop.ring.free_bytes(self._directory)

    def lacks(self, wanted_bytes: int) -> bool:
        """Return whether less than this is free; False where the file system does not report it."""
        try:
            return self.free_bytes() < wanted_bytes
        except OSError:
            return False

    @property
    def holds_reserve(self) -> bool:
        """Whether there is a reserve to release."""
        return self.has_reserve and self.reserve_bytes > 0

    async def release_reserve(self) -> bool:
        """Give the reserve's space to the caller; False if it was released before."""
        if not self.holds_reserve:
            return False
        self.has_reserve = False
        # an operator may have removed it
        await unlink_if_there(self._loop.files, self._reserve_path)
        return True

    def takes_from_mark(self, wanted_bytes: int) -> bool:
        """Return whether this write would leave less free space than the mark.

        False where the file system does not report it.
        """
        return self._low_water_bytes > 0 and self.lacks(self._low_water_bytes + wanted_bytes)

    def note_full(self, wanted_bytes: int = 0) -> None:
        """Note that a write or an allocation found no space.

        wanted_bytes: requested again as soon as there is space.
        """
        self._wanted_bytes = max(self._wanted_bytes, wanted_bytes)
        self._set_full(True)

    def _set_full(self, full: bool) -> None:
        if self.full != full:
            self.full = full
            if full:
                log.warning(
                    "the disk of %s is full, or has less than %d bytes free (TOPICS_DISK_LOW_WATER_BYTES): "
                    "appends are refused, deletes are accepted",
                    self._directory,
                    self._low_water_bytes,
                )
            else:
                log.warning("the disk of %s has space again: appends are accepted", self._directory)
                self._wanted_bytes = 0
            for fn in self.on_change:
                fn()

    def _check(self) -> None:
        """Compare free space with the mark.

        Resuming needs somewhat more than the mark, so that the state does not alternate. A reserve
        that took all the rest would leave the next checkpoint no space to write to.
        """
        if self._closed:
            return
        try:
            free = self.free_bytes()
        except OSError:
            free = self._low_water_bytes  # not reported: leave the state unchanged
        if free < self._low_water_bytes:
            self.note_full()
        elif self.full:
            wanted = max(self._low_water_bytes // 8, self._wanted_bytes, BLOCK_BYTES)
            if not self.has_reserve:
                wanted = max(wanted, self.part_bytes) + self.reserve_bytes
            if free >= self._low_water_bytes + wanted:
                self._begin(self._heal)
        elif self.has_reserve and self.reserve_bytes < self._sizes.reserve <= free - self._low_water_bytes:
            self._begin(partial(self._grow_reserve, self._sizes.reserve))
        self._loop.call_later(_CHECK_NS, self._check)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that writes the reserve, unless one is running.

        After a failure the next check starts another.
        """
        if not self._working:
            self._working = True
            self._loop.spawn(self._run(work), "disk space")

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except OSError:
            pass
        finally:
            self._working = False

    async def _heal(self) -> None:
        """Create the reserve again and accept appends again, because space was freed."""
        if not self.has_reserve:
            await self._make_reserve()
        if self.has_reserve:
            self._set_full(False)
