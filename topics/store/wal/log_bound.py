"""The bound of the log's length: above half of it commits are delayed, then appends refused.

A checkpoint empties the log, and clients can fill it faster than that. A start after a crash reads
all of the log again and a stop copies it, so it has a bound (R-LOG-1). On the way there each commit
delays the next one, by more the less room is left: writers slow down to the rate of checkpoints
before any of them is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.clock import Clock

_FIRST_RATE = 32 << 20
"""Bytes a second at which the log is assumed to be emptied, until a checkpoint was measured."""
_RATE_MIN = 1 << 20
_AHEAD = 4
"""Factor by which the log may be filled faster than emptied where delays begin."""
_RETRY_MIN_MS = 100
_RETRY_MAX_MS = 10_000


class LogBound:
    """The bytes of the log over all shards, and their maximum. max_bytes 0: unlimited.

    The log calls `on_written`, `on_checkpoint` and `on_emptied`; other callers query.

    on_room: called when files of the log were given up.
    """

    def __init__(
        self, clock: Clock, *, max_bytes: int, max_wait_ns: int, on_room: Callable[[], None] = lambda: None
    ) -> None:
        self._clock = clock
        self._on_room = on_room
        self.max_bytes = max_bytes
        self.checkpoint_bytes = max_bytes // 2
        """Bytes from which on the log is to be emptied and commits are delayed."""
        self._max_wait_ns = max_wait_ns
        self.bytes = 0
        """Bytes of batches that no checkpoint has taken yet."""
        self.pressed = False
        """Whether more than half of the bound is used."""
        self.wait_ns = 0
        """Delay of the next commit by the last one."""
        self._rate = _FIRST_RATE
        self._held_until_ns = 0
        self.on_pressed: list[Callable[[], None]] = []
        """Called when half of the bound is exceeded and the log should be emptied at once."""

    @property
    def room(self) -> int:
        """Bytes until half of the bound is used; very many without a bound."""
        return self.checkpoint_bytes - self.bytes if self.checkpoint_bytes else 1 << 62

    # --- reports of the log ------------------------------------------------------------------------------------------
    def on_written(self, size: int) -> None:
        """Note the end of a commit of `size` bytes."""
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
            for pressed in self.on_pressed:
                pressed()

    def on_checkpoint(self, size: int, took_ns: int) -> None:
        """Note that a checkpoint took this much out of the log.

        Small ones do not measure the rate.
        """
        if took_ns > 0 and size >= _RATE_MIN:
            self._rate = max(_RATE_MIN, size * 1_000_000_000 // took_ns)

    def on_emptied(self, held_bytes: int) -> None:
        """Note the bytes left after the log was opened, or after files of it were given up."""
        self.bytes = held_bytes
        self.pressed = 0 < self.checkpoint_bytes < held_bytes
        if not self.pressed:
            self.let_go()
        self._on_room()

    def let_go(self) -> None:
        """Do not delay the next commit: a checkpoint waits for it."""
        self.wait_ns = self._held_until_ns = 0

    # --- queries of writers ------------------------------------------------------------------------------------------
    def held_ns(self) -> int:
        """Remaining delay of the next commit; 0: none."""
        if not self._held_until_ns:
            return 0
        return max(0, self._held_until_ns - self._clock.monotonic_ns())

    def is_reached(self, backlog_bytes: int) -> bool:
        """Return whether the log is full with what is staged or in flight.

        Appends are refused then. This query counts no refusal.
        """
        return 0 < self.max_bytes <= self.bytes + backlog_bytes

    def is_met_within(self, file_bytes: int) -> bool:
        """Return whether the log is full before an empty file of this size is.

        Another file ready beside that one would be of no use, and take space. False for files of
        more than half of the bound.
        """
        return 2 * file_bytes <= self.max_bytes < self.bytes + file_bytes

    @property
    def retry_after_ms(self) -> int:
        """Return when a refused append may find room: by then a quarter of the bound is emptied."""
        return min(_RETRY_MAX_MS, max(_RETRY_MIN_MS, self.max_bytes * 250 // self._rate))
