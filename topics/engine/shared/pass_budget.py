"""A budget of units of work that several kinds of work share in each pass of the loop."""

from __future__ import annotations

from topics.engine.values.ports import TimersPort


class PassBudget:
    """The units that a pass may spend, in its receives, its timers, and all runs of its end."""

    def __init__(self, timers: TimersPort, units: int) -> None:
        self._timers = timers
        self._units = self._left = units
        self.number = -1
        """The number of the pass that `left` was asked in last."""

    @property
    def left(self) -> int:
        """The units that this pass may still spend; none at 0 and below."""
        number = self._timers.passes
        if number != self.number:
            self.number, self._left = number, self._units
        return self._left

    def spend(self, units: int) -> None:
        """Count units that this pass spends, perhaps more than are left."""
        self._left = self.left - units
