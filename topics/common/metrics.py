"""Histograms of durations; counters are plain integers where they are counted.

Nothing here locks or allocates: bounds are powers of two, so that finding the bucket is one `bit_length`.
"""

from __future__ import annotations

BUCKET_COUNT = 40
"""Powers of two from 1 ns to 9 minutes; the last bucket takes what is longer."""


class Histogram:
    """Durations in power-of-two buckets: bucket i counts those below 2**i ns (and at least half of that)."""

    __slots__ = ("buckets", "count", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKET_COUNT
        self.count = 0
        self.total_ns = 0

    def add(self, ns: int) -> None:
        index = ns.bit_length()
        self.buckets[index if index < BUCKET_COUNT else -1] += 1
        self.count += 1
        self.total_ns += ns

    def quantile_ns(self, fraction: float) -> int:
        """Upper bound of the bucket in which this fraction of the durations lies; 0 without any."""
        wanted = fraction * self.count
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return 1 << index
        return 0

    def cumulative_us(self) -> list[tuple[str, float]]:
        """Prometheus buckets: (upper bound in microseconds, durations up to it), "+Inf" last; below 1 us as one."""
        rows: list[tuple[str, float]] = []
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if index >= 10 and index < BUCKET_COUNT - 1:
                rows.append((format((1 << index) / 1000, "g"), seen))
        rows.append(("+Inf", seen))
        return rows
