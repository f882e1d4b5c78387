"""When a commit is worth waiting for: one that ends in the call that begins it, instead of a turn through the ring."""

from __future__ import annotations

from topics.loop.loop import Loop
from topics.store.wal.commit import Batch

_PAUSE_NS = 1_000_000_000
_PAUSE_BESIDE_SYNCS_NS = 60_000_000_000
"""A device whose syncs hold up writes does so at each of them."""


class InPlace:
    """One shard's. `watch` after each such commit: a slow device has the next ones go through the ring for a while.

    max_ns: none may have taken longer; 0: never in place, but with `always`.
    """

    def __init__(self, loop: Loop, max_ns: int) -> None:
        self._loop = loop
        self._max_ns = max_ns
        self._from_ns = 0
        """After one that took longer: when they may again."""
        self._beside_syncs_from_ns = 0
        """The same for those that began while a sync of the file ran."""
        self.always = False
        """Every commit that needs one write: for a thread that waits for nothing else."""

    def takes_alone(self) -> bool:
        """A whole request in one call: one connection has the loop to itself, and the device was quick of late."""
        return self._max_ns > 0 and self._loop.clock.monotonic_ns() >= self._from_ns and self._loop.is_alone()

    def takes(self, batch: Batch, *, sync_running: bool) -> bool:
        """A lone write of a connection that is alone: nobody gains by the loop going on meanwhile (perf/commits.py).

        And what nobody waits to be synced: through the ring a buffered write always goes to a worker, which costs more
        than the copy into the page cache. A sync on its way seldom holds one up; where it does, they go by turns.
        """
        if self.always:
            return True
        now_ns = self._loop.clock.monotonic_ns()
        if self._max_ns <= 0 or now_ns < self._from_ns:
            return False
        if not batch.wants_sync and (not sync_running or now_ns >= self._beside_syncs_from_ns):
            return True
        return len(batch.waiters) == 1 and self._loop.is_alone()

    def watch(self, submitted_ns: int, *, sync_running: bool) -> None:
        """One has ended that was begun then."""
        now_ns = self._loop.clock.monotonic_ns()
        if now_ns - submitted_ns > self._max_ns:
            self._from_ns = now_ns + _PAUSE_NS
            if sync_running:
                self._beside_syncs_from_ns = now_ns + _PAUSE_BESIDE_SYNCS_NS
