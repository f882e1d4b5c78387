"""A chain of questions, most of which are answered before the call that asks them returns."""

from __future__ import annotations

from collections.abc import Callable


class Trampoline:
    """Asks the next question when the previous one is answered.

    A loop asks the questions, so that thousands of immediate answers do not nest thousands of
    calls.
    """

    __slots__ = ("_ask", "_running", "_waits")

    def __init__(self, ask: Callable[[], bool]) -> None:
        """ask: asks the next question, after which `answered` is called once.

        It returns False if there are no more questions.
        """
        self._ask = ask
        self._running = False
        self._waits = False
        """Waits for an answer, or has reached the end."""

    def go_on(self) -> None:
        """Ask until an answer does not come at once, or there are no more questions."""
        if self._running:
            return
        self._running = True
        try:
            while not self._waits:
                self._waits = True
                if not self._ask():
                    # `ask` refers to this object: without the cycle it is freed at once.
                    self._ask = _no_more
                    break
        finally:
            self._running = False

    def answered(self) -> None:
        """Continue: the last question is answered, perhaps while it is being asked."""
        self._waits = False
        self.go_on()


def _no_more() -> bool:
    return False
