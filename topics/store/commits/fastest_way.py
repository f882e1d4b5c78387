"""The choice of the fastest way of a commit on this device, under this load, by trying them."""

from __future__ import annotations

from typing import Generic, TypeVar

_TRIES_FIRST = 4
"""Tries of each way before one is preferred."""
_TRY_EVERY = 64
_WEIGHT = 8
"""The mean moves by an eighth of its distance to the last measurement."""
_SPIKE = 4
"""Cap of one measurement, in means: devices stall now and then, whatever the request."""
_CLEARLY = 0.9
"""Another way is preferred if it takes less than this share of the preferred one's time."""

Way = TypeVar("Way")


class FastestWay(Generic[Way]):
    """The fastest of some ways of a commit of one shard: `choose` before it, `note` after it.

    The ways are primitives, or any other values. The first is preferred until another proves
    faster.
    """

    def __init__(self, *ways: Way, try_every: int = _TRY_EVERY) -> None:
        """try_every: number of commits of which one uses another way than the preferred one."""
        self._ways = ways
        self._try_every = try_every
        self._means = [0.0] * len(ways)
        self._tries = [0] * len(ways)
        self._preferred = 0
        self._commits = 0

    @property
    def preferred(self) -> Way:
        return self._ways[self._preferred]

    def choose(self) -> Way:
        """Return the preferred way, or sometimes another, to notice changes."""
        self._commits += 1
        for at, tries in enumerate(self._tries):
            if tries < _TRIES_FIRST:
                return self._ways[at]
        if self._commits % self._try_every:
            return self._ways[self._preferred]
        others = len(self._ways) - 1
        turn = self._commits // self._try_every % others
        return self._ways[(self._preferred + 1 + turn) % len(self._ways)]

    def note(self, way: Way, took_ns: int) -> None:
        """Note the time that a commit made this way took until it was durable."""
        at = self._ways.index(way)
        mean = self._means[at]
        if self._tries[at] < _TRIES_FIRST:
            self._tries[at] += 1
            self._means[at] = mean + (took_ns - mean) / self._tries[at]
        else:
            self._means[at] = mean + (min(took_ns, _SPIKE * mean) - mean) / _WEIGHT
        best = min(range(len(self._ways)), key=self._means.__getitem__)
        if min(self._tries) >= _TRIES_FIRST and self._means[best] < _CLEARLY * self._means[self._preferred]:
            self._preferred = best
