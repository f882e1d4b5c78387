"""Appends of messages to topics here, each done once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from topics.bridge.bridge_errors import FencedError, TargetDownError
from topics.bridge.incoming import (
    BridgeMark,
    IncomingBatch,
    large_record,
    mark_of,
    record_of,
    refused_record,
    with_mark,
)
from topics.common.values.begin import From
from topics.common.values.delivered import Page
from topics.common.values.written import NewRecord, Producer
from topics.errors import NoAnswerError, RequestError, StorageError, UsageError

_LOOKS = (1, 10_000)
"""Newest records among which the mark is looked for."""
_PASSING = frozenset({"not_ready", "shutting_down", "throttled", "topic_full"})
_RECORD = re.compile(r"(?: in )?records\[(\d+)\](?:\.([a-z]+))?")
"""The record that a refusal of a server names, and the field of it."""
_OR_SKIP = "or leave a mark in its place with --oversize skip"
_LARGER = "raise TOPICS_MAX_RECORD_BYTES of the server"


class WrittenTopics(Protocol):
    """The calls of a log that a sink makes."""

    def append(self, topic: str, records: Sequence[NewRecord], *, producer: Producer) -> Any: ...

    def page(self, topic: str, from_seq: int | None = None, *, limit: int = 0, from_: From | None = None) -> Page: ...


class TopicSink:
    """Topics here, to which one bridge writes. by: a name that no other process has."""

    def __init__(
        self, log: WrittenTopics, bridge: str, by: str, *, values: str, adopts: bool, skips_oversize: bool
    ) -> None:
        self._log = log
        self._bridge = bridge
        self._by = by
        self._values = values
        self._adopts = adopts
        self._skips_oversize = skips_oversize
        self._marks: dict[str, BridgeMark] = {}
        self._written: dict[str, int] = {}

    def mark(self, topic: str) -> BridgeMark | None:
        """Return where a topic is, as its records say; None: nothing was carried to it.

        Raises: TargetDownError, FencedError; UsageError, there are records and no mark.
        """
        found: BridgeMark | None = self._asked(lambda: self._look(topic))
        if found is None:
            self._marks.pop(topic, None)
            return None
        if found.by != self._by and found.batch > self._written.get(topic, found.batch):
            raise FencedError(
                f"another bridge with --id {self._bridge} writes to {topic}: this one ends; use one for each --id"
            )
        self._marks[topic] = found
        return found

    def put(self, batch: IncomingBatch) -> int:
        """Append a batch in one write. After an error it is there with its mark, or not.

        Return in place of how many messages there are marks.
        Raises: TargetDownError, RequestError; UsageError, a message cannot be a record here.
        """
        rows, marked = self._rows(batch)
        before = self._marks.get(batch.topic)
        number = before.batch + 1 if before is not None else 1
        mark = BridgeMark(self._bridge, number, self._by, dict(batch.at))
        while True:
            try:
                self._write(batch.topic, [*rows[:-1], with_mark(rows[-1], mark)], number)
                break
            except RequestError as error:
                self._replace_refused(batch, rows, marked, error)
        self._marks[batch.topic] = mark
        self._written[batch.topic] = number
        return len(marked)

    def _rows(self, batch: IncomingBatch) -> tuple[list[NewRecord], set[int]]:
        """Return the records for a batch, and the places of marks among them."""
        rows: list[NewRecord] = []
        marked: set[int] = set()
        for at, message in enumerate(batch.messages):
            try:
                rows.append(record_of(message, self._values))
            except UsageError as error:
                if not self._skips_oversize:
                    raise UsageError(f"{error}, {_OR_SKIP}") from None
                rows.append(refused_record(message, str(error)))
                marked.add(at)
        return rows, marked

    def _write(self, topic: str, records: Sequence[NewRecord], number: int) -> None:
        producer = Producer(f"bridge:{self._bridge}", number)
        try:
            self._asked(lambda: self._log.append(topic, records, producer=producer))
        except RequestError as error:
            if error.code in {"producer_diverged", "producer_stale"}:
                raise TargetDownError(
                    f"append {number} of {topic} was done by another process: looking again"
                ) from error
            raise

    def _replace_refused(
        self, batch: IncomingBatch, rows: list[NewRecord], marked: set[int], error: RequestError
    ) -> None:
        """Put bytes or a mark in the place of the record that the server does not take.

        Raises: UsageError; the error itself, if it is about no record.
        """
        is_large, found = error.code == "record_too_large", _RECORD.search(error.message)
        if found is not None and (is_large or error.code == "invalid_request"):
            at, is_data = int(found[1]), found[2] in {None, "data"}
        elif is_large:
            at, is_data = self._largest(batch, rows, marked), True
        else:
            raise error
        message, row = batch.messages[at], rows[at]
        if at in marked:
            raise error
        if not is_large and is_data and self._values == "auto" and isinstance(row.data, msgspec.Raw):
            rows[at] = row._replace(data=message.value)
            return
        size = len(message.value or b"")
        if is_large:
            fault, remedy = f"has {size} bytes, which is more than {batch.topic} takes here", _LARGER
        else:
            reason = _RECORD.sub(lambda part: part[2] or "", error.message)
            fault, remedy = f"cannot be a record of {batch.topic} here ({reason})", "mend it there"
        if not self._skips_oversize:
            raise UsageError(f"{message.place} {fault}: {remedy}, {_OR_SKIP}")
        rows[at] = large_record(message, size) if is_large else refused_record(message, fault)
        marked.add(at)

    @staticmethod
    def _largest(batch: IncomingBatch, rows: Sequence[NewRecord], marked: set[int]) -> int:
        """Return the place of the largest message that has no mark in its place."""
        left = [at for at in range(len(rows)) if at not in marked] or [0]
        return max(left, key=lambda at: len(batch.messages[at].value or b""))

    def _look(self, topic: str) -> BridgeMark | None:
        head = 0
        for last in _LOOKS:
            try:
                page = self._log.page(topic, from_={"last": last}, limit=1000)
            except RequestError as error:
                if error.code == "topic_not_found":
                    return None
                raise
            found = None
            while True:
                head = page.head_seq
                for record in page.records:
                    found = mark_of(record.meta, self._bridge) or found
                if page.caught_up:
                    break
                page = self._log.page(topic, page.next_from_seq, limit=1000)
            if found is not None:
                return found
        if head and not self._adopts:
            raise UsageError(
                f"{topic} has had {head} records here, and the newest have no position of the bridge "
                f"{self._bridge!r}: carry to a new topic, or begin at the start of the other side with --adopt"
            )
        return None

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (NoAnswerError, StorageError) as error:
            raise TargetDownError(str(error)) from error
        except RequestError as error:
            if error.code in _PASSING:
                raise TargetDownError(str(error)) from error
            raise
