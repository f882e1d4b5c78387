"""How much `make test` tries of what could be tried without end.

A test of many seeds, or of kills and faults at many places, says how many `make test` takes of
them. TOPICS_TEST_TIMES=10 takes ten times as many.
"""

from __future__ import annotations

import os

from hypothesis import settings

TIMES = max(1, int(os.environ.get("TOPICS_TEST_TIMES", "1")))


def seeds(count: int) -> range:
    """Return the first `count` seeds, or TIMES as many."""
    return range(count * TIMES)


def stride(every: int) -> int:
    """Return the distance between two places that are tried: `every`, or a TIMES-th of it."""
    return max(1, every // TIMES)


def examples(count: int) -> settings:
    """Return the setting of a test that hypothesis runs with `count` examples, or TIMES as many."""
    return settings(max_examples=count * TIMES, deadline=None)
