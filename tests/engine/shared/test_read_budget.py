"""Reads in turn: a pass of the loop renders one budget of bytes, in whatever part of it they come."""

from __future__ import annotations

from functools import partial

from tests.loop.fake_ring import fake_loop
from topics.engine.shared.read_turns import ReadTurns
from topics.loop.loop import Loop, PassEnd


def _three_a_pass() -> tuple[Loop, ReadTurns]:
    """Return a loop, and turns with a budget of three bytes a pass."""
    loop, _ring = fake_loop()
    turns = ReadTurns(loop, 3)
    loop.on_pass_end(turns.next_pass, PassEnd.WAITERS)
    return loop, turns


def _reads(loop: Loop, turns: ReadTurns, count: int, done: list[int]) -> None:
    """Begin so many reads of a byte each, whose commits have the end of the pass run again."""

    def read(number: int) -> None:
        turns.spend(1)
        done.append(number)
        loop.again()

    for number in range(count):
        turns.take(partial(read, number))


def _counts(loop: Loop, done: list[int], count: int) -> list[int]:
    """Return how many reads were done after each pass."""
    counts = []
    while len(done) < count:
        assert not loop.is_quiet(0), "each pass asks for the next one"
        loop.run_pass(0)
        counts.append(len(done))
    return counts


def test_reads_that_come_in_a_pass_have_no_second_budget_at_its_end() -> None:
    """Twice the bytes were a pass of twice the time."""
    loop, turns = _three_a_pass()
    done: list[int] = []
    loop.call_soon(partial(_reads, loop, turns, 8, done))
    assert _counts(loop, done, 8) == [3, 6, 8]
    assert done == list(range(8)), "in the order in which they came"


def test_a_pass_whose_end_is_run_again_renders_one_budget() -> None:
    """A commit in place ends within the pass, which runs its end again."""
    loop, turns = _three_a_pass()
    done: list[int] = []
    turns.take(partial(_reads, loop, turns, 8, done))
    counts = _counts(loop, done, 8)
    assert all(later - earlier <= 3 for earlier, later in zip([0, *counts], counts, strict=False)), counts


def test_a_step_that_waits_for_the_end_of_its_pass_spends_what_that_pass_has_left() -> None:
    loop, turns = _three_a_pass()
    done: list[int] = []
    loop.call_soon(lambda: turns.take_later(partial(_reads, loop, turns, 2, done)))
    loop.run_pass(0)
    assert done == [0, 1]
