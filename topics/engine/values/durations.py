"""Durations in the form that answers show."""

from __future__ import annotations

USUAL_NS = 10_000_000
"""Nearly every request takes less."""
USUAL = tuple(b"0.0" if us == 0 else b"%d.%03d" % (us // 1000, us % 1000) for us in range(USUAL_NS // 1000))
"""Texts of durations below that, by microsecond."""


def milliseconds(ns: int) -> bytes:
    """Return nanoseconds as JSON milliseconds with three decimals; 0.0 for a negative duration."""
    if 0 <= ns < USUAL_NS:
        return USUAL[ns // 1000]
    us = ns // 1000
    return b"%d.%03d" % (us // 1000, us % 1000) if us > 0 else b"0.0"
