"""Files of the log and parts of them, read past the page cache where the directory allows it.

After a failed sync the cache may show bytes that the disk does not have.
"""

from __future__ import annotations

import os

from topics.common.memory import page_aligned
from topics.store.disk.whole_files import FileCalls
from topics.store.format.log_format import BLOCK_BYTES, align_up

_O_DIRECT = getattr(os, "O_DIRECT", 0)


class DirectReader:
    """A reader of files and parts of them into page-aligned memory; O_DIRECT if `direct`."""

    def __init__(self, files: FileCalls, *, direct: bool) -> None:
        self._files = files
        self._flags = os.O_RDONLY | (_O_DIRECT if direct else 0)

    async def open(self, path: str) -> int:
        return await self._files.open(path, self._flags)

    async def close(self, fd: int) -> None:
        await self._files.close(fd)

    async def read(self, fd: int, offset: int, size: int) -> memoryview:
        """Return file bytes [offset, offset + size), fewer at the end of the file.

        They are in memory of their own.
        """
        begin = offset & -BLOCK_BYTES
        buffer = memoryview(page_aligned(max(BLOCK_BYTES, align_up(offset + size - begin, BLOCK_BYTES))))
        count = await self._files.read_into(fd, buffer, begin)
        return buffer[offset - begin : min(count, offset - begin + size)]
