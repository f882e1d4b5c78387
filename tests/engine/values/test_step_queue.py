"""Work in steps: a bounded number in a pass of the loop, however often its end is run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.loop.fake_ring import fake_loop
from topics.engine.values.step_queue import StepQueue
from topics.loop.loop import Loop, PassEnd


def _work(loop: Loop, count: int, done: list[int]) -> Iterator[None]:
    for number in range(count):
        done.append(number)
        loop.again()  # as a commit that has ended does
        yield


def test_a_pass_whose_end_is_run_again_takes_the_steps_of_one() -> None:
    loop, _ring = fake_loop()
    queue = StepQueue(loop, 3)
    loop.on_pass_end(queue.next_pass, PassEnd.WAITERS)
    done: list[int] = []
    ended: list[int] = []
    queue.run(_work(loop, 10, done), lambda: ended.append(len(done)))
    counts = [len(done)]
    while queue:
        loop.run_pass(0)
        counts.append(len(done))
    assert counts == [3, 3, 6, 9, 10], "what came before the first pass are the steps of that pass"
    assert ended == [10]


def test_work_that_comes_when_none_waits_begins_at_once() -> None:
    loop, _ring = fake_loop()
    queue = StepQueue(loop, 3)
    loop.on_pass_end(queue.next_pass, PassEnd.WAITERS)
    for _ in range(2):
        done: list[int] = []
        queue.run(_work(loop, 2, done))
        assert len(done) == 2
        loop.run_pass(0)


def test_work_that_comes_in_a_pass_takes_no_more_steps_at_the_end_of_that_pass() -> None:
    """Twice the steps of a pass were a pass of twice the time."""
    loop, _ring = fake_loop()
    queue = StepQueue(loop, 3)
    loop.on_pass_end(queue.next_pass, PassEnd.WAITERS)
    done: list[int] = []
    loop.call_soon(lambda: queue.run(_work(loop, 8, done)))
    counts = []
    while len(done) < 8:
        assert not loop.is_quiet(0), "each pass asks for the next one"
        loop.run_pass(0)
        counts.append(len(done))
    assert counts == [3, 6, 8]
