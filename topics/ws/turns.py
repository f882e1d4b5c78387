"""Frames of a pass, within a budget: WebSockets that send a flood of small frames do not hold up everybody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.engine.ports import Timers

_SHARE = 32
"""What one connection takes of a pass while others wait."""
_UNIT_BYTES_LOG2 = 13


class FrameTurns:
    """All WebSockets of a server share the budget of a pass; those that find it spent go on in the following passes.

    The unit is the work of one small frame, some 15 us: 8 KiB of a long one, too, and each topic of a command. A
    publish that waits for its commit costs none; there is a bound on those (`ws_publishes_in_flight`). Units, not time:
    a run of the simulator takes the same turns as a server under load. Source: wire contract, R-WS-7.
    """

    __slots__ = ("_asked", "_budget", "_due", "_stop_at", "_timers", "_waiting", "left")

    def __init__(self, timers: Timers, budget: int) -> None:
        """budget: units a pass, 0 for no limit."""
        self._timers = timers
        self._budget = budget or 1 << 62
        self.left = self._budget
        self._stop_at = 0
        """What the connection whose turn it is leaves to others."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._asked = False
        """The loop comes back at once."""
        self._due = False
        """It has, and nobody had a turn yet: the hooks at the end of a pass may run several times."""

    def begin(self) -> None:
        """A connection's turn begins: it takes what is left of the pass, or its share while others wait."""
        self._stop_at = max(self.left - _SHARE, 0) if self._waiting else 0

    @property
    def over(self) -> bool:
        """This turn is: what there is beyond it waits."""
        return self.left <= self._stop_at

    def spend_frame(self, size: int) -> None:
        """A frame, or a part of one, of so many bytes."""
        self.left -= 1 + (size >> _UNIT_BYTES_LOG2)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` at the end of this pass or of a later one, in turn; it must not raise."""
        self._waiting.append(go_on)
        self._ask_for_a_pass()

    def next_pass(self) -> None:
        """The pass ends: those that wait go on with the budget of the next one.

        Called again in the same pass, it serves nobody.
        """
        if not self._waiting:
            self.left = self._budget
            return
        if not self._due:
            return
        self._due = False
        self.left = self._budget
        while self._waiting and self.left > 0:
            self._waiting.popleft()()
        if self._waiting:
            self._ask_for_a_pass()

    def _ask_for_a_pass(self) -> None:
        """By a timer, which makes the loop come back at once."""
        if not self._asked:
            self._asked = True
            self._timers.call_later(0, self._on_pass)

    def _on_pass(self) -> None:
        self._asked = False
        self._due = True
