"""How much of something a peer may do: a burst at once, and so many a second on the whole."""

from __future__ import annotations

_NS = 1_000_000_000


class Allowance:
    """Refilled by time at `per_s`, never above `burst`."""

    __slots__ = ("_burst", "_left", "_per_s", "_seen_ns")

    def __init__(self, burst: int, per_s: int, now_ns: int) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._seen_ns = now_ns

    def spend(self, count: int, now_ns: int) -> bool:
        """False once more was spent than there was."""
        refill = (now_ns - self._seen_ns) * self._per_s / _NS
        self._seen_ns = now_ns
        self._left = min(self._left + refill, self._burst) - count
        return self._left >= 0

    def earn(self, count: int) -> None:
        """What the peer may do besides, because of something we did."""
        self._left = min(self._left + count, self._burst)
