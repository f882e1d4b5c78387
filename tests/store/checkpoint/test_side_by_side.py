"""Coroutines side by side: how many at a time, whose results count, and which error is raised."""

from __future__ import annotations

import errno
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.sim import SimRing
from topics.errors import CorruptError
from topics.loop import Loop
from topics.loop.tasks import Future
from topics.store.disk.side_by_side import Line, side_by_side

FULL = OSError(errno.ENOSPC, "No space left")
BROKEN = OSError(errno.EIO, "Input/output error")


class World:
    """Workers that end when the test says, with a result or an error."""

    def __init__(self, most: int = 3) -> None:
        ring = SimRing(0)
        self.loop = Loop(ring, ring.clock)
        self.ends: dict[int, Future[None]] = {}
        """The number of those that run."""
        self.taken: list[int] = []
        self.most = most
        self.line = Line(self.loop.spawn, lambda: self.most, self.taken.append)

    async def work(self, number: int) -> int:
        self.ends[number] = Future()
        try:
            await self.ends[number]
        finally:
            del self.ends[number]
        return number

    def begin(self, *numbers: int) -> Any:
        async def each() -> None:
            for number in numbers:
                await self.line.begin(self.work(number))
            await self.line.end()

        task = self.loop.spawn(each())
        task.when_done(lambda: None)
        self.passes()
        return task

    def end(self, number: int, error: Exception | None = None) -> None:
        future = self.ends[number]
        if error is None:
            future.set_result(None)
        else:
            future.set_error(error)
        self.passes()

    def passes(self) -> None:
        for _ in range(10):
            self.loop.run_pass(0)


def test_results_are_taken_in_the_order_of_the_beginnings() -> None:
    world = World()
    task = world.begin(1, 2, 3, 4)
    assert set(world.ends) == {1, 2, 3}
    world.end(3)
    world.end(2)
    assert (world.taken, set(world.ends)) == ([], {1})
    world.end(1)
    assert (world.taken, set(world.ends)) == ([1, 2, 3], {4})
    world.end(4)
    assert world.taken == [1, 2, 3, 4]
    assert task.done


def test_behind_one_that_failed_none_is_taken_and_none_begins() -> None:
    world = World()
    task = world.begin(1, 2, 3, 4)
    world.end(2, FULL)
    world.end(3)
    world.end(1)
    assert world.taken == [1]
    assert not world.ends
    with pytest.raises(OSError, match="No space"):
        task.result()


@pytest.mark.parametrize("grave", [BROKEN, CorruptError("damaged", {})])
def test_of_several_errors_the_one_is_told_that_is_more_than_a_lack_of_space(grave: Exception) -> None:
    world = World()
    task = world.begin(1, 2, 3)
    world.end(1, FULL)
    world.end(2, OSError(errno.EMFILE, "Too many open files"))
    assert not task.done, "the third still runs"
    world.end(3, grave)
    with pytest.raises(type(grave), match=str(grave).split("] ", 1)[-1]):
        task.result()


def test_a_disk_that_fails_is_told_though_a_damaged_record_came_first() -> None:
    world = World()
    task = world.begin(1, 2, 3)
    world.end(1, CorruptError("damaged", {}))
    world.end(2, FULL)
    world.end(3, BROKEN)
    with pytest.raises(OSError, match="Input/output error"):
        task.result()


def test_a_result_that_cannot_be_taken_is_an_error_like_others() -> None:
    world = World()

    def refuse(number: int) -> None:
        raise CorruptError(f"{number}", {})

    def each() -> Iterator[Coroutine[Any, Any, int]]:
        yield from (world.work(number) for number in (1, 2, 3))

    task = world.loop.spawn(side_by_side(world.loop.spawn, each(), 2, refuse))
    task.when_done(lambda: None)
    world.passes()
    world.end(1)
    assert not task.done, "the second still runs"
    world.end(2)
    with pytest.raises(CorruptError, match="1"):
        task.result()
    assert not world.ends


def test_more_run_at_a_time_from_the_moment_on_at_which_more_may() -> None:
    world = World(most=1)
    world.begin(1, 2, 3, 4)
    assert set(world.ends) == {1}
    world.most = 3
    world.end(1)
    assert set(world.ends) == {2, 3, 4}
    world.most = 1
    for number in (2, 3, 4):
        world.end(number)
    assert world.taken == [1, 2, 3, 4]
