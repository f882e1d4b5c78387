"""The file half of the simulated ring. An operation takes effect when it completes, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

import cffi
from typing_extensions import Buffer

from tests.sim.world.faults import AGAIN, NO_SPACE
from tests.sim.world.ring_core import Core, Handle, Operation
from tests.sim.world.sim_disk import SimDirectory
from tests.sim.world.sim_file import BLOCK_BYTES, SimFile

_ffi = cffi.FFI()


class SimFiles:
    """Starts file operations on the core's disk."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._disk = core.disk

    def open(self, user_data: int, path: str, flags: int) -> None:
        def start(operation: Operation) -> None:
            self._core.later("open", lambda: self._core.complete(operation, self._open(path, flags)))

        self._core.queue(user_data, "open", start)

    def _open(self, path: str, flags: int) -> int:
        fault = self._core.take_fault("open", path)
        if fault is not None:
            return -fault.error
        if not self._core.has_fd:  # before anything is made or cut
            return -errno.EMFILE
        try:
            node = self._disk.open(path, flags)
        except OSError as error:
            return -(error.errno or errno.EIO)
        fd = self._core.new_fd(Handle(node, path, flags))
        if fd >= 0 and isinstance(node, SimFile):
            node.opens += 1
        return fd

    def close(self, user_data: int, fd: int) -> None:
        def end(operation: Operation) -> None:
            handle = self._core.fds.get(fd)
            fault = self._core.take_fault("close", handle.path if handle else "")
            res = self._core.close_fd(fd)  # the descriptor is gone, whatever close() says
            self._core.complete(operation, -fault.error if fault else res)
            if handle is not None and handle.path == "/":  # a listener's spare: the next accept waits for it
                self._core.wakes = True

        self._core.queue(user_data, "close", lambda operation: self._core.later("close", lambda: end(operation)))

    def read(self, user_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        view = memoryview(buffer).cast("B")
        if view.readonly:
            raise BufferError("a read needs a writable buffer")

        def start(operation: Operation) -> None:
            handle = self._core.hold(operation, fd)
            if handle is not None:
                self._core.later("read", lambda: self._core.complete(operation, self._read(handle, view, offset)))

        self._core.queue(user_data, "read", start)

    def _read(self, handle: Handle, view: memoryview, offset: int) -> int:
        fault = self._core.take_fault("read", handle.path)
        if fault is not None and fault.error:
            return -fault.error
        file = handle.node
        if not isinstance(file, SimFile):
            return -errno.EISDIR if isinstance(file, SimDirectory) else -errno.EINVAL
        direct = bool(handle.flags & os.O_DIRECT)
        if direct and not self._aligned(view, offset):
            return -errno.EINVAL
        size = len(view)
        if fault is not None:
            size = min(size, fault.keep)
            if direct:  # whole blocks, or it is not short
                size = size // self._disk.direct_block_bytes * self._disk.direct_block_bytes or len(view)
        return file.read_into(view[:size], offset, direct=direct)

    def write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> None:
        self._core.queue(user_data, "write", self._write_start(fd, buffer, offset, dsync=dsync))

    def commit(self, write_data: int, sync_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        """The sync starts when the write has completed in full, and not otherwise."""
        size = len(memoryview(buffer).cast("B"))
        chained: list[Operation] = []

        def then(res: int) -> None:
            if res == size:
                self._sync_start(fd)(chained[0])
            else:
                self._core.complete(chained[0], -errno.ECANCELED)

        self._core.queue(write_data, "write", self._write_start(fd, buffer, offset, dsync=False, then=then))
        self._core.queue(sync_data, "sync", chained.append)
        # The second of a chain has to be known before the first can start.
        self._core.queued[-2:] = reversed(self._core.queued[-2:])

    def _write_start(
        self, fd: int, buffer: Buffer, offset: int, *, dsync: bool, then: Callable[[int], None] | None = None
    ) -> Callable[[Operation], None]:
        view = memoryview(buffer).cast("B")

        def start(operation: Operation) -> None:
            handle = self._core.hold(operation, fd)
            if handle is None:
                if then is not None:
                    then(-errno.EBADF)
                return
            data = bytes(view)
            at = offset
            if offset < 0 and isinstance(handle.node, SimFile):
                assert handle.flags & os.O_APPEND, "the position of a file is its end"
                at = len(handle.node.live)

            def end() -> None:
                assert data == bytes(view), "a buffer changed while its write was in flight"
                res = self._write(handle, view, data, at, dsync=dsync)
                self._core.complete(operation, res)
                if then is not None:
                    then(res)

            if isinstance(handle.node, SimFile):
                file = handle.node
                operation.if_interrupted = lambda: self._disk.write(file, at, data[: self._cut(at, len(data))])
            self._core.later("sync" if dsync else "write", end)

        return start

    def _lose(self, file: SimFile, upto: int) -> None:
        file.lose(upto, self._core.rng if self._core.shuffle else None)

    def _cut(self, offset: int, size: int) -> int:
        """How much of a write is done when its process is killed: whole pages of the file."""
        pages = -(-(offset % BLOCK_BYTES + size) // BLOCK_BYTES)
        return min(size, max(0, self._core.rng.randint(1, pages) * BLOCK_BYTES - offset % BLOCK_BYTES))

    def _write(self, handle: Handle, view: memoryview, data: bytes, offset: int, *, dsync: bool) -> int:
        fault = self._core.take_fault("write", handle.path)
        if fault is not None and fault.error:
            return -fault.error
        file = handle.node
        if not isinstance(file, SimFile) or not handle.flags & (os.O_WRONLY | os.O_RDWR):
            return -errno.EBADF
        if handle.flags & os.O_DIRECT and not self._aligned(view, offset):
            return -errno.EINVAL
        if fault is not None:
            data = data[: fault.keep]
        count = self._disk.write(file, offset, data)
        if dsync and count == len(view):  # no promise says what of a short one is synced: nothing
            fault = self._core.take_fault("sync", handle.path)
            if fault is None:
                file.sync_range(offset, count)
            elif not fault.error:
                self._core.faults.synced(file, file.order, honestly=False)
            else:
                if fault.error in (*NO_SPACE, *AGAIN):  # as of a write that finds no space: its bytes are not there
                    file.lose(file.order)
                else:
                    self._lose(file, file.order)
                    self._core.note_failed_sync(handle)
                return -fault.error
        return count

    def fsync(self, user_data: int, fd: int) -> None:
        self._core.queue(user_data, "sync", self._sync_start(fd))

    def _sync_start(self, fd: int) -> Callable[[Operation], None]:
        def start(operation: Operation) -> None:
            handle = self._core.hold(operation, fd)
            if handle is None:
                return
            # What completes while the sync is under way may or may not be covered: here it is not.
            upto = handle.node.order if isinstance(handle.node, SimFile) else self._disk.order
            self._core.later("sync", lambda: self._core.complete(operation, self._sync(handle, upto)))

        return start

    def _sync(self, handle: Handle, upto: int) -> int:
        fault = self._core.take_fault("sync", handle.path)
        node = handle.node
        if fault is None or not fault.error:
            self._core.faults.synced(node, upto, honestly=fault is None)
        if isinstance(node, SimDirectory):
            if fault is None:
                self._disk.sync_directory(node, upto)
        elif isinstance(node, SimFile):
            if fault is None:
                node.sync(upto)
            elif fault.error:
                self._lose(node, upto)
                if fault.error not in NO_SPACE or not handle.path.endswith(".tmp"):  # that one is written anew
                    self._core.note_failed_sync(handle)
        else:
            return -errno.EINVAL
        return -fault.error if fault else 0

    def rename(self, user_data: int, old: str, new: str) -> None:
        self._names(user_data, "rename", new, lambda: self._disk.rename(old, new))

    def unlink(self, user_data: int, path: str) -> None:
        self._names(user_data, "unlink", path, lambda: self._disk.unlink(path))

    def _names(self, user_data: int, kind: str, path: str, effect: Callable[[], None]) -> None:
        def attempt() -> int:
            fault = self._core.take_fault(kind, path)
            if fault is not None:
                return -fault.error
            return self._result(effect)

        def start(operation: Operation) -> None:
            operation.if_interrupted = lambda: self._result(effect)
            self._core.later(kind, lambda: self._core.complete(operation, attempt()))

        self._core.queue(user_data, kind, start)

    @staticmethod
    def _result(effect: Callable[[], None]) -> int:
        try:
            effect()
        except OSError as error:
            return -(error.errno or errno.EIO)
        return 0

    def _aligned(self, view: memoryview, offset: int) -> bool:
        """Offset, size and memory address, as O_DIRECT wants them."""
        block = self._disk.direct_block_bytes
        return offset % block == 0 and len(view) % block == 0 and _address(view) % block == 0

    # --- blocking --------------------------------------------------------------------------------------------------
    def fail_blocking(self, kind: str, path: str) -> None:
        """Raises what the faults have planned for a blocking call."""
        fault = self._core.take_fault(kind, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def lock(self, path: str, *, shared: bool = False) -> int:
        flags = os.O_RDONLY if shared else os.O_CREAT | os.O_RDWR
        node = self._disk.open(path, flags)
        if not isinstance(node, SimFile):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node.locked_by and not (shared and node.lock_is_shared):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        handle = Handle(node, path, flags)
        node.opens += 1
        node.locked_by.append(handle)
        node.lock_is_shared = shared
        return self._core.new_fd_now(handle)

    def write_now(self, fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        """Takes effect when it returns, or not at all; if the process ends with it, perhaps in part."""
        view = memoryview(buffer).cast("B")
        handle = self._core.fds.get(fd)
        results: list[int] = [-errno.EBADF]

        def end() -> None:
            assert handle is not None, "a descriptor"
            if self._core.ends_now and isinstance(handle.node, SimFile) and self._core.rng.random() < 0.5:
                self._disk.write(handle.node, offset, bytes(view[: self._cut(offset, len(view))]))
            else:
                results.append(self._write(handle, view, bytes(view), offset, dsync=dsync))

        if handle is not None:
            self._core.block("sync" if dsync else "write", end)
        return results[-1]

    def write_parts_now(self, fd: int, parts: Sequence[Buffer], offset: int) -> int:
        return self.write_now(fd, b"".join(parts), offset, dsync=False)

    def sync_now(self, fd: int) -> int:
        """Takes effect when it returns, or not at all; nothing else completes meanwhile."""
        handle = self._core.fds.get(fd)
        results: list[int] = [-errno.EBADF]
        if handle is not None:
            synced = handle
            upto = handle.node.order if isinstance(handle.node, SimFile) else self._disk.order
            self._core.block("sync", lambda: results.append(self._sync(synced, upto)))
        return results[-1]

    def read_now(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Read as another thread than the driver does: the clock moves, and no effect is counted."""
        handle = self._core.fds.get(fd)
        if handle is None:
            return -errno.EBADF
        self._core.events.clock.advance_ns(self._core.usual_ns("read"))
        return self._read(handle, memoryview(buffer).cast("B"), offset)

    def allocate(self, fd: int, size: int) -> None:
        node = self._core.handle_of(fd).node
        if not isinstance(node, SimFile):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self._disk.allocate(node, size)


def _address(view: memoryview) -> int:
    return int(_ffi.cast("uintptr_t", _ffi.from_buffer(view))) if len(view) else 0
