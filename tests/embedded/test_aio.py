"""`log.aio` is the log itself, awaited."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

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
