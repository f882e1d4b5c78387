"""The socket half of the simulated ring: multishot accepts and receives, sends that may be short, a pool of buffers."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import partial

from typing_extensions import Buffer

from tests.sim.world.network import Address, Endpoint, SimListener, SimMailbox, SimNetwork
from tests.sim.world.ring_core import Core, Handle, Operation, SimDeadError
from topics.loop.ring import F_BUFFER, F_MORE

POISON = 0xDD
"""The filling of a recycled buffer: bytes used too late are plainly wrong."""

_DATAGRAM_BYTES_MAX = 212_000
_NO_DESCRIPTOR = 1 << 20
"""Above any that is ever open."""


class SimSockets:
    """Starts socket operations on the network."""

    def __init__(self, core: Core, network: SimNetwork, *, buffers: int, buffer_bytes: int) -> None:
        self._core = core
        self._network = network
        self._buffers = [bytearray(buffer_bytes) for _ in range(buffers)]
        self._free = list(range(buffers))
        self._poison = bytes([POISON]) * buffer_bytes
        self._receiving: dict[Endpoint, Operation] = {}
        self._sending: set[Endpoint] = set()
        self._queued: set[int] = set()
        """Descriptors with a send that is not submitted yet."""

    def listen(
        self, host: str, port: int, backlog: int, keepalive_ms: int = 0, *, shared: bool = False
    ) -> tuple[int, Address]:
        listener = self._network.listen(host, port, backlog, keepalive_ms, shared=shared)
        return self._core.new_fd_now(Handle(listener)), listener.address

    def bind_port(self, host: str, port: int) -> tuple[int, Address]:
        holder = self._network.listen(host, port, 0, shared=True)
        holder.only_binds = True
        return self._core.new_fd_now(Handle(holder)), holder.address

    def stream_pair(self) -> tuple[int, int]:
        one, other = (Handle(endpoint) for endpoint in self._network.pair())
        fd = self._core.new_fd_now(one)
        try:
            return fd, self._core.new_fd_now(other)
        except OSError:
            self._core.close_fd(fd)
            raise

    def open_mailbox(self, path: str) -> int:
        mailbox = self._network.mailboxes[path] = SimMailbox(self._network, path)
        return self._core.new_fd_now(Handle(mailbox))

    def send_descriptor(self, address: str, fd: int, data: bytes) -> int:
        """Takes effect when it returns, or not at all."""
        core, mailbox = self._core, self._network.mailboxes.get(address)
        if core.killed:
            raise SimDeadError("the simulated process is dead")
        assert data, "a datagram without bytes carries no descriptor"
        if mailbox is None:
            return -errno.ECONNREFUSED if address in self._network.left else -errno.ENOENT
        handle = core.fds.get(fd)
        if handle is None:
            return -errno.EBADF
        if len(data) > _DATAGRAM_BYTES_MAX:
            return -errno.EMSGSIZE
        if len(mailbox.waiting) >= SimMailbox.ROOM:
            return -errno.EAGAIN

        def put() -> None:
            handle.uses += 1
            mailbox.waiting.append((partial(core.release, handle), handle, data))
            mailbox.on_readable()

        core.take_effect(put)
        return 0

    def take_descriptor(self, mailbox: int, size: int) -> tuple[int, bytes]:
        node = self._core.handle_of(mailbox).node
        assert isinstance(node, SimMailbox)
        if not node.waiting:
            return -errno.EAGAIN, b""
        give_up, handle, data = node.waiting.popleft()
        if len(data) > size:
            fd = -errno.EMSGSIZE
        elif handle is None:
            return -errno.EBADMSG, data
        else:
            assert isinstance(handle, Handle)
            fd = self._core.new_fd(handle)
        if fd >= 0:
            return fd, data
        give_up()
        return fd, b""

    def poll(self, user_data: int, fd: int) -> None:
        def start(operation: Operation) -> None:
            handle = self._core.hold(operation, fd)
            if handle is None:
                return
            node = handle.node
            assert isinstance(node, SimMailbox | Endpoint)

            def look() -> None:
                there = node.waiting if isinstance(node, SimMailbox) else node.incoming or node.end_of_stream
                if there and not self._ended(operation):
                    self._core.complete(operation, 1)

            node.on_readable = look
            operation.cancel = lambda: self._core.cancelled(operation)
            self._core.later("recv", look)

        self._core.queue(user_data, "poll", start)

    def peer_of(self, fd: int) -> Address:
        endpoint = self._core.handle_of(fd).node
        if not isinstance(endpoint, Endpoint) or endpoint.peer is None or endpoint.error:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return endpoint.peer.address

    # --- opening and closing ---------------------------------------------------------------------------------------
    def accept(self, user_data: int, fd: int) -> None:
        def start(operation: Operation) -> None:
            handle = self._core.hold(operation, fd)
            if handle is None:
                return
            listener = handle.node
            if not isinstance(listener, SimListener):
                self._core.complete(operation, -errno.EINVAL)
                return
            listener.on_connection = lambda: self._pump_accept(operation, listener)
            operation.cancel = lambda: self._core.cancelled(operation)
            self._core.later("accept", listener.on_connection)

        self._core.queue(user_data, "accept", start)

    def _pump_accept(self, operation: Operation, listener: SimListener) -> None:
        while not self._ended(operation):
            if listener.closed:
                self._core.complete(operation, -errno.EINVAL)
                return
            if not listener.waiting:
                return
            fault = self._core.take_fault("accept")
            if fault is not None:
                self._core.complete(operation, -fault.error)
                return
            if self._core.take_fault("bogus"):
                self._core.complete(operation, _NO_DESCRIPTOR, self._more())
                continue
            fd = self._core.new_fd(Handle(listener.waiting[0]))
            if fd < 0:
                self._core.complete(operation, fd)
                return
            listener.waiting.popleft()
            self._core.complete(operation, fd, self._more())

    def connect(self, user_data: int, host: str, port: int) -> None:
        def end(operation: Operation) -> None:
            if self._ended(operation):
                return
            fault = self._core.take_fault("connect")
            endpoint = fault.error if fault else self._network.connect(host, port)
            res = -endpoint if isinstance(endpoint, int) else self._core.new_fd(Handle(endpoint))
            self._core.complete(operation, res)

        def start(operation: Operation) -> None:
            operation.cancel = lambda: self._core.cancelled(operation)
            self._core.later("connect", lambda: end(operation))

        self._core.queue(user_data, "connect", start)

    def shutdown(self, user_data: int, fd: int, *, sends_only: bool = False) -> None:
        def end(operation: Operation) -> None:
            assert operation.handle is not None
            node = operation.handle.node
            res = -errno.ENOTSOCK
            if isinstance(node, SimListener):
                node.shutdown()
                res = 0
            elif isinstance(node, Endpoint):
                res = -errno.ENOTCONN if node.error else 0
                if sends_only:
                    node.finish_sending()
                elif self._core.tells_first():
                    self._core.later("shutdown", node.shutdown)
                else:
                    node.shutdown()
            self._core.complete(operation, res)

        def start(operation: Operation) -> None:
            if self._core.hold(operation, fd) is not None:
                self._core.later("shutdown", lambda: end(operation))

        self._core.queue(user_data, "shutdown", start)

    # --- receiving -------------------------------------------------------------------------------------------------
    def recv(self, user_data: int, fd: int) -> None:
        def start(operation: Operation) -> None:
            handle = self._core.hold(operation, fd)
            if handle is None:
                return
            endpoint = handle.node
            if not isinstance(endpoint, Endpoint):
                self._core.complete(operation, -errno.ENOTSOCK)
                return
            before = self._receiving.get(endpoint)
            assert before is None or self._core.in_flight.get(before.user_data) is not before, (
                "two receives on one connection"
            )
            self._receiving[endpoint] = operation
            endpoint.on_readable = lambda: self._pump_recv(operation, endpoint)
            operation.cancel = lambda: self._core.cancelled(operation)
            self._core.later("recv", endpoint.on_readable)

        self._core.queue(user_data, "recv", start)

    def _pump_recv(self, operation: Operation, endpoint: Endpoint) -> None:
        while not self._ended(operation):
            if endpoint.error:
                self._core.complete(operation, -endpoint.error)
            elif endpoint.incoming and not self._free:
                self._core.complete(operation, -errno.ENOBUFS)
            elif endpoint.incoming:
                fault = self._core.take_fault("recv")
                if fault is not None and fault.error:
                    self._core.complete(operation, -fault.error)
                    return
                number = self._free.pop(0)
                buffer = self._buffers[number]
                data = endpoint.take(min(len(buffer), fault.keep) if fault else len(buffer))
                buffer[: len(data)] = data
                self._core.complete(operation, len(data), F_BUFFER | self._more() | number << 16)
            elif endpoint.end_of_stream:
                self._core.complete(operation, 0)
            else:
                return

    def _more(self) -> int:
        """F_MORE, unless it is to be lost: a multishot may end with a good result at any time."""
        return 0 if self._core.queue_is_full or self._core.take_fault("more") else F_MORE

    def received(self, flags: int, res: int) -> memoryview:
        assert flags & F_BUFFER, "this completion holds no buffer"
        assert flags >> 16 not in self._free, "a recycled buffer is read"
        return memoryview(self._buffers[flags >> 16])[:res]

    def recycle(self, flags: Sequence[int]) -> None:
        for flag in flags:
            if not flag & F_BUFFER:
                continue
            assert flag >> 16 not in self._free, "a buffer is recycled twice"
            self._buffers[flag >> 16][:] = self._poison
            self._free.append(flag >> 16)

    # --- sending ---------------------------------------------------------------------------------------------------
    def send(self, user_data: int, fd: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        self._queued.add(fd)

        def start(operation: Operation) -> None:
            self._queued.discard(fd)
            handle = self._core.hold(operation, fd)
            if handle is None:
                return
            endpoint = handle.node
            if not isinstance(endpoint, Endpoint):
                self._core.complete(operation, -errno.ENOTSOCK)
                return
            assert endpoint not in self._sending, "two sends in flight on one connection: the kernel may reorder them"
            self._sending.add(endpoint)
            copy = bytes(view)

            def attempt() -> None:
                if self._ended(operation):
                    return
                assert copy == bytes(view), "a buffer changed while its send was in flight"
                res = self._send(endpoint, copy)
                if res or not copy:
                    end(res)

            def end(res: int) -> None:
                self._sending.discard(endpoint)
                self._core.complete(operation, res)

            def cancel() -> bool:
                end(-errno.ECANCELED)
                return True

            endpoint.on_writable = attempt
            operation.cancel = cancel
            self._core.later("send", attempt)

        self._core.queue(user_data, "send", start)

    def send_now(self, fd: int, data: bytes | memoryview) -> int:
        """Takes effect when it returns, or not at all."""
        core = self._core
        if core.killed:
            raise SimDeadError("the simulated process is dead")
        handle = core.fds.get(fd)
        if handle is None:
            return -errno.EBADF
        endpoint = handle.node
        if not isinstance(endpoint, Endpoint):
            return -errno.ENOTSOCK
        assert fd not in self._queued, "a send overtakes one that is queued"
        assert endpoint not in self._sending, "two sends in flight on one connection: the kernel may reorder them"
        results = [-errno.EAGAIN]
        core.take_effect(lambda: results.append(self._send(endpoint, bytes(data)) or -errno.EAGAIN))
        return results[-1]

    def _send(self, endpoint: Endpoint, data: bytes) -> int:
        """Count sent, 0 when there is no room yet, or -errno."""
        if data and not endpoint.room_bytes() and not endpoint.error and not endpoint.write_closed:
            return 0
        fault = self._core.take_fault("send")
        if fault is not None:
            if fault.error:
                return -fault.error
            data = data[: fault.keep]
        elif self._network.split and len(data) > 1 and self._core.rng.random() < 0.2:
            data = data[: self._core.rng.randrange(1, len(data))]
        return endpoint.send(data)

    def _ended(self, operation: Operation) -> bool:
        in_flight = self._core.in_flight.get(operation.user_data) is operation and not operation.is_ending
        return self._core.dead or not in_flight
