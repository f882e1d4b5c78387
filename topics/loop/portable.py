"""PortableRing: the Ring Protocol on epoll and one I/O thread, for kernels and containers that refuse io_uring.

Sockets are tried at once and wait for an edge of epoll only when they would block; files are left to the thread of
`portable_files`. Completions are the same as a real ring's, multishots and provided buffers included.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import Buffer

from topics.clock import SystemClock
from topics.loop.portable_files import FileThread, Job
from topics.loop.ring import F_BUFFER, F_MORE, Completions, Send
from topics.uring.blocking import BlockingCalls

EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
WRITABLE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
ENDING = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
"""With one of these a short receive does not mean that the socket is drained: its end lies behind."""
EVENTS_MAX = 1024
TURNS_MAX = 16
"""Receives or accepts of one descriptor in a pass, so that a fast peer does not starve the others."""
SHORT_WAIT_NS = 5_000_000
"""epoll_wait counts in milliseconds; waits shorter than this go through select, which counts in microseconds."""
SELECT_FD_MAX = 1023

_open_rings: weakref.WeakSet[PortableRing] = weakref.WeakSet()


@dataclass(slots=True, eq=False)
class Stream:
    """What waits on one socket; 0 and None for nothing."""

    socket: socket.socket
    accept: int = 0
    receive: int = 0
    connect: int = 0
    send: int = 0
    sending: Buffer = b""


class PortableRing(BlockingCalls):
    """Any thread may drive it, one at a time.

    receive_buffers: how many receives may be reaped and not yet recycled; receive_buffer_bytes: the size of each.
    """

    name = "portable"

    def __init__(self, receive_buffers: int = 512, receive_buffer_bytes: int = 16_384) -> None:
        self.receive_buffer_bytes = receive_buffer_bytes
        self._memory = memoryview(mmap.mmap(-1, receive_buffers * receive_buffer_bytes))
        self._buffers = [
            self._memory[start : start + receive_buffer_bytes]
            for start in range(0, receive_buffers * receive_buffer_bytes, receive_buffer_bytes)
        ]
        self._free = list(range(receive_buffers))
        self._lent = bytearray(receive_buffers)
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
        self._streams: dict[int, Stream] = {}
        self._ready: dict[int, int] = {}
        """Descriptors with more to take than one pass took, and their event masks: their edge is spent."""
        self._waiting: dict[int, Callable[[], None]] = {}
        """user_data of a socket operation that waits -> what ends it early."""
        self._filing: set[int] = set()
        self._queued: list[Job] = []
        self._jobs: list[Job] = []
        self._completions: Completions = ([], [], [])
        self._refusal = ""
        _open_rings.add(self)

    # --- sockets -----------------------------------------------------------------------------------------------------
    def queue_accept(self, user_data: int, fd: int) -> None:
        self._queue(user_data, self._start_accept, (user_data, fd))

    def queue_connect(self, user_data: int, host: str, port: int) -> None:
        """A name is resolved while the caller waits; use numeric addresses on a loop."""
        self._queue(user_data, self._start_connect, (user_data, host, port))

    def queue_recv(self, user_data: int, fd: int) -> None:
        self._queue(user_data, self._start_recv, (user_data, fd))

    def received(self, flags: int, res: int) -> memoryview:
        return self._buffers[flags >> 16][:res]

    def recycle(self, flags: Sequence[int]) -> None:
        lent, free = self._lent, self._free
        for each in flags:
            if not each & F_BUFFER:
                continue
            number = each >> 16
            assert lent[number], "a receive buffer is recycled that is not lent"
            lent[number] = 0
            free.append(number)

    def queue_sends(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self._queue(send[0], self._start_send, send)

    def queue_shutdown(self, user_data: int, fd: int) -> None:
        self._queue(user_data, self._start_shutdown, (user_data, fd))

    def _start_accept(self, user_data: int, fd: int) -> None:
        stream = self._armed(user_data, fd)
        if stream is not None:
            assert not stream.accept, "two accepts on one listener"
            stream.accept = user_data
            self._waiting[user_data] = lambda: setattr(stream, "accept", 0)

    def _accept(self, fd: int, stream: Stream) -> None:
        for _ in range(TURNS_MAX):
            try:
                accepted, _address = stream.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._end(stream.accept, -(error.errno or errno.EIO))
                stream.accept = 0
                return
            accepted.setblocking(False)
            self._complete(stream.accept, self._adopt(accepted), F_MORE)
        self._ready[fd] = READABLE

    def _start_connect(self, user_data: int, host: str, port: int) -> None:
        client: socket.socket | None = None
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            client = socket.socket(family, kind, protocol)
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            result = client.connect_ex(address)
        except OSError as error:
            # getaddrinfo's numbers are its own and no errno
            result = errno.EADDRNOTAVAIL if isinstance(error, socket.gaierror) else error.errno or errno.EIO
        if client is None or result not in (0, errno.EINPROGRESS):
            if client is not None:
                client.close()
            self._complete(user_data, -result)
            return
        fd = client.fileno()
        stream = self._streams[fd] = Stream(client, connect=user_data)
        self._watch(fd)
        self._waiting[user_data] = lambda: self._forget(fd, stream).close()

    def _connected(self, fd: int, stream: Stream) -> None:
        user_data, stream.connect = stream.connect, 0
        error = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._forget(fd, stream).close()
        self._end(user_data, -error or fd)

    def _start_recv(self, user_data: int, fd: int) -> None:
        stream = self._armed(user_data, fd)
        if stream is not None:
            assert not stream.receive, "two receives on one connection"
            stream.receive = user_data
            self._waiting[user_data] = lambda: setattr(stream, "receive", 0)

    def _receive(self, fd: int, stream: Stream, mask: int) -> None:
        user_data, free = stream.receive, self._free
        for _ in range(TURNS_MAX):
            if not free:
                # Only a socket that has something to give ends for want of a buffer.
                res = self._peek(stream)
                if res is None:
                    return
                break
            number = free[-1]
            try:
                res = stream.socket.recv_into(self._buffers[number])
            except BlockingIOError:
                return
            except OSError as error:
                res = -(error.errno or errno.EIO)
            if res <= 0:
                break
            free.pop()
            self._lent[number] = 1
            self._complete(user_data, res, F_BUFFER | F_MORE | number << 16)
            if res < self.receive_buffer_bytes and not mask & ENDING:
                return
        else:
            self._ready[fd] = mask
            return
        stream.receive = 0
        self._end(user_data, res)

    @staticmethod
    def _peek(stream: Stream) -> int | None:
        """With no buffer free: -ENOBUFS for data, 0 at the end of the stream, None for nothing yet, or -errno."""
        try:
            return -errno.ENOBUFS if stream.socket.recv(1, socket.MSG_PEEK) else 0
        except BlockingIOError:
            return None
        except OSError as error:
            return -(error.errno or errno.EIO)

    def _start_send(self, user_data: int, fd: int, data: Buffer) -> None:
        stream = self._streams.get(fd)
        if stream is None and (stream := self._stream(user_data, fd)) is None:
            return
        assert not stream.send, "two sends in flight on one connection"
        try:
            self._complete(user_data, stream.socket.send(data, socket.MSG_NOSIGNAL))
        except BlockingIOError:
            stream.send, stream.sending = user_data, data
            self._waiting[user_data] = lambda: self._unsend(stream)
            self._watch(fd)
        except OSError as error:
            self._complete(user_data, -(error.errno or errno.EIO))

    def _send(self, stream: Stream) -> None:
        try:
            res = stream.socket.send(stream.sending, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError as error:
            res = -(error.errno or errno.EIO)
        user_data = stream.send
        self._unsend(stream)
        self._end(user_data, res)

    @staticmethod
    def _unsend(stream: Stream) -> None:
        stream.send, stream.sending = 0, b""

    def _start_shutdown(self, user_data: int, fd: int) -> None:
        stream = self._stream(user_data, fd)
        if stream is None:
            return
        try:
            stream.socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            self._complete(user_data, -(error.errno or errno.EIO))
        else:
            self._complete(user_data, 0)

    # --- descriptors -------------------------------------------------------------------------------------------------
    def _adopt(self, owned: socket.socket) -> int:
        fd = owned.fileno()
        stale = self._streams.get(fd)
        if stale is not None:  # its descriptor was closed behind our back
            self._forget(fd, stale).detach()
        self._streams[fd] = Stream(owned)
        return fd

    def _stream(self, user_data: int, fd: int) -> Stream | None:
        """The stream of a descriptor; None after completing the operation with the reason why there is none."""
        stream = self._streams.get(fd)
        if stream is None:
            try:
                borrowed = socket.socket(fileno=fd)
            except (OSError, ValueError) as error:
                self._complete(user_data, -(getattr(error, "errno", 0) or errno.EBADF))
                return None
            borrowed.setblocking(False)
            stream = self._streams[fd] = Stream(borrowed)
        return stream

    def _armed(self, user_data: int, fd: int) -> Stream | None:
        """The same, and epoll reports what it has to give already."""
        stream = self._stream(user_data, fd)
        if stream is not None:
            try:
                self._watch(fd)
            except OSError as error:
                self._complete(user_data, -(error.errno or errno.EIO))
                return None
        return stream

    def _watch(self, fd: int) -> None:
        """Registers, or arms the edge again; a number that was closed and used again is a new registration."""
        try:
            self._epoll.modify(fd, EDGES)
        except FileNotFoundError:
            self._epoll.register(fd, EDGES)

    def _forget(self, fd: int, stream: Stream) -> socket.socket:
        self._streams.pop(fd, None)
        self._ready.pop(fd, None)
        return stream.socket

    # --- files -------------------------------------------------------------------------------------------------------
    def queue_open(self, user_data: int, path: str, flags: int, mode: int) -> None:
        self._file(user_data, os.open, path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def queue_close(self, user_data: int, fd: int) -> None:
        """A socket is closed at once, behind what was queued before; a file by the thread, behind its operations."""
        self._queue(user_data, self._start_close, (user_data, fd))

    def _start_close(self, user_data: int, fd: int) -> None:
        stream = self._streams.get(fd)
        if stream is None:
            self._file(user_data, os.close, fd)
            return
        for waiting in (stream.accept, stream.receive, stream.send):
            if waiting:  # the kernel would let it wait for ever; nobody could end it here
                self._end(waiting, -errno.ECANCELED)
        self._forget(fd, stream).close()
        self._complete(user_data, 0)

    def queue_read(self, user_data: int, fd: int, buffer: Buffer, offset: int) -> None:
        if memoryview(buffer).readonly:
            raise BufferError("a read needs a writable buffer")
        self._file(user_data, os.preadv, fd, [buffer], offset)

    def queue_write(self, user_data: int, fd: int, buffer: Buffer, offset: int, *, dsync: bool = False) -> None:
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
        assert user_data != 0, "0 is nobody's user_data"
        assert user_data not in self._filing, "a user_data was in flight twice"
        self._filing.add(user_data)
        self._jobs.append((self._files.call, (user_data, function, *arguments)))

    # --- control -----------------------------------------------------------------------------------------------------
    def queue_cancel(self, user_data: int, target: int) -> None:
        self._queue(user_data, self._start_cancel, (user_data, target))

    def _start_cancel(self, user_data: int, target: int) -> None:
        undo = self._waiting.get(target)
        if undo is not None:
            undo()
            self._end(target, -errno.ECANCELED)
            self._complete(user_data, 0)
        else:
            self._complete(user_data, -errno.EALREADY if target in self._filing else -errno.ENOENT)

    def submit_and_wait(self, timeout_ns: int | None) -> None:
        if self._refusal:
            raise RuntimeError(self._refusal)
        self._submit()
        deadline = None if timeout_ns is None or timeout_ns <= 0 else self._clock.monotonic_ns() + timeout_ns
        left_ns = timeout_ns
        while True:
            if self._completions[0] or self._ready or self._files.results:
                left_ns = 0
            woken = self._dispatch(self._poll(left_ns))
            if woken or self._completions[0] or left_ns == 0:
                return
            if deadline is not None:
                left_ns = max(0, deadline - self._clock.monotonic_ns())

    def reap(self) -> Completions:
        self._collect_files()
        completions = self._completions
        self._completions = ([], [], [])
        return completions

    def wake(self) -> None:
        try:
            self._wake_end.send(b"\0")
        except OSError:  # full: a wake-up is pending; closed: nobody waits
            return

    def close(self) -> None:
        """Waits for the file operation under way; the descriptors handed out stay open and are their users'."""
        if self._epoll.closed:
            return
        _open_rings.discard(self)
        self._refusal = "this ring is closed"
        self._files.close()
        self._epoll.close()
        for stream in self._streams.values():
            if stream.connect:
                stream.socket.close()
            else:
                stream.socket.detach()
        for container in (self._streams, self._ready, self._waiting, self._queued, self._jobs):
            container.clear()
        self._completions = ([], [], [])
        self._wake_end.close()
        self._woken_end.close()

    def __del__(self) -> None:
        # Its thread ends, and borrowed socket objects never close descriptors that belong to somebody else.
        if hasattr(self, "_refusal"):
            self.close()

    # --- inside ------------------------------------------------------------------------------------------------------
    def _queue(self, user_data: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        assert user_data != 0, "0 is nobody's user_data"
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

    def _dispatch(self, events: list[tuple[int, int]]) -> bool:
        """Takes what the descriptors have to give; True when `wake` was called."""
        woken = False
        if self._ready:
            ready, self._ready = self._ready, {}
            for fd, mask in events:
                ready[fd] = ready.get(fd, 0) | mask
            events = list(ready.items())
        streams = self._streams
        for fd, mask in events:
            stream = streams.get(fd)
            if stream is None:
                woken = woken or self._is_wake(fd)
                continue
            if stream.connect and mask & WRITABLE:
                self._connected(fd, stream)
                continue
            if mask & READABLE:
                if stream.receive:
                    self._receive(fd, stream, mask)
                elif stream.accept:
                    self._accept(fd, stream)
            if stream.send and mask & WRITABLE:
                self._send(stream)
        self._collect_files()
        return woken

    def _is_wake(self, fd: int) -> bool:
        if fd != self._wake_number:
            return False
        while True:
            try:
                if not self._woken_end.recv(4096):
                    return True
            except BlockingIOError:
                return True

    def _collect_files(self) -> None:
        for user_data, res in self._files.collect():
            self._filing.discard(user_data)
            self._complete(user_data, res)

    def _complete(self, user_data: int, res: int, flags: int = 0) -> None:
        data, results, marks = self._completions
        data.append(user_data)
        results.append(res)
        marks.append(flags)

    def _end(self, user_data: int, res: int) -> None:
        """The final completion of an operation that waited."""
        self._waiting.pop(user_data, None)
        self._complete(user_data, res)

    def _refuse_in_child(self) -> None:
        self._refusal = "this ring belongs to the parent process: open another one after a fork"


def _refuse_all_in_child() -> None:
    for ring in list(_open_rings):
        ring._refuse_in_child()


os.register_at_fork(after_in_child=_refuse_all_in_child)
