"""Topics that wait for delivery: bands by priority, deficit round robin, FIFO in each.

Aging ensures that no topic waits forever: it gains 100 of priority for each second it has waited,
so after ten seconds, one of priority 0 or more is in the top band. Pure: times are arguments, and
no code is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

FLOORS = (-1_000_000, 0, 250, 500, 750)
"""Lowest priority of each band. Band 0 has the negative ones, which are to come last."""
WEIGHTS = (1, 1, 2, 4, 8)
"""Topics taken from each band in a round."""
AGE_PER_S = 100
AGE_MAX = 1000
AGING_NS = 50_000_000
"""Interval in which waiting topics are moved to the bands of their age."""
_TOP = len(FLOORS) - 1


class ReadyEntry(NamedTuple, Generic[T]):
    topic: T
    priority: int
    since_ns: int
    """Time it began to wait; a further mark meanwhile does not change it."""


def band_of(priority: int) -> int:
    band = _TOP
    while priority < FLOORS[band]:
        band -= 1
    return band


def aged(priority: int, waited_ns: int) -> int:
    return priority + min(AGE_MAX, AGE_PER_S * max(0, waited_ns) // 1_000_000_000)


class ReadySet(Generic[T]):
    """The waiting topics, each once. Call `take` until it returns None, or the time has passed."""

    def __init__(self) -> None:
        self._bands: list[deque[ReadyEntry[T]]] = [deque() for _ in FLOORS]
        self._members: set[T] = set()
        self._credit = [0] * len(FLOORS)
        self._aged_ns = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, topic: T) -> bool:
        return topic in self._members

    def add(self, topic: T, priority: int, since_ns: int) -> None:
        if topic not in self._members:
            self._members.add(topic)
            self._bands[band_of(priority)].append(ReadyEntry(topic, priority, since_ns))

    def age(self, now_ns: int) -> None:
        """Move up the topics that have waited long enough, at most once per `AGING_NS`."""
        if now_ns - self._aged_ns < AGING_NS:
            return
        self._aged_ns = now_ns
        for band in range(_TOP - 1, -1, -1):
            queue = self._bands[band]
            for _ in range(len(queue)):
                entry = queue.popleft()
                target = band_of(aged(entry.priority, now_ns - entry.since_ns))
                self._bands[target].append(entry)

    def take(self, *, without_band_0: bool = False) -> ReadyEntry[T] | None:
        """Return the next topic, None without one.

        without_band_0: topics of band 0 wait (paused).
        """
        bands, credit = self._bands, self._credit
        lowest = 1 if without_band_0 else 0
        if not any(bands[lowest:]):
            return None
        while True:
            for band in range(_TOP, lowest - 1, -1):
                queue = bands[band]
                if not queue:
                    credit[band] = 0
                elif credit[band]:
                    credit[band] -= 1
                    entry = queue.popleft()
                    self._members.discard(entry.topic)
                    return entry
            for band in range(lowest, _TOP + 1):
                if bands[band]:
                    credit[band] += WEIGHTS[band]

    def count(self, *, without_band_0: bool = False) -> int:
        return len(self._members) - (len(self._bands[0]) if without_band_0 else 0)

    def oldest_ns(self, *, without_band_0: bool = False) -> int | None:
        """Return the earliest time at which a waiting topic began to wait."""
        queues = self._bands[1:] if without_band_0 else self._bands
        return min((entry.since_ns for queue in queues for entry in queue), default=None)
