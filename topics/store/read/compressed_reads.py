"""Reads of compressed segments: only the blocks that hold the bytes wanted.

On the loop they take time slices; a caller's thread reads without rests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol

from typing_extensions import Buffer

from topics.errors import StorageError
from topics.loop.files import Files
from topics.store.disk.time_slices import RestingLoop, TimeSlices
from topics.store.format.compressed_segment import HEADER_BYTES, Blocks, CompressedHeader
from topics.store.format.file_table import StoredFile

_SLICE_NS = 2_000_000
_BLOCKS_AT_ONCE = 256
"""Blocks that one call reads from the disk: a claim of many large jobs is read in several."""


class ReadInto(Protocol):
    """The method of files that reading blocks needs."""

    async def read_into(self, fd: int, buffer: Buffer, offset: int) -> int: ...


class Rests(Protocol):
    """The part of `TimeSlices` that inflating needs."""

    async def turn(self) -> None: ...
    def working(self) -> AbstractContextManager[None]: ...


class LoopOfReads(RestingLoop, Protocol):
    """The part of a loop that reads of compressed segments need."""

    files: Files

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str = "") -> object: ...


class CompressedReads:
    """The reads of a store's compressed segments, which share their time slices."""

    def __init__(self, loop: LoopOfReads) -> None:
        self._loop = loop
        self._turns = TimeSlices(loop, _SLICE_NS)

    def begin(
        self, file: StoredFile, offset: int, length: int, done: Callable[[memoryview | StorageError], None]
    ) -> None:
        """Call `done` later with these bytes of the segment, or an error.

        The caller holds the file.
        """
        self._loop.spawn(self._run(file, offset, length, done), "inflate")

    async def _run(
        self, file: StoredFile, offset: int, length: int, done: Callable[[memoryview | StorageError], None]
    ) -> None:
        try:
            files = self._loop.files
            found: memoryview | StorageError = await inflated(files, self._turns, file, file.fd, offset, length)
        except OSError as error:
            found = StorageError(f"reading {file.path} failed: {error.strerror or error}")
        except StorageError as error:
            found = error
        done(found)


async def inflated(  # noqa: PLR0917 - the fields of a read
    files: ReadInto, rests: Rests, file: StoredFile, fd: int, offset: int, length: int
) -> memoryview:
    """Return these bytes of a compressed segment, whose open descriptor is `fd`.

    Raises: StorageError or OSError.
    """
    if file.blocks is None:
        file.blocks = await read_blocks(files, fd, file.path)
    blocks, room, filled = file.blocks, bytearray(length), 0
    wanted = blocks.covering(offset, length)
    for first in range(wanted.start, wanted.stop, _BLOCKS_AT_ONCE):
        some = range(first, min(first + _BLOCKS_AT_ONCE, wanted.stop))
        begin, size = blocks.place(some)
        packed = bytearray(size)
        count = await files.read_into(fd, packed, begin)
        for block in some:
            await rests.turn()
            with rests.working():
                text = blocks.inflate(block, memoryview(packed)[:count], begin)
                skipped = max(0, offset - block * blocks.header.block_bytes)
                part = text[skipped : skipped + length - filled]
                room[filled : filled + len(part)] = part
                filled += len(part)
    return memoryview(room)


async def read_blocks(files: ReadInto, fd: int, path: str) -> Blocks:
    """Return the blocks of an open file. Raises FormatError, CorruptError or OSError."""
    fixed = bytearray(HEADER_BYTES)
    count = await files.read_into(fd, fixed, 0)
    header = CompressedHeader.unpack(fixed[:count], path)
    table = bytearray(4 * header.blocks)
    count = await files.read_into(fd, table, header.table_at)
    return Blocks(header, table[:count], path)
