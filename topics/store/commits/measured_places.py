"""The way of small synced groups: in place or through the ring, whichever proves faster."""

from __future__ import annotations

from topics.loop.loop import Loop
from topics.store.commits.commit_choice import GROUP_THROUGH_RING, Choice
from topics.store.commits.fastest_way import FastestWay

_TRY_PLACE_EVERY = 512
"""Number of small synced groups of which one tries whether the other place is faster now.

One percent of them would already be the slowest percent of the writes.
"""
_OTHERS_NS = 100_000_000
"""Time after a request that was no write, in which more are expected."""


class MeasuredPlaces:
    """The measurements of one shard: `choose` before each commit, `note` after one that synced."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._clock = loop.clock
        self._groups = FastestWay(*GROUP_THROUGH_RING)
        self._places = FastestWay(False, True, try_every=_TRY_PLACE_EVERY)
        """Whether such groups are made in place."""
        self._pass_with_group = -1
        """Number of the pass in which such a group was made in place last."""
        self._others = 0
        """The requests besides writes that the loop had served at the last such group."""
        self._others_until_ns = 0
        """Time until which more of them are expected, see `_serves_others`."""
        self._measured: Choice | None = None
        """How the commit in flight is made, if its time is measured."""

    def choose(self, choice: Choice) -> Choice:
        """Return how the next commit is made: as chosen, unless that is a small synced group."""
        if choice.is_measured:
            choice = self._choose_measured(choice)
        self._measured = choice if choice.is_measured else None
        return choice

    def note(self, write_ns: int) -> None:
        """Note the time that the commit in flight took until it was durable."""
        if self._measured is not None:
            self._places.note(self._measured.in_place, write_ns)
            if not self._measured.in_place:
                self._groups.note(self._measured, write_ns)

    def forget(self) -> None:
        """Measure the commit in flight no more, because its write was not whole."""
        self._measured = None

    def _choose_measured(self, choice: Choice) -> Choice:
        """Choose the way of a small synced group by the times measured so far.

        What its writers' callbacks stage would make another group in the same pass, for routers
        one after the other: a pass waits for one sync.
        """
        passes = self._loop.stats().passes
        is_first = choice.in_place and passes != self._pass_with_group
        if is_first and not self._serves_others() and self._places.choose():
            self._pass_with_group = passes
            return choice
        return self._groups.choose()

    def _serves_others(self) -> bool:
        """Return whether the loop has served requests besides writes since the last such group.

        Reads, for instance, would wait for each sync of others; writes have to wait for the commit
        in flight anyway. More are expected for a while.
        """
        others, now_ns = self._loop.requests_besides_writes, self._clock.monotonic_ns()
        if others != self._others:
            self._others = others
            self._others_until_ns = now_ns + _OTHERS_NS
        return now_ns < self._others_until_ns
