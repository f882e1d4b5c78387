"""Which devices are too slow for commits in place, which stop the loop for as long as they take."""

from __future__ import annotations

from topics.clock import Clock

_PAUSE_NS = 1_000_000_000
_PAUSE_BESIDE_SYNCS_NS = 60_000_000_000
"""A device whose syncs hold up writes does so at each of them."""


class InPlaceLimit:
    """One shard's. `watch` after each commit in place: a slow one sends the next ones through the ring for a while.

    max_ns: none may have taken longer; 0: none is made in place.
    """

    def __init__(self, clock: Clock, max_ns: int) -> None:
        self._clock = clock
        self._max_ns = max_ns
        self._from_ns = 0
        """After one that took longer: when they may again."""
        self._beside_syncs_from_ns = 0
        """The same for those that began while a sync of the file ran."""

    def allows(self) -> bool:
        """Commits may be made in place."""
        return self._max_ns > 0 and (not self._from_ns or self._clock.monotonic_ns() >= self._from_ns)

    def allows_beside_sync(self) -> bool:
        """The same, while a sync of the file runs: it seldom holds a write up; where it does, they go by turns."""
        return not self._beside_syncs_from_ns or self._clock.monotonic_ns() >= self._beside_syncs_from_ns

    def watch(self, took_ns: int, *, sync_running: bool) -> None:
        """One has just ended."""
        if took_ns > self._max_ns:
            now_ns = self._clock.monotonic_ns()
            self._from_ns = now_ns + _PAUSE_NS
            if sync_running:
                self._beside_syncs_from_ns = now_ns + _PAUSE_BESIDE_SYNCS_NS
