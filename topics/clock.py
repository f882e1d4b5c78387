"""The only source of time, so that the whole server can run on simulated time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: `now_ms` for stored and shown times, `monotonic_ns` for timers and durations."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch. The value may step back."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since an arbitrary start. The value never steps back."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)


class ManualClock:
    """A clock that moves only by its methods, for tests and the simulator."""

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
        """Step only the wall clock, forward or back, as an administrator or NTP would."""
        self._now_ms += ms
