"""Heartbeats of all streams. Source: wire contract, R-SSE-4.

Streams whose next heartbeat is due at the same time share a bucket with one timer. A frame only
sets a stream's `last_ns`; the bucket notices that when it is due, and moves the stream to a later
one. So a frame costs a store, an idle stream a dictionary entry, and ten thousand streams a few
timers a second, whose heartbeats leave in one call each.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from topics.engine.values.ports import TimersPort

_FINEST_NS = 1_000_000
_COARSEST_NS = 100_000_000
BEATS_A_PASS = 256
"""Streams of a bucket that a pass looks at, and sends their heartbeats."""
_GONE = object()
_SHARE = 128
"""A heartbeat is late by at most its interval divided by this."""


class Beating(Protocol):
    """A stream with heartbeats.

    interval_ns: time between heartbeats. last_ns: time of the last bytes sent, monotonic.
    """

    interval_ns: int
    last_ns: int

    def beat(self) -> None:
        """Send the heartbeat, because the interval has passed without other bytes."""


class Heartbeats:
    """The heartbeats of open streams, which enter with `add` and leave with `remove`."""

    def __init__(self, timers: TimersPort) -> None:
        self._timers = timers
        self._buckets: dict[int, dict[Beating, None]] = {}
        """Streams by the time at which they are due, ns."""
        self._place: dict[Beating, int] = {}

    def __len__(self) -> int:
        return len(self._place)

    def add(self, stream: Beating) -> None:
        self._put(stream, self._timers.clock.monotonic_ns())

    def remove(self, stream: Beating) -> None:
        """Remove a stream. A stream that is not here is ignored."""
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
        """Send the heartbeats of some streams of a bucket, those of the others in later passes."""
        now_ns = self._timers.clock.monotonic_ns()
        bucket = self._buckets[place]
        for stream in list(islice(bucket, BEATS_A_PASS)):
            if stream not in bucket:
                continue  # ended meanwhile
            if now_ns - stream.last_ns >= stream.interval_ns:
                stream.last_ns = now_ns
                stream.beat()
            if bucket.pop(stream, _GONE) is not _GONE:  # not ended by its heartbeat
                self._put(stream, now_ns)
        if bucket:
            self._timers.call_later(0, lambda: self._due(place))
        else:
            del self._buckets[place]
