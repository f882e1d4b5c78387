"""A budget for the frames of a pass, so that a flood of small frames delays no other client."""

from __future__ import annotations

from topics.engine.values.ports import TimersPort
from topics.engine.values.turns import Turns

_SHARE = 32
"""Units that one connection may spend in a pass while other connections wait."""
_UNIT_BYTES_LOG2 = 13


class FrameTurns(Turns):
    """The budget of a pass, shared by all WebSockets of a server.

    A connection that finds the budget spent continues in a later pass. The unit is the work of one
    small frame, some 15 us; each 8 KiB of a long frame and each topic of a command cost one unit,
    too. A publish that waits for its commit costs nothing, because `ws_publishes_in_flight` bounds
    those. The budget is counted in units instead of time, so that a run of the simulator takes the
    same turns as a server under load. Source: wire contract, R-WS-7.
    """

    __slots__ = ()

    def __init__(self, timers: TimersPort, budget: int) -> None:
        """budget: units a pass, 0 = unlimited."""
        super().__init__(timers, budget, _SHARE)

    def spend_frame(self, size: int) -> None:
        """Spend the units of a frame, or of a part of one, with `size` bytes."""
        self.left -= 1 + (size >> _UNIT_BYTES_LOG2)

    def spend_all(self) -> None:
        """Leave what comes to the next pass: a command of this one was long."""
        self.left = min(self.left, 0)
