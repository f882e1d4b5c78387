"""Page-aligned memory, for O_DIRECT and for buffers that the kernel writes into; growing bytes.

The kernel needs a quarter of a microsecond or more to take a page back, so freeing 64 MiB blocks
the calling thread for milliseconds. Large memory is therefore returned in steps, by a loop that
takes them (`MemoryReturns`), whichever code held it last; bytes of Python if that code lets go of
them by `let_go`.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sized
from typing import Any

LARGE_BYTES = 4 << 20
"""Smaller memory is returned at once."""
_STEP_BYTES = 4 << 20
"""Bytes returned in one step at least: some half a millisecond."""
_STEPS = 32
"""A step returns at least this part of all that waits, so that it ends whatever comes."""
_SLOW_BYTES = 128 << 10
"""Bytes of Python from which the allocator gives their pages back to the kernel."""
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
        self._waiting: deque[Sized] = deque()
        self._bytes = 0
        """Bytes of all that waits; what others hold, too, is among them."""
        self._at = 0
        """Bytes of the first memory that are returned already."""
        _returns = weakref.ref(self)

    def __len__(self) -> int:
        """Return the number of memories that are not returned yet."""
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        """Bytes that are not returned yet; what others hold, too, is among them."""
        return self._bytes

    def take(self, memory: Sized) -> None:
        """Return memory to the system in the next passes, if no other code uses it any more.

        Memory that is taken repeatedly, for one holder after another, waits once.
        """
        waiting = self._waiting
        if threading.get_ident() != self._thread or (waiting and waiting[-1] is memory):
            return
        waiting.append(memory)
        self._bytes += len(memory)
        if len(waiting) == 1:
            self._call_later(0, self._step)

    def _step(self) -> None:
        waiting = self._waiting
        left = max(_STEP_BYTES, self._bytes // _STEPS)
        while waiting and left > 0:
            memory = waiting[0]
            size = len(memory) - self._at
            if isinstance(memory, PagedMemory):
                size = min(size, -(-left // mmap.PAGESIZE) * mmap.PAGESIZE)
                memory.madvise(mmap.MADV_DONTNEED, self._at, size)
            self._at += size
            self._bytes -= size
            left -= size
            if self._at >= len(memory):
                del memory
                self._at = 0
                waiting.popleft()
        if waiting:
            self._call_later(0, self._step)


class GrowthWatch:
    """Counts bytes that are held for clients as they come, and calls `on_growth` after `most`.

    A process uses one object, the last one made. What is sent to one reader after another counts
    once in a row.
    """

    def __init__(self, most: int, on_growth: Callable[[], None], bound: int = 0) -> None:
        """bound: bytes held for clients that leave no memory for others; 0: there are none."""
        global _growth  # noqa: PLW0603 - any code may hold memory for a client
        self._most = most
        self._left = most
        self._bound = bound
        self._noted = 0
        self._others = 0
        """Bytes that are held besides those noted so far, less the noted ones that are freed."""
        self._last = 0
        """The identity of the bytes noted last. If others have it later, those are freed, and no
        more is held than was counted.
        """
        self._on_growth = on_growth
        _growth = weakref.ref(self)

    def note(self, data: Sized, size: int) -> None:
        if id(data) == self._last:
            return
        self._last = id(data)
        self._noted += size
        self._left -= size
        if self._left < 0:
            self._last, self._left = 0, self._most
            self._on_growth()

    def begin_look(self) -> Callable[[int], None]:
        """Begin to look at all clients. The result is called with the bytes that they hold.

        Bytes that come meanwhile count in addition, as those after it.
        """
        noted = self._noted

        def found(held: int) -> None:
            self._others = held - noted

        return found

    def is_short(self, returning: int) -> bool:
        """Return whether no more may be held. returning: bytes that are being freed."""
        return 0 < self._bound < self._others + self._noted + returning


def note_held(data: Sized, size: int = 0) -> None:
    """Note that large bytes are held for a client. size: of them, if not all."""
    watch = None if _growth is None else _growth()
    if watch is not None:
        watch.note(data, size or len(data))


def let_go(data: bytes | memoryview) -> None:
    """Drop bytes that are not needed any more, or a view of them; large ones in a later pass.

    Another holder may have them still. The caller has no reference left when the pass ends. Memory
    that is not Python's returns by itself, after its last view.
    """
    whole: Any = data.obj if isinstance(data, memoryview) else data
    if len(whole) >= _SLOW_BYTES and _returns is not None and not isinstance(whole, PagedMemory):
        returns = _returns()
        if returns is not None:
            returns.take(whole)


_returns: weakref.ref[MemoryReturns] | None = None
_growth: weakref.ref[GrowthWatch] | None = None


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
            note_held(many)
            many[:begin] = self._few
            self._few = bytearray()
        elif self._size > len(many):
            before = len(many)
            many.resize(max(self._size, 2 * before))
            note_held(many, len(many) - before)
        many[begin : self._size] = data
        return self

    def take(self) -> bytes | memoryview:
        """Return all bytes, as a view if they are many, and become empty."""
        few, many, size = self._few, self._many, self._size
        self._few, self._many, self._size = bytearray(), None, 0
        return bytes(few) if many is None else memoryview(many)[:size]
