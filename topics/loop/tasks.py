"""Coroutines for work of many steps that is not hot: tasks, futures, events.

A coroutine waits for one thing only, a `Future`; everything else (a file operation, a timer,
another task, an event) resolves one. A task is made ready by its future and stepped by the loop,
never from inside a completion.

Cancelling a task throws `Cancelled` into it at its wait. A wait for a file operation is not given
up, because its buffer is the kernel's until the completion; the cancel is then thrown at the next
wait that can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")


class Cancelled(BaseException):
    """The exception thrown into a cancelled task, and into the tasks that await it."""


class Runner(Protocol):
    """The part of a loop that a task uses."""

    def call_soon(self, fn: Callable[[], None]) -> None: ...

    def on_task_end(self, task: Task[Any], *, observed: bool) -> None: ...


class Future(Generic[T]):
    """A result that comes once.

    `interruptible=False`: its waiters must see the operation's completion.
    """

    __slots__ = ("_error", "_result", "_waiters", "done", "interruptible")

    def __init__(self, *, interruptible: bool = True) -> None:
        self.done = False
        self.interruptible = interruptible
        self._result: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Callable[[], None]] = []

    def set_result(self, result: T) -> None:
        """Set the result, unless there is one."""
        if not self.done:
            self._result = result
            self._finish()

    def set_error(self, error: BaseException) -> None:
        if not self.done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.done = True
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def result(self) -> T:
        """Return the result, or raise the error. Only once `done`."""
        assert self.done, "result() before the end"
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def when_done(self, fn: Callable[[], None]) -> None:
        """Call `fn` when the result comes; at once if it is there."""
        if self.done:
            fn()
        else:
            self._waiters.append(fn)

    def observe(self) -> None:
        """Have an error raised by what asks for the result, and not reported before that."""
        self.when_done(_nothing)

    def forget(self, fn: Callable[[], None]) -> None:
        """Undo `when_done`."""
        if fn in self._waiters:
            self._waiters.remove(fn)

    def __await__(self) -> Generator[Future[Any], None, T]:
        if not self.done:
            yield self
        return self.result()


class MarkedSteps(Generic[T]):
    """A coroutine with a mark that is set while it runs, and not while it waits."""

    __slots__ = ("_coro", "_mark")

    def __init__(self, coro: Coroutine[Any, Any, T], mark: Callable[[bool], None]) -> None:
        self._coro = coro
        self._mark = mark

    def send(self, value: None) -> Any:
        self._mark(True)
        try:
            return self._coro.send(value)
        finally:
            self._mark(False)

    def throw(self, error: BaseException) -> Any:
        self._mark(True)
        try:
            return self._coro.throw(error)
        finally:
            self._mark(False)

    def close(self) -> None:
        self._coro.close()


class Task(Future[T]):
    """A running coroutine; awaitable for its result."""

    __slots__ = ("_coro", "_must_cancel", "_runner", "_started", "_throw", "_waiting_on", "name")

    def __init__(self, runner: Runner, coro: Coroutine[Any, Any, T] | MarkedSteps[T], name: str) -> None:
        super().__init__()
        self.name = name or getattr(coro, "__qualname__", "task")
        self._runner = runner
        self._coro = coro
        self._waiting_on: Future[Any] | None = None
        self._started = False
        self._throw = False
        self._must_cancel = False
        runner.call_soon(self._step)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} {'done' if self.done else 'running'}>"

    def cancel(self) -> None:
        """Ask the task to end, after its operation in flight and its `finally` blocks.

        Tasks that await it get `Cancelled`; a task that it awaits itself continues.
        """
        if self.done or self._throw:
            return
        waiting_on = self._waiting_on
        if not self._started:
            self._throw = True
        elif waiting_on is not None and waiting_on.interruptible:
            self._throw = True
            waiting_on.forget(self._wake)
            self._wake()
        else:
            self._must_cancel = True

    def _wake(self) -> None:
        self._waiting_on = None
        self._runner.call_soon(self._step)

    def _step(self) -> None:
        """Run the coroutine to its next wait, or to its end."""
        self._started = True
        throw, self._throw = self._throw, False
        try:
            while True:
                waiting_on = self._coro.throw(Cancelled()) if throw else self._coro.send(None)
                assert isinstance(waiting_on, Future), "await only what the loop gives out"
                throw = self._must_cancel and waiting_on.interruptible
                if not throw:
                    break
                self._must_cancel = False
        except StopIteration as stop:
            self._end(stop.value, None)
        except (Exception, Cancelled) as error:
            self._end(None, error)
        else:
            self._waiting_on = waiting_on
            waiting_on.when_done(self._wake)

    def _end(self, result: Any, error: BaseException | None) -> None:
        observed = bool(self._waiters)
        if error is None:
            self.set_result(result)
        else:
            self.set_error(error)
        self._runner.on_task_end(self, observed=observed)

    @property
    def error(self) -> BaseException | None:
        return self._error


class Event:
    """A flag that tasks wait for. `set` wakes all waiting tasks; it stays set until `clear`."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: Future[None] = Future()

    @property
    def is_set(self) -> bool:
        return self._future.done

    def set(self) -> None:
        self._future.set_result(None)

    def clear(self) -> None:
        if self._future.done:
            self._future = Future()

    async def wait(self) -> None:
        await self._future


def _nothing() -> None:
    pass
