"""Page-aligned memory, for O_DIRECT and for what the kernel writes into; bytes that come piece by piece.

The kernel takes a page back in a quarter of a microsecond or more, so 64 MiB that are let go hold up whoever did it for
milliseconds. Large memory goes back in steps where a loop takes them (`MemoryReturns`), whoever had it last.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable

LARGE_BYTES = 4 << 20
"""What is smaller goes back at one go."""
_STEP_BYTES = 4 << 20
"""Some half a millisecond."""
_FEW_BYTES = 1 << 20
"""Fewer are copied now and then as they grow."""


class PagedMemory(mmap.mmap):
    """Private anonymous memory of whole pages."""

    def __del__(self) -> None:
        returns = None if _returns is None else _returns()
        if returns is not None and not self.closed and len(self) >= LARGE_BYTES:
            returns.take(self)


class MemoryReturns:
    """Large memory on its way back to the system: a step in each pass of a loop, as long as there is some.

    There is one for all of a process, the last one made, and it serves the thread that made it.
    """

    def __init__(self, call_later: Callable[[int, Callable[[], None]], object]) -> None:
        """call_later(0, fn): has `fn` called in the next pass."""
        global _returns  # noqa: PLW0603 - memory is let go anywhere
        self._call_later = call_later
        self._thread = threading.get_ident()
        self._waiting: deque[PagedMemory] = deque()
        self._at = 0
        """Of the first one, so much is given back."""
        _returns = weakref.ref(self)

    def __len__(self) -> int:
        """How many pieces of memory are not given back."""
        return len(self._waiting)

    def take(self, memory: PagedMemory) -> None:
        """Give it back in the next passes. It is in nobody's hands any more."""
        if threading.get_ident() == self._thread:
            self._waiting.append(memory)
            if len(self._waiting) == 1:
                self._call_later(0, self._step)

    def _step(self) -> None:
        memory = self._waiting[0]
        memory.madvise(mmap.MADV_DONTNEED, self._at, min(_STEP_BYTES, len(memory) - self._at))
        self._at += _STEP_BYTES
        if self._at >= len(memory):
            self._waiting.popleft()
            self._at = 0
        if self._waiting:
            self._call_later(0, self._step)


_returns: weakref.ref[MemoryReturns] | None = None


def page_aligned(size: int) -> mmap.mmap:
    """`size` bytes of zeros that begin at a page. Given back when the last view of it has gone.

    Private: Python's default is shared memory, which the kernel treats as a file and touches at twice the price.
    """
    return PagedMemory(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class GrowingBytes:
    """Bytes that come piece by piece, and are never copied once there are many.

    A bytearray is, where the allocator has no room behind it: 32 MiB at one go.
    """

    __slots__ = ("_few", "_many", "_size")

    def __init__(self) -> None:
        self._few = bytearray()
        self._many: mmap.mmap | None = None
        """Instead, from a megabyte on."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iadd__(self, data: bytes | bytearray | memoryview) -> GrowingBytes:
        begin, self._size = self._size, self._size + len(data)
        many = self._many
        if many is None:
            if self._size <= _FEW_BYTES:
                self._few += data
                return self
            many = self._many = page_aligned(max(self._size, 2 * _FEW_BYTES))
            many[:begin] = self._few
            self._few = bytearray()
        elif self._size > len(many):
            many.resize(max(self._size, 2 * len(many)))
        many[begin : self._size] = data
        return self

    def take(self) -> bytes | memoryview:
        """Return them all, a view where they are many; then there are none."""
        few, many, size = self._few, self._many, self._size
        self._few, self._many, self._size = bytearray(), None, 0
        return bytes(few) if many is None else memoryview(many)[:size]
