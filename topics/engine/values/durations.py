"""Durations as they are shown in answers."""

from __future__ import annotations

_USUAL = tuple(b"0.0" if us == 0 else b"%d.%03d" % (us // 1000, us % 1000) for us in range(10_000))
"""Up to 10 ms: what nearly every request takes."""


def milliseconds(ns: int) -> bytes:
    """Nanoseconds as JSON milliseconds with three decimals, cheaply; never negative."""
    us = ns // 1000
    if 0 <= us < 10_000:
        return _USUAL[us]
    return b"%d.%03d" % (us // 1000, us % 1000) if us > 0 else b"0.0"
