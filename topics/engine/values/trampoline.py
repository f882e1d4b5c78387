"""Questions that are asked one after the other, where most are answered from inside the question."""

from __future__ import annotations

from collections.abc import Callable


class Trampoline:
    """Asks the next question when the one before is answered.

    A loop asks: thousands of questions are not as many calls within each other.
    """

    __slots__ = ("_ask", "_running", "_waits")

    def __init__(self, ask: Callable[[], bool]) -> None:
        """ask: the next question, after which `answered` is called once; False: there are no more."""
        self._ask = ask
        self._running = False
        self._waits = False
        """For an answer or, at the end, for ever."""

    def go_on(self) -> None:
        """Asks until an answer has to be waited for, or there are no more questions."""
        if self._running:
            return
        self._running = True
        try:
            while not self._waits:
                self._waits = True
                if not self._ask():
                    self._ask = _no_more  # whoever asks has this, and is not kept by it
                    break
        finally:
            self._running = False

    def answered(self) -> None:
        """The last question is; perhaps from inside it."""
        self._waits = False
        self.go_on()


def _no_more() -> bool:
    return False
