"""A full disk, planned for: a low-water mark below which appends are refused, and a reserve file for what frees space.

While `full`, deletes, acks and floors go on: they write to what is left of the current log file and then to a small one
made of the reserve. When there is space again, the reserve is made anew and appends resume by themselves.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Coroutine
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
"""Log files of a shard that a reserve makes: what comes after a kill needs one, too, and so do snapshots."""


def is_full(error: OSError) -> bool:
    """The file system has no space left for us; every other error of a write is a failing disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def lacks_space(error: Exception) -> bool:
    """The same of any error: a file that found no space for itself is a DiskFullError by then."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and is_full(error))


class DiskSpace:
    """Watches the free space of the data directory, once a second."""

    def __init__(self, loop: Loop, directory: str, sizes: LogSizes) -> None:
        self._loop = loop
        self._directory = directory
        self._reserve_path = f"{directory}/reserve"
        self._sizes = sizes
        self.reserve_bytes = sizes.reserve
        """Of the reserve that there is, or that is made next."""
        self._low_water_bytes = sizes.low_water
        self.full = False
        """Appends are refused."""
        self._wanted_bytes = 0
        """What found no space: before there is as much it would find none again, and appends would stop again."""
        self.has_reserve = False
        self._working = False
        self._closed = False
        self.on_change: list[Callable[[], None]] = []
        """Called after `full` changed."""

    @property
    def part_bytes(self) -> int:
        """Of a log file on a full disk."""
        return align_up(self.reserve_bytes // (_FILES_OF_RESERVE * self._sizes.shards), BLOCK_BYTES)

    async def open(self) -> None:
        """Makes the reserve (a missing one means: full) and starts watching."""
        found = self._found_bytes()
        if found > self._sizes.reserve_max:
            await self._loop.files.unlink(self._reserve_path)  # it was to be larger before
        self.reserve_bytes = max(self._sizes.reserve, min(found, self._sizes.reserve_max))
        await self._make_reserve()
        self._check()

    def close(self) -> None:
        self._closed = True

    async def _make_reserve(self) -> None:
        """The reserve file at its full size, or none of it."""
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
        """As the log has grown. Whoever needs the reserve meanwhile removes the file, and then nothing has grown."""
        files = self._loop.files
        fd = await files.open(self._reserve_path, os.O_RDWR)
        try:
            await files.allocate_zeroed(fd, size)
        finally:
            await files.close(fd)
        if self.has_reserve:
            self.reserve_bytes = size

    def free_bytes(self) -> int:
        """What may still be written, the reserve not counted. Raises OSError."""
        return self._loop.ring.free_bytes(self._directory)

    def lacks(self, wanted_bytes: int) -> bool:
        """Less than this is free; False where the file system does not tell."""
        try:
            return self.free_bytes() < wanted_bytes
        except OSError:
            return False

    @property
    def holds_reserve(self) -> bool:
        """There is space to give."""
        return self.has_reserve and self.reserve_bytes > 0

    async def release_reserve(self) -> bool:
        """Gives the reserve's space to the caller; False when it is gone already."""
        if not self.holds_reserve:
            return False
        self.has_reserve = False
        await unlink_if_there(self._loop.files, self._reserve_path)  # somebody may have removed it by hand
        return True

    def takes_from_mark(self, wanted_bytes: int) -> bool:
        """Once this is written there is less free space than the mark; False where the file system does not tell."""
        return self._low_water_bytes > 0 and self.lacks(self._low_water_bytes + wanted_bytes)

    def note_full(self, wanted_bytes: int = 0) -> None:
        """A write or an allocation found no space. wanted_bytes: it is asked for again as soon as there is some."""
        self._wanted_bytes = max(self._wanted_bytes, wanted_bytes)
        self._set_full(True)

    def _set_full(self, full: bool) -> None:
        if self.full != full:
            self.full = full
            if full:
                log.warning("the disk of %s is full: appends are refused, deletes go on", self._directory)
            else:
                log.warning("the disk of %s has space again: appends go on", self._directory)
                self._wanted_bytes = 0
            for fn in self.on_change:
                fn()

    def _check(self) -> None:
        """Compares free space with the mark; a little above it is needed to resume, lest it flicker.

        A reserve that took all the rest would leave the next checkpoint nothing to write with.
        """
        if self._closed:
            return
        try:
            free = self.free_bytes()
        except OSError:
            free = self._low_water_bytes  # cannot tell: leave things as they are
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
        """Both kinds of work write the reserve: one at a time. What fails is looked at again in a second."""
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
        """There is space again: the reserve is made anew, and then appends resume."""
        if not self.has_reserve:
            await self._make_reserve()
        if self.has_reserve:
            self._set_full(False)
