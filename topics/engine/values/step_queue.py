"""Work that is divided into steps, of which a pass of the loop takes a bounded number.

The budget is counted in steps instead of time, so that a run of the simulator takes the same turns
as a server under load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from topics.engine.values.ports import TimersPort

_PASSES = 64
"""After each such number of passes a pass takes more steps."""


class StepQueue:
    """A first-come, first-served queue of work that may take several passes.

    The longer the queue stays non-empty, the more steps a pass takes. This bounds the work that
    waits and the memory that it holds.
    """

    def __init__(self, timers: TimersPort, a_pass: int, most: int = 0, *, at_once: bool = False) -> None:
        """a_pass: steps in one pass at first, for all work together.

        most: the maximum later; 0 = `a_pass`.
        """
        self._timers = timers
        self._a_pass = self._left = a_pass
        self._most = most or a_pass
        self._passes = 0
        """The number of consecutive passes that left work waiting."""
        self._at_once = at_once
        """Whether work is done whole when it comes, as in recovery, which has no passes."""
        self._waiting: deque[tuple[Iterator[None], Callable[[], None]]] = deque()
        self._continued = -1
        """The pass whose end was last run while work waited."""
        self._began = -1
        """The pass in which the waiting work took its first steps, before the end of the pass."""
        self.has_begun = False
        """Whether a work has begun in this pass, or waits: otherwise `next_pass` does nothing."""

    def __len__(self) -> int:
        """Return the number of works that are not done."""
        return len(self._waiting)

    def take_turns(self) -> None:
        """Divide work among passes from here on: there are some."""
        self._at_once = False

    def run(self, work: Iterator[None], then: Callable[[], None] | None = None) -> None:
        """Begin work and call `then` when its last step is done, perhaps before this returns."""
        then = then or _nothing
        self.has_begun = True
        if self._at_once:
            for _ in work:
                pass
            then()
        elif self._waiting:
            self._waiting.append((work, then))
        elif self._ends(work):
            then()
        else:
            self._waiting.append((work, then))
            self._began = self._timers.passes
            self._timers.another_pass()

    def next_pass(self) -> None:
        """End the pass: continue the waiting work with the steps of the next one.

        The hooks of the loop may end a pass several times. Only the first continues the work.
        """
        if not self._waiting:
            self._left = self._a_pass
            self._passes = 0
            self.has_begun = False
            return
        if self._continued == (number := self._timers.passes):
            return
        self._continued = number
        if self._began != number:  # else this pass has taken its steps
            self._passes += 1
            self._left = min(self._most, self._a_pass * (1 + self._passes // _PASSES))
            while self._waiting and self._ends(self._waiting[0][0]):
                self._waiting.popleft()[1]()
        if self._waiting:
            self._timers.another_pass()

    def _ends(self, work: Iterator[None]) -> bool:
        while self._left > 0:
            self._left -= 1
            try:
                next(work)
            except StopIteration:
                return True
        return False


def _nothing() -> None:
    pass
