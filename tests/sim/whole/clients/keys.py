"""Idempotency keys on a wall clock that steps: whether a key is certainly known (R-IDEM-3, 4).

A server forgets a key when its window ends, and a clock that is set back does not bring it back. So
a key is certainly known only if no clock was ever beyond its window, and certainly new only if its
window has ended now.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_MS = 120_000
"""`idempotency_window_ms`, where no setting changes it."""


@dataclass(slots=True)
class Key:
    """A key that was used. Its write began at `asked_ms` at the earliest and at `ended_ms` at the
    latest.
    """

    asked_ms: int
    ended_ms: int | None = None
    """The latest time at which the write began; None: it may begin even now."""
    first_ms: int = 0
    """Time of the first use: should the later write be lost, the earlier one counts."""
    first_ended_ms: int | None = None
    """The first write had begun by then."""
    high_ms: int = 0
    """The latest time of the clocks that it has lived under."""
    first: int = 0
    last: int = 0
    """The seqs of its answer."""

    def end_life(self, now_ms: int) -> None:
        """Note that the process ends, or that nothing is in flight: what has not begun never will."""
        self.ended_ms = now_ms if self.ended_ms is None else self.ended_ms
        self.first_ended_ms = now_ms if self.first_ended_ms is None else self.first_ended_ms
        self.high_ms = max(self.high_ms, now_ms)

    def appended(self, asked_ms: int, now_ms: int) -> None:
        """Note the answer to a write that was sent then, and was no duplicate."""
        self.asked_ms, self.ended_ms, self.high_ms = asked_ms, now_ms, now_ms
        self.first_ended_ms = now_ms if self.first_ended_ms is None else self.first_ended_ms

    def may_be_lost(self) -> None:
        """Note that the later write may be lost: then the first one counts, which clocks set back
        may have made the newer one.
        """
        self.asked_ms = min(self.asked_ms, self.first_ms)
        if self.ended_ms is not None and self.first_ended_ms is not None:
            self.ended_ms = max(self.ended_ms, self.first_ended_ms)
            self.high_ms = max(self.high_ms, self.first_ended_ms)

    def surely_known(self, now_ms: int) -> bool:
        return max(self.high_ms, now_ms) - self.asked_ms <= WINDOW_MS

    def surely_new(self, now_ms: int) -> bool:
        return self.ended_ms is not None and now_ms - self.ended_ms > WINDOW_MS
