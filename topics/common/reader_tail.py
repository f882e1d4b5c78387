"""`tail(topic, reader=...)` of a log and of a client: it continues where the named reader is.

A record is done when the next one is asked for. What is done is committed with the next page, and
when the iterator is left; then the last record that was handed out counts as not done.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from topics.common.record_steps import OnGap, RecordSteps, check_on_gap, made, made_awaited, pass_gap
from topics.common.values import arguments
from topics.common.values.delivered import GapError, Record
from topics.common.values.which_records import WhichRecords
from topics.errors import OutcomeUnknown, RequestError, TopicsError, UsageError

_WAIT_MS = 30_000
_RECORDS = 256
"""Records of a page: few, since a page is its holder's for some time only."""


def check_reader_tail(which: WhichRecords, from_time: int | None, max_bytes: int | None, on_gap: OnGap) -> None:
    """Check what a tail takes beside `reader`. Raises: UsageError."""
    if which != WhichRecords():
        given = next(name for name, value in which._asdict().items() if value)
        raise UsageError(f"{given} and reader are given: a named reader leaves out no records")
    if from_time is not None:
        raise UsageError('from_time and reader are given: use from_={"time": ...}, for a reader that is new')
    check_on_gap(on_gap)
    max_bytes = arguments.optional_count("max_bytes", max_bytes, least=1)


class ReaderTail:
    """The steps of a tail: calls, each to be given the reader, and lists of one record.

    limit: end after so many records. ends: end when there is no record, instead of waiting for one.
    commits: commit a page once its last record is done, instead of with later pages.
    """

    def __init__(
        self,
        is_closed: Callable[[], bool],
        on_gap: OnGap,
        *,
        max_bytes: int | None = None,
        limit: int | None = None,
        ends: bool = False,
        commits: bool = False,
    ) -> None:
        self._is_closed = is_closed
        self._on_gap = on_gap
        self._max_bytes = max_bytes or 0
        self._left = limit
        self._ends = ends
        self._commits = commits
        self._done = 0
        """The last record of the page that is done."""

    def records(self) -> RecordSteps:
        """Yield the steps until the log is closed."""
        while self._left is None or self._left > 0:
            try:
                records = yield self._read
                self._done = 0
                for record in records:
                    yield [record]
                    self._done = record.seq
                if records and self._commits:
                    yield lambda reader: reader.commit()
                    self._done = 0
            except GapError as gap:
                pass_gap(gap, self._on_gap)
                yield from self._pass(gap.resume_from)
                continue
            except UsageError:
                if self._is_closed():
                    return
                raise
            except RequestError as error:
                if error.code != "reader_fenced":
                    raise
                self._done = 0
                continue  # the page was late, and comes again
            if self._left is not None:
                self._left -= len(records)
            if self._ends and not records:
                return

    def leaving(self) -> RecordSteps:
        """Yield the steps when the iterator is left: what is done is committed, the rest is not."""
        if self._done:
            with contextlib.suppress(TopicsError):
                yield lambda reader: reader.commit(self._done)
        yield lambda reader: reader.abandon()

    def _read(self, reader: Any) -> Any:
        limit = _RECORDS if self._left is None else min(self._left, _RECORDS)
        return reader.read(limit=limit, max_bytes=self._max_bytes, wait_ms=0 if self._ends else _WAIT_MS)

    def _pass(self, seq: int) -> RecordSteps:
        """Seek until there is an answer; what was done since comes again, as after a late page."""
        while True:
            with contextlib.suppress(OutcomeUnknown):
                yield lambda reader: reader.seek(seq)
                return


def tail_reader(open_reader: Callable[[], Any], tail: ReaderTail) -> Iterator[Record]:
    """Yield the records of a named reader."""
    reader = open_reader()
    try:
        yield from made(tail.records(), lambda call: call(reader))
    finally:
        for _ in made(tail.leaving(), lambda call: call(reader)):
            pass


async def tail_awaited_reader(open_reader: Callable[[], Awaitable[Any]], tail: ReaderTail) -> AsyncIterator[Record]:
    """Yield the records of a named reader of asyncio."""
    reader = await open_reader()

    async def make(call: Any) -> Any:
        answer = call(reader)
        return None if answer is None else await answer

    try:
        async with contextlib.aclosing(made_awaited(tail.records(), make)) as records:
            async for record in records:
                yield record
    finally:
        async for _ in made_awaited(tail.leaving(), make):
            pass
