"""Charts as inline SVG: lines over two axes. Colors are variables of the page."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

from topics.bench.results.figure_text import short

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 14, 40
COLORS = 8
TICK_WIDTH = 7
"""The most that a character of a tick takes."""
POINTS_MAX = 400
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line. color: its number on the page. ranges: a low and a high for each point."""

    name: str
    points: list[Point]
    color: int
    faint: bool = False
    ranges: list[tuple[float, float]] = field(default_factory=list)
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis. ticks: positions and their texts; None: chosen from the values."""

    title: str
    log: bool = False
    ticks: list[tuple[float, str]] | None = None
    text: Callable[[float], str] = short
    low: float | None = None


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        low, high, value = (math.log10(max(one, 1e-12)) if self.log else one for one in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def line_chart(title: str, x: Axis, y: Axis, lines: list[ChartLine]) -> str:
    """Return a figure with its chart and its legend; empty if there is no point."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    xs = [point[0] for line in lines for point in line.points] + [at for at, _ in x.ticks or ()]
    ys = [point[1] for line in lines for point in line.points] + [
        one for line in lines for pair in line.ranges for one in pair
    ]
    across = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT, x.log)
    up = _scale_up(y, ys)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    parts += _grid(x, across, y, up)
    for line in lines:
        parts += _drawn(line, across, up)
    parts.append("</svg>")
    legend = _legend(lines)
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}{legend}</figure>"


def _scale_up(axis: Axis, values: list[float]) -> _Scale:
    low = min(values) if axis.log else 0.0
    if axis.low is not None:
        low = axis.low
    high = max(values)
    if axis.log:
        low, high = 10 ** math.floor(math.log10(max(low, 1e-9))), 10 ** math.ceil(math.log10(max(high, 1e-9)) + 1e-9)
    elif high <= low:
        high = low + 1
    else:
        high = _round_up(high)
    return _Scale(low, high, HEIGHT - BOTTOM, TOP, axis.log)


def _round_up(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if unit * step >= value)


def ticks_of(low: float, high: float, *, log: bool) -> list[float]:
    """Return round values of an axis between two values."""
    if log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]
    step = _round_up((high - low) / 5) if high > low else 1.0
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def _grid(x: Axis, across: _Scale, y: Axis, up: _Scale) -> list[str]:
    parts = []
    bottom, left, right = HEIGHT - BOTTOM, LEFT, WIDTH - RIGHT
    for value in ticks_of(up.low, up.high, log=y.log):
        at = up.at(value)
        parts.append(f'<line class="grid" x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(y.text(value))}</text>'
        )
    ticks = x.ticks or [(value, x.text(value)) for value in ticks_of(across.low, across.high, log=x.log)]
    taken = -math.inf
    for value, text in ticks:
        at = across.at(value)
        half = len(text) * TICK_WIDTH / 2
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}"/>')
        if at - half < taken:  # it would be written over the one before
            continue
        taken = at + half
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>')
    parts.append(
        f'<text class="axis" x="{(left + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.title)}</text>'
    )
    parts.append(
        f'<text class="axis" x="14" y="{(TOP + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + bottom) / 2})">{escape(y.title)}</text>'
    )
    return parts


def _drawn(line: ChartLine, across: _Scale, up: _Scale) -> list[str]:
    color = f"c{line.color % COLORS}"
    kind = " faint" if line.faint else ""
    points = [(across.at(a), up.at(b)) for a, b in thinned(line.points)]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    parts = [f'<polyline class="line {color}{kind}" points="{path}"/>']
    for (a, _), (low, high) in zip(line.points, line.ranges, strict=False):
        at = across.at(a)
        parts.append(
            f'<line class="line {color}" x1="{at:.1f}" y1="{up.at(low):.1f}" x2="{at:.1f}" y2="{up.at(high):.1f}"/>'
        )
    if line.marks:
        parts += [f'<circle class="dot {color}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points]
    return parts


def thinned(points: list[Point], most: int = POINTS_MAX) -> list[Point]:
    """Return at most `most` points: of each stretch the highest, and the last of all."""
    if len(points) <= most:
        return points
    width = math.ceil(len(points) / (most - 1))
    stretches = [points[start : start + width] for start in range(0, len(points), width)]
    return [*(max(stretch, key=lambda point: point[1]) for stretch in stretches), points[-1]]


def _legend(lines: list[ChartLine]) -> str:
    """One entry for each name; a name that only faint lines have is shown, too."""
    names = dict.fromkeys((line.name, line.color % COLORS) for line in lines)
    entries = [f'<li><span class="key k{color}"></span>{escape(name)}</li>' for name, color in names]
    return f'<ul class="legend">{"".join(entries)}</ul>'
