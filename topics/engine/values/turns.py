"""A budget of work in a pass, shared by many clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.engine.values.ports import TimersPort


class Turns:
    """Clients in turn. The users define the unit of the budget and count it in `left`.

    Once the budget of a pass is spent, a client joins a queue (`wait`) and continues at the end of
    the next pass, before clients that come later.
    """

    __slots__ = ("_asked", "_asked_in", "_budget", "_due", "_share", "_timers", "_waiting", "left", "stop_at")

    def __init__(self, timers: TimersPort, budget: int, share: int) -> None:
        """budget: units in a pass, 0 = unlimited.

        share: units that one client may spend while others wait.
        """
        self._timers = timers
        self._budget = budget or 1 << 62
        self._share = share
        self.left = self._budget
        self.stop_at = 0
        """The value of `left` at which the current client's turn ends."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._asked = False
        """A timer is set that makes the loop return at once."""
        self._asked_in = -1
        """The number of the pass in which it was set."""
        self._due = False
        """That timer has fired and no client has been served since.

        Hooks at the end of a pass may run several times; only the first run after the timer serves
        clients.
        """

    def __len__(self) -> int:
        """Return the number of waiting clients."""
        return len(self._waiting)

    def begin(self) -> None:
        """Begin a client's turn: it may spend the rest of the pass, or its share if others wait."""
        self.stop_at = max(self.left - self._share, 0) if self._waiting else 0

    @property
    def over(self) -> bool:
        """Whether this turn has ended; its remaining work has to wait."""
        return self.left <= self.stop_at

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` at the end of a later pass, in order. `go_on` must not raise."""
        self._waiting.append(go_on)
        self._ask_for_a_pass()

    def next_pass(self) -> None:
        """End the pass: continue the waiting clients with the budget of the next one.

        Another call in the same pass serves no client.
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
        """Set a timer that makes the loop return at once."""
        if not self._asked:
            self._asked = True
            self._asked_in = self._timers.passes
            self._timers.call_later(0, self._on_pass)

    def _on_pass(self) -> None:
        if self._timers.passes == self._asked_in:  # A receive has set it: this pass had its budget.
            self._timers.call_later(0, self._on_pass)
            return
        self._asked = False
        self._due = True
