"""Work of a pass for many clients, within a budget that they share: those that find it spent go on in later passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.engine.values.ports import TimersPort


class Turns:
    """Clients in turn. A unit of the budget is whatever its users count in `left`.

    Once the budget of a pass is spent, a client stands in line (`wait`) and goes on at the end of the next pass, before
    anybody who comes later.
    """

    __slots__ = ("_asked", "_budget", "_due", "_share", "_timers", "_waiting", "left", "stop_at")

    def __init__(self, timers: TimersPort, budget: int, share: int) -> None:
        """budget: units a pass, 0 for no limit. share: what one client takes of them while others wait."""
        self._timers = timers
        self._budget = budget or 1 << 62
        self._share = share
        self.left = self._budget
        self.stop_at = 0
        """What the client whose turn it is leaves to others."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._asked = False
        """The loop comes back at once."""
        self._due = False
        """It has, and nobody had a turn yet: the hooks at the end of a pass may run several times."""

    def __len__(self) -> int:
        """Clients that stand in line."""
        return len(self._waiting)

    def begin(self) -> None:
        """A client's turn begins: it takes what is left of the pass, or its share while others wait."""
        self.stop_at = max(self.left - self._share, 0) if self._waiting else 0

    @property
    def over(self) -> bool:
        """This turn is: what there is beyond it waits."""
        return self.left <= self.stop_at

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
        self.stop_at = 0
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
