"""The limit on commits and syncs in place: after a slow one, the next ones use the ring."""

from __future__ import annotations

from topics.clock import Clock

_PAUSE_NS = 1_000_000_000
_PAUSE_BESIDE_SYNCS_NS = 60_000_000_000
"""Pause for a device whose syncs delay writes, because it does so at each sync."""


class InPlaceLimit:
    """The limit on what one shard makes in place: it stops the loop for as long as it takes.

    In a server these are commits. In the library they are the syncs of flushes: its commits of one
    write are made in place however long they take. `on_slow` is called after one that took longer;
    it sends the next ones through the ring for a while.

    max_ns: the longest time that one in place may take; 0: none is made in place.
    """

    def __init__(self, clock: Clock, max_ns: int) -> None:
        self._clock = clock
        self.max_ns = max_ns
        self._from_ns = 0
        """When they are allowed again after a slow one."""
        self._beside_syncs_from_ns = 0
        """Time from which commits in place are allowed beside a sync again.

        A commit that began while a sync of the file ran took too long.
        """

    def allows(self) -> bool:
        """Whether the next one may be made in place."""
        return self.max_ns > 0 and (not self._from_ns or self._clock.monotonic_ns() >= self._from_ns)

    def allows_beside_sync(self) -> bool:
        """Whether commits may be made in place while a sync of the file runs.

        A sync rarely delays a write; where it does, the two take turns.
        """
        return not self._beside_syncs_from_ns or self._clock.monotonic_ns() >= self._beside_syncs_from_ns

    def on_slow(self, *, sync_running: bool) -> None:
        """Note that one in place took longer than `max_ns`.

        sync_running: it was a commit beside a sync.
        """
        now_ns = self._clock.monotonic_ns()
        self._from_ns = now_ns + _PAUSE_NS
        if sync_running:
            self._beside_syncs_from_ns = now_ns + _PAUSE_BESIDE_SYNCS_NS
