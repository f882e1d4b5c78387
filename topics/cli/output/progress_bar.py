"""A bar for long work, on stderr where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topics.clock import Clock, SystemClock

LONG_NS = 500_000_000
"""Work that takes less has no bar, and does not load what draws it."""


@contextmanager
def progress_bar(what: str, total: int | None, clock: Clock | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that adds to what is done; without a terminal it does nothing.

    total: None if it is not known.
    """
    bar = _Bar(what, total, clock or SystemClock())
    try:
        yield bar.advance if sys.stderr.isatty() else _nothing
    finally:
        bar.end()


class _Bar:
    """A bar that begins once the work has taken long."""

    def __init__(self, what: str, total: int | None, clock: Clock) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._done = 0
        self._shows_at = clock.monotonic_ns() + LONG_NS
        self._show: Callable[[int], None] | None = None
        self._end: Callable[[], None] = lambda: None

    def advance(self, count: int) -> None:
        self._done += count
        if self._show is not None:
            self._show(self._done)
        elif self._clock.monotonic_ns() >= self._shows_at:
            self._begin()

    def end(self) -> None:
        """Take the bar away."""
        self._end()

    def _begin(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - takes as long as the rest of a short command
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        task = progress.add_task(self._what, total=self._total, completed=self._done)
        progress.start()
        self._show = lambda done: progress.update(task, completed=done)
        self._end = progress.stop


def _nothing(_count: int) -> None:
    pass
