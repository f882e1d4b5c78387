"""PortableRing: the Ring Protocol on epoll and one I/O thread, where io_uring is refused.

Sockets are tried at once and wait for an edge of epoll only if they would block; files are left to
the thread of `portable_files`. Completions equal those of a real ring, multishots and provided
buffers included.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Buffer

from topics.clock import SystemClock
from topics.loop.portable.portable_columns import CompletionColumns, ReceiveBuffers
from topics.loop.portable.portable_files import FileThread, Job, write_ready
from topics.loop.portable.portable_sockets import SocketTable
from topics.loop.ring import Completions, Send, Single
from topics.uring.blocking import BlockingCalls

EVENTS_MAX = 1024
SHORT_WAIT_NS = 5_000_000
"""Bound of short waits, which use select (microseconds); epoll_wait counts in milliseconds."""
SELECT_FD_MAX = 1023

_open_rings: weakref.WeakSet[PortableRing] = weakref.WeakSet()


class PortableRing(BlockingCalls):
    """A ring that any thread may drive, one at a time.

    receive_buffers: number of receives that may be reaped and not yet recycled;
    receive_buffer_bytes: size of each.
    """

    name = "portable"
    polls = 0
    shows_wakes = True

    def __init__(self, receive_buffers: int = 512, receive_buffer_bytes: int = 16_384) -> None:
        self.receive_buffer_bytes = receive_buffer_bytes
        self._buffers = ReceiveBuffers(receive_buffers, receive_buffer_bytes)
        self._completions = CompletionColumns()
        self._clock = SystemClock()
        self._epoll = select.epoll()
        self._wake_end, self._woken_end = socket.socketpair()
        self._wake_end.setblocking(False)
        self._woken_end.setblocking(False)
        self.wake_fd = self._wake_end.fileno()
        self._files = FileThread()
        self._wake_number = self._woken_end.fileno()
        self._epoll.register(self._wake_number, select.EPOLLIN)
        self._epoll.register(self._files.event_fd, select.EPOLLIN | select.EPOLLET)
        self._sockets = SocketTable(self._epoll, self._completions, self._buffers)
        self._filing: set[int] = set()
        self._queued: list[Job] = []
        self._jobs: list[Job] = []
        self._refusal = ""
        _open_rings.add(self)

    # --- sockets -----------------------------------------------------------------------------------------------------
    def queue_accept(self, user_data: int, fd: int) -> None:
        self._queue(user_data, self._sockets.accept, (user_data, fd))

    def queue_connect(self, user_data: int, host: str, port: int) -> None:
        """Connect.

        A host name is resolved while the caller waits; use numeric addresses on a loop.
        """
        self._queue(user_data, self._sockets.connect, (user_data, host, port))

    def queue_recv(self, user_data: int, fd: int) -> None:
        self._queue(user_data, self._sockets.recv, (user_data, fd))

    def received(self, flags: int, res: int) -> memoryview:
        return self._buffers.views[flags >> 16][:res]

    def recycle(self, flags: Sequence[int]) -> None:
        self._buffers.recycle(flags)

    def queue_sends(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self._queue(send[0], self._sockets.send, send)

    def send_now(self, fd: int, data: bytes | memoryview) -> int:
        if self._refusal:
            raise RuntimeError(self._refusal)
        return self._sockets.send_now(fd, data)

    def pinned(self) -> dict[int, int]:
        return {}

    def queue_shutdown(self, user_data: int, fd: int, *, sends_only: bool = False) -> None:
        self._queue(user_data, self._sockets.shutdown, (user_data, fd, sends_only))

    def queue_poll(self, user_data: int, fd: int) -> None:
        self._queue(user_data, self._sockets.poll, (user_data, fd))

    # --- files -------------------------------------------------------------------------------------------------------
    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        self._file(user_data, os.open, path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def queue_close(self, user_data: int, fd: int) -> None:
        """Close a socket after earlier operations; a file in the thread, after its operations."""
        self._queue(user_data, self._start_close, (user_data, fd))

    def _start_close(self, user_data: int, fd: int) -> None:
        if not self._sockets.close(user_data, fd):
            self._file(user_data, os.close, fd)

    def queue_read(self, user_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        if memoryview(buffer).readonly:
            raise BufferError("a read needs a writable buffer")
        self._file(user_data, os.preadv, fd, [buffer], offset)

    def queue_write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> None:
        if offset < 0:
            self._file(user_data, write_ready, fd, buffer)
        else:
            self._file(user_data, os.pwritev, fd, [buffer], offset, os.RWF_DSYNC if dsync else 0)

    def queue_commit(self, write_data: int, sync_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        self._filing.update((write_data, sync_data))
        self._jobs.append((self._files.commit, (write_data, sync_data, fd, buffer, offset)))

    def queue_fsync(self, user_data: int, fd: int, *, data_only: bool) -> None:
        self._file(user_data, os.fdatasync if data_only else os.fsync, fd)

    def queue_rename(self, user_data: int, old: str, new: str) -> None:
        self._file(user_data, os.rename, old, new)

    def queue_unlink(self, user_data: int, path: str) -> None:
        self._file(user_data, os.unlink, path)

    def _file(self, user_data: int, function: Callable[..., int | None], *arguments: object) -> None:
        assert user_data != 0, "user_data 0 belongs to no operation"
        assert user_data not in self._filing, "a user_data was in flight twice"
        self._filing.add(user_data)
        self._jobs.append((self._files.call, (user_data, function, *arguments)))

    # --- control -----------------------------------------------------------------------------------------------------
    def queue_cancel(self, user_data: int, target: int) -> None:
        self._queue(user_data, self._start_cancel, (user_data, target))

    def _start_cancel(self, user_data: int, target: int) -> None:
        missed = -errno.EALREADY if target in self._filing else -errno.ENOENT
        res = 0 if self._sockets.cancel(target) else missed
        self._completions.add(user_data, res)

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        if self._refusal:
            raise RuntimeError(self._refusal)
        self._submit()
        deadline = None if timeout_ns is None or timeout_ns <= 0 else self._clock.monotonic_ns() + timeout_ns
        left_ns = timeout_ns
        while True:
            if self._completions.user_data or self._sockets.ready or self._files.results:
                left_ns = 0
            events = self._poll(left_ns)
            woken = self._take_wakes(events)
            self._sockets.dispatch(events)
            self._collect_files()
            if woken or self._completions.user_data or left_ns == 0:
                return
            if deadline is not None:
                left_ns = max(0, deadline - self._clock.monotonic_ns())

    def wait_single(self, timeout_ns: int | None) -> Single | None:
        self.submit_and_wait(timeout_ns)
        return None  # `reap` has it, too, and this ring is not for speed

    def reap(self) -> Completions:
        self._collect_files()
        return self._completions.take()

    @property
    def ready_fd(self) -> int:
        return self._epoll.fileno()

    def wake(self) -> None:
        try:
            self._wake_end.send(b"\0")
        except OSError:  # full: a wake-up is pending; closed: no thread waits
            return

    def close(self) -> None:
        """Wait for the file operation in progress.

        Descriptors handed out stay open and belong to their users.
        """
        if self._epoll.closed:
            return
        _open_rings.discard(self)
        self._refusal = "this ring is closed"
        self._files.close()
        self._epoll.close()
        self._sockets.abandon()
        self._queued.clear()
        self._jobs.clear()
        self._completions.take()
        self._wake_end.close()
        self._woken_end.close()

    def __del__(self) -> None:
        # The thread ends; borrowed socket objects never close descriptors that belong to other
        # code.
        if hasattr(self, "_refusal"):
            self.close()

    # --- inside ------------------------------------------------------------------------------------------------------
    def _queue(self, user_data: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        assert user_data != 0, "user_data 0 belongs to no operation"
        self._queued.append((start, arguments))

    def _submit(self) -> None:
        if self._queued:
            queued, self._queued = self._queued, []
            for start, arguments in queued:
                start(*arguments)
        if self._jobs:
            self._files.submit(self._jobs)
            self._jobs = []

    def _poll(self, timeout_ns: int | None) -> list[tuple[int, int]]:
        if timeout_ns is None:
            return self._epoll.poll(-1, EVENTS_MAX)
        if 0 < timeout_ns < SHORT_WAIT_NS and self._epoll.fileno() <= SELECT_FD_MAX:
            select.select([self._epoll.fileno()], [], [], timeout_ns / 1e9)
            timeout_ns = 0
        return self._epoll.poll(timeout_ns / 1e9, EVENTS_MAX)

    def _take_wakes(self, events: list[tuple[int, int]]) -> bool:
        """Return whether `wake` was called since the last wait."""
        if not any(fd == self._wake_number for fd, _ in events):
            return False
        try:
            while self._woken_end.recv(4096):
                pass
        except BlockingIOError:
            pass
        return True

    def _collect_files(self) -> None:
        for user_data, res in self._files.collect():
            self._filing.discard(user_data)
            self._completions.add(user_data, res)

    def _refuse_in_child(self) -> None:
        self._refusal = "this ring belongs to the parent process: open another one after a fork"


def _refuse_all_in_child() -> None:
    for ring in list(_open_rings):
        ring._refuse_in_child()


os.register_at_fork(after_in_child=_refuse_all_in_child)
