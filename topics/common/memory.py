"""Page-aligned memory, for O_DIRECT and for buffers that the kernel writes into; growing bytes.

The kernel needs a quarter of a microsecond or more to take a page back, so freeing 64 MiB blocks
the calling thread for milliseconds. Large memory is therefore returned in steps, by a loop that
takes them (`MemoryReturns`), whichever code held it last.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable

LARGE_BYTES = 4 << 20
"""Smaller memory is returned at once."""
_STEP_BYTES = 4 << 20
"""Bytes returned in one step: some half a millisecond."""
_FEW_BYTES = 1 << 20
"""Bytes up to this number are copied now and then as they grow."""


class PagedMemory(mmap.mmap):
    """Private anonymous memory of whole pages."""

    def __del__(self) -> None:
        returns = None if _returns is None else _returns()
        if returns is not None and not self.closed and len(self) >= LARGE_BYTES:
            returns.take(self)


class MemoryReturns:
    """Large memory being returned to the system: a step in each pass of a loop, while there is any.

    A process uses one object for all of its memory, the last one made, which serves the thread that
    made it.
    """

    def __init__(self, call_later: Callable[[int, Callable[[], None]], object]) -> None:
        """call_later(0, fn) must call `fn` in the next pass."""
        global _returns  # noqa: PLW0603 - any code may free memory
        self._call_later = call_later
        self._thread = threading.get_ident()
        self._waiting: deque[PagedMemory] = deque()
        self._at = 0
        """Bytes of the first memory that are returned already."""
        _returns = weakref.ref(self)

    def __len__(self) -> int:
        """Return the number of memories that are not returned yet."""
        return len(self._waiting)

    def take(self, memory: PagedMemory) -> None:
        """Return memory to the system in the next passes. No other code may use it any more."""
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
    """Return `size` bytes of zeros that begin at a page boundary; the last view frees them.

    The mapping is private, because the kernel treats Python's default, shared memory, as a file,
    which makes each first touch of a page cost twice as much. Large memory gets huge pages, if the
    kernel has some: 512 first touches less, each of which may cost more than a copy of its page.
    """
    memory = PagedMemory(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= LARGE_BYTES:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class GrowingBytes:
    """Bytes that arrive piece by piece, and are never copied once there are many.

    A bytearray copies all of its bytes, 32 MiB in one step, if the allocator has no room after it.
    """

    __slots__ = ("_few", "_many", "_size")

    def __init__(self) -> None:
        self._few = bytearray()
        self._many: mmap.mmap | None = None
        """The bytes from a megabyte on, instead of `_few`."""
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
        """Return all bytes, as a view if they are many, and become empty."""
        few, many, size = self._few, self._many, self._size
        self._few, self._many, self._size = bytearray(), None, 0
        return bytes(few) if many is None else memoryview(many)[:size]
