"""Requests of a pass, within a budget of time: however many clients ask for much at once, others are served between."""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.values.ports import TimersPort
from topics.engine.values.turns import Turns

_LEAST_NS = 10_000
"""What a request counts for at least: a run of the simulator, where time stands still in a pass, takes turns, too."""
_SHARE = 8
"""A client takes so small a part of the budget while others wait."""


class RequestTurns(Turns):
    """All requests of a server that are no columns (lane.py) share the budget of a pass, in nanoseconds.

    Time is charged by `look`, between two requests: one alone in its pass is not looked at. The first request of a pass
    may cross the budget, so a pass lasts as long as the budget and one request.
    """

    __slots__ = ("_now_ns", "seen_ns")

    def __init__(self, timers: TimersPort, now_ns: Callable[[], int], budget_us: int) -> None:
        """budget_us: of a pass, 0 for no limit."""
        super().__init__(timers, budget_us * 1000, budget_us * 1000 // _SHARE)
        self._now_ns = now_ns
        self.seen_ns = 0
        """Up to when the pass was charged; 0: its requests have not begun."""

    def begin(self) -> None:
        super().begin()
        self.seen_ns = self.seen_ns or self._now_ns()

    def look(self) -> None:
        """Charges what was done since the last look, or since the requests of the pass began."""
        now_ns = self._now_ns()
        self.left -= max(now_ns - self.seen_ns, _LEAST_NS) if self.seen_ns else _LEAST_NS
        self.seen_ns = now_ns

    def next_pass(self) -> None:
        self.seen_ns = 0
        if self._waiting:
            super().next_pass()
        else:
            self.left = self._budget
