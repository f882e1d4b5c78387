"""Turns of the requests of a pass, within a budget of time.

However many clients send expensive requests at once, others are served between them.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.values.ports import TimersPort
from topics.engine.values.turns import Turns

_LEAST_NS = 10_000
"""Time that a request counts for at least.

The simulator takes turns, too, although its time stands still within a pass.
"""
_SHARE = 8
"""A client gets at most the budget divided by this while others wait."""


class RequestTurns(Turns):
    """The time budget of a pass, in nanoseconds, shared by all requests outside the lane.

    `charge` charges time between two requests; a single request in its pass is not measured. The
    first request of a pass may exceed the budget, so a pass lasts at most the budget and one
    request.
    """

    __slots__ = ("_now_ns", "seen_ns")

    def __init__(self, timers: TimersPort, now_ns: Callable[[], int], budget_us: int) -> None:
        """Set the budget of a pass. budget_us: 0 for no limit."""
        super().__init__(timers, budget_us * 1000, budget_us * 1000 // _SHARE)
        self._now_ns = now_ns
        self.seen_ns = 0
        """Time up to which the pass was charged; 0: its requests have not begun."""

    def begin(self) -> None:
        super().begin()
        self.seen_ns = self.seen_ns or self._now_ns()

    def charge(self) -> None:
        """Charge the time since the last call, or since the requests of the pass began."""
        now_ns = self._now_ns()
        self.left -= max(now_ns - self.seen_ns, _LEAST_NS) if self.seen_ns else _LEAST_NS
        self.seen_ns = now_ns

    def next_pass(self) -> None:
        self.seen_ns = 0
        if self._waiting:
            super().next_pass()
        else:
            self.left = self._budget
