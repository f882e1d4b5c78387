"""Histograms in the layout of HdrHistogram: C beside its model in Python, and both beside the package."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.bench.independent_histograms import disagreements
from topics.bench.load._load import lib
from topics.bench.load.latency_histogram import (
    HIGHEST_NS,
    QUANTILES,
    SLOTS,
    LatencyHistogram,
    highest_of,
    lowest_of,
    slot_of,
)


@given(st.integers(0, 1 << 44))
def test_c_counts_a_value_in_the_slot_that_the_arithmetic_gives(value: int) -> None:
    assert lib.tp_hdr_slot(value) == slot_of(value)


@given(st.integers(1, HIGHEST_NS))
def test_a_slot_holds_its_value_and_is_at_most_a_thousandth_wide(value: int) -> None:
    slot = slot_of(value)
    assert lowest_of(slot) <= value <= highest_of(slot)
    assert highest_of(slot) - lowest_of(slot) <= value / 1000


def test_slots_follow_each_other_without_a_gap() -> None:
    assert all(lowest_of(slot + 1) == highest_of(slot) + 1 for slot in range(1, slot_of(HIGHEST_NS)))
    assert slot_of(HIGHEST_NS) < SLOTS


def test_a_quantile_is_the_value_that_so_many_do_not_exceed() -> None:
    histogram = LatencyHistogram.of(range(1, 1001))
    assert [histogram.quantile(share) for share in (0.001, 0.5, 0.99, 1.0)] == [1, 500, 990, 1000]
    assert LatencyHistogram.of([]).quantile(0.5) == 0
    assert LatencyHistogram.of([7]).quantile(0.0001) == 7


@given(st.lists(st.integers(1, HIGHEST_NS), max_size=50))
def test_an_encoded_histogram_is_decoded_as_it_was(values: list[int]) -> None:
    histogram = LatencyHistogram.of(values)
    assert np.array_equal(LatencyHistogram.decoded(histogram.encoded()).counts, histogram.counts)


def test_a_sum_of_histograms_has_the_values_of_both() -> None:
    both = LatencyHistogram.of([1, 2]) + LatencyHistogram.of([3, 1000])
    assert (both.total, both.quantile(0.75), both.quantile(1)) == (4, 3, 1000)


def test_the_curve_ends_at_all_values_and_never_falls() -> None:
    curve = LatencyHistogram.of([5, 5, 100, 100_000]).curve()
    assert curve == sorted(curve)
    assert [share for share, _ in curve] == [0.5, 0.75, 1.0]


def test_the_package_hdrhistogram_reads_it_and_computes_the_same_quantiles() -> None:
    module = pytest.importorskip("hdrh.histogram", reason="hdrhistogram is missing: pip install 'topics[bench]'")
    rng = random.Random(1)
    values = [rng.getrandbits(rng.randint(1, 41)) + 1 for _ in range(5000)]
    theirs = module.HdrHistogram(1, HIGHEST_NS, 3)
    for value in values:
        theirs.record_value(value)
    ours = LatencyHistogram.of(values)
    assert [ours.quantile(share) for share in QUANTILES] == [
        theirs.get_value_at_percentile(share * 100) for share in QUANTILES
    ]
    encoded = theirs.encode()
    text = encoded.decode() if isinstance(encoded, bytes) else encoded
    assert np.array_equal(LatencyHistogram.decoded(text).counts, ours.counts)
    assert disagreements([ours]) == []


def test_a_count_in_the_wrong_slot_is_a_disagreement_with_the_package() -> None:
    pytest.importorskip("hdrh.histogram", reason="hdrhistogram is missing: pip install 'topics[bench]'")

    class Shifted(LatencyHistogram):
        def quantile(self, share: float) -> int:
            return super().quantile(share) + 1

    assert disagreements([Shifted(LatencyHistogram.of([5, 9]).counts)])
