"""Coroutines that wait for the disk side by side, so many at a time, whose results are taken in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from topics.loop.tasks import Task

T = TypeVar("T")

Spawn = Callable[[Coroutine[Any, Any, T]], Task[T]]


async def side_by_side(
    spawn: Spawn[T], coros: Iterator[Coroutine[Any, Any, T]], most: int, take: Callable[[T], None]
) -> None:
    """Runs `most` of them at a time and gives `take` each result, in order.

    After an error no other begins; what it was is raised when those that run have ended, the first in their order.
    """
    running: deque[Task[T]] = deque()
    failure: Exception | None = None
    more = True
    try:
        while True:
            while more and failure is None and len(running) < most:
                coro = next(coros, None)
                more = coro is not None
                if coro is not None:
                    task = spawn(coro)
                    task.when_done(_nothing)  # it may end before its turn comes: its error is raised here, not reported
                    running.append(task)
            if not running:
                break
            try:
                result = await running.popleft()
                if failure is None:
                    take(result)
            except Exception as error:
                failure = failure or error
    finally:
        for task in running:  # when this is cancelled
            task.cancel()
    if failure is not None:
        raise failure


async def all_of(spawn: Spawn[None], coros: Iterator[Coroutine[Any, Any, None]], most: int) -> None:
    """The same for what has no result."""
    await side_by_side(spawn, coros, most, lambda _none: None)


def _nothing() -> None:
    pass
