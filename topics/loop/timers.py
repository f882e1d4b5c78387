"""Timers: a heap with lazy cancel on the injected clock's monotonic nanoseconds.

Most timers of a server (idle limits, long polls) are cancelled before they are due. A cancelled
timer stays in the heap without its callback. When such leftovers are the larger part, the heap is
rebuilt, so memory is proportional to the live timers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

_REBUILD_COUNT_MIN = 64


class Timer:
    """One call in the future. `cancel` is idempotent and harmless after it fired."""

    __slots__ = ("_fn", "_timers", "due_ns")

    def __init__(self, timers: Timers, due_ns: int, fn: Callable[[], None]) -> None:
        self._timers = timers
        self._fn: Callable[[], None] | None = fn
        self.due_ns = due_ns

    @property
    def pending(self) -> bool:
        return self._fn is not None

    def cancel(self) -> None:
        if self._fn is not None:
            self._fn = None
            self._timers.on_cancel()

    def take(self) -> Callable[[], None] | None:
        """Return the callback, once; None if cancelled or fired."""
        fn, self._fn = self._fn, None
        return fn


class Timers:
    """All timers of a loop. Equal times fire in the order in which they were made."""

    __slots__ = ("_cancelled", "_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, due_ns: int, fn: Callable[[], None]) -> Timer:
        timer = Timer(self, due_ns, fn)
        self._serial += 1
        heapq.heappush(self._heap, (due_ns, self._serial, timer))
        return timer

    def due_by(self, now_ns: int) -> bool:
        """Return whether `due` may yield a callback."""
        return bool(self._heap) and self._heap[0][0] <= now_ns

    def next_due_ns(self) -> int | None:
        """Return when the earliest live timer is due; None without one."""
        heap = self._heap
        while heap:
            due_ns, _, timer = heap[0]
            if timer._fn is not None:
                return due_ns
            heapq.heappop(heap)
            self._cancelled -= 1
        return None

    def due(self, now_ns: int) -> Iterator[Callable[[], None]]:
        """Yield the callbacks due by now, earliest first.

        A timer that a callback cancels does not fire; one that it adds waits for the next pass.
        """
        last = self._serial
        while self._heap and self._heap[0][0] <= now_ns and self._heap[0][1] <= last:
            fn = heapq.heappop(self._heap)[2].take()
            if fn is None:
                self._cancelled -= 1
            else:
                yield fn

    def clear(self) -> None:
        """Cancel all timers."""
        for _, _, timer in self._heap:
            timer.take()
        self._heap.clear()
        self._cancelled = 0

    def on_cancel(self) -> None:
        self._cancelled += 1
        if self._cancelled > _REBUILD_COUNT_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].pending]
            heapq.heapify(self._heap)
            self._cancelled = 0
