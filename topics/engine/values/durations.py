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


def throttle_wait(window_ns: int, waited_ns: int) -> bytes:
    """`throttle_wait_ms` behind another figure: what a commit window widened under pressure has cost a write at most.

    waited_ns: the time the write took besides its commit.
    """
    return b',"throttle_wait_ms":' + milliseconds(max(0, min(window_ns, waited_ns)))
