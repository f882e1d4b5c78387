"""Long bodies take turns: with all other requests, and one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topics.config import Config
from topics.engine.bodies.long_bodies import LongBodies, Work


class Timers:
    """Runs what is due when a pass is made; one timer is one place in a pass."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    @property
    def clock(self) -> Any:
        raise AssertionError("steps are counted, not timed")

    def call_later(self, delay_ns: int, fn: Callable[[], None]) -> Any:
        assert delay_ns == 0
        self.due.append(fn)

    def another_pass(self, after_ns: int = 0) -> None:
        raise AssertionError("each body has a timer of its own")

    def run_pass(self) -> int:
        due, self.due = self.due, []
        for fn in due:
            fn()
        return len(due)


def test_a_pass_has_one_step_of_one_body_and_the_first_one_ends_before_the_second_begins() -> None:
    timers, seen = Timers(), list[str]()
    bodies = LongBodies(Config(), timers)

    def work(name: str, steps: int) -> Work:
        for step in range(steps):
            seen.append(f"{name}{step}")
            yield

    bodies.run(work("a", 3))
    bodies.run(work("b", 2))
    assert (seen, len(bodies)) == ([], 2), "nothing of it is done where it comes in"
    counts = []
    while timers.due:
        assert timers.run_pass() == 1
        counts.append(len(seen))
    assert seen == ["a0", "a1", "a2", "b0", "b1"]
    assert max(b - a for a, b in zip([0, *counts], counts, strict=False)) == 1
    assert len(bodies) == 0


def test_one_that_fails_by_a_bug_stops_none_of_the_others() -> None:
    timers, seen = Timers(), list[str]()
    bodies = LongBodies(Config(), timers)

    def fails() -> Work:
        yield
        raise RuntimeError("a bug")

    def works() -> Work:
        yield
        seen.append("done")

    bodies.run(fails())
    bodies.run(works())
    while timers.due:
        timers.run_pass()
    assert seen == ["done"]
