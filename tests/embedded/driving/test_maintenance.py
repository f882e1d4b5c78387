"""One thread maintains all open logs of a process, by turns."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Buffer

import topics
from tests.embedded.conftest import SMALL, end_maintenance, maintaining
from tests.embedded.test_failed_open import descriptors_below
from tests.embedded.test_fork import in_child
from topics.embedded.driving import maintenance


async def append(log: topics.Log) -> int:
    """A call without a waiting caller: the thread drives it."""
    return (await asyncio.wait_for(log.aio.append("t", [1]), 30)).last_seq


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_many_logs_share_a_thread_that_ends_with_the_last_of_them(tmp_path: Path, io: str) -> None:
    end_maintenance()
    with ExitStack() as stack:
        logs = [stack.enter_context(topics.open(tmp_path / str(number), io=io, **SMALL)) for number in range(10)]
        (thread,) = maintaining()
        for log in logs:
            assert asyncio.run(append(log)) == 1
        logs[0].close()
        assert maintaining() == [thread]
        assert asyncio.run(append(logs[1])) == 2
    thread.join(20)
    assert not thread.is_alive()
    with topics.open(tmp_path / "0", io=io, **SMALL) as again:
        assert asyncio.run(append(again)) == 2
        assert maintaining() != [thread]


def test_a_log_takes_few_descriptors(tmp_path: Path) -> None:
    with topics.open(tmp_path / "first", **SMALL):
        before = len(os.listdir("/proc/self/fd"))
        with topics.open(tmp_path / "second", **SMALL) as log:
            log.append("t", [1])
            assert len(os.listdir("/proc/self/fd")) - before <= 10


def test_a_log_whose_work_has_no_end_leaves_others_their_turns(tmp_path: Path) -> None:
    with topics.open(tmp_path / "busy", **SMALL) as busy, topics.open(tmp_path / "other", **SMALL) as other:
        goes_on = True

        def again() -> None:
            if goes_on:
                busy._loop.call_soon(again)

        busy._loop.call_soon_threadsafe(again)
        busy._driver.maintenance.stir()
        for number in range(5):
            assert asyncio.run(append(other)) == number + 1
        goes_on = False


def test_a_log_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    failing, other = topics.open(tmp_path / "failing", **SMALL), topics.open(tmp_path / "other", **SMALL)

    def fail() -> None:
        raise MemoryError

    async def append_until_it_fails() -> None:
        """The pass that fails may answer an append."""
        while True:
            await append(failing)

    failing._loop.call_soon_threadsafe(fail)
    failing._driver.maintenance.stir()
    with pytest.raises(topics.LogFailedError):
        asyncio.run(append_until_it_fails())
    assert asyncio.run(append(other)) == 1
    with pytest.raises(topics.LogFailedError):
        failing.close()
    assert asyncio.run(append(other)) == 2
    other.close()


def test_a_close_in_a_callback_of_another_log_waits_for_the_thread_that_closes(tmp_path: Path) -> None:
    with topics.open(tmp_path / "one", **SMALL) as one:
        other = topics.open(tmp_path / "other", **SMALL)
        other.append("t", [1])
        closes, goes_on, ended = (threading.Event() for _ in range(3))
        drain, states = other._gatherer.drain, []

        class Ended(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                goes_on.set()
                return super().wait(timeout)

        def late(wait_ms: int) -> None:
            closes.set()
            goes_on.wait(20)
            drain(wait_ms)

        def callback() -> None:
            other.close()
            states.append(other._ended.is_set())
            ended.set()

        other._gatherer.drain = late  # type: ignore[method-assign]
        other._ended = Ended()
        closer = threading.Thread(target=other.close)
        closer.start()
        closes.wait(20)
        one._driver.call_soon(callback)
        while not (goes_on.is_set() or ended.is_set()):
            pass
        goes_on.set()
        closer.join(20)
        assert ended.wait(20)
        assert states == [True]


@pytest.mark.parametrize("within", ["__setitem__", "__delitem__"])
def test_a_finalizer_may_close_a_log_while_another_one_is_opened_or_closed(tmp_path: Path, within: str) -> None:
    def close_within() -> tuple[int, bool]:
        """In a child, whose thread is its own."""
        dropped = topics.open(tmp_path / "dropped", **SMALL)

        class Members(dict[int, Any]):
            pass

        def change(members: Members, *arguments: object) -> None:
            if not dropped.closed:
                dropped.close()
            getattr(dict, within)(members, *arguments)

        setattr(Members, within, change)
        shared = maintenance._shared
        shared._members = Members(shared._members)
        with topics.open(tmp_path / "log", **SMALL) as log:
            last_seq = asyncio.run(append(log))
        return last_seq, dropped._ended.is_set()

    assert in_child(close_within) == "(1, True)"


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_slow_sync_of_a_log_delays_no_await_of_another(tmp_path: Path, durability: str) -> None:
    with topics.open(tmp_path / "slow", **SMALL) as slow, topics.open(tmp_path / "other", **SMALL) as other:
        slow.put_topic("t", durability=durability)
        slow.append("t", [1])
        slow.flush()
        ring, ends, waited = slow._loop.ring, threading.Event(), []
        sync_now, write_now = ring.sync_now, ring.write_now

        def sync(fd: int) -> int:
            waited.append("sync")
            ends.wait(20)
            return sync_now(fd)

        def write(fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
            if dsync:
                waited.append("write")
                ends.wait(20)
            return write_now(fd, buffer, offset, dsync=dsync)

        async def append_to_both() -> None:
            synced = asyncio.ensure_future(append(slow))
            if durability == "disk":
                await synced
                synced = asyncio.ensure_future(slow.aio.flush("t"))
            await asyncio.sleep(0)
            try:
                assert await asyncio.wait_for(append(other), 10) == 1
            finally:
                ends.set()
            assert await synced == 2

        ring.sync_now, ring.write_now = sync, write  # type: ignore[method-assign,assignment]
        asyncio.run(append_to_both())
        assert waited == []
        while not waited:  # the thread of a caller may wait, and drives unless the other one does
            slow.append("t", [3])
            slow.flush()


def test_two_logs_that_are_awaited_at_once_are_both_answered(tmp_path: Path) -> None:
    """Neither waits for the other's news."""

    async def wait_and_append(one: topics.Log, other: topics.Log) -> list[int]:
        waits = [asyncio.ensure_future(log.aio.page("t", 1, wait_ms=30_000)) for log in (one, other)]
        found = []
        for log, wait in ((other, waits[1]), (one, waits[0])):
            await log.aio.append("t", [2])
            found += [record.seq for record in (await asyncio.wait_for(wait, 20)).records]
        return found

    with topics.open(tmp_path / "one", **SMALL) as one, topics.open(tmp_path / "other", **SMALL) as other:
        one.append("t", [1])
        other.append("t", [1])
        assert asyncio.run(wait_and_append(one, other)) == [2, 2]


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_a_log_that_gets_no_thread_is_not_open_and_later_ones_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, io: str
) -> None:
    end_maintenance()  # else the thread of an earlier log may serve this one
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "topics-maintenance":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                topics.open(tmp_path / "first", io=io, **SMALL)
    assert descriptors_below(tmp_path) == []
    with topics.open(tmp_path / "first", io=io, **SMALL) as log:
        assert asyncio.run(append(log)) == 1
        with topics.open(tmp_path / "second", io=io, **SMALL) as other:
            assert asyncio.run(append(other)) == 1
            assert len(maintaining()) == 1


@pytest.mark.parametrize("within", ["eventfd", "epoll", "__init__", "start"])
def test_a_finalizer_that_opens_a_log_while_the_thread_is_started_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """Two threads took turns at the same logs then, and the first ended with the others' work undone."""
    end_maintenance()
    owner: Any = {"eventfd": os, "epoll": select}.get(within, threading.Thread)
    call, opened = getattr(owner, within), list[topics.Log]()

    def finalizing(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        is_its = within in {"eventfd", "epoll"} or arguments[0].name == "topics-maintenance"
        if is_its and not opened:
            opened.append(None)  # type: ignore[arg-type]
            opened[0] = topics.open(tmp_path / "inner", **SMALL)
        return result

    monkeypatch.setattr(maintenance, "_shared", maintenance._SharedThread())
    monkeypatch.setattr(owner, within, finalizing)
    with topics.open(tmp_path / "outer", **SMALL) as log:
        monkeypatch.setattr(owner, within, call)
        with opened[0] as inner:
            assert len(maintaining()) == 1
            thread = log._driver.maintenance.thread
            assert thread is inner._driver.maintenance.thread
            assert asyncio.run(append(log)) == asyncio.run(append(inner)) == 1
    assert thread is not None
    thread.join(20)
    maintenance._shared.close()


def test_a_log_whose_ring_cannot_be_waited_for_is_not_open_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def register(self, _fd: int, _mask: int) -> None:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(maintenance._shared, "_epoll", Full())
        with pytest.raises(topics.StorageError, match="cannot be opened: Cannot allocate memory"):
            topics.open(tmp_path, **SMALL)
        for thread in maintaining():  # it was started for this log, and has no other
            thread.join(20)
    with topics.open(tmp_path, **SMALL) as log:
        assert asyncio.run(append(log)) == 1


def test_a_forked_child_has_a_thread_of_its_own(tmp_path: Path) -> None:
    def work() -> int:
        with topics.open(tmp_path / "child", **SMALL) as log:
            return asyncio.run(append(log))

    with topics.open(tmp_path / "parent", **SMALL) as log:
        assert asyncio.run(append(log)) == 1
        assert in_child(work) == "1"
        assert asyncio.run(append(log)) == 2


def test_a_close_waits_for_what_is_in_flight_before_the_thread_may_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends what a thread has submitted with it: a log that was closed at once became read-only."""
    log = topics.open(tmp_path / "data", **SMALL)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    begins, leaves, left = log._begin_end, log._driver.maintenance.leave, []

    def begin() -> None:
        begins()
        log._loop.spawn(log._loop.files.fsync(fd))

    def leave() -> None:
        left.append(log._loop.operations_in_flight)
        leaves()

    monkeypatch.setattr(log, "_begin_end", begin)
    monkeypatch.setattr(log._driver.maintenance, "leave", leave)
    log.close()
    os.close(fd)
    assert left == [0]
