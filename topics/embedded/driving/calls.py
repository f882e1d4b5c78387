"""Calls of the library from the caller's thread to the loop, and their answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from topics.common.values import arguments
from topics.engine.values.results import CheckpointResult, FlushResult
from topics.errors import TopicsError

R = TypeVar("R")
Start = Callable[[Callable[["R | TopicsError"], None]], object]
"""Function that begins a call on the engine. Its argument takes the result or the error, once."""


class PendingCall(Generic[R]):
    """One call, made by any thread, started and answered by the driving thread.

    Its thread sleeps only while the call has no answer and the thread was not asked to drive
    (`give_turn`). A call that a signal interrupted has `left`, perhaps for good: it continues
    without its thread.
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
        """Begin the call.

        An exception that it raises is its caller's error, and no other call's.
        """
        try:
            self.start(self.answer)
        except TopicsError as error:
            self.answer(error)
        except RuntimeError:
            raise  # of the ring: what it left undone is unknown
        except Exception as error:
            if self.answered:
                raise
            self.answer(error)

    def prepare_to_sleep(self) -> None:
        self._turn = threading.Lock()
        self._turn.acquire()

    def sleep(self) -> None:
        """Sleep until answered, or asked to drive."""
        assert self._turn is not None
        self._turn.acquire()

    def give_turn(self) -> None:
        if self._turn is not None:
            with contextlib.suppress(RuntimeError):  # it had its turn already
                self._turn.release()

    def result(self) -> R:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # None only until it is answered


def snapshot_of(result: CheckpointResult, timeout: float | None) -> int:
    """Return the number of the snapshot. Raises TimeoutError if the checkpoint has not ended."""
    if not result.done:
        raise arguments.timed_out("checkpoint", timeout)
    return result.snapshot


def flushed_of(result: FlushResult, timeout: float | None) -> int:
    """Return the seq up to which all is on stable storage.

    Raises: TimeoutError, the sync has not reached the record in time.
    """
    if not result.done:
        raise arguments.timed_out("sync", timeout)
    return result.synced_seq
