"""Coroutines that wait for the disk side by side, a bounded number at a time.

Their results are taken in the order in which they were begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, TypeVar

from topics.errors import StorageError
from topics.loop.tasks import Task
from topics.store.disk.disk_space import lacks_space
from topics.store.disk.whole_files import lacks_descriptors

T = TypeVar("T")

Spawn = Callable[[Coroutine[Any, Any, T]], Task[T]]


class Line(Generic[T]):
    """Coroutines begun one by one, of which `most()` run at a time, by the answer of the moment.

    `take` gets each result, in that order.

    After an error no other coroutine begins and no result is taken. When the running ones have
    ended, the gravest error is raised.
    """

    def __init__(self, spawn: Spawn[T], most: Callable[[], int], take: Callable[[T], None]) -> None:
        self._spawn = spawn
        self._most = most
        self._take = take
        self._running: deque[Task[T]] = deque()
        self._failures: list[Exception] = []

    async def begin(self, coro: Coroutine[Any, Any, T]) -> None:
        """Begin a coroutine once there is room. Raises the error of one begun before it."""
        try:
            while self.is_full:
                await self.next()
            if self._failures or any(task.done and task.error is not None for task in self._running):
                await self.end()
        except BaseException:
            coro.close()
            raise
        task = self._spawn(coro)
        task.observe()  # it may end before it is awaited
        self._running.append(task)

    async def end(self) -> None:
        """Return when all have ended. Raises the error of one of them, once."""
        while self._running:
            await self.next()
        failures, self._failures = self._failures, []
        if failures:
            raise gravest(failures)

    @property
    def is_full(self) -> bool:
        """Whether no other coroutine begins before a running one has ended."""
        return len(self._running) >= self._most()

    @property
    def is_empty(self) -> bool:
        """Whether no coroutine runs and all results were taken."""
        return not self._running

    async def next(self) -> None:
        """Take the result of the coroutine that was begun first. Its error is raised later."""
        try:
            result = await self._running.popleft()
            if not self._failures:
                self._take(result)
        except Exception as error:
            self._failures.append(error)

    def cancel(self) -> None:
        """Cancel the running coroutines."""
        for task in self._running:
            task.cancel()


async def side_by_side(
    spawn: Spawn[T], coros: Iterator[Coroutine[Any, Any, T]], most: int, take: Callable[[T], None]
) -> None:
    """Run all coroutines as a Line, `most` at a time."""
    line = Line(spawn, lambda: most, take)
    try:
        for coro in coros:
            await line.begin(coro)
        await line.end()
    finally:
        line.cancel()


async def all_of(spawn: Spawn[None], coros: Iterator[Coroutine[Any, Any, None]], most: int) -> None:
    """Run all coroutines, which have no results, as a Line."""
    await side_by_side(spawn, coros, most, lambda _none: None)


def gravest(errors: Sequence[Exception]) -> Exception:
    """Return the first error of the gravest kind.

    Kinds, gravest first: a failing disk, which stops the log; a damaged record; a lack of space or
    of descriptors. After the last two the work is tried again, and then a sync that failed before
    would succeed.
    """
    return max(errors, key=_gravity)  # `max` returns the first of several


def _gravity(error: Exception) -> int:
    if lacks_space(error) or (isinstance(error, OSError) and lacks_descriptors(error)):
        return 0
    return 1 if isinstance(error, StorageError) else 2
