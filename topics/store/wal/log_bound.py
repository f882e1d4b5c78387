"""How long the log may get: beyond half of its bound commits are held back, at the bound appends are refused.

A checkpoint empties the log, and clients can fill it faster than that. What it holds is what a start after a crash
reads again and what a stop copies, so it has a bound (R-LOG-1). On the way there each commit holds back the next one,
by more the less room is left: writers come down to the rate of checkpoints before any of them is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.clock import Clock

_FIRST_RATE = 32 << 20
"""Bytes a second at which the log is taken to be emptied, until a checkpoint has shown it."""
_RATE_MIN = 1 << 20
_AHEAD = 4
"""Where commits begin to be held back, the log may be filled so many times as fast as it is emptied."""
_RETRY_MIN_MS = 100
_RETRY_MAX_MS = 10_000


class LogBound:
    """What the log holds, over all shards, beside what it may hold. max_bytes 0: any.

    `on_written`, `on_checkpoint` and `on_emptied` are told by the log; the others ask.
    """

    def __init__(self, clock: Clock, *, max_bytes: int, max_wait_ns: int) -> None:
        self._clock = clock
        self.max_bytes = max_bytes
        self.checkpoint_bytes = max_bytes // 2
        """The log is to be emptied from here on, and commits are held back."""
        self._max_wait_ns = max_wait_ns
        self.bytes = 0
        """Of batches that no checkpoint has taken yet."""
        self.pressed = False
        """More than half of the bound is used."""
        self.wait_ns = 0
        """How long the last commit holds back the next one."""
        self._rate = _FIRST_RATE
        self._held_until_ns = 0
        self.on_pressed: Callable[[], None] = lambda: None
        """Called when half of the bound is passed, and the log should be emptied at once."""

    # --- what the log tells ------------------------------------------------------------------------------------------
    def on_written(self, size: int) -> None:
        """A commit of so many bytes ended."""
        self.bytes += size
        if self.bytes <= self.checkpoint_bytes or not self.checkpoint_bytes:
            return
        left = max(0, self.max_bytes - self.bytes) / (self.max_bytes - self.checkpoint_bytes)
        fair_ns = size * 1_000_000_000 / self._rate
        wait_ns = fair_ns / (_AHEAD * left) if left else self._max_wait_ns
        self.wait_ns = int(min(self._max_wait_ns, wait_ns))
        self._held_until_ns = self._clock.monotonic_ns() + self.wait_ns
        if not self.pressed:
            self.pressed = True
            self.on_pressed()

    def on_checkpoint(self, size: int, took_ns: int) -> None:
        """A checkpoint took so much out of the log; small ones say nothing of how fast that goes."""
        if took_ns > 0 and size >= _RATE_MIN:
            self._rate = max(_RATE_MIN, size * 1_000_000_000 // took_ns)

    def on_emptied(self, held_bytes: int) -> None:
        """The log was opened, or files of it were given up: this is what is left."""
        self.bytes = held_bytes
        self.pressed = 0 < self.checkpoint_bytes < held_bytes
        if not self.pressed:
            self.let_go()

    def let_go(self) -> None:
        """The next commit is not held back: a checkpoint waits for it."""
        self.wait_ns = self._held_until_ns = 0

    # --- what writers ask --------------------------------------------------------------------------------------------
    def held_ns(self) -> int:
        """How long the next commit is held back from now on; 0: it is not."""
        if not self._held_until_ns:
            return 0
        return max(0, self._held_until_ns - self._clock.monotonic_ns())

    def is_reached(self, backlog_bytes: int) -> bool:
        """With what is staged or in flight the log holds what it may: no append now. Counts nothing."""
        return 0 < self.max_bytes <= self.bytes + backlog_bytes

    @property
    def retry_after_ms(self) -> int:
        """When a refused append may find room: a quarter of the bound is emptied by then."""
        return min(_RETRY_MAX_MS, max(_RETRY_MIN_MS, self.max_bytes * 250 // self._rate))
