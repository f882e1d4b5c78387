"""Work in slices: how much of the loop's time it gets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from topics.clock import ManualClock
from topics.loop.tasks import Future, Task
from topics.store.disk.time_slices import TimeSlices

_MS = 1_000_000


class Passes:
    """A loop whose passes last as long as the test says; in some, something arrives."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.arrivals = 0
        self.waiting: list[tuple[int, Future[None]]] = []
        """Waiting futures, each with the time from which on it may be resolved."""
        self.soon: list[Callable[[], object]] = []
        self.share = 2.0
        self.turns = TimeSlices(self, 2 * _MS, lambda: self.share)

    def next_pass(self) -> Future[None]:
        self.waiting.append((0, Future()))
        return self.waiting[-1][1]

    async def sleep(self, ns: int) -> None:
        self.waiting.append((self.clock.monotonic_ns() + ns, Future()))
        await self.waiting[-1][1]

    def go(self, ns: int, arrivals: int = 1) -> None:
        """Make a pass that takes so long, and in which so much arrives."""
        assert self.waiting
        self.clock.advance_ns(ns)
        self.arrivals += arrivals
        now_ns = self.clock.monotonic_ns()
        due = [future for at_ns, future in self.waiting if at_ns <= now_ns]
        self.waiting = [(at_ns, future) for at_ns, future in self.waiting if at_ns > now_ns]
        for future in due:
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


def test_a_rest_is_longer_where_the_work_is_not_urgent_and_the_difference_is_counted() -> None:
    passes = Passes()
    passes.share = 8
    passes.clock.advance_ns(2 * _MS)
    rest = passes.rest()
    for _ in range(15):
        passes.go(_MS)
        assert not rest.done
    passes.share = 2
    passes.go(_MS)
    assert rest.done
    assert passes.turns.given_ns == 12 * _MS


def test_beside_a_loop_where_nothing_arrives_for_a_moment_the_rest_ends() -> None:
    passes = Passes()
    passes.clock.advance_ns(5 * _MS)
    rest = passes.rest()
    passes.go(10_000, arrivals=0)
    passes.go(100_000)
    passes.go(50_000, arrivals=0)  # clients that have their answers send the next requests now
    assert not rest.done
    passes.go(50_000)
    assert not rest.done
    passes.go(100_000, arrivals=0)
    assert rest.done
    assert passes.turns.given_ns == 0


def test_a_rest_lasts_a_pass_also_after_no_time() -> None:
    passes = Passes()
    rest = passes.rest()
    assert not rest.done
    passes.go(0)
    assert rest.done


def test_waiting_is_no_work_and_0_is_no_limit() -> None:
    passes = Passes()
    passes.clock.advance_ns(5 * _MS)
    passes.turns.resume()
    assert not passes.turns.over
    endless = TimeSlices(passes, 0)
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
