"""Time comes from here alone, so that the whole server can run on simulated time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: `now_ms` for what is stored and shown, `monotonic_ns` for timers and durations."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step back."""

    def monotonic_ns(self) -> int:
        """Nanoseconds from an arbitrary start; never steps back."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)


class ManualClock:
    """A clock that moves only when told; for tests and the simulator."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ns: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ns = monotonic_ns

    def now_ms(self) -> int:
        return self._now_ms + self._monotonic_ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance_ns(self, ns: int) -> None:
        assert ns >= 0, "time moves forward"
        self._monotonic_ns += ns

    def step_wall_ms(self, ms: int) -> None:
        """Moves the wall clock alone, back or forth, as an administrator or NTP would."""
        self._now_ms += ms
