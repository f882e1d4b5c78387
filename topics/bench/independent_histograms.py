"""Quantiles computed a second time, by the package `hdrhistogram` from the encoded histogram.

Its author is another one, so an error of this package's arithmetic or encoding would show. It is
an extra (`pip install 'topics-log[bench]'`): where it is missing, a run does without this check.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from topics.bench.load.latency_histogram import QUANTILES, LatencyHistogram


def decoder() -> Any | None:
    """Return the class HdrHistogram; None if the package is not installed."""
    if find_spec("hdrh") is None:
        return None
    return import_module("hdrh.histogram").HdrHistogram


def decoder_warnings() -> list[str]:
    """Return a sentence if a run does without this check."""
    if decoder() is not None:
        return []
    return ["quantiles were not computed a second time: install the package hdrhistogram, which topics[bench] has"]


def disagreements(histograms: Sequence[LatencyHistogram]) -> list[str] | None:
    """Return a text for each quantile that differs; None if the package is not installed."""
    reader = decoder()
    if reader is None:
        return None
    found = []
    for ours in histograms:
        theirs = reader.decode(ours.encoded().encode())
        if theirs.get_total_count() != ours.total:
            found.append(f"count {ours.total} and {theirs.get_total_count()}")
        for share in QUANTILES:
            one, other = ours.quantile(share), int(theirs.get_value_at_percentile(share * 100))
            if one != other:
                found.append(f"quantile {share}: {one} and {other} ns")
    return found
