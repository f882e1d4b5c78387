"""Memory of megabytes: it grows without being copied, and is returned to the system in steps, some a pass."""

from __future__ import annotations

import gc
import mmap
import random
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from topics.common import memory
from topics.common.memory import LARGE_BYTES, GrowingBytes, MemoryReturns, PagedMemory, let_go, page_aligned

MIB = 1 << 20


def flags_of(size: int) -> set[str]:
    """Return the kernel's flags of the mapping that page_aligned makes."""
    begin = int(np.frombuffer(memory := page_aligned(size), np.uint8).__array_interface__["data"][0])
    assert len(memory) == size
    described = Path("/proc/self/smaps").read_text().split("VmFlags: ")
    for before, after in pairwise(described):
        for first, last in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ", before, re.M):
            if int(first, 16) <= begin < int(last, 16):
                return set(after.splitlines()[0].split())
    raise AssertionError("no mapping has it")


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a kernel without huge pages")
def test_large_memory_asks_for_huge_pages_and_other_memory_does_not() -> None:
    assert "hg" in flags_of(LARGE_BYTES)
    assert "hg" not in flags_of(LARGE_BYTES - 1)


class Passes:
    """Calls what is due in the next pass."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.given_back: list[int] = []
        """Bytes, a pass."""

    def call_later(self, delay_ns: int, fn: Callable[[], None]) -> None:
        assert delay_ns == 0
        self.due.append(fn)

    def run(self) -> int:
        """Runs passes until nothing is due; returns how many."""
        count = 0
        while self.due:
            due, self.due = self.due, []
            for fn in due:
                fn()
            count += 1
        return count


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
def returns(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> MemoryReturns:
    gc.collect()  # large memory that an earlier test has left would be returned here
    monkeypatch.setattr(memory, "_returns", None)
    return MemoryReturns(passes.call_later)


def test_large_memory_is_freed_in_steps_whichever_holder_is_last(passes: Passes, returns: MemoryReturns) -> None:
    large, other = page_aligned(9 * MIB), page_aligned(LARGE_BYTES)
    view = memoryview(large)[5:]
    del large
    assert passes.due == []
    del view, other
    assert len(returns) == 2
    assert passes.run() == 4, "4, 4 and 1 MiB, and 4 of the other"
    assert len(returns) == 0


def test_a_step_gives_back_no_more_than_four_mebibytes(
    passes: Passes, returns: MemoryReturns, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, int]] = []

    class Watched(PagedMemory):
        def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
            steps.append((start, length))
            super().madvise(option, start, length)

    Watched(-1, 9 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    passes.run()
    assert steps == [(0, 4 * MIB), (4 * MIB, 4 * MIB), (8 * MIB, MIB)]


def test_small_memory_and_what_was_closed_go_at_once(passes: Passes, returns: MemoryReturns) -> None:
    page_aligned(LARGE_BYTES - 1)
    with page_aligned(9 * MIB) as closed:
        assert len(closed) == 9 * MIB
    del closed
    assert passes.due == []


def test_bytes_that_are_let_go_of_are_dropped_in_steps_whose_size_grows_with_them(
    passes: Passes, returns: MemoryReturns
) -> None:
    freed = [0]

    class Large(bytes):
        def __del__(self) -> None:
            freed[0] += 1

    for _ in range(100):
        let_go(memoryview(Large(MIB))[5:])
    let_go(bytes(100))
    assert (freed[0], len(returns)) == (0, 100)
    assert passes.run() == 25
    assert freed[0] == 100
    for _ in range(320):
        let_go(Large(MIB))
    due = passes.due.pop()
    due()
    assert freed[0] == 110, "a part of all that waits"
    passes.run()
    assert freed[0] == 420
    held = 0
    for _ in range(400):
        let_go(Large(12 * MIB))
        let_go(Large(MIB))
        due, passes.due[:] = passes.due.pop(), []
        due()
        held = max(held, len(returns))
    assert held < 70, "what comes in each pass does not pile up"


def test_memory_that_is_let_go_of_keeps_its_bytes_while_others_have_it(passes: Passes, returns: MemoryReturns) -> None:
    """A sender lets go of each piece that was sent, and has the others still."""
    memory = page_aligned(LARGE_BYTES)
    memory[:] = bytes([7]) * LARGE_BYTES
    view = memoryview(memory)
    let_go(view[:100])
    passes.run()
    assert bytes(view[:200]) == bytes([7]) * 200
    view.release()
    del memory
    assert len(returns) == 1
    passes.run()


def test_bytes_that_many_let_go_of_wait_once(passes: Passes, returns: MemoryReturns) -> None:
    shared = bytes(9 * MIB)
    for _ in range(600):
        let_go(shared)
    assert len(returns) == 1
    let_go(bytes(MIB))
    let_go(memoryview(shared)[7:])
    assert len(returns) == 3
    passes.run()
    assert len(returns) == returns._bytes == 0


def test_memory_in_a_cycle_goes_back_in_steps_too(passes: Passes, returns: MemoryReturns) -> None:
    held: list[object] = [page_aligned(9 * MIB)]
    held.append(held)
    del held
    gc.collect()
    assert passes.run() == 3
    assert len(returns) == 0


def test_what_another_thread_lets_go_of_is_its_own_affair(passes: Passes, returns: MemoryReturns) -> None:
    thread = threading.Thread(target=lambda: len(page_aligned(9 * MIB)))
    thread.start()
    thread.join()
    assert (passes.due, len(returns)) == ([], 0)


def test_it_may_be_left_untaken(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_returns", None)
    page_aligned(9 * MIB)
    MemoryReturns(passes.call_later)  # and is gone
    page_aligned(9 * MIB)
    assert passes.due == []


@pytest.mark.parametrize("most", [10, 300_000, 3_000_000])
def test_bytes_that_grow_are_those_that_came(most: int) -> None:
    rng = random.Random(most)
    growing = GrowingBytes()
    for size in (0, 5 * most, 2 * most):
        expected = bytearray()
        while len(expected) < size:
            piece = rng.randbytes(rng.randrange(most))
            growing += rng.choice((bytes, bytearray, memoryview))(piece)
            expected += piece
            assert len(growing) == len(expected)
        taken = growing.take()
        assert taken == expected
        assert len(growing) == 0
        assert isinstance(taken, bytes) is (len(expected) <= MIB)


def test_many_bytes_are_not_copied_as_they_grow() -> None:
    growing = GrowingBytes()
    growing += bytes(MIB + 1)
    lies_in = growing._many
    for _ in range(40):
        growing += bytes(MIB)
    taken = growing.take()
    assert isinstance(taken, memoryview)
    assert taken.obj is lies_in, "the kernel moves pages"
