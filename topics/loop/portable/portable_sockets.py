"""The socket half of the portable ring: waiting operations, continued by edges of epoll.

An operation is tried at once and waits only if it would block. Edges come once: a descriptor that
one pass does not exhaust is remembered in `ready`.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import Buffer

from topics.loop.portable.portable_columns import CompletionColumns, ReceiveBuffers
from topics.loop.ring import F_BUFFER, F_MORE

EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
WRITABLE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
ENDING = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
"""Events after which a short receive does not mean that the socket is drained: its end follows."""
TURNS_MAX = 16
"""Receives or accepts of one descriptor in a pass. More would starve others beside a fast peer."""


@dataclass(slots=True, eq=False)
class SocketWaits:
    """The operations that wait on one socket, by user_data; 0 for none."""

    socket: socket.socket
    accept: int = 0
    receive: int = 0
    connect: int = 0
    poll: int = 0
    send: int = 0
    sending: Buffer = b""


class SocketTable:
    """Socket operations: started at once, continued when epoll reports an edge."""

    def __init__(self, epoll: select.epoll, completions: CompletionColumns, buffers: ReceiveBuffers) -> None:
        self.ready: dict[int, int] = {}
        """Descriptors not exhausted in one pass, and their event masks: their edge is spent."""
        self._epoll = epoll
        self._completions = completions
        self._buffers = buffers
        self._streams: dict[int, SocketWaits] = {}
        self._waiting: dict[int, Callable[[], None]] = {}
        """user_data of a waiting operation -> function that ends it early."""

    def dispatch(self, events: list[tuple[int, int]]) -> None:
        """Continue the operations of the descriptors of these events, and of those still ready."""
        if self.ready:
            ready, self.ready = self.ready, {}
            for fd, mask in events:
                ready[fd] = ready.get(fd, 0) | mask
            events = list(ready.items())
        streams = self._streams
        for fd, mask in events:
            stream = streams.get(fd)
            if stream is None:
                continue
            if stream.connect and mask & WRITABLE:
                self._connected(fd, stream)
                continue
            if mask & READABLE:
                if stream.receive:
                    self._receive(fd, stream, mask)
                elif stream.accept:
                    self._accept(fd, stream)
                elif stream.poll:
                    user_data, stream.poll = stream.poll, 0
                    self._end(user_data, select.EPOLLIN)
            if stream.send and mask & WRITABLE:
                self._resend(stream)

    def cancel(self, target: int) -> bool:
        """End a waiting operation. Return False if `target` does not exist."""
        undo = self._waiting.get(target)
        if undo is None:
            return False
        undo()
        self._end(target, -errno.ECANCELED)
        return True

    def close(self, user_data: int, fd: int) -> bool:
        """Close a socket. Return False if the descriptor is not in this table."""
        stream = self._streams.get(fd)
        if stream is None:
            return False
        for waiting in (stream.accept, stream.receive, stream.poll, stream.send):
            if waiting:  # the kernel would let it wait forever, and no call could end it
                self._end(waiting, -errno.ECANCELED)
        self._forget(fd, stream).close()
        self._completions.add(user_data, 0)
        return True

    def abandon(self) -> None:
        """Forget all sockets, and close only those that were not reported to the caller."""
        for stream in self._streams.values():
            if stream.connect:
                stream.socket.close()
            else:
                stream.socket.detach()
        self._streams.clear()
        self.ready.clear()
        self._waiting.clear()

    # --- starting ----------------------------------------------------------------------------------------------------
    def accept(self, user_data: int, fd: int) -> None:
        stream = self._armed(user_data, fd)
        if stream is not None:
            assert not stream.accept, "two accepts on one listener"
            stream.accept = user_data
            self._waiting[user_data] = lambda: setattr(stream, "accept", 0)

    def _accept(self, fd: int, stream: SocketWaits) -> None:
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
            self._completions.add(stream.accept, self._adopt(accepted), F_MORE)
        self.ready[fd] = READABLE

    def connect(self, user_data: int, host: str, port: int) -> None:
        client: socket.socket | None = None
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            client = socket.socket(family, kind, protocol)
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            result = client.connect_ex(address)
        except OSError as error:
            # getaddrinfo has error numbers of its own, which are no errno
            result = errno.EADDRNOTAVAIL if isinstance(error, socket.gaierror) else error.errno or errno.EIO
        if client is None or result not in (0, errno.EINPROGRESS):
            if client is not None:
                client.close()
            self._completions.add(user_data, -result)
            return
        fd = client.fileno()
        stream = self._streams[self._adopt(client)]
        stream.connect = user_data
        self._watch(fd)
        self._waiting[user_data] = lambda: self._forget(fd, stream).close()

    def _connected(self, fd: int, stream: SocketWaits) -> None:
        user_data, stream.connect = stream.connect, 0
        error = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._forget(fd, stream).close()
        self._end(user_data, -error or fd)

    def recv(self, user_data: int, fd: int) -> None:
        stream = self._armed(user_data, fd)
        if stream is not None:
            assert not stream.receive, "two receives on one connection"
            stream.receive = user_data
            self._waiting[user_data] = lambda: setattr(stream, "receive", 0)

    def poll(self, user_data: int, fd: int) -> None:
        stream = self._armed(user_data, fd)
        if stream is not None:
            assert not stream.poll, "two polls of one socket"
            stream.poll = user_data
            self._waiting[user_data] = lambda: setattr(stream, "poll", 0)

    def _receive(self, fd: int, stream: SocketWaits, mask: int) -> None:
        user_data, buffers = stream.receive, self._buffers
        for _ in range(TURNS_MAX):
            number = buffers.next_free()
            if number < 0:
                # Only a socket with data to give ends for want of a buffer.
                res = self._peek(stream)
                if res is None:
                    return
                break
            try:
                res = stream.socket.recv_into(buffers.views[number])
            except BlockingIOError:
                return
            except OSError as error:
                res = -(error.errno or errno.EIO)
            if res <= 0:
                break
            buffers.lend(number)
            self._completions.add(user_data, res, F_BUFFER | F_MORE | number << 16)
            if res < buffers.size and not mask & ENDING:
                return
        else:
            self.ready[fd] = mask
            return
        stream.receive = 0
        self._end(user_data, res)

    @staticmethod
    def _peek(stream: SocketWaits) -> int | None:
        """Look for data, with no buffer free.

        Returns: -ENOBUFS for data, 0 at the end of the stream, None for no data, or -errno.
        """
        try:
            return -errno.ENOBUFS if stream.socket.recv(1, socket.MSG_PEEK) else 0
        except BlockingIOError:
            return None
        except OSError as error:
            return -(error.errno or errno.EIO)

    def send(self, user_data: int, fd: int, data: Buffer) -> None:
        stream = self._streams.get(fd)
        if stream is None and (stream := self._stream(user_data, fd)) is None:
            return
        assert not stream.send, "two sends in flight on one connection"
        try:
            self._completions.add(user_data, stream.socket.send(data, socket.MSG_NOSIGNAL))
        except BlockingIOError:
            stream.send, stream.sending = user_data, data
            self._waiting[user_data] = lambda: self._unsend(stream)
            self._watch(fd)
        except OSError as error:
            self._completions.add(user_data, -(error.errno or errno.EIO))

    def send_now(self, fd: int, data: bytes | memoryview) -> int:
        stream = self._streams.get(fd)
        if stream is None:
            return -errno.EBADF
        assert not stream.send, "two sends in flight on one connection"
        try:
            return stream.socket.send(data, socket.MSG_NOSIGNAL)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def _resend(self, stream: SocketWaits) -> None:
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
    def _unsend(stream: SocketWaits) -> None:
        stream.send, stream.sending = 0, b""

    def shutdown(self, user_data: int, fd: int, sends_only: bool) -> None:
        stream = self._stream(user_data, fd)
        if stream is None:
            return
        try:
            stream.socket.shutdown(socket.SHUT_WR if sends_only else socket.SHUT_RDWR)
        except OSError as error:
            self._completions.add(user_data, -(error.errno or errno.EIO))
        else:
            self._completions.add(user_data, 0)

    # --- descriptors -------------------------------------------------------------------------------------------------
    def _adopt(self, owned: socket.socket) -> int:
        fd = owned.fileno()
        stale = self._streams.get(fd)
        if stale is not None:  # its descriptor was closed elsewhere
            self._forget(fd, stale).detach()
        self._streams[fd] = SocketWaits(owned)
        return fd

    def _stream(self, user_data: int, fd: int) -> SocketWaits | None:
        """Return the stream of a descriptor.

        If there is none, the operation is completed with the reason, and None returned.
        """
        stream = self._streams.get(fd)
        if stream is None:
            try:
                borrowed = socket.socket(fileno=fd)
            except (OSError, ValueError) as error:
                self._completions.add(user_data, -(getattr(error, "errno", 0) or errno.EBADF))
                return None
            borrowed.setblocking(False)
            stream = self._streams[fd] = SocketWaits(borrowed)
        return stream

    def _armed(self, user_data: int, fd: int) -> SocketWaits | None:
        """Return the stream as `_stream`, with epoll reporting data that is there already."""
        stream = self._stream(user_data, fd)
        if stream is not None:
            try:
                self._watch(fd)
            except OSError as error:
                self._completions.add(user_data, -(error.errno or errno.EIO))
                return None
        return stream

    def _watch(self, fd: int) -> None:
        """Register, or arm the edge again.

        A number that was closed and used again is a new registration.
        """
        try:
            self._epoll.modify(fd, EDGES)
        except FileNotFoundError:
            self._epoll.register(fd, EDGES)

    def _forget(self, fd: int, stream: SocketWaits) -> socket.socket:
        self._streams.pop(fd, None)
        self.ready.pop(fd, None)
        return stream.socket

    def _end(self, user_data: int, res: int) -> None:
        """Add the final completion of an operation that waited."""
        self._waiting.pop(user_data, None)
        self._completions.add(user_data, res)
