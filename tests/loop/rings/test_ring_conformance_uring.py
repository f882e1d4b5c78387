"""The Ring Protocol on io_uring: of one thread and shared, with roomy queues and with tiny ones."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loop.rings.kernel_world import KernelWorld, kernel_worlds
from tests.loop.rings.ring_conformance import RingConformance
from topics.uring.probe import probe
from topics.uring.uring_ring import UringRing

SUPPORT = probe()
SIZES = {"roomy": (512, 4096), "tiny": (8, 16)}

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not SUPPORT.ok, reason=f"io_uring: {SUPPORT.reason}"),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    ("shared", "spin_us"), [(False, "0"), (True, "0"), (False, "100")], ids=["own", "shared", "spin"]
)
class TestUringRing(RingConformance):
    @pytest.fixture
    def make_world(
        self, tmp_path: Path, sizes: str, shared: bool, spin_us: str
    ) -> Iterator[Callable[..., KernelWorld]]:
        def make_ring(receive_buffers: int, receive_buffer_bytes: int) -> UringRing:
            return UringRing(*SIZES[sizes], receive_buffers, receive_buffer_bytes, shared=shared, spin_us=spin_us)

        with kernel_worlds(make_ring, str(tmp_path)) as make:
            yield make
