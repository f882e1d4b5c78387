"""Appends that the engine has begun and not staged, because something before them has to end.

They wait for the directory's format, for the end of a deletion or of an expiry, or for the changes
of their topic that are in flight. A flush of all there is waits for their answers first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.engine.values.results import AppendResult, Done
from topics.errors import TopicsError


class HeldAppends:
    """The appends of one engine that wait, by the numbers in which they began to."""

    def __init__(self) -> None:
        self._last = 0
        self._numbers: dict[int, None] = {}
        """Numbers of appends without an answer, ascending."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """Callbacks, each with the number up to which it waits, ascending."""

    def __bool__(self) -> bool:
        """Return whether any append waits."""
        return bool(self._numbers)

    def hold(self, done: Done[AppendResult]) -> Done[AppendResult]:
        """Enter an append that has to wait; return its `done`, with which it is tried again."""
        self._last += 1
        number = self._last
        self._numbers[number] = None

        def answer(outcome: AppendResult | TopicsError) -> None:
            done(outcome)
            del self._numbers[number]
            self._look()

        return answer

    def when_answered(self, then: Callable[[], None]) -> None:
        """Call `then` once all appends that wait now (at least one) are answered."""
        self._waiting.append((self._last, then))

    def _look(self) -> None:
        waiting = self._waiting
        while waiting and (not self._numbers or next(iter(self._numbers)) > waiting[0][0]):
            waiting.popleft()[1]()
