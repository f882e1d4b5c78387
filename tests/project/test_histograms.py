"""Histograms."""

from topics.common.histograms import Histogram


def test_a_histogram_has_power_of_two_buckets() -> None:
    histogram = Histogram()
    for ns in (0, 1, 1000, 1023, 1 << 60):
        histogram.add(ns)
    assert histogram.buckets[0] == histogram.buckets[1] == 1
    assert histogram.buckets[10] == 2
    assert histogram.buckets[-1] == 1
    copy = histogram.distribution()
    histogram.add(5)
    assert (copy.count, copy.quantile(0.5), copy.mean) == (5, 1024, copy.total / 5)
    assert Histogram().distribution().mean == Histogram().distribution().quantile(0.5) == 0


def test_a_sample_counts_for_those_that_were_not_timed() -> None:
    histogram = Histogram()
    histogram.add(100)
    histogram.add_sample(1000, 16)
    histogram.add_sample(1 << 60, 3)
    assert (histogram.count, histogram.total_ns) == (20, 100 + 16_000 + (3 << 60))
    assert histogram.distribution().quantile(0.5) == 1024
