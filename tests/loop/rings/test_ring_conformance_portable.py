"""The Ring Protocol on epoll and one I/O thread."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loop.rings.kernel_world import KernelWorld, kernel_worlds
from tests.loop.rings.ring_conformance import RingConformance
from topics.loop.portable.portable_ring import PortableRing


class TestPortableRing(RingConformance):
    @pytest.fixture
    def make_world(self, tmp_path: Path) -> Iterator[Callable[..., KernelWorld]]:
        with kernel_worlds(PortableRing, str(tmp_path)) as make:
            yield make
