"""`Pending`: an append that nothing waits for yet, and the ways to wait for it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.appends.test_flush import sim_log


def slow_pending() -> tuple[topics.Log, topics.Pending[int]]:
    """One whose append needs some passes: of class `fsync`, with unsynced bytes before it."""
    log, _ring = sim_log()
    log.put_topic("f", durability="fsync")
    log.append("d", [1])
    log.append("d", [2])
    return log, log.append_soon("f", 1)


@pytest.mark.parametrize("timeout", [-1, "x", True, float("nan")])
def test_a_wrong_timeout_is_refused_when_the_result_is_there_too(timeout: Any) -> None:
    log, pending = slow_pending()
    for _ in range(2):
        with pytest.raises(topics.UsageError, match="timeout is .*: use a number of seconds"):
            pending.result(timeout)
        assert pending.result() == 1
    log.close()


def test_a_result_that_takes_too_long_can_be_asked_for_again() -> None:
    log, pending = slow_pending()
    with pytest.raises(
        TimeoutError, match="timeout is 0 s, and the append has not ended; it continues: wait with a longer timeout"
    ):
        pending.result(timeout=0)
    assert not pending.done()
    assert pending.result() == 1
    assert pending.done()
    assert pending.result(timeout=0) == 1
    with pytest.raises(topics.UsageError, match="timeout is -1"):
        log.append_soon("d", 3).result(timeout=-1)
    log.close()


def test_callbacks_are_called_once_and_their_exceptions_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    log, pending = slow_pending()
    called: list[Any] = []

    def fails(_pending: topics.Pending[int]) -> None:
        raise SystemExit("of a callback")

    pending.add_done_callback(fails)
    pending.add_done_callback(called.append)
    with caplog.at_level(logging.CRITICAL + 1, logger="topics.embedded"):
        pending.result()
        pending.add_done_callback(called.append)
    assert called == [pending, pending]
    assert log.append("d", [3]).first_seq == 3
    log.close()


def test_a_callback_that_is_none_is_refused_at_once() -> None:
    log, pending = slow_pending()
    with pytest.raises(topics.UsageError, match="fn is None: use a function"):
        pending.add_done_callback(None)  # type: ignore[arg-type]
    log.close()


def test_a_callback_that_would_wait_for_the_log_is_refused() -> None:
    log, pending = slow_pending()
    errors: list[Exception] = []

    def asks(_pending: topics.Pending[int]) -> None:
        try:
            log.append_soon("d", 3).result()
        except topics.UsageError as error:
            errors.append(error)

    pending.add_done_callback(asks)
    assert pending.result() == 1
    assert ["from within a call" in str(error) and "append_soon" in str(error) for error in errors] == [True]
    log.close()


def test_a_pending_with_a_result_gives_it_after_the_close_too(tmp_path: Path) -> None:
    with topics.open(tmp_path) as log:
        pending = [log.append_soon("t", number) for number in range(3)]
    assert [each.result(timeout=0) for each in pending] == [1, 2, 3]
    with pytest.raises(topics.UsageError, match="closed"):
        log.append_soon("t", 4).result()


def test_a_pending_is_awaited_by_several_and_a_cancelled_await_takes_nothing_back(tmp_path: Path) -> None:
    async def append(log: topics.Log) -> list[int]:
        pending = log.append_soon("t", 1)

        async def wait() -> int:
            return await pending

        cancelled = asyncio.ensure_future(wait())
        others = [asyncio.ensure_future(wait()) for _ in range(2)]
        await asyncio.sleep(0)
        cancelled.cancel()
        found = await asyncio.gather(*others)
        assert await pending == 1
        with pytest.raises(topics.RequestError):
            await log.append_soon("no/such name", 1)
        return list(found)

    with topics.open(tmp_path) as log:
        assert asyncio.run(append(log)) == [1, 1]
        assert [record.data for record in log.read("t")] == [1]


def test_a_log_that_was_closed_refuses_a_value_at_once(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data")
    log.append("t", [1])
    log.close()
    with pytest.raises(topics.UsageError, match="this log is closed"):
        log.append_soon("t", 2)
