"""The file calls of a reader on the simulated disk, with a step of the world around it before each of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from tests.sim.world.sim_disk import SimDisk
from tests.sim.world.sim_file import SimFile


class SimCalls:
    """FileCalls over `disk()`, which may be another disk after each `before`.

    before: called before each call with its name and path; what it raises is what the call raises.
    """

    def __init__(self, disk: Callable[[], SimDisk], before: Callable[[str, str], None] | None = None) -> None:
        self._disk = disk
        self._before = before or (lambda name, path: None)
        self._open: dict[int, tuple[str, SimFile, SimDisk]] = {}
        self._last = 2
        self.opened: list[str] = []
        """Paths, in order."""

    @property
    def descriptors(self) -> int:
        """How many are open."""
        return len(self._open)

    def open(self, path: str) -> int:
        self._before("open", path)
        node = self._disk().open(path, os.O_RDONLY)
        if not isinstance(node, SimFile):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        node.opens += 1
        self._last += 1
        self._open[self._last] = path, node, self._disk()
        self.opened.append(path)
        return self._last

    def close(self, fd: int) -> None:
        _path, node, disk = self._open.pop(fd)
        node.opens -= 1
        disk.forget(node)

    def size(self, fd: int) -> int:
        path, node, _disk = self._open[fd]
        self._before("size", path)
        return len(node.live)

    def read_into(self, fd: int, buffer: Any, offset: int) -> int:
        path, node, _disk = self._open[fd]
        self._before("read", path)
        view = memoryview(buffer).cast("B")
        data = node.read(offset, len(view), direct=False)
        view[: len(data)] = data
        return len(data)

    def list_directory(self, path: str) -> list[str]:
        self._before("list", path)
        return self._disk().list_directory(path)

    def owner(self, path: str) -> int:
        return 1000

    def user(self) -> int:
        return 0
