"""How much `make test` tries of what could be tried without end.

A test of many seeds, or of kills and faults at many places, says how many of them `make many` takes,
which CI runs. `make test` takes a quarter of them, and TOPICS_TEST_TIMES=10 ten times as many.
"""

from __future__ import annotations

import math
import os

from hypothesis import settings

TIMES = float(os.environ.get("TOPICS_TEST_TIMES", "0.25"))


def amount(count: int) -> int:
    """Return TIMES as many, one at least."""
    return max(1, math.ceil(count * TIMES))


def seeds(count: int) -> range:
    """Return the first `count` seeds, or TIMES as many."""
    return range(amount(count))


def stride(every: int) -> int:
    """Return the distance between two places that are tried: `every`, or a TIMES-th of it."""
    return max(1, round(every / TIMES))


def examples(count: int) -> settings:
    """Return the setting of a test that hypothesis runs with `count` examples, or TIMES as many."""
    return settings(max_examples=amount(count), deadline=None)
