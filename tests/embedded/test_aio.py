"""`log.aio` is the log itself, awaited."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

import topics
from topics.embedded.aio import AsyncLog
from topics.embedded.log import Log


def test_every_call_of_aio_takes_what_the_logs_own_takes() -> None:
    named = [name for name, member in inspect.getmembers(AsyncLog, inspect.isfunction) if not name.startswith("_")]
    assert {"append", "read", "tail", "claim"} <= set(named)
    for name in named:
        theirs, ours = inspect.signature(getattr(Log, name)), inspect.signature(getattr(AsyncLog, name))
        assert list(ours.parameters.values()) == list(theirs.parameters.values()), name


def test_a_tail_without_a_cursor_begins_with_what_is_written_from_then_on(tmp_path: Path) -> None:
    async def first_of_the_tail(log: Log) -> object:
        waiting = log.aio.tail("t")
        head = (await log.aio.state("t")).head_seq
        record = asyncio.ensure_future(anext(waiting))
        while not record.done():  # the tail may have asked for the head after a write: another one reaches it
            await log.aio.append("t", ["new"])
            await asyncio.wait([record], timeout=0.05)
        assert (await record).seq > head
        return (await record).data

    with topics.open(tmp_path) as log:
        log.append("t", ["old", "old"])
        assert asyncio.run(first_of_the_tail(log)) == "new"


def test_a_read_ends_at_its_limit(tmp_path: Path) -> None:
    async def first_three(log: Log) -> list[object]:
        return [record.data async for record in log.aio.read("t", limit=3)]

    with topics.open(tmp_path, max_limit=2) as log:
        log.append("t", [1, 2, 3, 4, 5])
        assert asyncio.run(first_three(log)) == [1, 2, 3]


def test_a_log_is_an_asynchronous_context_that_closes_beside_the_event_loop(tmp_path: Path) -> None:
    async def run() -> Log:
        async with topics.open(tmp_path) as log:
            await log.aio.append("t", [1])
            waiting = asyncio.ensure_future(log.aio.page("t", 1, wait_ms=30_000))
            await asyncio.sleep(0)
        assert (await waiting).records == []  # its answer needs the event loop while the log is closed
        return log

    assert asyncio.run(run()).closed
    with topics.open(tmp_path) as log:
        assert [record.data for record in log.read("t")] == [1]


def test_the_awaited_log_is_a_context_that_closes_its_log(tmp_path: Path) -> None:
    async def run() -> AsyncLog:
        async with topics.open(tmp_path).aio as log:
            await log.append("t", [1])
            assert [state.name for state in await log.topics()] == ["t"]
            assert repr(log) == f"<topics.AsyncLog of {str(tmp_path)!r}, open>"
        return log

    assert asyncio.run(run()).closed

    async def close() -> None:
        log = topics.open(tmp_path).aio
        await log.close()
        await log.close()
        with pytest.raises(topics.UsageError, match="closed"):
            await log.topics()

    asyncio.run(close())
    topics.open(tmp_path).close()


def test_an_exception_within_the_context_is_the_callers_and_the_log_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        async with topics.open(tmp_path):
            raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        asyncio.run(run())
    topics.open(tmp_path).close()
