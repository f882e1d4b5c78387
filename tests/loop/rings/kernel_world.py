"""The other side of a ring on a real kernel, for ring_conformance.py: plain sockets and resource limits."""

from __future__ import annotations

import gc
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from topics.loop.ring import Ring


class KernelClient:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self.address = self.socket.getsockname()
        self.ended = False

    def send(self, data: bytes) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self) -> bytes:
        data = bytearray()
        try:
            while part := self.socket.recv(1 << 20):
                data += part
        except BlockingIOError:
            return bytes(data)
        except ConnectionError:
            pass
        self.ended = True
        return bytes(data)

    def shutdown_send(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class KernelWorld:
    def __init__(self, ring: Ring, directory: str) -> None:
        self.ring = ring
        self.directory = directory
        self.clients: list[KernelClient] = []
        self.receivers: list[socket.socket] = []

    def client(self, address: tuple[str, int]) -> KernelClient:
        client = KernelClient(address)
        self.clients.append(client)
        return client

    def datagram_socket(self) -> tuple[str, Callable[[], list[bytes]]]:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        receiver.bind("")  # the kernel chooses an abstract name
        self.receivers.append(receiver)

        def take() -> list[bytes]:
            found = []
            with suppress(BlockingIOError):
                while True:
                    found.append(receiver.recv(4096))
            return found

        return "@" + receiver.getsockname()[1:].decode(), take

    def descriptors(self) -> list[int]:
        gc.collect()  # else what an earlier test has left may be closed between two counts
        names = os.listdir("/proc/self/fd")  # the one of the listing, too, which is closed now
        return sorted(fd for fd in map(int, names) if os.path.exists(f"/proc/self/fd/{fd}"))

    @contextmanager
    def file_limit(self, size: int) -> Iterator[None]:
        with limited(resource.RLIMIT_FSIZE, size):
            yield

    @contextmanager
    def no_descriptors(self) -> Iterator[None]:
        with no_descriptors():
            yield

    def close(self) -> None:
        self.ring.close()
        for receiver in self.receivers:
            receiver.close()
        for client in self.clients:
            with suppress(OSError):
                client.close()


@contextmanager
def kernel_worlds(make_ring: Callable[[int, int], Ring], directory: str) -> Iterator[Callable[..., KernelWorld]]:
    """Yield what makes worlds; in the end these are closed, with what was opened by their rings.

    make_ring: gets the number of receive buffers, and the bytes of each.
    """
    before = set(_opened(directory))
    worlds: list[KernelWorld] = []

    def make(receive_buffers: int = 16, receive_buffer_bytes: int = 4096) -> KernelWorld:
        worlds.append(KernelWorld(make_ring(receive_buffers, receive_buffer_bytes), directory))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
    for fd in set(_opened(directory)) - before:
        os.close(fd)


def _opened(directory: str) -> Iterator[int]:
    """Yield the descriptors of this process that are sockets, or files of a directory."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            if os.readlink(f"/proc/self/fd/{name}").startswith(("socket:", directory)):
                yield int(name)


@contextmanager
def limited(which: int, value: int) -> Iterator[None]:
    """A lower soft limit of this process. Python ignores SIGXFSZ, so that a write beyond RLIMIT_FSIZE is an error."""
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Meanwhile no new descriptor can be had in this process: EMFILE."""
    gc.collect()  # what an earlier test has left would be closed meanwhile, and leave room
    lowest = os.dup(0)
    os.close(lowest)
    with limited(resource.RLIMIT_NOFILE, lowest):
        yield
