"""Work in slices: how much of the loop's time it gets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from topics.clock import ManualClock
from topics.loop.tasks import Future, Task
from topics.store.disk.time_slices import TimeSlices

_MS = 1_000_000


class Passes:
    """A loop whose passes last as long as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waiting: list[Future[None]] = []
        self.soon: list[Callable[[], object]] = []
        self.turns = TimeSlices(self.clock, self._next, 2 * _MS)

    def _next(self) -> Future[None]:
        self.waiting.append(Future())
        return self.waiting[-1]

    def go(self, ns: int) -> None:
        """One that takes so long."""
        assert self.waiting
        self.clock.advance_ns(ns)
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.set_result(None)
        self.run()

    def call_soon(self, fn: Callable[[], object]) -> None:
        self.soon.append(fn)

    def on_task_end(self, task: Task[Any], *, observed: bool) -> None:
        pass

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def rest(self) -> Task[None]:
        return self._start(self.turns.rest())

    def turn(self) -> Task[None]:
        return self._start(self.turns.turn())

    def _start(self, coro: Coroutine[Any, Any, None]) -> Task[None]:
        task = Task(self, coro, "work")
        self.run()
        return task


def test_after_a_slice_come_passes_that_last_twice_as_long() -> None:
    passes = Passes()
    passes.clock.advance_ns(_MS)
    assert not passes.turns.over
    passes.clock.advance_ns(2 * _MS)
    assert passes.turns.over
    rest = passes.rest()
    for _ in range(5):
        passes.go(_MS)
        assert not rest.done
    passes.go(_MS)
    assert rest.done
    assert not passes.turns.over


def test_beside_a_loop_with_nothing_to_do_the_rest_is_one_pass() -> None:
    passes = Passes()
    passes.clock.advance_ns(5 * _MS)
    rest = passes.rest()
    passes.go(10_000)
    assert rest.done


def test_waiting_is_no_work_and_0_is_no_limit() -> None:
    passes = Passes()
    passes.clock.advance_ns(5 * _MS)
    passes.turns.resume()
    assert not passes.turns.over
    endless = TimeSlices(passes.clock, passes._next, 0)
    passes.clock.advance_ns(1000 * _MS)
    assert not endless.over


def test_pieces_of_several_tasks_are_one_slice_and_what_they_wait_for_is_no_work() -> None:
    passes = Passes()
    turns = passes.turns
    for _ in range(2):
        passes.clock.advance_ns(50 * _MS)
        assert passes.turn().done
        with turns.working():
            passes.clock.advance_ns(_MS)
    first, second = passes.turn(), passes.turn()
    for _ in range(3):
        passes.go(_MS)
    assert not first.done
    passes.go(_MS)
    assert (first.done, second.done) == (True, True)


def test_the_slice_behind_a_rest_is_shared_by_those_who_rested() -> None:
    passes = Passes()
    turns = passes.turns
    with turns.working():
        passes.clock.advance_ns(2 * _MS)
    done: list[int] = []

    async def work(number: int) -> None:
        await turns.turn()
        with turns.working():
            passes.clock.advance_ns(2 * _MS)
        done.append(number)

    tasks = [Task(passes, work(number), "work") for number in (1, 2)]
    passes.run()
    passes.go(4 * _MS)
    assert done == [1]
    passes.go(4 * _MS)
    assert done == [1, 2]
    assert all(task.done for task in tasks)


def test_work_in_a_hurry_rests_for_one_pass_after_longer_slices() -> None:
    passes = Passes()
    passes.clock.advance_ns(5 * _MS)
    rest = passes.rest()
    passes.go(_MS)
    assert not rest.done
    passes.turns.hurry()
    passes.go(_MS)
    assert rest.done
    passes.clock.advance_ns(4 * _MS)
    assert not passes.turns.over
    passes.clock.advance_ns(_MS)
    assert passes.turns.over
    rest = passes.rest()
    passes.go(_MS)
    assert rest.done
