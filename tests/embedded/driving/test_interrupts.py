"""Ctrl-C, or a timeout's alarm, at any place of any call: it reaches the caller, and the log continues."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import topics
from tests.amount import stride
from tests.embedded.at import At
from topics.embedded.driving.calls import PendingCall
from topics.uring.probe import probe


class Alarm(Exception):
    """The error that the handler of an alarm raises."""


@pytest.fixture(params=["uring", "portable"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[topics.Log]:
    if request.param == "uring" and not probe().ok:
        pytest.skip(probe().reason)
    with topics.open(tmp_path / "data", io=request.param, wal_file_bytes=1 << 20) as log:
        log.put_topic("disk")
        log.put_topic("fsync", durability="fsync")
        log.put_topic("queue", type="queue")
        yield log


SIGNALS = (signal.SIGINT, signal.SIGALRM)


def on_alarm(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGALRM:
        raise Alarm
    raise KeyboardInterrupt


@pytest.fixture
def _handled() -> Iterator[None]:
    before = [signal.signal(number, on_alarm) for number in SIGNALS]
    yield
    after = [signal.signal(number, handler) for number, handler in zip(SIGNALS, before, strict=True)]
    assert after == [on_alarm, on_alarm]


@pytest.fixture(params=SIGNALS)
def number(request: pytest.FixtureRequest, _handled: None) -> int:
    chosen: int = request.param
    return chosen


CALLS: dict[str, Callable[[topics.Log, int], Any]] = {
    "append": lambda log, n: log.append("disk", [n]),
    "append, synced": lambda log, n: log.append("fsync", [n]),
    "append with a key": lambda log, n: log.append("disk", [topics.NewRecord(n, tag="t")], key=str(n)),
    "append_many": lambda log, n: log.append_many("disk", [b"%d" % n]),
    "append_soon": lambda log, n: log.append_soon("disk", n).result(),
    "read": lambda log, n: list(log.read("disk", max(0, log.state("disk").head_seq - 5))),
    "claim": lambda log, n: log.claim("queue", "node"),
    "put": lambda log, n: log.put_topic("new", cap_records=n + 2),
}


@pytest.mark.usefixtures("_handled")
@pytest.mark.parametrize("what", CALLS)
def test_an_interrupt_at_any_place_reaches_the_caller_and_harms_nothing(
    request: pytest.FixtureRequest, log: topics.Log, what: str
) -> None:
    """On one ring at every second place, on the other at those between."""
    call = CALLS[what]
    call(log, -1)
    acked: set[Any] = {-1}
    every = stride(2)
    place = 0 if "uring" in request.node.name else every // 2
    missed = 0
    while missed < 10:  # calls differ: some find a commit of the one before
        if place // every % 4 < 2:
            log.state("disk")  # ends a streak of quick appends: the next one is written the usual way
        at = At(place, SIGNALS[place // every % 2])
        try:
            with at:
                call(log, place)
            acked.add(place)
            assert not at.reached, "the signal was swallowed"
        except (KeyboardInterrupt, Alarm):
            assert at.reached
        missed = 0 if at.reached else missed + 1
        assert log.append("disk", [f"after {place}"]).count == 1
        acked.add(f"after {place}")
        place += every
    assert place > 60
    found = {record.data for record in log.read("disk")} | {record.data for record in log.read("fsync")}
    assert found.issuperset(acked) or "append" not in what


def test_an_interrupt_at_any_place_of_a_readers_call_leaves_it_usable_and_loses_no_page(
    log: topics.Log, number: int
) -> None:
    log.append("disk", list(range(1, 11)))
    reader = log.reader("disk", "reader")
    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: reader.read(limit=2),
        "peek": lambda: reader.peek(limit=2),
        "commit": reader.commit,
        "seek": lambda: reader.seek(2),
        "state": reader.state,
    }
    every = stride(2)
    for what, call in calls.items():
        place = missed = 0
        while missed < 10:
            reader.seek(2)
            assert [record.seq for record in reader.read(limit=2)] == [3, 4]
            at, records = At(place, number), None
            with contextlib.suppress(KeyboardInterrupt, Alarm), at:
                records = call()
            following = [record.seq for record in reader.read(limit=2)]
            if what == "read" and records is None:
                assert following == [5, 6], f"a page was passed over, at place {place}"
            elif what != "seek":
                assert following == ([7, 8] if what == "read" else [5, 6])
            missed = 0 if at.reached else missed + 1
            place += every
        assert place > 10 * every


@pytest.mark.usefixtures("_handled")
def test_an_interrupt_before_a_readers_await_leaves_it_usable(log: topics.Log) -> None:
    async def work() -> None:
        log.append("disk", list(range(1, 11)))
        reader = await log.aio.reader("disk", "reader")
        place = missed = 0
        while missed < 10:
            await reader.seek(2)
            at = At(place, SIGNALS[place % 2])
            awaited = reader.read(limit=2)
            with contextlib.suppress(KeyboardInterrupt, Alarm), at:
                awaited.send(None)
            awaited.close()
            assert [record.seq for record in await reader.read(limit=2)] == [3, 4]
            missed = 0 if at.reached else missed + 1
            place += 1
        assert place > 20

    asyncio.run(work())


def test_an_interrupted_open_or_close_leaves_the_directory_free(tmp_path: Path) -> None:
    log = topics.Log.__new__(topics.Log)

    def open_it() -> None:
        nonlocal log
        log = topics.open(tmp_path / "data", wal_file_bytes=1 << 20, wal_spare_files=0)

    def interrupted(call: Callable[[], None], place: int) -> bool:
        try:
            with At(place, signal.SIGINT) as at:
                call()
            assert not at.reached, "the signal was swallowed"
            return False
        except KeyboardInterrupt:
            return True

    topics.open(tmp_path / "first").close()  # two descriptors of its thread stay
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        count = 0
        for place in (0, 3, 50, 200, 400, 800, 1600, 3200, 10_000, 100_000):
            if interrupted(open_it, place):
                open_it()
            log.append("t", [place])
            interrupted(log.close, place // 2)
            log.close()  # the first one may not even have begun
            count += 1
        open_it()
        assert log.state("t").count == count
        log.close()
        assert len(os.listdir("/proc/self/fd")) <= descriptors
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_ends_no_call_and_may_call_the_log_itself(log: topics.Log) -> None:
    seen: list[int] = []

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        seen.append(log.append("fsync", ["by the handler"]).last_seq)
        log.append_soon("disk", "by the handler").result()

    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        for call in CALLS.values():
            for place in range(0, 160, stride(2)):
                with At(place, signal.SIGUSR1):
                    call(log, place)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) > 100
    by_handler = [record.data for record in log.read("fsync")].count("by the handler")
    assert by_handler == len(seen)


def test_a_caller_interrupted_beside_other_threads_leaves_none_asleep(log: topics.Log, number: int) -> None:
    stop, counts = threading.Event(), [0, 0, 0]

    def write(thread: int) -> None:
        while not stop.is_set():
            log.append("fsync", [thread])
            counts[thread] += 1

    threads = [threading.Thread(target=write, args=(index,), daemon=True) for index in range(len(counts))]
    for thread in threads:
        thread.start()
    for place in range(300):
        with contextlib.suppress(KeyboardInterrupt, Alarm), At(place, number):
            log.append("fsync", ["main"])
    stop.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "left asleep"
    found = [record.data for record in log.read("fsync")]
    assert [found.count(index) for index in range(len(counts))] == counts


def test_a_second_interrupt_at_any_place_keeps_no_other_thread_from_driving(
    log: topics.Log, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one reached a caller that slept, and had just been asked to drive: it has to ask another one.

    The maintenance thread takes no turn, because it would answer the call, and notify the other one a moment later."""
    driver, at = log._driver, At(-1, number)
    with driver.maintenance._turn:
        monkeypatch.setattr(driver.maintenance, "_drive", lambda: False)

    def sleep(_call: PendingCall[Any]) -> None:
        driver._release_driving()  # by the thread that drove, and asked this one
        at.__enter__()
        signal.raise_signal(number)

    place = 0
    while at.reached:
        with contextlib.suppress(KeyboardInterrupt, Alarm):  # the first one, where the second came before its handler
            log.append("disk", [place])
        other: PendingCall[None] = PendingCall(lambda done: done(None))
        other.prepare_to_sleep()
        driver._asleep.append(other)
        at = At(place, number)
        driver._driving_lock.acquire()
        try:
            with monkeypatch.context() as told, contextlib.suppress(KeyboardInterrupt, Alarm):
                told.setattr(PendingCall, "sleep", sleep)
                log.append("fsync", [place])
        finally:
            at.__exit__()
        assert other._turn is not None
        assert other._turn.acquire(blocking=False), f"nobody was told to drive, at place {place}"
        place += 1
    assert place > 3


def test_an_exception_out_of_a_pass_that_no_signal_explains_ends_the_log_with_a_clear_error(tmp_path: Path) -> None:
    class Thrown(BaseException):
        pass

    def throw(done: Any) -> None:
        raise Thrown

    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    with pytest.raises((Thrown, topics.LogFailedError)):  # the latter if the maintenance thread drove
        log._driver.call(throw)
    for _ in range(2):
        with pytest.raises(topics.LogFailedError, match="Thrown.*open it again"):
            log.append("t", [2])
    with pytest.raises(topics.LogFailedError):
        log.append_soon("t", 2).result()
    with pytest.raises(topics.LogFailedError):
        log.close()
    with topics.open(tmp_path / "data") as log:
        assert [record.data for record in log.read("t")] == [1]
