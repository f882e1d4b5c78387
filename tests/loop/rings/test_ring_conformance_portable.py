"""The Ring Protocol on epoll and one I/O thread."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loop.rings.kernel_world import KernelWorld
from tests.loop.rings.ring_conformance import RingConformance
from topics.loop.portable.portable_ring import PortableRing


class TestPortableRing(RingConformance):
    @pytest.fixture
    def make_world(self, tmp_path: Path) -> Iterator[Callable[..., KernelWorld]]:
        worlds: list[KernelWorld] = []

        def make(receive_buffers: int = 16, receive_buffer_bytes: int = 4096) -> KernelWorld:
            worlds.append(KernelWorld(PortableRing(receive_buffers, receive_buffer_bytes), str(tmp_path)))
            return worlds[-1]

        yield make
        for world in worlds:
            world.close()
