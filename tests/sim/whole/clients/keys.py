"""Idempotency keys on a wall clock that steps: whether a key is still known, as far as anybody can tell (R-IDEM-3, 4).

A server forgets a key when its window is over, and a clock that is set back does not bring it back. So a key is surely
known only if no clock was ever beyond its window, and surely new only if its window is over now.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_MS = 120_000
"""`idempotency_window_ms`, where nobody has set it."""


@dataclass(slots=True)
class Key:
    """A key that was used. When the write that it belongs to began: not before `asked_ms` nor after `ended_ms`."""

    asked_ms: int
    ended_ms: int | None = None
    """None: it may begin even now."""
    first_ms: int = 0
    """When it was used for the first time: should the later write be lost, the earlier one counts."""
    first_ended_ms: int | None = None
    """By then that first write had begun."""
    high_ms: int = 0
    """The latest time of the clocks it has lived under."""
    first: int = 0
    last: int = 0
    """The seqs it was answered with."""

    def end_life(self, now_ms: int) -> None:
        """The process ends, or nothing is on its way any more: what has not begun never will."""
        self.ended_ms = now_ms if self.ended_ms is None else self.ended_ms
        self.first_ended_ms = now_ms if self.first_ended_ms is None else self.first_ended_ms
        self.high_ms = max(self.high_ms, now_ms)

    def appended(self, asked_ms: int, now_ms: int) -> None:
        """The answer to a write that was asked for then, and was no duplicate."""
        self.asked_ms, self.ended_ms, self.high_ms = asked_ms, now_ms, now_ms
        self.first_ended_ms = now_ms if self.first_ended_ms is None else self.first_ended_ms

    def may_be_lost(self) -> None:
        """The later write may be: then the first one counts, which clocks set back may have made the newer one."""
        self.asked_ms = min(self.asked_ms, self.first_ms)
        if self.ended_ms is not None and self.first_ended_ms is not None:
            self.ended_ms = max(self.ended_ms, self.first_ended_ms)
            self.high_ms = max(self.high_ms, self.first_ended_ms)

    def surely_known(self, now_ms: int) -> bool:
        return max(self.high_ms, now_ms) - self.asked_ms <= WINDOW_MS

    def surely_new(self, now_ms: int) -> bool:
        return self.ended_ms is not None and now_ms - self.ended_ms > WINDOW_MS
