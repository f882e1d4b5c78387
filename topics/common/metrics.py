"""Histograms of durations. Counters are plain integers, held by the code that counts.

Adding a duration neither locks nor allocates: bounds are powers of two, so that one `bit_length`
finds the bucket.
"""

from __future__ import annotations

BUCKET_COUNT = 40
"""Powers of two from 1 ns to 9 minutes; the last bucket takes longer durations."""


class Histogram:
    """Durations in power-of-two buckets: bucket i counts durations in [2**(i-1), 2**i) ns."""

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
        """Return the upper bound (ns) of the bucket of this quantile; 0 without durations."""
        wanted = fraction * self.count
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return 1 << index
        return 0

    def cumulative_us(self) -> list[tuple[str, float]]:
        """Return the Prometheus buckets, as (upper bound in microseconds, durations up to it).

        "+Inf" is last, and durations below 1 us share one bucket.
        """
        rows: list[tuple[str, float]] = []
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if index >= 10 and index < BUCKET_COUNT - 1:
                rows.append((format((1 << index) / 1000, "g"), seen))
        rows.append(("+Inf", seen))
        return rows
