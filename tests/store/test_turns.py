"""Work in slices: how much of the loop's time it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topics.clock import ManualClock
from topics.loop.tasks import Future, Task
from topics.store.turns import Turns

_MS = 1_000_000


class Passes:
    """A loop whose passes last as long as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waiting: Future[None] | None = None
        self.soon: list[Callable[[], object]] = []
        self.turns = Turns(self.clock, self._next, 2 * _MS)

    def _next(self) -> Future[None]:
        self.waiting = Future()
        return self.waiting

    def go(self, ns: int) -> None:
        """One that takes so long."""
        assert self.waiting is not None
        self.clock.advance_ns(ns)
        waiting, self.waiting = self.waiting, None
        waiting.set_result(None)
        self.run()

    def call_soon(self, fn: Callable[[], object]) -> None:
        self.soon.append(fn)

    def on_task_end(self, task: Task[Any], *, observed: bool) -> None:
        pass

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def rest(self) -> Task[None]:
        task = Task(self, self.turns.rest(), "rest")
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
    endless = Turns(passes.clock, passes._next, 0)
    passes.clock.advance_ns(1000 * _MS)
    assert not endless.over
