"""Threads taking turns at one loop: every caller is answered, whichever thread drives."""

import itertools
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from topics.clock import SystemClock
from topics.config import Config
from topics.embedded.driving.calls import PendingCall
from topics.embedded.driving.driver import Driver
from topics.errors import LogFailedError, TopicsError, UsageError
from topics.loop import Loop
from topics.loop.choose import open_ring
from topics.loop.tasks import Task
from topics.uring.probe import probe

ENGINES = ["portable", "uring"]


def nothing() -> None:
    """No caller waits for an answer."""


class Disk:
    """Stands in for the engine: a call is one write to a file, answered by its completion."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self.loop = loop
        self.fd = loop.run_task(loop.files.open(str(path), os.O_CREAT | os.O_RDWR))
        self.threads: set[str] = set()

    def write(self, offset: int) -> Callable[[Callable[[Any], None]], None]:
        def start(done: Callable[[Any], None]) -> None:
            self.threads.add(threading.current_thread().name)
            self.loop.files.write_nowait(self.fd, bytes([offset % 251]), offset, done)

        return start


@pytest.fixture(params=ENGINES)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "uring" and not probe().ok:
        pytest.skip(probe().reason)
    ring, _ = open_ring(Config(io=request.param), shared=True)
    loop = Loop(ring, SystemClock())
    yield Disk(loop, tmp_path / "file")
    loop.close()


def started(disk: Disk) -> Driver:
    """Return a driver with the maintenance thread."""
    driver = Driver(disk.loop)
    driver.start()
    return driver


def test_a_single_caller_drives_the_loop_itself(disk: Disk) -> None:
    driver = started(disk)
    assert driver.call(disk.write(0)) == 1
    assert disk.threads == {threading.current_thread().name}
    driver.end(nothing)


def test_many_threads_are_all_answered_and_may_end_at_once(disk: Disk, tmp_path: Path) -> None:
    driver = started(disk)
    count_per_thread, thread_count = 50, 8

    def work(first: int) -> None:
        for number in range(count_per_thread):
            assert driver.call(disk.write(first + number)) == 1

    threads = [threading.Thread(target=work, args=(index * count_per_thread,)) for index in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a caller was left asleep"
    driver.end(nothing)
    total = thread_count * count_per_thread
    assert (tmp_path / "file").read_bytes() == bytes(offset % 251 for offset in range(total))


def test_a_call_returns_while_optional_work_waits_for_a_disk_that_does_not_answer(disk: Disk) -> None:
    if disk.loop.ring.name == "portable":
        pytest.skip("its one thread for files would wait, too")
    reads, writes = os.pipe()
    driver = Driver(disk.loop)
    tasks: list[Task[bytes]] = []

    def start(done: Callable[[Any], None]) -> None:
        tasks.append(disk.loop.spawn(disk.loop.files.read(reads, 1, 0), is_optional=True))
        disk.loop.files.write_nowait(disk.fd, b"x", 0, done)

    answered, checked = threading.Event(), threading.Event()

    def call() -> None:
        if driver.call(start) == 1:
            answered.set()
        checked.wait(30)  # the operation ends with this thread

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert answered.wait(30)
    assert disk.loop.files.optional == 1
    os.write(writes, b"y")
    disk.loop.run_until(lambda: tasks[0].done)
    assert disk.loop.files.optional == 0
    checked.set()
    thread.join()
    os.close(reads)
    os.close(writes)


def test_a_call_runs_exclusively_only_when_no_work_is_due(disk: Disk) -> None:
    driver = started(disk)
    assert driver.call(disk.write(0)) == 1
    refused: list[str | None] = []
    answered = threading.Event()

    def run(_: None) -> str:
        thread = threading.Thread(target=lambda: refused.append(driver.run_exclusively(str, "beside it")))
        thread.start()
        thread.join()
        driver._inbox.append(PendingCall(disk.write(1), lambda _call: answered.set()))
        return "done"

    assert driver.run_exclusively(run, None) == "done"
    assert refused == [None]
    assert answered.wait(30), "who left woke nobody for the call that came meanwhile"
    driver.end(nothing)
    assert driver.run_exclusively(str, "after the end") is None


def test_work_that_is_due_is_done_before_an_exclusive_call(disk: Disk) -> None:
    line: list[str] = []
    driver = Driver(disk.loop, line=line)
    done: list[str] = []
    disk.loop.call_soon(lambda: done.append("due"))
    assert driver.run_exclusively(lambda text: done.append(text) or text, "mine") == "mine"  # type: ignore[func-returns-value]
    assert done == ["due", "mine"]
    line.append("an append")
    disk.loop.call_soon(lambda: done.append("due again"))
    assert driver.run_exclusively(str, "an append waits for room by then") is None
    assert done[2:] == ["due again"]
    disk.loop.call_soon(lambda: done.append("left to a call"))
    thread = threading.Thread(target=lambda: done.append(str(driver.run_exclusively(str, "of a thread that may end"))))
    thread.start()
    thread.join()
    assert done[3:] == ["None"]


def test_a_failure_of_work_that_is_due_ends_the_driver_and_leaves_it_to_nobody(disk: Disk) -> None:
    driver = Driver(disk.loop)
    disk.loop.call_soon(lambda: 1 / 0)
    with pytest.raises(LogFailedError, match="ZeroDivisionError"):
        driver.run_exclusively(str, "mine")
    assert driver._driving_lock.acquire(blocking=False)


def test_an_unexpected_error_of_an_exclusive_call_ends_the_driver(disk: Disk) -> None:
    def fail(_: None) -> None:
        raise ZeroDivisionError("a bug")

    driver = started(disk)
    assert driver.call(disk.write(0)) == 1
    with pytest.raises(ZeroDivisionError):
        driver.run_exclusively(fail, None)
    with pytest.raises(LogFailedError, match="a bug"):
        driver.call(disk.write(1))


def test_a_caller_that_cannot_wait_is_served_by_the_maintenance_thread(disk: Disk) -> None:
    driver = started(disk)
    answered = threading.Event()
    outcomes: list[Any] = []

    def on_answer(outcome: Any) -> None:
        outcomes.append(outcome)
        answered.set()

    driver.submit(disk.write(0), on_answer)
    assert answered.wait(10)
    assert outcomes == [1]
    assert disk.threads == {"topics-maintenance"}
    driver.end(nothing)


def test_the_maintenance_thread_goes_on_at_once_when_a_call_in_another_thread_has_ended(disk: Disk) -> None:
    """It slept until the next timer: an awaited backup took ten times as long as one that a thread waits for."""
    driver = started(disk)
    answered = threading.Event()

    def after_this_turn() -> int:
        with driver.maintenance._turn:
            return 7

    async def work(done: Callable[[Any], None]) -> None:
        done(await disk.loop.files.to_thread(after_this_turn))

    driver.submit(lambda done: disk.loop.spawn(work(done)), lambda _outcome: answered.set())
    assert answered.wait(10)
    driver.end(nothing)


@pytest.mark.parametrize("woken_in", [1, 2, 3])
def test_a_turn_that_was_woken_in_any_of_its_passes_ends_with_a_ring_that_shows_the_next_wake(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, woken_in: int
) -> None:
    """The thread waits for the ring's descriptor after it, and slept through a call of another thread."""
    driver = Driver(disk.loop)
    make_pass, passes = disk.loop.run_pass, itertools.count(1)

    def run_pass(timeout_ns: int | None) -> None:
        if next(passes) == woken_in:
            disk.loop.ring.wake()
        make_pass(timeout_ns)

    monkeypatch.setattr(disk.loop, "run_pass", run_pass)
    driver._drive_turn()
    disk.loop.ring.wake()
    shown = select.poll()
    shown.register(disk.loop.ring.ready_fd, select.POLLIN)
    assert shown.poll(10_000)


def test_timers_run_without_calls(disk: Disk) -> None:
    driver = started(disk)
    rang = threading.Event()

    def start(done: Callable[[Any], None]) -> None:
        disk.loop.call_later(1_000_000, rang.set)
        done(None)

    driver.call(start)
    assert rang.wait(10)
    driver.end(nothing)


def test_an_error_of_the_engine_reaches_its_caller_only(disk: Disk) -> None:
    driver = started(disk)

    def refuse(_done: Callable[[Any], None]) -> None:
        raise TopicsError("no")

    with pytest.raises(TopicsError, match="no"):
        driver.call(refuse)
    assert driver.call(disk.write(0)) == 1
    driver.end(nothing)


@pytest.mark.parametrize("ends", ["fails", "is closed"])
def test_a_call_that_was_begun_without_a_waiting_caller_is_refused_when_the_log_ends(disk: Disk, ends: str) -> None:
    """Its answer never came: an awaitable of a log that had failed waited for ever."""
    driver, outcomes, answers = Driver(disk.loop), list[Any](), list[Callable[[Any], None]]()
    driver.submit(answers.append, outcomes.append)
    driver.drive_due()
    assert (len(answers), driver.pendings, outcomes) == (1, 1, [])
    if ends == "fails":
        disk.loop.call_soon(lambda: raises(ValueError("a bug")))
        with pytest.raises(LogFailedError, match="a bug"):
            driver.drive_due()
    else:
        driver.end(nothing)
        driver.refuse_the_rest()
    assert {type(outcome) for outcome in outcomes} == {LogFailedError if ends == "fails" else UsageError}
    assert driver.pendings == 0
    count = len(outcomes)
    answers[0]("late")
    assert len(outcomes) == count


def raises(error: Exception) -> None:
    raise error


def test_after_the_end_a_call_is_a_usage_error(disk: Disk) -> None:
    driver = started(disk)
    driver.end(nothing)
    with pytest.raises(UsageError, match="closed"):
        driver.call(disk.write(0))


def test_an_append_is_noted_while_its_records_are_encoded_also_if_that_fails(tmp_path: Path) -> None:
    """Before it drives, it may wait for the interpreter's lock already."""
    noted: list[set[int]] = []

    class Value:
        def __iter__(self) -> Iterator[Any]:
            noted.append(set(log._driver.rests.appending))
            raise KeyError

    with topics.open(tmp_path) as log:
        for append in (log.append, log.append_many, log.append_nowait):
            with pytest.raises((KeyError, TopicsError)):
                append("t", Value())  # type: ignore[arg-type]
            assert not log._driver.rests.appending
    assert noted
    assert all(found == {threading.get_ident()} for found in noted)
