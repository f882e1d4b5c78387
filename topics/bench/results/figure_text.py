"""Numbers as people read them, for tables and axes."""

from __future__ import annotations

from statistics import median


def number(value: float) -> str:
    """Return a number with as many digits as a reader compares."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: list[float], between: str = " ") -> str:
    """Return the median, and the range in brackets."""
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle}{between}({number(min(values))}-{number(max(values))})"


def short(value: float) -> str:
    """Return a number for an axis: 1.5k, 20M, 0.02."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{unit}" if value / limit < 1000 else f"{value / limit:,.0f}{unit}"
    return f"{value:g}"


def duration(ns: float) -> str:
    """Return nanoseconds as ns, us, ms or s."""
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= limit:
            return f"{ns / limit:g} {unit}"
    return f"{ns:g} ns"
