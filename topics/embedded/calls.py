"""Calls of the library on their way to the loop and back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from topics.errors import TopicsError

R = TypeVar("R")
Start = Callable[[Callable[["R | TopicsError"], None]], object]
"""Begins a call on the engine; its argument takes the result or the error, once."""


class PendingCall(Generic[R]):
    """One call: made by any thread, started and answered by whichever drives.

    Its thread sleeps at most while it is neither answered nor told to drive (`give_turn`). One that a signal
    interrupted has `left`, perhaps for good: its call goes on without it.
    """

    __slots__ = ("_turn", "answered", "left", "on_answer", "outcome", "start")

    def __init__(self, start: Start[R], on_answer: Callable[[PendingCall[R]], None] | None = None) -> None:
        self.start = start
        self.on_answer = on_answer
        self.outcome: R | BaseException | None = None
        self.answered = False
        self.left = False
        self._turn: threading.Lock | None = None

    def answer(self, outcome: R | BaseException) -> None:
        self.outcome = outcome
        self.answered = True
        if self.on_answer is not None:
            self.on_answer(self)
        self.give_turn()

    def begin(self) -> None:
        """What it raises is its caller's error, and nobody else's."""
        try:
            self.start(self.answer)
        except TopicsError as error:
            self.answer(error)
        except RuntimeError:
            raise  # of the ring: nobody knows what it left undone
        except Exception as error:
            if self.answered:
                raise
            self.answer(error)

    def prepare_to_sleep(self) -> None:
        self._turn = threading.Lock()
        self._turn.acquire()

    def sleep(self) -> None:
        """Until answered or told to drive."""
        assert self._turn is not None
        self._turn.acquire()

    def give_turn(self) -> None:
        if self._turn is not None:
            with contextlib.suppress(RuntimeError):  # had its turn already
                self._turn.release()

    def result(self) -> R:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # None only until it is answered
