"""Virtual time: what will happen, and when. Nothing here reads a real clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from topics.clock import ManualClock


class SimStalledError(AssertionError):
    """Something waits without a timeout while nothing is left that could ever happen."""


class Events:
    """A queue of things to happen at a virtual instant; those of one instant happen in the order they were added."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, delay_ns: int, action: Callable[[], None]) -> int:
        """Adds an event; returns its instant (ns of the monotonic clock)."""
        due_ns = self.clock.monotonic_ns() + delay_ns
        heapq.heappush(self._heap, (due_ns, next(self._order), action))
        return due_ns

    def at(self, due_ns: int, action: Callable[[], None]) -> int:
        heapq.heappush(self._heap, (due_ns, next(self._order), action))
        return due_ns

    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        """Lets everything happen whose instant has come, and what that causes at once."""
        heap, pop, now = self._heap, heapq.heappop, self.clock.monotonic_ns()
        while heap and heap[0][0] <= now:
            pop(heap)[2]()

    def advance_to(self, instant_ns: int) -> None:
        """Moves the clock to an instant (never back) and runs what is due then."""
        now_ns = self.clock.monotonic_ns()
        if instant_ns > now_ns:
            self.clock.advance_ns(instant_ns - now_ns)
            now_ns = instant_ns
        if self._heap and self._heap[0][0] <= now_ns:
            self.run_due()

    def run_until_idle(self, limit: int = 1_000_000) -> None:
        """Advances through all events; fails when they breed without end."""
        for _ in range(limit):
            due = self.next_due_ns()
            if due is None:
                return
            self.advance_to(due)
        raise SimStalledError(f"still not idle after {limit} events")
