"""Tasks, futures, events: steps happen in the loop, cancels at waits that can be given up."""

from __future__ import annotations

import pytest

from tests.loop.fake_ring import fake_loop
from topics.loop import Cancelled, Event, Future


def test_a_task_gives_its_result_to_every_awaiter() -> None:
    loop, _ = fake_loop()

    async def inner() -> int:
        await loop.sleep(5)
        return 7

    async def outer() -> int:
        return await loop.spawn(inner()) + 1

    assert loop.run_task(outer()) == 8


def test_sleep_takes_exactly_its_time_on_the_clock_of_the_loop() -> None:
    loop, _ = fake_loop()
    loop.run_task(loop.sleep(1_000_000))
    assert loop.clock.monotonic_ns() == 1_000_000


def test_an_exception_reaches_the_one_who_awaits_and_is_not_reported() -> None:
    loop, _ = fake_loop()
    reported: list[str] = []
    loop.on_error = lambda error, where: reported.append(where)

    async def fails() -> None:
        await loop.sleep(1)
        raise ValueError("no")

    async def outer() -> None:
        await loop.spawn(fails())

    with pytest.raises(ValueError, match="no"):
        loop.run_task(outer())
    assert reported == []


def test_an_exception_without_an_awaiter_is_reported_with_the_name_of_its_task() -> None:
    loop, _ = fake_loop()
    reported: list[tuple[str, str]] = []
    loop.on_error = lambda error, where: reported.append((str(error), where))

    async def fails() -> None:
        raise ValueError("no")

    loop.spawn(fails(), "checkpoint")
    loop.run_pass(0)
    assert reported == [("no", "task checkpoint")]


def test_a_cancelled_sleep_ends_at_once_and_runs_its_finally() -> None:
    loop, ring = fake_loop()
    ended: list[str] = []

    async def sleeps() -> None:
        try:
            await loop.sleep(10**9)
        finally:
            ended.append("finally")

    task = loop.spawn(sleeps())
    loop.run_pass(0)
    task.cancel()
    task.cancel()
    loop.run_pass(0)
    assert (ended, task.done) == (["finally"], True)
    with pytest.raises(Cancelled):
        task.result()
    loop.run_pass(5)
    assert ring.waits[-1] == 5, "the timer went with the task"


def test_a_task_cancelled_before_its_first_step_never_runs() -> None:
    loop, _ = fake_loop()
    ran: list[int] = []

    async def runs() -> None:
        ran.append(1)

    task = loop.spawn(runs())
    task.cancel()
    loop.run_pass(0)
    assert (task.done, ran) == (True, [])


def test_a_cancel_during_a_file_operation_waits_for_its_completion() -> None:
    loop, ring = fake_loop()
    seen: list[object] = []

    async def reads() -> None:
        seen.append(await loop.files.read(5, 4, 0))
        try:
            await loop.sleep(10**9)
        except Cancelled:
            seen.append("cancelled")
            raise

    task = loop.spawn(reads())
    loop.run_pass(0)
    read = ring.one("read")
    task.cancel()
    loop.run_pass(0)
    assert seen == [], "the buffer is the kernel's until the completion"
    read.arguments[1][:] = b"abcd"
    ring.complete(read, 4)
    loop.run_pass(0)
    assert seen == [b"abcd", "cancelled"]
    assert task.done


def test_a_task_may_catch_the_cancel_and_finish_its_clean_up() -> None:
    loop, _ = fake_loop()

    async def cleans() -> str:
        try:
            await loop.sleep(10**9)
        except Cancelled:
            await loop.sleep(3)
        return "clean"

    task = loop.spawn(cleans())
    loop.run_pass(0)
    task.cancel()
    loop.run_until(lambda: task.done)
    assert task.result() == "clean"


def test_an_event_wakes_all_who_wait_and_stays_set() -> None:
    loop, _ = fake_loop()
    event = Event()
    woken: list[int] = []

    async def waits(number: int) -> None:
        await event.wait()
        woken.append(number)

    for number in (1, 2):
        loop.spawn(waits(number))
    loop.run_pass(0)
    event.set()
    event.clear()
    loop.spawn(waits(3))
    loop.run_pass(0)
    assert woken == [1, 2]
    assert not event.is_set


def test_a_future_keeps_its_first_result() -> None:
    future: Future[int] = Future()
    future.set_result(1)
    future.set_error(ValueError())
    assert future.result() == 1


def test_ready_tasks_run_once_a_pass_so_that_io_never_starves() -> None:
    loop, ring = fake_loop()
    calls: list[int] = []

    def again() -> None:
        calls.append(1)
        loop.call_soon(again)

    loop.call_soon(again)
    loop.run_pass(None)
    loop.run_pass(None)
    assert calls == [1, 1]
    assert ring.waits == [0, 0]
