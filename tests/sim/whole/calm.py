"""A while in which one client asks, and all others rest, so that its lone writes can form a streak.

Among clients that ask whenever they like, a write rarely follows another one with nothing between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from topics.clock import Clock
from topics.engine.bodies.write_columns import WriteColumns
from topics.engine.write.write_streak import WriteStreak

_LONGEST_NS = 30_000_000


class Calm:
    """The client that asks while others rest, if there is one."""

    def __init__(self, clock: Clock, counts: Counter[str]) -> None:
        self._clock = clock
        self._counts = counts
        self._owner: object = None
        self._until_ns = 0

    def begin(self, owner: object) -> bool:
        """Let all others rest until `end`, but not for long. Return False if another client has it."""
        if self.rest_ns(owner):
            return False
        self._owner, self._until_ns = owner, self._clock.monotonic_ns() + _LONGEST_NS
        return True

    def end(self, owner: object) -> None:
        if owner is self._owner:
            self._owner, self._until_ns = None, 0

    def rest_ns(self, client: object) -> int:
        """Return how long a client rests before its next request."""
        return 0 if client is self._owner else max(0, self._until_ns - self._clock.monotonic_ns())

    def count_streaks(self, engine: Any) -> None:
        """Count what streaks of this engine write from here on."""
        make, counts = engine.write_streak, self._counts

        def counted(framing: Any) -> WriteStreak:
            streak = make(framing)
            write = streak.write
            publishes = framing.func.__func__ is WriteColumns.publishing
            name = "publishes in a streak" if publishes else "writes in a streak"

            def counting(*asked: Any) -> Any:
                result = write(*asked)
                counts[name] += result is not None
                return result

            streak.write = counting
            return streak  # type: ignore[no-any-return]

        engine.write_streak = counted
