"""Appends of messages to topics here, each done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from topics.bridge.carried import OVERSIZE, FencedError, TargetDownError
from topics.bridge.incoming import BridgeMark, IncomingBatch, large_record, mark_of, record_of, with_mark
from topics.common.values.begin import From
from topics.common.values.delivered import Page
from topics.common.values.written import NewRecord, Producer
from topics.errors import NoAnswerError, RequestError, StorageError, UsageError

_LOOKS = (1, 10_000)
"""Newest records among which the mark is looked for."""
_PASSING = frozenset({"not_ready", "shutting_down", "throttled", "topic_full"})


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

    def put(self, batch: IncomingBatch) -> None:
        """Append a batch in one write. After an error it is there with its mark, or not.

        Raises: TargetDownError, RequestError, UsageError.
        """
        rows = [record_of(message, self._values) for message in batch.messages]
        before = self._marks.get(batch.topic)
        number = before.batch + 1 if before is not None else 1
        mark = BridgeMark(self._bridge, number, self._by, dict(batch.at))
        while True:
            try:
                self._write(batch.topic, [*rows[:-1], with_mark(rows[-1], mark)], number)
                break
            except RequestError as error:
                if error.code != "record_too_large":
                    raise
                self._replace_largest(batch, rows)
        self._marks[batch.topic] = mark
        self._written[batch.topic] = number

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

    def _replace_largest(self, batch: IncomingBatch, rows: list[NewRecord]) -> None:
        """Put a mark in the place of the largest message that is there. Raises: UsageError."""
        sizes = [
            len(message.value or b"") if row.data is not None and OVERSIZE not in (row.meta or ()) else 0
            for message, row in zip(batch.messages, rows, strict=True)
        ]
        at = max(range(len(rows)), key=sizes.__getitem__)
        message = batch.messages[at]
        if not self._skips_oversize or not sizes[at]:
            raise UsageError(
                f"{message.place} has {sizes[at]} bytes, which is more than {batch.topic} takes here: raise "
                "TOPICS_MAX_RECORD_BYTES of the server, or leave a mark in its place with --oversize skip"
            )
        rows[at] = large_record(message, sizes[at])

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
