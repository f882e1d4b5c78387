"""Calls from within a log's own pass (finalizers, logging handlers), and closes that meet other threads."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topics
from topics import UsageError
from topics.embedded.driving.driver import Driver


def within_a_pass(log: Any, fn: Callable[[], None]) -> None:
    """Calls `fn` as a finalizer or a logging handler would be: on the thread that drives, in the midst of a pass."""
    ran = threading.Event()

    def run() -> None:
        try:
            fn()
        finally:
            ran.set()

    log._loop.call_soon_threadsafe(run)
    log._driver.maintenance.stir()
    log.state("t")
    assert ran.wait(20)


@pytest.mark.timeout(60)
def test_a_call_from_within_a_call_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.append("t", [1])
        told: list[UsageError] = []

        def call(fn: Callable[[], Any]) -> None:
            with pytest.raises(UsageError, match="from within") as raised:
                fn()
            told.append(raised.value)

        for fn in (lambda: log.append("t", [2]), lambda: log.state("t"), lambda: list(log.read("t")), log.close):
            within_a_pass(log, lambda fn=fn: call(fn))  # type: ignore[misc]
        assert len(told) == 4
        assert not log.closed
        soon: list[topics.Pending[int]] = []
        within_a_pass(log, lambda: soon.append(log.append_soon("t", 3)))
        assert soon[0].result() == 2
        assert [record.data for record in log.read("t")] == [1, 3]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("where", ["in a pass", "between passes"])
def test_a_log_that_the_collector_finds_on_its_own_thread_is_closed_by_another(tmp_path: Path, where: str) -> None:
    class Holder:
        pass

    holder: Any = Holder()
    holder.itself = holder
    holder.log = log = topics.open(tmp_path / "data")
    log.append("t", [1])
    loop, maintenance, closed = log._loop, log._driver.maintenance, log._ended
    continues = maintenance._continues

    def collect() -> bool:
        gc.collect()
        return continues()

    def drop() -> None:
        if where == "in a pass":
            loop.call_soon_threadsafe(gc.collect)
        else:
            maintenance._continues = collect
        maintenance.stir()
        assert closed.wait(20)

    gc.disable()
    try:
        del log, holder
        with pytest.warns(ResourceWarning, match="close"):
            drop()
    finally:
        gc.enable()
    maintenance.join()
    with topics.open(tmp_path / "data") as again:
        assert [record.data for record in again.read("t")] == [1]


def _told_of_a_drain(log: topics.Log) -> threading.Event:
    """Set as soon as a close begins to wait for what others have given to the log."""
    begun, drain = threading.Event(), log._gatherer.drain

    def draining(wait_ms: int) -> None:
        begun.set()
        drain(wait_ms)

    log._gatherer.drain = draining  # type: ignore[method-assign]
    return begun


@pytest.mark.timeout(60)
def test_a_close_from_within_a_call_does_not_wait_for_one_of_another_thread_which_waits_for_the_call(
    tmp_path: Path,
) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    inside, begun = threading.Event(), _told_of_a_drain(log)

    def close() -> None:
        inside.set()
        assert begun.wait(20)
        log.close()

    log._loop.call_soon_threadsafe(close)
    log._driver.maintenance.stir()
    assert inside.wait(20)
    other = threading.Thread(target=log.close, daemon=True)
    other.start()
    other.join(20)
    assert not other.is_alive()
    with topics.open(tmp_path / "data") as again:
        assert again.state("t").head_seq == 1


@pytest.mark.timeout(60)
def test_a_close_by_a_finalizer_within_append_soon_does_not_wait_for_one_that_waits_for_that(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    gatherer, begun = log._gatherer, _told_of_a_drain(log)
    other = threading.Thread(target=log.close, daemon=True)
    ended = threading.Event()

    def collected() -> None:
        with gatherer._lock:
            other.start()
            assert begun.wait(20)
            log.close()
        ended.set()

    threading.Thread(target=collected, daemon=True).start()
    assert ended.wait(20)
    other.join(20)
    assert not other.is_alive()


@pytest.mark.timeout(60)
def test_of_two_threads_that_close_at_once_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    both = threading.Barrier(2)
    looks: set[int] = set()

    def drives_here(_driver: Driver) -> bool:
        if threading.get_ident() not in looks:
            looks.add(threading.get_ident())
            both.wait(20)
        return False

    monkeypatch.setattr(Driver, "drives_here", property(drives_here))
    errors: list[BaseException] = []
    closed: list[None] = []
    give_back = log._give_back

    def count() -> None:
        closed.append(None)
        give_back()

    def close() -> None:
        try:
            log.close()
        except BaseException as error:
            errors.append(error)

    log._give_back = count  # type: ignore[method-assign]
    threads = [threading.Thread(target=close, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(closed), errors, [thread.is_alive() for thread in threads]) == (1, [], [False, False])


@pytest.mark.timeout(60)
def test_a_close_beside_one_of_another_thread_waits_until_the_directory_is_free(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    begun, go_on = threading.Event(), threading.Event()
    give_back = log._give_back

    def late() -> None:
        begun.set()
        assert go_on.wait(20)
        give_back()

    log._give_back = late  # type: ignore[method-assign]
    first = threading.Thread(target=log.close)
    first.start()
    assert begun.wait(20)
    second = threading.Thread(target=log.close)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    go_on.set()
    first.join(20)
    second.join(20)
    with topics.open(tmp_path / "data") as again:
        assert again.state("t").head_seq == 1


@pytest.mark.timeout(60)
def test_a_tail_that_asks_in_the_moment_of_the_close_ends(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    tail = log.tail("t", 0)
    assert next(tail).data == 1
    call = log._driver.call

    def late(start: Any) -> Any:
        log.close()
        return call(start)

    log._driver.call = late  # type: ignore[method-assign]
    assert list(tail) == []
    with pytest.raises(UsageError, match="closed"):
        next(log.tail("t", 0))


@pytest.mark.timeout(60)
def test_a_tail_of_asyncio_that_asks_in_the_moment_of_the_close_ends(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])

    async def follow() -> list[int]:
        submit = log._driver.submit
        found: list[int] = []

        def late(start: Any, on_answer: Any) -> Any:
            if found:
                log.close()
            return submit(start, on_answer)

        log._driver.submit = late  # type: ignore[method-assign]
        async for record in log.aio.tail("t", 0):
            found.append(record.data)
        return found

    assert asyncio.run(follow()) == [1]


@pytest.mark.timeout(60)
def test_a_close_takes_what_was_gathered_under_the_lock_of_those_who_append(tmp_path: Path) -> None:
    """Another thread that took the last of it in between ended the close, with the log half open."""

    class Watched(deque[Any]):
        def popleft(self) -> Any:
            assert gatherer._lock._is_owned()  # type: ignore[attr-defined]
            return super().popleft()

    log = topics.open(tmp_path / "data")
    gatherer = log._gatherer
    gatherer._sent = Watched()
    hand_over, sent = log._driver.hand_over, []
    log._driver.hand_over = lambda start, on_answer: sent.append((start, on_answer))  # type: ignore[method-assign]
    soon = log.append_soon("t", 1)
    gatherer.flush()
    assert len(gatherer._sent) == 1
    hand_over(*sent[0])
    log.close()
    assert soon.result() == 1


@pytest.mark.timeout(60)
def test_a_finalizer_may_append_in_the_midst_of_waking_the_maintenance_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector runs wherever objects are made, in a `threading.Event` with its lock held for one."""
    log = topics.open(tmp_path / "data")
    notify, soon = threading.Condition.notify_all, []

    def finalized(condition: threading.Condition) -> None:
        if len(soon) < 2:
            soon.append(log.append_soon(f"of a finalizer {len(soon)}", 1))
        notify(condition)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Condition, "notify_all", finalized)
        gathered = log.append_soon("t", 1)
        log._driver.maintenance.stir()
    assert gathered.result() == 1
    log.close()
