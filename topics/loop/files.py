"""Files over the ring: awaitables for many steps, `_nowait` callbacks for the log's hot path.

Awaitables raise OSError with errno and path; callbacks get the raw result. Buffers belong to the
kernel until the completion, so a task cancelled in one of these waits sees the completion first
(see `tasks.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from typing_extensions import Buffer

from topics.loop.operations import FILE, Done, Operations, ignore
from topics.loop.ring import Ring
from topics.loop.tasks import Future

T = TypeVar("T")

NOTHING_DONE = (-errno.EINTR, -errno.EAGAIN)
"""Results of an operation that did nothing, and is repeated."""
TRIES = 100
"""Number of attempts, after which the error is reported."""
_ZEROS = bytes(1 << 20)
"""Bytes that `allocate_zeroed` writes at a time: its budget for a pass."""


class SyncFailedError(OSError):
    """A failed sync: the bytes may be lost, and another sync would not report it."""


class _CommitResults:
    """The two results of a commit chain, collected. They may come in either order."""

    __slots__ = ("_done", "_pending", "_sync_res", "_write_res")

    def __init__(self, done: Callable[[int, int], None]) -> None:
        self._done = done
        self._pending = 2
        self._write_res = 0
        self._sync_res = 0

    def on_write(self, res: int) -> None:
        self._write_res = res
        self._on_result()

    def on_sync(self, res: int) -> None:
        self._sync_res = res
        self._on_result()

    def _on_result(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._done(self._write_res, self._sync_res)


class _RepeatedRead:
    """One read, repeated while it does nothing.

    It is a class because a function that refers to itself would stay until the garbage collector
    runs.
    """

    __slots__ = ("_buffer", "_done", "_fd", "_offset", "_operations", "_ring", "_tries")

    def __init__(  # noqa: PLR0917 - fields of a read
        self, ring: Ring, operations: Operations[Any], fd: int, buffer: Buffer, offset: int, done: Callable[[int], None]
    ) -> None:
        self._ring = ring
        self._operations = operations
        self._fd = fd
        self._buffer = buffer
        self._offset = offset
        self._done = done
        self._tries = 0

    def begin(self) -> None:
        self._tries += 1
        user_data = self._operations.expect(FILE, self._on_read)
        self._ring.queue_read(user_data, self._fd, self._buffer, self._offset)

    def _on_read(self, res: int) -> None:
        if res in NOTHING_DONE and self._tries < TRIES:
            self.begin()
        else:
            self._done(res)


class Files:
    """File operations of one loop. All paths are str."""

    def __init__(
        self, ring: Ring, operations: Operations[Any], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        """call_soon: calls a function on the loop; called from any thread."""
        self._ring = ring
        self._operations = operations
        self._call_soon = call_soon
        self._paths: dict[int, str] = {}
        """Path of each descriptor opened here, for error messages."""
        self.closing = 0
        """Number of closes in progress."""
        self.reads = 0
        """Number of reads begun by `read_nowait`."""
        self._is_optional = False
        self.optional = 0
        """Number of operations in flight of optional tasks, see `Loop.spawn`."""
        self.optional_begun = 0
        """Number of those so far."""
        self.in_threads = 0
        """Number of calls of `to_thread` that have not ended."""

    # --- callbacks: results are counts or -errno, never exceptions -------------------------------------------------
    def write_nowait(
        self, fd: int, buffer: Buffer, offset: int, done: Callable[[int], None], *, dsync: bool = False
    ) -> None:
        """Queue a write. `done` gets the count, which may be short, or -errno.

        dsync: the completion means that the bytes are on stable storage.
        """
        self._ring.queue_write(self._operations.expect(FILE, done), fd, buffer, offset, dsync=dsync)

    def write_now(self, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> int:
        """Write before returning.

        Return the count, which may be short, or -errno. Blocks the thread.
        """
        return self._ring.write_now(fd, buffer, offset, dsync=dsync)

    @property
    def write_address(self) -> int:
        """Address of a function in C that does the same as `write_now` (uring/ring.h); 0: none."""
        return self._ring.write_address

    def write_parts_now(self, fd: int, parts: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other, as `write_now` writes one."""
        return self._ring.write_parts_now(fd, parts, offset)

    def sync_now(self, fd: int) -> int:
        """Sync a file's data before returning. Return 0 or -errno. Blocks the thread."""
        return self._ring.sync_now(fd)

    def read_now(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Read before returning, from any thread. Blocks that thread.

        Return the count, which is short at the end of the file, or -errno.
        """
        res = 0
        for _ in range(TRIES):
            res = self._ring.read_now(fd, buffer, offset)
            if res not in NOTHING_DONE:
                break
        return res

    def commit_nowait(self, fd: int, buffer: Buffer, offset: int, done: Callable[[int, int], None]) -> None:
        """Queue the commit chain. `done(write_res, sync_res)` is called once, after both.

        The bytes are durable only if write_res is the full length and sync_res is 0.
        """
        commit = _CommitResults(done)
        expect = self._operations.expect
        self._ring.queue_commit(expect(FILE, commit.on_write), expect(FILE, commit.on_sync), fd, buffer, offset)

    def fdatasync_nowait(self, fd: int, done: Callable[[int], None]) -> None:
        self._ring.queue_fsync(self._operations.expect(FILE, done), fd, data_only=True)

    def read_nowait(self, fd: int, buffer: Buffer, offset: int, done: Callable[[int], None]) -> None:
        """Queue a read into a writable buffer. The count is short at the end of the file."""
        self.reads += 1
        _RepeatedRead(self._ring, self._operations, fd, buffer, offset, done).begin()

    def close_nowait(self, fd: int) -> None:
        """Close a descriptor, without waiting for it.

        The result has no use: the descriptor is gone in any case, and a sync has reported errors of
        writes.
        """
        self._paths.pop(fd, None)
        self.closing += 1
        self._ring.queue_close(self._operations.expect(FILE, self._on_closed), fd)

    # --- awaitables ------------------------------------------------------------------------------------------------
    async def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Return a new descriptor, close-on-exec. A symbolic link is not followed."""
        fd = await self._submit(path, self._ring.queue_open, path, flags, mode)
        self._paths[fd] = path
        return fd

    async def close(self, fd: int) -> None:
        """Close a descriptor, see `close_nowait`."""
        self.close_nowait(fd)

    def close_leftovers(self) -> None:
        """Close every descriptor opened here that is still open: its owner was cancelled."""
        for fd in list(self._paths):
            del self._paths[fd]
            self._ring.queue_close(self._operations.expect(FILE, ignore), fd)

    async def read_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Read until the buffer is full or the file ends. Return the count read."""
        view = memoryview(buffer).cast("B")
        count = 0
        while count < len(view):
            res = await self._submit(self._paths.get(fd), self._ring.queue_read, fd, view[count:], offset + count)
            if res == 0:
                break
            count += res
        return count

    async def read(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes; fewer at the end of the file."""
        buffer = bytearray(size)
        count = await self.read_into(fd, buffer, offset)
        return bytes(memoryview(buffer)[:count])

    async def write_all(self, fd: int, buffer: Buffer, offset: int) -> None:
        """Write the whole buffer; a short write is continued by further ones."""
        view = memoryview(buffer).cast("B")
        count = 0
        while count < len(view):
            res = await self._submit(self._paths.get(fd), self._ring.queue_write, fd, view[count:], offset + count)
            if res == 0:
                raise OSError(errno.EIO, f"a write of {len(view) - count} bytes wrote none", self._paths.get(fd))
            count += res

    async def fdatasync(self, fd: int) -> None:
        await self._sync(fd, data_only=True)

    async def fsync(self, fd: int) -> None:
        await self._sync(fd, data_only=False)

    async def rename(self, old: str, new: str) -> None:
        """Rename a file. The new name is durable after `sync_directory` of the directory."""
        await self._submit(old, self._ring.queue_rename, old, new)

    async def unlink(self, path: str) -> None:
        await self._submit(path, self._ring.queue_unlink, path)

    async def sync_directory(self, path: str) -> None:
        """Make the creations, renames and removals in a directory durable."""
        fd = await self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            await self.fsync(fd)
        finally:
            await self.close(fd)

    async def allocate_zeroed(self, fd: int, size: int) -> None:
        """Reserve [0, size), write zeros and sync: later commits into it change no metadata."""
        self.allocate(fd, size)
        for offset in range(0, size, len(_ZEROS)):
            rest = size - offset
            await self.write_all(fd, _ZEROS if rest >= len(_ZEROS) else _ZEROS[:rest], offset)
        await self.fsync(fd)

    async def to_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a blocking call, made by a thread of its own.

        For a file system that may not answer, as the target of a backup: the loop continues.
        Raises: what the call raises.
        """
        future: Future[T] = Future(interruptible=False)

        def run() -> None:
            try:
                settle = partial(future.set_result, call(*arguments))
            except Exception as error:
                settle = partial(future.set_error, error)
            self._call_soon(settle)

        self.in_threads += 1
        self._ring.run_in_thread(run)
        try:
            return await future
        finally:
            self.in_threads -= 1

    # --- blocking: start-up and checkpoint -------------------------------------------------------------------------
    def make_directory(self, path: str) -> bool:
        """Create a directory. Return False if it exists."""
        return self._ring.make_directory(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Raises OSError."""
        self._ring.remove_directory(path)

    def link(self, path: str, new: str) -> None:
        """Give a file another name, durable after `sync_directory` of the new directory."""
        self._ring.link(path, new)

    def list_directory(self, path: str) -> list[str]:
        return self._ring.list_directory(path)

    def file_size(self, path: str) -> int:
        return self._ring.file_size(path)

    def lock(self, path: str, *, shared: bool = False) -> int:
        """Lock a file, see `Ring.lock`."""
        return self._ring.lock(path, shared=shared)

    def allocate(self, fd: int, size: int) -> None:
        self._ring.allocate(fd, size)

    def free_bytes(self, path: str) -> int:
        return self._ring.free_bytes(path)

    def direct_block_bytes(self, path: str) -> int:
        return self._ring.direct_block_bytes(path)

    # --- inside ----------------------------------------------------------------------------------------------------
    def mark_optional(self, is_optional: bool) -> None:
        """State whether an optional task runs now."""
        self._is_optional = is_optional

    def _on_closed(self, _res: int) -> None:
        self.closing -= 1

    async def _submit(self, path: str | None, queue: Callable[..., None], *arguments: Any) -> int:
        """Queue one operation and return its result. Raises OSError for a negative one.

        Not for syncs: an interrupted one may have used up the only report of an error.
        """
        for _ in range(TRIES):
            future: Future[int] = Future(interruptible=False)
            queue(self._operations.expect(FILE, self._done(future)), *arguments)
            res = await future
            if res not in NOTHING_DONE:
                break
        if res < 0:
            raise OSError(-res, os.strerror(-res), path)
        return res

    def _done(self, future: Future[int]) -> Done:
        """Return what settles a future, and counts the operation if the task is optional."""
        if not self._is_optional:
            return future.set_result

        def on_done(res: int) -> None:
            self.optional -= 1
            future.set_result(res)

        self.optional += 1
        self.optional_begun += 1
        return on_done

    async def _sync(self, fd: int, *, data_only: bool) -> None:
        future: Future[int] = Future(interruptible=False)
        self._ring.queue_fsync(self._operations.expect(FILE, self._done(future)), fd, data_only=data_only)
        res = await future
        if res < 0:
            raise SyncFailedError(-res, os.strerror(-res), self._paths.get(fd))
