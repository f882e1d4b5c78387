"""A process that forks with a log open: the log stays the parent's."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import topics
from tests.embedded.appends.test_pending import slow_pending


def in_child(work: Callable[[], object]) -> str:
    """Return what `work` returned or raised in a forked child."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # no timeout of the parent's reaches a child that hangs
        try:
            told = repr(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(theirs, told.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_the_log_is_refused_in_a_forked_child_and_goes_on_in_the_parent(tmp_path: Path, io: str) -> None:
    with topics.open(tmp_path / "data", io=io) as log:
        log.put_topic("t", durability="fsync")
        log.append("t", [1])
        for call in (
            lambda: log.append("t", [2]),
            lambda: log.append_soon("t", 2),
            lambda: list(log.read("t")),
        ):
            assert "UsageError: this log was opened before the fork" in in_child(call)
            assert log.append("t", [3]).count == 1
        assert in_child(log.close) == "None"
        with pytest.raises(topics.LockedError):
            topics.open(tmp_path / "data", io=io)
        assert log.append("t", [3]).last_seq == 5


@pytest.mark.parametrize("ask", ["done", "add_done_callback", "await", "result"])
def test_a_pending_without_a_result_at_the_fork_is_refused_in_the_child(ask: str) -> None:
    log, pending = slow_pending()

    async def wait_for_it() -> int:
        return await pending

    asks = {
        "done": pending.done,
        "add_done_callback": lambda: pending.add_done_callback(print),
        "await": lambda: asyncio.run(wait_for_it()),
        "result": pending.result,
    }
    assert "UsageError: this log was opened before the fork" in in_child(asks[ask])
    assert pending.result() == 1, "the parent's goes on"
    assert in_child(asks[ask]) in ("True", "None", "1"), "a result is there in the child, too"
    log.close()


def test_a_fork_in_the_midst_of_other_threads_calls_hangs_no_caller(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                log.append("t", [1])
                log.append_soon("t", 1)

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert "UsageError" in in_child(lambda: log.append("t", [2]))
            assert "UsageError" in in_child(lambda: log.append_soon("t", 2).result())
        stop.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


def test_a_child_that_lives_on_keeps_no_process_from_the_directory(tmp_path: Path) -> None:
    go_on, woken = os.pipe()
    log = topics.open(tmp_path / "data")
    child = os.fork()
    if child == 0:
        os.close(woken)
        os.read(go_on, 1)
        os._exit(0)
    log.close()
    topics.open(tmp_path / "data").close()
    os.close(woken)
    os.close(go_on)
    os.waitpid(child, 0)


def test_a_child_may_open_a_log_of_its_own(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a") as log:
        log.append("t", [1])

        def work() -> int:
            with topics.open(tmp_path / "b") as own:
                own.append("t", [1])
                return own.append("t", [2]).last_seq

        assert in_child(work) == "2"


def test_a_log_that_is_dropped_is_closed(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    with pytest.warns(ResourceWarning, match="close"):
        del log
    with topics.open(tmp_path / "data") as log:
        assert [record.data for record in log.read("t")] == [1]
