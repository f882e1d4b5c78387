"""Appends of `append_nowait` to one topic that are begun together, as one request if possible.

One thread can make appends faster than another begins them one by one. The objects of each append
would also be work for Python's collector, which stops all threads. So the payloads of plain appends
are joined: each is a tuple of two bytes objects, which the collector does not follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from topics.embedded.appends.pending import Answer, Outcome
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.store.format.rows import NO_ROWS, ROW_BYTES, join_rows

if TYPE_CHECKING:
    from topics.embedded.driving.driver import Driver

ROWS_MAX = 1000
BYTES_MAX = 256 * 1024
"""Bounds of a request that is made of several appends, also of those of `append_soon`."""


class JoinedAppends(Answer):
    """Appends in their order, with a `Pending` for each."""

    __slots__ = ("_firsts", "first", "others", "rows")

    def __init__(self, driver: Driver, first: AppendRequest) -> None:
        super().__init__(driver)
        self.first = first
        self.rows = first.rows.count
        """Number of records of all."""
        self.others: list[tuple[bytes | bytearray | memoryview, bytes]] = []
        """The records of the other appends: buffer and spans of their `Rows`."""
        self._firsts: list[int] = []
        """By append, the records before it; filled once one result answers all appends."""

    @property
    def count(self) -> int:
        """Number of appends."""
        return 1 + len(self.others)

    def requests(self) -> Iterator[AppendRequest]:
        """Yield a request for each append."""
        topic = self.first.topic
        yield self.first
        for part in self.others:
            yield AppendRequest(topic, join_rows([part]))

    def request(self) -> AppendRequest:
        """Return one request for all, for a topic that needs nothing but seqs to answer each."""
        if not self.others:
            return self.first
        rows = self.first.rows
        return AppendRequest(self.first.topic, join_rows([(rows.buffer, rows.spans), *self.others]))

    def answer(self, outcome: Outcome | list[Outcome]) -> None:
        if self.others and isinstance(outcome, AppendResult):
            counts = [self.first.rows.count, *(len(spans) // ROW_BYTES for _buffer, spans in self.others)]
            self._firsts = list(accumulate(counts, initial=0))
        # A caller may keep a `Pending` for long; the payloads are freed now.
        self.first, self.others = self.first._replace(rows=NO_ROWS), []
        super().answer(outcome)

    def outcome_of(self, index: int) -> Any:
        outcome = super().outcome_of(index)
        if not self._firsts or not isinstance(outcome, AppendResult):
            return outcome
        first = outcome.first_seq + self._firsts[index]
        last = outcome.first_seq + self._firsts[index + 1] - 1
        return outcome._replace(first_seq=first, last_seq=last, head_seq=last, count=last - first + 1)
