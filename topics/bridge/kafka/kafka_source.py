"""Topics of Kafka, read from the offsets that the marks here name; only committed records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from topics.bridge.bridge_errors import SourceDownError
from topics.bridge.bridge_messages import GAP
from topics.bridge.incoming import BridgeMark, IncomingBatch, IncomingMessage
from topics.bridge.kafka.kafka_place import KafkaPlace
from topics.bridge.topic_source import TopicMatch
from topics.clock import Clock
from topics.errors import UsageError

_log = logging.getLogger("topics.bridge")

_LOOK_NS = 5_000_000_000
"""How often new topics and partitions are looked for."""
_OWN = ("__", "topics-bridge-")


class KafkaSource:
    """Consumer of all partitions of the topics that match, without a group."""

    def __init__(
        self,
        place: KafkaPlace,
        patterns: TopicMatch,
        mark: Callable[[str], BridgeMark | None],
        *,
        is_once: bool,
        batch_messages: int,
        clock: Clock,
    ) -> None:
        from confluent_kafka import Consumer  # noqa: PLC0415 - an optional package

        self._place = place
        self._clock = clock
        self._patterns = patterns
        self._mark = mark
        self._is_once = is_once
        self._batch_messages = min(batch_messages, 5000)
        config = place.config(
            group_id="topics-bridge",
            enable_auto_commit=False,
            isolation_level="read_committed",
            enable_partition_eof=True,
            auto_offset_reset="error",
            queued_max_messages_kbytes=16 << 10,
        )
        self._consumer: Any = Consumer(config)
        self._at: dict[str, dict[str, int]] = {}
        self._next: dict[tuple[str, int], int] = {}
        """The next offset of each partition that is read."""
        self._ends: dict[tuple[str, int], int] = {}
        """The offset after the last record of each, as of its start."""
        self._unread: set[tuple[str, int]] = set()
        self._gaps: list[IncomingBatch] = []
        self._next_look_ns = 0
        self._has_looked = False

    @property
    def ended(self) -> bool:
        return self._is_once and self._has_looked and not self._unread

    def next(self, wait_s: float) -> list[IncomingBatch]:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an optional package

        try:
            if self._clock.monotonic_ns() >= self._next_look_ns and not (self._is_once and self._has_looked):
                self._look()
            if self._gaps:
                gaps, self._gaps = self._gaps, []
                return gaps
            found: dict[str, list[IncomingMessage]] = {}
            for message in self._consumer.consume(self._batch_messages, timeout=wait_s):
                topic, partition, error = message.topic(), message.partition(), message.error()
                if error is None:
                    place = f"message {message.offset()} of partition {partition} of {topic}"
                    headers = message.headers() or ()
                    found.setdefault(topic, []).append(IncomingMessage(message.value(), message.key(), headers, place))
                    self._at[topic][str(partition)] = self._next[topic, partition] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._unread.discard((topic, partition))
                    self._next[topic, partition] = message.offset()
                else:
                    raise KafkaException(error)
        except KafkaException as error:
            raise self._place.down(error, SourceDownError) from error
        return [IncomingBatch(topic, messages, dict(self._at[topic])) for topic, messages in found.items()]

    def left(self) -> Mapping[str, int]:
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - an optional package

        left: dict[str, int] = {}
        try:
            if not self._has_looked:
                self._look()
            for (topic, partition), offset in self._next.items():
                _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
                end = max(end, self._ends[topic, partition])
                left[topic] = left.get(topic, 0) + max(0, end - offset)
        except KafkaException as error:
            raise self._place.down(error, SourceDownError) from error
        return left

    count = left

    def close(self) -> None:
        self._consumer.close()

    def _look(self) -> None:
        """Find new topics and partitions, and begin each where its mark says.

        Raises: UsageError, there is nothing to carry, ever.
        """
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an optional package

        added = []
        for topic, found in sorted(self._consumer.list_topics(timeout=self._place.answer_s).topics.items()):
            if topic.startswith(_OWN) or not self._patterns.match(topic):
                continue
            if topic not in self._at:
                mark = self._mark(topic)
                self._at[topic] = {} if mark is None else dict(mark.at)
            for partition in found.partitions:
                if (topic, partition) not in self._next:
                    start = self._start(topic, partition, self._at[topic])
                    added.append(TopicPartition(topic, partition, start))
                    self._next[topic, partition] = start
                    self._unread.add((topic, partition))
        if not self._at and not self._has_looked:
            if self._is_once:
                raise UsageError(
                    f"--topics matches no topic of {self._place.url}: mend it, or leave out --once to wait for one"
                )
            _log.warning("%s has no topic that --topics matches", self._place.url)
        if added:
            self._consumer.incremental_assign(added)
        self._has_looked = True
        self._next_look_ns = self._clock.monotonic_ns() + _LOOK_NS

    def _start(self, topic: str, partition: int, at: dict[str, int]) -> int:
        """Return the offset to begin at. Note the mark of a gap if records before it are lost."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an optional package

        low: int
        high: int
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=self._place.answer_s)
        start = at.get(str(partition), low)
        self._ends[topic, partition] = high
        if low <= start <= high:
            return start
        reason = "recreated" if start > high else "retention"
        bounds = {"partition": partition, "gap_from": start, "gap_to": low - 1, "reason": reason}
        at[str(partition)] = low
        message = IncomingMessage(msgspec.json.encode(bounds), None, ((GAP, reason.encode()),), "the mark of a gap")
        self._gaps.append(IncomingBatch(topic, [message], dict(at)))
        return low
