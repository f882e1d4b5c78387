"""Passes of a loop for frames without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topics.engine.values.turns import Turns
from topics.ws.frame_turns import FrameTurns


class Passes:
    """Timers of a loop whose passes the test ends, and how often one was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.passes = 0
        """The number of the pass; what comes between two of them belongs to the first."""
        self._due: list[Callable[[], None]] = []

    def call_later(self, delay_ns: int, fn: Callable[[], None]) -> Any:
        assert delay_ns == 0
        self.asked += 1
        self._due.append(fn)

    def another_pass(self, after_ns: int = 0) -> None:
        self.call_later(after_ns, lambda: None)

    @property
    def waits(self) -> bool:
        """Something is to be done in the next pass."""
        return bool(self._due)

    def end(self, turns: Turns, hooks: int = 1) -> None:
        """A pass: timers, then the hooks at its end, so many times."""
        self.passes += 1
        due, self._due = self._due, []
        for fn in due:
            fn()
        for _ in range(hooks):
            turns.next_pass()

    @property
    def clock(self) -> Any:
        raise AssertionError("nobody asks for the time")


def no_turns() -> FrameTurns:
    """Without a limit."""
    return FrameTurns(Passes(), 0)
