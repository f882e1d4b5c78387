"""Histograms of durations. Counters are plain integers, held by the code that counts.

Adding a duration neither locks nor allocates: bounds are powers of two, so that one `bit_length`
finds the bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import NamedTuple

from topics.errors import UsageError

BUCKET_COUNT = 40
"""Powers of two from 1 ns to 9 minutes; the last bucket takes longer durations."""


class Histogram:
    """Durations in power-of-two buckets: bucket i counts durations in [2**(i-1), 2**i) ns."""

    __slots__ = ("buckets", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKET_COUNT
        self.total_ns = 0

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.buckets)

    def add(self, ns: int) -> None:
        try:
            self.buckets[ns.bit_length()] += 1
        except IndexError:
            self.buckets[-1] += 1
        self.total_ns += ns

    def add_sample(self, ns: int, count: int) -> None:
        """Add a duration that stands for so many, of which the others were not timed."""
        self.buckets[min(ns.bit_length(), BUCKET_COUNT - 1)] += count
        self.total_ns += ns * count

    def add_all(self, others: Distribution) -> None:
        """Add all durations of a distribution."""
        self.buckets = list(map(add, self.buckets, others.buckets))
        self.total_ns += others.total

    def distribution(self) -> Distribution:
        """Return a copy that stays as it is."""
        return Distribution(self.count, self.total_ns, tuple(self.buckets))

    def cumulative_us(self) -> list[tuple[str, float]]:
        """Return the Prometheus buckets, as (upper bound in microseconds, durations up to it).

        "+Inf" is last, and durations below 1 us share one bucket.
        """
        return self._cumulative(lambda bound: format(bound / 1000, "g"))

    def cumulative_seconds(self, first: int = 10, last: int = BUCKET_COUNT - 2) -> list[tuple[str, float]]:
        """Return the Prometheus buckets, as (upper bound in seconds, durations up to it).

        first, last: the buckets with bounds of their own. "+Inf" is last.
        """
        return self._cumulative(lambda bound: format(bound / 1e9, "g"), first, last)

    def cumulative_bytes(self) -> list[tuple[str, float]]:
        """Return the Prometheus buckets of sizes, of which those below 1 KiB share one."""
        return self._cumulative(str)

    def _cumulative(
        self, shown: Callable[[int], str], first: int = 10, last: int = BUCKET_COUNT - 2
    ) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if first <= index <= last:
                rows.append((shown(1 << index), seen))
        rows.append(("+Inf", seen))
        return rows


class Distribution(NamedTuple):
    """Numbers in power-of-two buckets at one instant: durations in ns, or sizes in bytes."""

    count: int  # type: ignore[assignment]  # It hides tuple.count, which no caller needs here.
    total: int
    buckets: tuple[int, ...]
    """buckets[i] is how many numbers were in [2**(i-1), 2**i); the last has all larger ones."""

    @property
    def mean(self) -> float:
        """The mean; 0.0 without numbers."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, fraction: float) -> int:
        """Return an upper bound of this quantile, at most twice its value; 0 without numbers.

        Raises: UsageError, the fraction is no number from 0 to 1.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise UsageError(f"fraction is {fraction!r}: use a number from 0 to 1, such as 0.99")
        wanted = fraction * self.count
        seen = 0
        for index, numbers in enumerate(self.buckets):
            seen += numbers
            if numbers and seen >= wanted:
                return 1 << index
        return 0
