"""Durations in the form that answers show."""

from __future__ import annotations

_USUAL = tuple(b"0.0" if us == 0 else b"%d.%03d" % (us // 1000, us % 1000) for us in range(10_000))
"""Texts of durations below 10 ms, by microsecond: nearly every request takes less."""


def milliseconds(ns: int) -> bytes:
    """Return nanoseconds as JSON milliseconds with three decimals; 0.0 for a negative duration."""
    us = ns // 1000
    if 0 <= us < 10_000:
        return _USUAL[us]
    return b"%d.%03d" % (us // 1000, us % 1000) if us > 0 else b"0.0"
