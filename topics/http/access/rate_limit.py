"""A rate limit on a peer: a burst at once, and an average per second."""

from __future__ import annotations

_NS = 1_000_000_000


class Allowance:
    """A token bucket: refilled by time at `per_s`, up to `burst`."""

    __slots__ = ("_burst", "_left", "_per_s", "_seen_ns")

    def __init__(self, burst: int, per_s: int, now_ns: int) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._seen_ns = now_ns

    def spend(self, count: int, now_ns: int) -> bool:
        """Take `count` from the bucket. Return False if that was more than it held."""
        refill = (now_ns - self._seen_ns) * self._per_s / _NS
        self._seen_ns = now_ns
        self._left = min(self._left + refill, self._burst) - count
        return self._left >= 0

    def earn(self, count: int) -> None:
        """Give back `count`, up to the burst, for requests that the server itself has caused."""
        self._left = min(self._left + count, self._burst)
