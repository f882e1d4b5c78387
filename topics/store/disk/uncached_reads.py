"""Reads that bypass the page cache.

After a failed sync the cache may show what the disk does not have.
"""

from __future__ import annotations

import os

from typing_extensions import Buffer

from topics.common.memory import page_aligned
from topics.loop.tasks import Future
from topics.store.disk.whole_files import FileCalls, ReadCalls
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import BLOCK_BYTES, align_up

_O_DIRECT = getattr(os, "O_DIRECT", 0)


class UncachedReads:
    """ReadCalls with O_DIRECT, for directories that allow it (`is_direct`)."""

    def __init__(self, files: FileCalls) -> None:
        self._files = files
        self.file_size = files.file_size
        self._sizes: dict[int, int] = {}

    async def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = await self._files.open(path, flags | _O_DIRECT, mode)
        self._sizes[fd] = self.file_size(path)
        return fd

    def of_log(self, stored: StoredFile, size: int) -> tuple[ReadCalls, int]:
        """Return the calls and the descriptor to read the first `size` bytes of a file of the log.

        They bypass the page cache where the log's writes do. The descriptor stays open.
        """
        if stored.direct_fd < 0:
            return self._files, stored.fd
        self._sizes[stored.direct_fd] = size
        return self, stored.direct_fd

    async def close(self, fd: int) -> None:
        del self._sizes[fd]
        await self._files.close(fd)

    async def read_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Do what `FileCalls.read_into` does, through aligned memory of its own."""
        view = memoryview(buffer).cast("B")
        begin = offset & -BLOCK_BYTES
        end = min(offset + len(view), self._sizes[fd])
        if end <= offset:
            return 0
        blocks = memoryview(page_aligned(align_up(end - begin, BLOCK_BYTES)))
        at = begin
        # a read that ends within a block is at the end of the file, or is repeated from the block's
        # start
        while at < end:
            res = await self._read(fd, blocks[at - begin :], at)
            if at + res >= end:
                at += res
            elif res >= BLOCK_BYTES:
                at += res & -BLOCK_BYTES
            else:
                break
        count = max(0, min(at, end) - offset)
        view[:count] = blocks[offset - begin : offset - begin + count]
        return count

    async def _read(self, fd: int, blocks: memoryview, offset: int) -> int:
        future: Future[int] = Future()
        self._files.read_nowait(fd, blocks, offset, future.set_result)
        res = await future
        if res < 0:
            raise OSError(-res, os.strerror(-res))
        return res


def is_direct(block_bytes: int) -> bool:
    """Return whether blocks of the log's size suit O_DIRECT.

    block_bytes: `Ring.direct_block_bytes`.
    """
    return bool(_O_DIRECT) and 0 < block_bytes <= BLOCK_BYTES and BLOCK_BYTES % block_bytes == 0
