"""Heartbeats of all streams. Source: wire contract, R-SSE-4.

Streams whose next heartbeat falls into the same moment lie in one bucket with one timer. A frame only moves a stream's
`last_ns`; its bucket finds out when it is due and puts it into a later one. So a frame costs a store, an idle stream a
dictionary entry, and ten thousand streams a few timers a second, whose heartbeats leave in one call each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from topics.engine.values.ports import TimersPort

_FINEST_NS = 1_000_000
_COARSEST_NS = 100_000_000
_SHARE = 128
"""Heartbeats are late by this share of their interval at most."""


class Beating(Protocol):
    """A stream. interval_ns: between heartbeats. last_ns: when it last sent anything, monotonic."""

    interval_ns: int
    last_ns: int

    def beat(self) -> None:
        """Sends the heartbeat; nothing was sent for the interval."""


class Heartbeats:
    """Streams enter with `add` and leave with `remove`."""

    def __init__(self, timers: TimersPort) -> None:
        self._timers = timers
        self._buckets: dict[int, dict[Beating, None]] = {}
        """By the time they are due, ns."""
        self._place: dict[Beating, int] = {}

    def __len__(self) -> int:
        return len(self._place)

    def add(self, stream: Beating) -> None:
        self._put(stream, self._timers.clock.monotonic_ns())

    def remove(self, stream: Beating) -> None:
        """Harmless for one that is not here."""
        place = self._place.pop(stream, None)
        if place is not None:
            self._buckets[place].pop(stream, None)

    def _put(self, stream: Beating, now_ns: int) -> None:
        grain_ns = min(max(stream.interval_ns // _SHARE, _FINEST_NS), _COARSEST_NS)
        place = -(-(stream.last_ns + stream.interval_ns) // grain_ns) * grain_ns
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = {}
            self._timers.call_later(max(0, place - now_ns), lambda: self._due(place))
        bucket[stream] = None
        self._place[stream] = place

    def _due(self, place: int) -> None:
        now_ns = self._timers.clock.monotonic_ns()
        for stream in _all(self._buckets.pop(place)):
            if stream not in self._place:
                continue  # ended meanwhile
            if now_ns - stream.last_ns >= stream.interval_ns:
                stream.last_ns = now_ns
                stream.beat()
            if stream in self._place:
                self._put(stream, now_ns)


def _all(bucket: Iterable[Beating]) -> list[Beating]:
    return list(bucket)
