"""A file of the log in large pieces, of which the next one is read while one is scanned."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from topics.common.memory import page_aligned
from topics.loop.tasks import Future
from topics.store.disk.whole_files import FileCalls
from topics.store.format import codec
from topics.store.format.log_format import BATCH_ALIGN, BLOCK_BYTES, WAL_FIRST_BATCH_OFFSET, align_up
from topics.store.recovery.missing_batches import LogFile

PIECE_BYTES = 8 << 20


class LogPiece(NamedTuple):
    """Bytes of a file that a scan takes at once."""

    data: memoryview
    base: int
    """File offset of data[0]."""
    fresh: int
    """Number of bytes that were read for it."""
    last: bool
    """Whether the file has no more."""


class LogPieces:
    """The pieces of a file, read one ahead.

    Bytes that a scan left over come first in the next piece.
    """

    def __init__(self, files: FileCalls, fd: int, file: LogFile) -> None:
        self._files = files
        self.fd = fd
        self._size = file.size
        self.batch_no = file.header.first_batch_no
        """Number of the next batch."""
        self.chain = file.header.checksum
        self._room = PIECE_BYTES // 8
        """Room for left-over bytes, before the bytes read."""
        self._buffers = [self._new_buffer(), self._new_buffer()]
        self._offset = WAL_FIRST_BATCH_OFFSET
        self._left = memoryview(b"")
        self._reading: Future[int] | None = None

    def _new_buffer(self) -> memoryview:
        return memoryview(page_aligned(self._room + PIECE_BYTES))

    def _read_ahead(self) -> Future[int]:
        """Queue the read of the next bytes into the second buffer."""
        future: Future[int] = Future(interruptible=False)
        buffer = self._buffers[1][self._room : self._room + PIECE_BYTES]
        self._files.read_nowait(self.fd, buffer, self._offset, future.set_result)
        return future

    async def next(self, pause: Callable[[], Future[None]]) -> LogPiece:
        """Return the next piece. Raises OSError."""
        count = await (self._reading or self._read_ahead())
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        offset = self._offset
        wanted = min(PIECE_BYTES, self._size - offset)
        if count < wanted:  # short reads are rare: read the rest at once
            rest = self._buffers[1][self._room + count : self._room + wanted]
            count += await self._files.read_into(self.fd, rest, offset + count)
        count = min(count, wanted)  # the file may have more, which does not count
        left = len(self._left)
        if left > self._room:
            self._grow(left, count)
        buffer = self._buffers[1]
        start = self._room - left
        buffer[start : self._room] = self._left
        self._left = memoryview(b"")
        self._buffers.reverse()
        self._offset = offset + count
        last = self._offset >= self._size or count < wanted
        self._reading = None
        if not last:
            self._reading = self._read_ahead()
            await pause()  # so that the ring submits the read before the scan
        return LogPiece(buffer[start : self._room + count], offset - left, count, last)

    def _grow(self, left: int, count: int) -> None:
        """Enlarge the room for left-over bytes, for a batch larger than a piece."""
        old = self._buffers[1][self._room : self._room + count]
        self._room = align_up(2 * left, BLOCK_BYTES)
        self._buffers = [self._buffers[0], self._new_buffer()]
        self._buffers[1][self._room : self._room + count] = old
        self._buffers[0] = self._new_buffer()

    def advance(self, piece: LogPiece, scan: codec.LogScan) -> None:
        """Keep the bytes that the scan did not take."""
        self.batch_no = scan.batch_no
        self.chain = scan.chain
        self._left = piece.data[align_up(scan.position, BATCH_ALIGN) :]

    async def finish(self) -> None:
        """Wait for a read in flight, before its descriptor is closed."""
        if self._reading is not None:
            await self._reading
