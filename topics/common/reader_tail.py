"""`tail(topic, reader=...)` of a log and of a client: it continues where the named reader is.

A record is done when the next one is asked for. What is done is committed with the next page, and
when the iterator is left; then the last record that was handed out counts as not done.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol

from topics.common.record_steps import OnGap, check_on_gap, pass_gap
from topics.common.values import arguments
from topics.common.values.delivered import GapError, Record
from topics.common.values.which import WhichRecords
from topics.errors import OutcomeUnknown, RequestError, TopicsError, UsageError

_WAIT_MS = 30_000
_RECORDS = 256
"""Records of a page: few, since a page is its holder's for some time only."""


class TailedReader(Protocol):
    """A named reader, as far as a tail uses it."""

    def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]: ...

    def commit(self, seq: int | None = None) -> int: ...

    def seek(self, seq: int) -> int: ...

    def abandon(self) -> None: ...


class AwaitedReader(Protocol):
    """A named reader, whose calls are awaited, as far as a tail uses it."""

    async def read(self, *, limit: int = 0, max_bytes: int = 0, wait_ms: int = 0) -> list[Record]: ...

    async def commit(self, seq: int | None = None) -> int: ...

    async def seek(self, seq: int) -> int: ...

    def abandon(self) -> Awaitable[None] | None: ...


def check_reader_tail(which: WhichRecords, from_time: int | None, max_bytes: int | None, on_gap: OnGap) -> None:
    """Check what a tail takes beside `reader`. Raises: UsageError."""
    if which != WhichRecords():
        given = next(name for name, value in which._asdict().items() if value)
        raise UsageError(f"{given} and reader are given: a named reader leaves out no records")
    if from_time is not None:
        raise UsageError('from_time and reader are given: use from_={"time": ...}, for a reader that is new')
    check_on_gap(on_gap)
    arguments.optional_count("max_bytes", max_bytes, least=1)


def tail_reader(
    open_reader: Callable[[], TailedReader], is_closed: Callable[[], bool], max_bytes: int | None, on_gap: OnGap
) -> Iterator[Record]:
    """Yield the records of a named reader as they come, until the log is closed."""
    reader = open_reader()
    done = 0
    try:
        while True:
            try:
                records = reader.read(limit=_RECORDS, max_bytes=max_bytes or 0, wait_ms=_WAIT_MS)
            except GapError as gap:
                pass_gap(gap, on_gap)
                while True:  # what was done since comes again, as after any late page
                    with contextlib.suppress(OutcomeUnknown):
                        reader.seek(gap.resume_from)
                        break
                continue
            except UsageError:
                if is_closed():
                    return
                raise
            except RequestError as error:
                if error.code != "reader_fenced":
                    raise
                continue  # the page was late, and comes again
            done = 0
            for record in records:
                yield record
                done = record.seq
    finally:
        if done:
            with contextlib.suppress(TopicsError):
                reader.commit(done)
        reader.abandon()


async def tail_awaited_reader(
    open_reader: Callable[[], Awaitable[AwaitedReader]],
    is_closed: Callable[[], bool],
    max_bytes: int | None,
    on_gap: OnGap,
) -> AsyncIterator[Record]:
    """Yield the same for asyncio."""
    reader = await open_reader()
    done = 0
    try:
        while True:
            try:
                records = await reader.read(limit=_RECORDS, max_bytes=max_bytes or 0, wait_ms=_WAIT_MS)
            except GapError as gap:
                pass_gap(gap, on_gap)
                while True:
                    with contextlib.suppress(OutcomeUnknown):
                        await reader.seek(gap.resume_from)
                        break
                continue
            except UsageError:
                if is_closed():
                    return
                raise
            except RequestError as error:
                if error.code != "reader_fenced":
                    raise
                continue
            done = 0
            for record in records:
                yield record
                done = record.seq
    finally:
        if done:
            with contextlib.suppress(TopicsError):
                await reader.commit(done)
        abandoned = reader.abandon()
        if abandoned is not None:
            await abandoned
