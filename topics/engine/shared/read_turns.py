"""Reads of a pass, within a budget of bytes: many clients that ask for much at once do not hold up everybody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.engine.values.ports import TimersPort


class ReadTurns:
    """A read begins at once while the pass has bytes left; the others wait for the following passes, in turn.

    budget: bytes of records (as the log has them) that reads of a pass may render; the one that crosses it is whole.
    0: no limit. Bytes, not time: a run of the simulator takes the same turns as a server under load.
    """

    def __init__(self, loop: TimersPort, budget: int) -> None:
        self._loop = loop
        self._budget = budget or 1 << 62
        self._left = self._budget
        self._waiting: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        """Reads that wait for their turn."""
        return len(self._waiting)

    @property
    def left(self) -> int:
        """Bytes that reads may yet render in this pass, 0 and below: none."""
        return self._left

    def take(self, begin: Callable[[], None]) -> None:
        """Calls `begin`, now or at the end of a later pass."""
        if self._left > 0 and not self._waiting:
            begin()
            return
        if not self._waiting:
            self._ask_for_a_pass()
        self._waiting.append(begin)

    def spend(self, size: int) -> None:
        """A read is about to render so many bytes, or to send them."""
        self._left -= size

    def next_pass(self) -> None:
        """The pass ends: what waits goes on with the budget of the next one."""
        self._left = self._budget
        if not self._waiting:
            return
        while self._waiting and self._left > 0:
            self._waiting.popleft()()
        if self._waiting:
            self._ask_for_a_pass()

    def _ask_for_a_pass(self) -> None:
        self._loop.call_later(0, _nothing)


def _nothing() -> None:
    """A timer that makes the loop come back at once."""
