"""The Ring Protocol in the simulator: with completions in order, and shuffled by a few seeds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.loop.rings.ring_conformance import RingConformance
from tests.sim import SimClient, SimRing

VARIANTS = {"in-order": None, "seed-1": 1, "seed-2": 2, "seed-3": 3}


class ConformanceClient:
    """A simulated client with the manners of a non-blocking socket."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.address = client.address
        self.ended = False
        self.shutdown_send = client.finish_sending
        self.close = client.close
        self.reset = client.reset

    def send(self, data: bytes) -> int:
        before = self.client.unsent_bytes
        if before == 0:
            self.client.send(data)
        return len(data) if before == 0 else 0

    def receive(self) -> bytes:
        data = self.client.receive()
        self.ended = self.client.ended
        return data


class SimWorld:
    directory = "/data"

    def __init__(self, ring: SimRing) -> None:
        self.ring = ring
        ring.make_directory(self.directory)

    def client(self, address: tuple[str, int]) -> ConformanceClient:
        return ConformanceClient(self.ring.network.client(address[1]))

    def datagram_socket(self) -> tuple[str, Callable[[], list[bytes]]]:
        received: list[bytes] = []
        self.ring.network.datagrams["@receiver"] = received
        return "@receiver", received.copy

    def descriptors(self) -> list[int]:
        return self.ring.open_fds

    @contextmanager
    def file_limit(self, size: int) -> Iterator[None]:
        self.ring.disk.file_bytes_max = size
        yield
        self.ring.disk.file_bytes_max = None

    @contextmanager
    def no_descriptors(self) -> Iterator[None]:
        before, self.ring.fd_limit = self.ring.fd_limit, 0
        yield
        self.ring.fd_limit = before

    def close(self) -> None:
        self.ring.close()


@pytest.mark.parametrize("variant", VARIANTS)
class TestSimRing(RingConformance):
    @pytest.fixture
    def make_world(self, variant: str) -> Callable[..., SimWorld]:
        seed = VARIANTS[variant]

        def make(receive_buffers: int = 16, receive_buffer_bytes: int = 4096) -> SimWorld:
            return SimWorld(
                SimRing(
                    seed or 0,
                    shuffle=seed is not None,
                    receive_buffers=receive_buffers,
                    receive_buffer_bytes=receive_buffer_bytes,
                )
            )

        return make
