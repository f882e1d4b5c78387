"""Whole files: read one, write one durably, list a directory. Not for hot paths."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from typing_extensions import Buffer

from topics.errors import CorruptError
from topics.loop.files import SyncFailedError

T = TypeVar("T")

_ZEROS = bytes(1 << 20)
PIECE_BYTES = 4 << 20
"""Bytes that `read_pieces` reads at a time."""
_JOINED_BYTES_MAX = 1 << 20
"""Most bytes of small pieces that are copied together for one write."""


class ReadCalls(Protocol):
    """The calls that reading needs."""

    async def open(self, path: str, flags: int, mode: int = 0o600) -> int: ...
    async def close(self, fd: int) -> None: ...
    async def read_into(self, fd: int, buffer: Buffer, offset: int) -> int: ...
    def file_size(self, path: str) -> int: ...


class FileCalls(ReadCalls, Protocol):
    """The methods of `topics.loop.files.Files` that checkpoint and recovery use."""

    async def write_all(self, fd: int, buffer: Buffer, offset: int) -> None: ...
    async def fdatasync(self, fd: int) -> None: ...
    async def fsync(self, fd: int) -> None: ...
    async def rename(self, old: str, new: str) -> None: ...
    async def unlink(self, path: str) -> None: ...
    async def sync_directory(self, path: str) -> None: ...
    async def to_thread(self, call: Callable[..., T], *arguments: Any) -> T: ...
    def read_nowait(self, fd: int, buffer: Buffer, offset: int, done: Callable[[int], None]) -> None: ...
    def make_directory(self, path: str) -> bool: ...
    def remove_directory(self, path: str) -> None: ...
    def link(self, path: str, new: str) -> None: ...
    def list_directory(self, path: str) -> list[str]: ...


async def read_view(files: ReadCalls, path: str, size: int | None = None) -> memoryview:
    """Return the whole file, or its first `size` bytes: `read_file` without a copy of them.

    Raises OSError; CorruptError, it is larger than the memory.
    """
    found = files.file_size(path)  # which refuses a pipe: an open would wait for one
    fd = await files.open(path, os.O_RDONLY)
    try:
        buffer = _room_for(path, found if size is None else size)
        count = await files.read_into(fd, buffer, 0)
    finally:
        await files.close(fd)
    return buffer.toreadonly()[:count]


async def read_file(files: ReadCalls, path: str, size: int | None = None) -> bytes:
    """Return the whole file, or its first `size` bytes, see `read_view`."""
    return bytes(await read_view(files, path, size))


async def read_pieces(files: ReadCalls, path: str, on_piece: Callable[[memoryview], None]) -> memoryview:
    """Return the whole file, however large: no step is long.

    on_piece: gets the pieces in their order, each once it is read.
    Raises: as `read_view`.
    """
    size = files.file_size(path)  # before the open, see `read_view`
    fd = await files.open(path, os.O_RDONLY)
    try:
        view = _room_for(path, size)
        count, is_whole = 0, False
        while not is_whole:
            piece = view[count : count + PIECE_BYTES]
            taken = await files.read_into(fd, piece, count)
            on_piece(piece[:taken])
            count += taken
            is_whole = taken < len(piece) or count == len(view)
    finally:
        await files.close(fd)
    return view.toreadonly()[:count]


def _room_for(path: str, size: int) -> memoryview:
    try:
        return np.empty(size, np.uint8).data
    except MemoryError:
        raise CorruptError(f"{path}: {size} bytes are more than there is memory for", {"path": path}) from None


def regular_size(files: FileCalls, path: str, remedy: str) -> int:
    """Return the size of a file of a directory in which others may have put anything.

    remedy: the end of the message.
    Raises: CorruptError, a pipe, a socket or a device has its name; OSError.
    """
    try:
        return files.file_size(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise CorruptError(f"{path} is no regular file. {remedy}", {"path": path}) from error


async def read_slow_file(files: FileCalls, path: str, remedy: str) -> bytes:
    """Return a whole file of a file system that may not answer.

    Another process may replace the file meanwhile, also by a longer one: it is read to its end.
    remedy, Raises: as `regular_size` and `read_view`.
    """
    size = await files.to_thread(regular_size, files, path, remedy)
    fd = await files.open(path, os.O_RDONLY)
    try:
        while True:
            buffer = _room_for(path, size + 1)
            count = await files.read_into(fd, buffer, 0)
            if count <= size:
                return bytes(buffer[:count])
            size = 2 * count
    finally:
        await files.close(fd)


async def write_new_file(files: FileCalls, path: str, *data: Buffer, sync: bool = True) -> None:
    """Write (and sync) a file, replacing its bytes in place.

    The caller syncs its directory entry.
    """
    fd = await files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        await write_pieces(files, fd, data, 0)
        if sync:
            await files.fsync(fd)
    finally:
        await files.close(fd)


async def write_pieces(files: FileCalls, fd: int, pieces: Iterable[Buffer], offset: int) -> None:
    """Write pieces one after another, from this offset on, small ones together."""
    for piece in joined(pieces):
        await files.write_all(fd, piece, offset)
        offset += memoryview(piece).nbytes


def joined(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Return the pieces with small ones joined, because each write takes a turn of the loop."""
    small: list[Buffer] = []
    size = 0
    for piece in pieces:
        length = memoryview(piece).nbytes
        if small and size + length > _JOINED_BYTES_MAX:
            yield b"".join(small) if len(small) > 1 else small[0]
            small, size = [], 0
        small.append(piece)
        size += length
    if small:
        yield b"".join(small) if len(small) > 1 else small[0]


async def replace_file(files: FileCalls, path: str, *data: Buffer) -> None:
    """Replace the file at `path` atomically and durably.

    The steps are a temporary file, fsync, rename, and an fsync of the directory.

    data: pieces of the contents. A part that filled the disk is removed again, because other files
        need the space.
    """
    temporary = f"{path}.tmp"
    try:
        await _replace(files, path, temporary, *data)
    except OSError:
        with contextlib.suppress(OSError):
            await files.unlink(temporary)
        raise


async def _replace(files: FileCalls, path: str, temporary: str, *data: Buffer) -> None:
    await write_new_file(files, temporary, *data)
    await files.rename(temporary, path)
    await in_place(files.sync_directory(os.path.dirname(path)))


async def sync_file(files: FileCalls, path: str) -> None:
    """Sync what was written through other descriptors.

    Raises OSError, also for a write-back that failed since.
    """
    fd = await files.open(path, os.O_RDWR)
    try:
        await files.fsync(fd)
    finally:
        await files.close(fd)


async def in_place(sync: Awaitable[None]) -> None:
    """Sync a file or directory that is not written anew after a failure.

    Raises OSError: see `failed_sync`.
    """
    try:
        await sync
    except SyncFailedError as error:
        raise failed_sync(error) from error


def failed_sync(error: OSError) -> OSError:
    """Return the error as one that is never a full disk; a failed sync is not tried again."""
    return OSError(errno.EIO, f"a sync failed: {error.strerror}", error.filename)


async def zero_range(files: FileCalls, path: str, start: int, end: int, *, lost_writes: bool = False) -> bool:
    """Zero file bytes [start, end) durably. Return False if they were zeros before.

    lost_writes: a sync failed before, so zeros that are read may be only in the page cache. They
        are written again.
    """
    if start >= end:
        return False
    fd = await files.open(path, os.O_RDWR)
    try:
        changed = False
        buffer = bytearray(min(len(_ZEROS), end - start))
        for offset in range(start, end, len(_ZEROS)):
            view = memoryview(buffer)[: end - offset]
            count = await files.read_into(fd, view, offset)
            if lost_writes or view[:count] != _ZEROS[:count]:
                await files.write_all(fd, _ZEROS[:count], offset)
                changed = True
        if changed:
            await in_place(files.fdatasync(fd))
    finally:
        await files.close(fd)
    return changed


def lacks_descriptors(error: OSError) -> bool:
    """Return whether too many files are open, which is temporary and no fault of the disk."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


async def unlink_if_there(files: FileCalls, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        await files.unlink(path)


def list_if_there(files: FileCalls, path: str) -> list[str]:
    """Return the names in a directory; none if it does not exist."""
    try:
        return files.list_directory(path)
    except FileNotFoundError:
        return []


def make_directories(files: FileCalls, root: str, path: str, unsynced: dict[str, None]) -> None:
    """Create `root/path` and the directories between; add those with new entries to `unsynced`.

    Each is added before the next step can fail: a second attempt finds the directories there, and
    would not know that they are new.
    """
    at = root
    for part in path.split("/"):
        if files.make_directory(f"{at}/{part}"):
            unsynced[at] = None
        at = f"{at}/{part}"
