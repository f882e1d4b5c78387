"""Files as whole things: read one, write one durably, find what is there. Used where nothing is hot."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from typing_extensions import Buffer

from topics.errors import CorruptError
from topics.loop.files import SyncFailedError

_ZEROS = bytes(1 << 20)


class ReadCalls(Protocol):
    """What reading takes."""

    async def open(self, path: str, flags: int, mode: int = 0o600) -> int: ...
    async def close(self, fd: int) -> None: ...
    async def read_into(self, fd: int, buffer: Buffer, offset: int) -> int: ...
    def file_size(self, path: str) -> int: ...


class FileCalls(ReadCalls, Protocol):
    """The part of `topics.loop.files.Files` that checkpoint and recovery use."""

    async def write_all(self, fd: int, buffer: Buffer, offset: int) -> None: ...
    async def fdatasync(self, fd: int) -> None: ...
    async def fsync(self, fd: int) -> None: ...
    async def rename(self, old: str, new: str) -> None: ...
    async def unlink(self, path: str) -> None: ...
    async def sync_directory(self, path: str) -> None: ...
    def read_nowait(self, fd: int, buffer: Buffer, offset: int, done: Callable[[int], None]) -> None: ...
    def make_directory(self, path: str) -> bool: ...
    def remove_directory(self, path: str) -> None: ...
    def list_directory(self, path: str) -> list[str]: ...


async def read_file(files: ReadCalls, path: str, size: int | None = None) -> bytes:
    """The whole file, or its first `size` bytes. Raises OSError; CorruptError, it is larger than the memory."""
    fd = await files.open(path, os.O_RDONLY)
    try:
        size = files.file_size(path) if size is None else size
        try:
            buffer = bytearray(size)
        except MemoryError:
            raise CorruptError(f"{path}: {size} bytes are more than there is memory for", {"path": path}) from None
        count = await files.read_into(fd, buffer, 0)
    finally:
        await files.close(fd)
    return bytes(memoryview(buffer)[:count])


async def write_new_file(files: FileCalls, path: str, *data: Buffer, sync: bool = True) -> None:
    """Writes (and syncs) a file, replacing its bytes in place; its directory entry is synced by the caller."""
    fd = await files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        offset = 0
        for piece in data:
            await files.write_all(fd, piece, offset)
            offset += memoryview(piece).nbytes
        if sync:
            await files.fsync(fd)
    finally:
        await files.close(fd)


async def replace_file(files: FileCalls, path: str, *data: Buffer) -> None:
    """Puts these pieces at `path` at once and durably: temporary file, fsync, rename, fsync of the directory.

    A part of it that filled the disk is removed again: others need the space.
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
    """Syncs what was written through other descriptors. Raises OSError, also for a write-back that failed since."""
    fd = await files.open(path, os.O_RDWR)
    try:
        await files.fsync(fd)
    finally:
        await files.close(fd)


async def in_place(sync: Awaitable[None]) -> None:
    """A sync of a file or directory that is not written anew after a failure. Raises OSError: see `failed_sync`."""
    try:
        await sync
    except SyncFailedError as error:
        raise failed_sync(error) from error


def failed_sync(error: OSError) -> OSError:
    """Never a full disk: a sync that failed is not tried again."""
    return OSError(errno.EIO, f"a sync failed: {error}")


async def zero_range(files: FileCalls, path: str, start: int, end: int, *, lost_writes: bool = False) -> bool:
    """Durable zeros over file bytes [start, end). False when that is what was there.

    lost_writes: a sync failed before, so zeros that are read may be in the page cache alone. They are written again.
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
    """Too many files are open: it says nothing about the disk, and passes."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


async def unlink_if_there(files: FileCalls, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        await files.unlink(path)


def list_if_there(files: FileCalls, path: str) -> list[str]:
    """Names in a directory; none when it does not exist."""
    try:
        return files.list_directory(path)
    except FileNotFoundError:
        return []


def make_directories(files: FileCalls, root: str, path: str, unsynced: dict[str, None]) -> None:
    """Makes `root/path` and what lies between; adds the directories whose entries are new and must be synced.

    Each before the next thing can fail: whoever tries again finds them there, and would not know.
    """
    at = root
    for part in path.split("/"):
        if files.make_directory(f"{at}/{part}"):
            unsynced[at] = None
        at = f"{at}/{part}"
