"""Frames of a pass, within a budget: WebSockets that send a flood of small frames do not hold up everybody else."""

from __future__ import annotations

from topics.engine.values.ports import TimersPort
from topics.engine.values.turns import Turns

_SHARE = 32
"""What one connection takes of a pass while others wait."""
_UNIT_BYTES_LOG2 = 13


class FrameTurns(Turns):
    """All WebSockets of a server share the budget of a pass; those that find it spent go on in the following passes.

    The unit is the work of one small frame, some 15 us: 8 KiB of a long one, too, and each topic of a command. A
    publish that waits for its commit costs none; there is a bound on those (`ws_publishes_in_flight`). Units, not time:
    a run of the simulator takes the same turns as a server under load. Source: wire contract, R-WS-7.
    """

    __slots__ = ()

    def __init__(self, timers: TimersPort, budget: int) -> None:
        """budget: units a pass, 0 for no limit."""
        super().__init__(timers, budget, _SHARE)

    def spend_frame(self, size: int) -> None:
        """A frame, or a part of one, of so many bytes."""
        self.left -= 1 + (size >> _UNIT_BYTES_LOG2)
