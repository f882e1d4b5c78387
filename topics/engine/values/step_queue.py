"""Work that is divided into steps, of which a pass of the loop takes a bounded number.

Steps, not time: a run of the simulator takes the same turns as a server under load. During recovery there are no passes
yet, and work is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from topics.engine.values.ports import TimersPort

_PASSES = 64
"""After so many a pass takes more steps."""


class StepQueue:
    """First come, first served: what does not end within a pass goes on at the end of the following ones.

    The longer there is no end of it the more steps a pass takes: the work that waits for its turn, and the memory it
    holds, does not grow for ever.
    """

    def __init__(self, a_pass: int, most: int = 0) -> None:
        """a_pass: steps of all work together, at first; most: later on, 0: as at first."""
        self._a_pass = self._left = a_pass
        self._most = most or a_pass
        self._passes = 0
        """How many in a row had not enough steps."""
        self._loop: TimersPort | None = None
        self._waiting: deque[tuple[Iterator[None], Callable[[], None]]] = deque()

    def __len__(self) -> int:
        """Pieces of work that are not done."""
        return len(self._waiting)

    def use(self, loop: TimersPort) -> None:
        """From now on there are passes."""
        self._loop = loop

    def run(self, work: Iterator[None], then: Callable[[], None] | None = None) -> None:
        """Begin work, and call `then` when its last step is done, perhaps before this returns."""
        then = then or _nothing
        if self._loop is None:
            for _ in work:
                pass
            then()
        elif self._waiting:
            self._waiting.append((work, then))
        elif self._ends(work):
            then()
        else:
            self._waiting.append((work, then))
            another_pass(self._loop)

    def next_pass(self) -> None:
        """The pass ends: what waits goes on with the steps of the next one."""
        self._left = self._a_pass
        if not self._waiting:
            self._passes = 0
            return
        self._passes += 1
        self._left = min(self._most, self._a_pass * (1 + self._passes // _PASSES))
        assert self._loop is not None, "without passes nothing waits"
        while self._waiting and self._ends(self._waiting[0][0]):
            self._waiting.popleft()[1]()
        if self._waiting:
            another_pass(self._loop)

    def _ends(self, work: Iterator[None]) -> bool:
        while self._left > 0:
            self._left -= 1
            try:
                next(work)
            except StopIteration:
                return True
        return False


def another_pass(loop: TimersPort) -> None:
    """Makes the loop come back at once, whatever it would wait for."""
    loop.call_later(0, _nothing)


def _nothing() -> None:
    pass
