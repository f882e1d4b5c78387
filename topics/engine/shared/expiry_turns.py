"""A budget of the records that expire in a pass by a ttl of their own.

Each is one of many that live, so its loss costs some ten microseconds (35 on an old core), and very
many may be due at once. Source: R-RTTL-1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.engine.shared.pass_budget import PassBudget
from topics.engine.values.ports import TimersPort

EXPIRED_A_PASS = 96
"""Records that expire in a pass, and those of the look that exceeds it: one look in most passes."""
A_PORTION = 192
"""Records that expire in one look for an operation that waits for all of them. Fewer would cost
more each, since those that expire together are scattered, and each place is opened once a look.
"""


class ExpiryTurns(PassBudget):
    """Operations wait in order once the records of a pass have expired.

    The budget belongs to the pass, not to the hooks at its end: these run anew after each commit,
    of which a pass may make several.
    """

    def __init__(self, timers: TimersPort, budget: int) -> None:
        super().__init__(timers, budget)
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def over(self) -> bool:
        """Whether the records of this pass have expired."""
        return self.left <= 0

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` at the end of a later pass, in order."""
        if not self._waiting:
            self._timers.another_pass()
        self._waiting.append(go_on)

    def next_pass(self) -> None:
        """Continue those that wait, unless the records of this pass have expired."""
        if self._waiting and not self.over:
            while self._waiting and self.left > 0:
                self._waiting.popleft()()
            if self._waiting:
                self._timers.another_pass()
