"""Timers: due times, order, lazy cancel."""

from __future__ import annotations

from tests.loop.fake_ring import fake_loop
from topics.loop.timers import Timer, Timers


def test_timers_fire_in_order_of_time_then_of_making() -> None:
    loop, ring = fake_loop()
    fired: list[str] = []
    loop.call_later(20, lambda: fired.append("late"))
    loop.call_later(10, lambda: fired.append("first"))
    loop.call_later(10, lambda: fired.append("second"))
    loop.run_pass(None)
    assert (fired, ring.waits) == (["first", "second"], [10])
    loop.run_pass(5)
    assert fired == ["first", "second"]
    loop.run_pass(None)
    assert (fired[-1], ring.waits) == ("late", [10, 5, 5])


def test_a_timer_cancelled_by_one_that_fires_with_it_does_not_fire() -> None:
    loop, _ = fake_loop()
    fired: list[int] = []
    later: list[Timer] = []
    timer = loop.call_later(10, lambda: [late.cancel() for late in later] and None)
    later.append(second := loop.call_later(10, lambda: fired.append(1)))
    loop.run_pass(None)
    loop.run_pass(100)
    assert (fired, timer.pending, second.pending) == ([], False, False)


def test_a_timer_that_starts_itself_again_waits_for_the_next_pass() -> None:
    loop, _ = fake_loop()
    fired: list[int] = []

    def again() -> None:
        fired.append(1)
        loop.call_later(0, again)

    loop.call_later(0, again)
    loop.run_pass(None)
    assert fired == [1]


def test_cancelled_timers_leave_the_heap() -> None:
    timers = Timers()
    kept = timers.add(5_000, lambda: None)
    for number in range(1_000):
        timers.add(number, lambda: None).cancel()
    assert len(timers) == 1
    assert len(timers._heap) < 200
    assert timers.next_due_ns() == kept.due_ns
    kept.cancel()
    assert timers.next_due_ns() is None
    assert len(timers) == 0
