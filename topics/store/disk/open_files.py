"""Descriptors of sealed files, opened on the first read, closed once many others were read since.

A store may have tens of thousands of segments and packs. Each is a file to the index and costs a
descriptor only while it is read. Log files keep theirs.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from topics.loop.files import Files
from topics.loop.tasks import Event
from topics.store.disk.whole_files import unlink_if_there
from topics.store.format.file_table import StoredFile

log = logging.getLogger(__name__)

OPEN_MAX = 256


class Spawner(Protocol):
    """The methods of a loop that are used here."""

    files: Files

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str = "") -> object: ...


class OpenFiles:
    """Descriptors opened on demand: at most OPEN_MAX, or as many as are in use if that is more."""

    def __init__(self, loop: Spawner) -> None:
        self._loop = loop
        self._open: OrderedDict[int, StoredFile] = OrderedDict()
        self._waiting: dict[int, list[Callable[[int], None]]] = {}
        self._owed: list[str] = []
        self._removals = 0
        self._removed = Event()
        self._removed.set()
        self._ended = False

    def touch(self, file: StoredFile) -> None:
        """Note that the file is read again."""
        if file.file_id in self._open:
            self._open.move_to_end(file.file_id)

    def open(self, file: StoredFile, done: Callable[[int], None]) -> None:
        """Call `done` with 0 once file.fd is open, or with -errno. The caller holds the file."""
        assert file.readers > 0, "the caller that opens a file reads it"
        waiting = self._waiting.setdefault(file.file_id, [])
        waiting.append(done)
        if len(waiting) == 1:
            self._loop.spawn(self._open_file(file), "open")

    async def _open_file(self, file: StoredFile) -> None:
        res = 0
        try:
            file.fd = await self._loop.files.open(file.path, os.O_RDONLY)
            self._open[file.file_id] = file
        except OSError as error:
            res = -(error.errno or 5)
        for done in self._waiting.pop(file.file_id):
            done(res)
        await self._close_unused(OPEN_MAX)

    async def close_idle(self) -> None:
        """Close all that is not read now, because descriptors are lacking elsewhere."""
        await self._close_unused(0)

    async def _close_unused(self, most: int) -> None:
        while len(self._open) > most:
            victim = next((file for file in self._open.values() if not file.readers), None)
            if victim is None:
                return
            del self._open[victim.file_id]
            fd, victim.fd = victim.fd, -1
            if fd >= 0:
                await self._loop.files.close(fd)

    def forget(self, file: StoredFile) -> None:
        """Give up the file's descriptor, which the caller will close."""
        self._open.pop(file.file_id, None)

    async def remove(self, fd: int, *paths: str) -> None:
        """Close the descriptor of a forgotten file (-1: it has none) and unlink its paths.

        A path that cannot be unlinked is owed: no snapshot lists it, so it only costs space until
        `remove_owed` or a start.
        """
        self._removals += 1
        self._removed.clear()
        try:
            if fd >= 0:
                await self._loop.files.close(fd)
            for path in paths:
                await self._unlink(path)
        finally:
            self._removals -= 1
            if not self._removals:
                self._removed.set()

    async def _unlink(self, path: str) -> None:
        if self._ended:
            return  # the next start unlinks it
        try:
            await unlink_if_there(self._loop.files, path)
        except OSError as error:
            log.warning("removing %s failed, the next checkpoint tries again: %s", path, error)
            self._owed.append(path)

    async def end(self) -> None:
        """End unlinking; the next opener of the store may then give the paths to other files."""
        self._ended = True
        await self._removed.wait()

    def remove_owed(self) -> None:
        """Retry the unlinks that failed. A path is never given to another file in one run."""
        owed, self._owed = self._owed, []
        if owed:
            self._loop.spawn(self.remove(-1, *owed), "drop")
