"""A broker of Kafka in memory, and the part of `confluent_kafka` that the bridge uses, in its place.

Transactions are as there: what is produced takes offsets at once, is read once it is committed, and the end of a
transaction takes an offset, too. A producer is fenced by the next one with its `transactional.id`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from typing_extensions import Buffer

OFFSET_BEGINNING = -2
_OPEN, _COMMITTED, _ABORTED, _END = "open", "committed", "aborted", "end"


class KafkaError:
    """An error of librdkafka, by its code."""

    _PARTITION_EOF, _UNKNOWN_TOPIC, _FENCED, _TRANSPORT = -191, -188, -144, -195
    UNKNOWN_TOPIC_OR_PART, MSG_SIZE_TOO_LARGE, INVALID_MSG_SIZE = 3, 10, 4
    INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION = 37, 38, 44
    TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 29, 31
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED = 53, 30
    TOPIC_ALREADY_EXISTS, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 36, 47, 90

    def __init__(self, code: int, text: str = "broker transport failure") -> None:
        self._code = code
        self._text = text

    def __str__(self) -> str:
        return f'KafkaError{{code={self._code},str="{self._text}"}}'

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return self._text


class KafkaException(Exception):
    pass


class TopicPartition(NamedTuple):
    topic: str
    partition: int
    offset: int = 0


class NewTopic(NamedTuple):
    topic: str
    num_partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass
class Row:
    """An offset of a partition: a message, or the end of a transaction."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int
    state: str


@dataclass
class FakePartition:
    replicas: int = 1
    rows: list[Row] = field(default_factory=list)
    low: int = 0
    """The first offset that is not removed."""

    @property
    def high(self) -> int:
        return len(self.rows)

    @property
    def stable(self) -> int:
        """The offset up to which all transactions have ended."""
        return next((offset for offset, row in enumerate(self.rows) if row.state == _OPEN), self.high)


class FakeMessage:
    def __init__(self, topic: str, partition: int, offset: int, row: Row | None, error: KafkaError | None) -> None:
        self._place = topic, partition, offset
        self._row = row
        self._error = error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def error(self) -> KafkaError | None:
        return self._error

    def value(self) -> bytes | None:
        return self._row.value if self._row else None

    def key(self) -> bytes | None:
        return self._row.key if self._row else None

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._row.headers or None if self._row else None


class FakeBroker:
    """Topics, transactions, and calls that fail on demand."""

    def __init__(self) -> None:
        self.topics: dict[str, list[FakePartition]] = {}
        self.configs: dict[str, Mapping[str, str]] = {}
        self.epochs: dict[str, int] = {}
        """By transactional id: how many producers have begun."""
        self.open_rows: dict[str, list[tuple[FakePartition, Row]]] = {}
        self.failures: dict[str, int] = {}
        """By call: the code of the error that the next one raises."""
        self.on_poll: Callable[[], None] = lambda: None
        self.on_made: Callable[[], None] = lambda: None
        self.max_bytes = 1 << 20
        self.brokers = 3
        self.longest_wait_s = 0.0
        """The longest time for which a client would have waited for an answer."""
        self.closed = 0
        """Consumers that were closed."""

    def fail(self, call: str, code: int = KafkaError._TRANSPORT) -> None:
        self.failures[call] = code

    def check(self, call: str, wait_s: float = 0) -> None:
        self.longest_wait_s = max(self.longest_wait_s, wait_s)
        code = self.failures.pop(call, None)
        if code is not None:
            raise KafkaException(KafkaError(code))

    def make(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        self.topics[topic] = [FakePartition(replicas) for _ in range(partitions)]

    def write(
        self, topic: str, *values: bytes | None, partition: int = 0, key: bytes | None = None, state: str = _COMMITTED
    ) -> None:
        rows = self.topics[topic][partition].rows
        rows += [Row(value, key, [("by", b"test")], 0, state) for value in values]

    def read(self, topic: str, partition: int = 0) -> list[Row]:
        """The messages that a reader of committed ones gets."""
        found = self.topics[topic][partition]
        return [row for row in found.rows[found.low : found.stable] if row.state == _COMMITTED]

    def end_transaction(self, transactional_id: str, state: str) -> None:
        ended = self.open_rows.pop(transactional_id, [])
        for _partition, row in ended:
            row.state = state
        for partition in {id(partition): partition for partition, _ in ended}.values():
            partition.rows.append(Row(None, None, [], 0, _END))

    # --- the classes of the package, of this broker ------------------------------------------------------------------
    def installed(self, patch: pytest.MonkeyPatch) -> FakeBroker:
        """Have `import confluent_kafka` give this broker's clients."""
        module: Any = ModuleType("confluent_kafka")
        admin: Any = ModuleType("confluent_kafka.admin")
        module.KafkaError, module.KafkaException, module.TopicPartition = KafkaError, KafkaException, TopicPartition
        module.OFFSET_BEGINNING = OFFSET_BEGINNING
        module.Producer = lambda config: FakeProducer(self, config)
        module.Consumer = lambda config: FakeConsumer(self, config)
        admin.AdminClient = lambda config: FakeAdmin(self, config)
        admin.NewTopic = NewTopic
        patch.setitem(sys.modules, "confluent_kafka", module)
        patch.setitem(sys.modules, "confluent_kafka.admin", admin)
        return self

    def metadata(self, topics: Iterable[str]) -> Any:
        def of_topic(name: str) -> Any:
            found = self.topics.get(name)
            error = None if found is not None else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            shown = [SimpleNamespace(replicas=[*range(each.replicas)]) for each in found or ()]
            return SimpleNamespace(error=error, partitions=dict(enumerate(shown)))

        brokers = {number: SimpleNamespace(id=number) for number in range(self.brokers)}
        return SimpleNamespace(topics={name: of_topic(name) for name in topics}, brokers=brokers)


class FakeAdmin:
    def __init__(self, broker: FakeBroker, config: dict[str, Any]) -> None:
        if "no.such.setting" in config:
            raise KafkaException(KafkaError(-186, 'No such configuration property: "no.such.setting"'))
        self._broker = broker

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._broker.check("list_topics", timeout)
        return self._broker.metadata([topic])

    def create_topics(self, made: list[NewTopic], operation_timeout: float, request_timeout: float) -> dict[str, Any]:
        (topic,) = made
        self._broker.longest_wait_s = max(self._broker.longest_wait_s, operation_timeout, request_timeout)

        def result() -> None:
            self._broker.on_made()
            self._broker.check("create_topics")
            if topic.topic in self._broker.topics:
                raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
            self._broker.make(topic.topic, topic.num_partitions, max(1, topic.replication_factor))
            self._broker.configs[topic.topic] = topic.config

        return {topic.topic: SimpleNamespace(result=result)}


class FakeProducer:
    """A transactional producer. Its queue holds `queue_max` messages until it is polled."""

    queue_max = 1 << 30

    def __init__(self, broker: FakeBroker, config: dict[str, Any]) -> None:
        self._broker = broker
        self._id: str = config["transactional.id"]
        self._epoch = 0
        self._queued = 0

    def init_transactions(self, timeout: float) -> None:
        self._broker.check("init_transactions", timeout)
        self._broker.end_transaction(self._id, _ABORTED)
        self._epoch = self._broker.epochs[self._id] = self._broker.epochs.get(self._id, 0) + 1

    def begin_transaction(self) -> None:
        self._broker.check("begin_transaction")

    def produce(  # noqa: PLR0917 - the places of the library
        self,
        topic: str,
        value: Buffer,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: None = None,
        on_delivery: None = None,
        timestamp: int = 0,
        headers: Iterable[tuple[str, str | bytes]] = (),
    ) -> None:
        self._broker.check("produce")
        if self._queued >= self.queue_max:
            raise BufferError("Local: Queue full")
        self._queued += 1
        raw = key.encode() if isinstance(key, str) else key
        texts = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers]
        partitions = self._broker.topics[topic]
        found = partitions[partition if partition >= 0 else sum(raw or b"") % len(partitions)]
        row = Row(bytes(value), raw, texts, timestamp, _OPEN)
        found.rows.append(row)
        self._broker.open_rows.setdefault(self._id, []).append((found, row))

    def poll(self, timeout: float) -> int:
        self._queued = 0
        return 0

    def commit_transaction(self, timeout: float) -> None:
        if self._broker.epochs[self._id] != self._epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED))
        rows = self._broker.open_rows.get(self._id, [])
        if any(len(row.value or b"") > self._broker.max_bytes for _, row in rows):
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "message too large"))
        self._broker.check("commit_transaction")
        self._broker.end_transaction(self._id, _COMMITTED)

    def purge(self) -> None:
        self._broker.check("purge")


class FakeConsumer:
    """A consumer of committed messages, which reports each end that it comes to."""

    def __init__(self, broker: FakeBroker, config: dict[str, Any]) -> None:
        assert config["isolation.level"] == "read_committed"
        self._broker = broker
        self._at: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], int] = {}

    def assign(self, places: list[TopicPartition]) -> None:
        self._at = {}
        self.incremental_assign(places)

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        for topic, partition, offset in places:
            low = self._broker.topics[topic][partition].low
            self._at[topic, partition] = low if offset == OFFSET_BEGINNING else offset

    def list_topics(self, timeout: float) -> Any:
        self._broker.check("list_topics", timeout)
        return self._broker.metadata(self._broker.topics)

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = 0, cached: bool = False) -> tuple[int, int]:
        self._broker.check("get_watermark_offsets", timeout)
        found = self._broker.topics[place.topic][place.partition]
        return found.low, found.high

    def poll(self, timeout: float) -> FakeMessage | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, most: int, timeout: float) -> list[FakeMessage]:
        self._broker.on_poll()
        failed = self._broker.failures.pop("consume", None)
        if failed is not None:
            topic, partition = next(iter(self._at))
            return [FakeMessage(topic, partition, 0, None, KafkaError(failed))]
        found: list[FakeMessage] = []
        for place, start in self._at.items():
            topic, partition = place
            stored, offset = self._broker.topics[topic][partition], start
            while offset < stored.stable and len(found) < most:
                row = stored.rows[offset]
                if row.state == _COMMITTED:
                    found.append(FakeMessage(topic, partition, offset, row, None))
                offset += 1
            self._at[place] = offset
            if offset == stored.stable and self._told.get(place) != offset and len(found) < most:
                self._told[place] = offset
                found.append(FakeMessage(topic, partition, offset, None, KafkaError(KafkaError._PARTITION_EOF)))
        return found

    def close(self) -> None:
        self._broker.closed += 1
