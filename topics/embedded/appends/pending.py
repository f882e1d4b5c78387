"""Appends that nothing waits for yet: an answer that comes, and an object to wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topics.common.values import arguments
from topics.engine.values.results import AppendResult
from topics.errors import UsageError

if TYPE_CHECKING:
    from topics.embedded.driving.driver import Driver

R_co = TypeVar("R_co", covariant=True)
Outcome = AppendResult | BaseException

_log = logging.getLogger("topics.embedded")


class Answer:
    """The outcome of one request, for one `Pending` or for several that share it.

    outcome: None until answered; a list if each record has one of its own.
    """

    __slots__ = ("_calls", "_driver", "outcome")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.outcome: Outcome | list[Outcome] | None = None
        self._calls: deque[Callable[[], None]] = deque()

    def answer(self, outcome: Outcome | list[Outcome]) -> None:
        """Set the outcome, and make the calls that wait for it. Runs on the driving thread."""
        self.outcome = outcome
        self._call_all()

    def is_there(self) -> bool:
        """Return whether it was answered. Raises: UsageError in a forked child if it never will."""
        if self.outcome is not None:
            return True
        self._driver.check_process()
        return False

    def when_answered(self, call: Callable[[], None]) -> None:
        """Make a call once answered, on the driving thread, or now. Any thread may ask.

        Raises: UsageError as `is_there`.
        """
        self.is_there()
        self._calls.append(call)
        if self.outcome is not None:
            self._call_all()

    def wait(self, wait_ms: int | None) -> None:
        """Return once answered, or after so long. Raises as a call of the driver does."""
        self.hurry()
        if self.outcome is None:
            self._driver.wait_for(self.when_answered, wait_ms)

    def hurry(self, *, here: bool = True) -> None:
        """Have the request begun. here: by this thread, if no other drives."""

    def outcome_of(self, index: int) -> Any:
        """Return the result or the exception of one of those that share it, once answered."""
        outcome = self.outcome
        assert outcome is not None, "it was answered"
        return outcome[index] if isinstance(outcome, list) else outcome

    def _call_all(self) -> None:
        calls = self._calls
        while calls:
            with contextlib.suppress(IndexError):  # another thread makes them, too
                calls.popleft()()


class Pending(Generic[R_co]):
    """An append in progress. Any thread may ask it."""

    __slots__ = ("_answer", "_index")

    def __init__(self, answer: Answer, index: int) -> None:
        """index: of this append among those that share the answer."""
        self._answer = answer
        self._index = index

    def done(self) -> bool:
        """Return whether `result` would return, or raise the append's error, at once.

        Raises: UsageError in a forked child if there was no result at the fork, as all calls do.
        """
        return self._answer.is_there()

    def result(self, timeout: float | None = None) -> R_co:
        """Return the result, once the topic's class is met. Raises the errors of `append`.

        timeout: in seconds.
        Raises: TimeoutError if there is no result by then; the append continues.
        """
        answer = self._answer
        wait_ms = None if timeout is None else arguments.optional_milliseconds("timeout", timeout)
        if answer.outcome is None:
            answer.wait(wait_ms)
            if answer.outcome is None:
                raise arguments.timed_out("append", timeout)
        outcome = answer.outcome_of(self._index)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def add_done_callback(self, fn: Callable[[Pending[R_co]], object]) -> None:
        """Call `fn` with this object once there is a result, or now.

        It runs on the thread that drives the log then, where no call of the log may wait. An
        exception that it raises is logged.
        """
        if not callable(fn):
            raise UsageError(f"fn is {arguments.shown(fn)}: use a function that takes the Pending")
        self._answer.when_answered(partial(self._call, fn))

    def __await__(self) -> Generator[Any, None, R_co]:
        answer = self._answer
        if answer.outcome is None:
            loop = asyncio.get_running_loop()
            future = loop.create_future()

            def wake() -> None:
                # the event loop is closed, so nothing waits any more
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_settle, future)

            answer.when_answered(wake)
            answer.hurry(here=False)
            yield from future
        return self.result()

    def _call(self, fn: Callable[[Pending[R_co]], object]) -> None:
        try:
            fn(self)
        except BaseException:
            _log.exception("a callback of an append raised an exception")


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():  # the await was cancelled
        future.set_result(None)
