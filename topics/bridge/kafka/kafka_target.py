"""Messages in topics of Kafka, in transactions that store the positions with them.

The positions are in a compacted topic of the bridge's own, one record for each topic. A start ends
the transaction of the process before by its `transactional.id`, which also fences that process,
and then reads them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from topics.bridge.bridge_errors import FencedError, OversizeError
from topics.bridge.bridge_messages import SEQ, BridgeMessage, BridgePosition, TopicBatch, oversize_mark
from topics.bridge.kafka.kafka_place import KafkaPlace, check_topic_name, text_of
from topics.errors import UsageError

_INIT_S, _COMMIT_S, _ROOM_S = 30.0, 60.0, 1.0
_MESSAGE_BYTES = 128
"""Bytes that Kafka adds to a message, and those of the bridge's own header."""
_RECORDS_BYTES = 1_000_000
"""`message.max.bytes` of librdkafka, unless it is set."""


class KafkaTarget:
    """Topics of one bridge. partitions: of each topic; above 1, a tag decides which."""

    def __init__(self, place: KafkaPlace, bridge: str, *, partitions: int, replicas: int, skips_oversize: bool) -> None:
        self._place = place
        self._bridge = bridge
        self._partitions = partitions
        self._replicas = replicas
        self._skips_oversize = skips_oversize

    @property
    def positions_topic(self) -> str:
        return f"topics-bridge-{self._bridge}"

    def open(self) -> KafkaSession:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - an optional package

        check_topic_name(self.positions_topic)
        topics = KafkaTopics(self._place, self._partitions, self._replicas)
        topics.ensure(self.positions_topic, 1, {"cleanup.policy": "compact"})
        # Idempotent: a message that is sent again is stored once, and in its place.
        producer = Producer(
            self._place.config(transactional_id=f"topics-bridge-{self._bridge}", linger_ms=5, partitioner="murmur2")
        )
        try:
            producer.init_transactions(min(_INIT_S, self._place.patience_s))
        except KafkaException as error:
            raise self._place.down(error) from error
        positions = read_positions(self._place, self.positions_topic)
        return KafkaSession(
            self._place, producer, topics, self.positions_topic, positions, skips_oversize=self._skips_oversize
        )

    def seen(self) -> SeenPositions:
        topics = KafkaTopics(self._place, self._partitions, self._replicas)
        is_there = topics.check(self.positions_topic, 1)
        return SeenPositions(topics, read_positions(self._place, self.positions_topic) if is_there else {})


class SeenPositions:
    """Positions as they were read, without a producer. Each look at one checks its topic."""

    def __init__(self, topics: KafkaTopics, positions: dict[str, BridgePosition]) -> None:
        self._topics = topics
        self._positions = positions

    def position(self, topic: str) -> BridgePosition | None:
        """Raises: TargetDownError; UsageError, the topic is refused, see `KafkaTopics.check`."""
        self._topics.check(topic)
        return self._positions.get(topic)

    def put(self, batches: Sequence[TopicBatch]) -> None:
        raise AssertionError("a look stores nothing")

    def close(self) -> None:
        pass


class KafkaTopics:
    """Which topics there are, and those that are made."""

    def __init__(self, place: KafkaPlace, partitions: int, replicas: int) -> None:
        self._place = place
        self._admin = place.admin()
        self._wanted = partitions
        self._replicas = replicas
        self._known: dict[str, int] = {}

    def check(self, topic: str, partitions: int = 0) -> bool:
        """Return whether there is a topic; one that is missing could be made as the bridge asks.

        partitions: that it is to have; 0: those of the bridge.
        Raises: TargetDownError; UsageError, no topic has such a name, there are fewer brokers than
            replicas, or it has another number of partitions, or fewer replicas.
        """
        check_topic_name(topic)
        wanted = partitions or self._wanted
        replicas, brokers = self._replicas_of(topic)
        if replicas is None:
            if brokers < self._replicas:
                raise UsageError(
                    f"{self._place.url} has fewer brokers ({brokers}) than --replicas {self._replicas}: leave out "
                    "--replicas, or add brokers"
                )
            return False
        if (found := len(replicas)) != wanted:
            raise UsageError(
                f"topic {topic} of Kafka has {found} partitions, and --partitions is {wanted}: "
                f"give --partitions {found}, or carry to a topic with {wanted}"
            )
        if min(replicas) < self._replicas:
            raise UsageError(
                f"topic {topic} of Kafka has a replication factor of {min(replicas)}, and --replicas is "
                f"{self._replicas}: leave out --replicas, or give the topic more (kafka-reassign-partitions.sh)"
            )
        return True

    def _replicas_of(self, topic: str) -> tuple[list[int] | None, int]:
        """Return how many replicas each partition of a topic has, and how many brokers there are.

        None: there is no such topic. Raises: TargetDownError; UsageError, they refuse the question.
        """
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an optional package

        try:
            cluster = self._admin.list_topics(topic, timeout=self._place.answer_s)
        except KafkaException as error:
            raise self._place.down(error) from error
        found, brokers = cluster.topics[topic], len(cluster.brokers)
        if found.error is not None:
            if found.error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
                return None, brokers
            raise self._place.down(KafkaException(found.error))
        return [len(partition.replicas) for partition in found.partitions.values()], brokers

    def ensure(self, topic: str, partitions: int = 0, config: dict[str, str] | None = None) -> int:
        """Make a topic if it is missing. Return its number of partitions. Raises: as `check`."""
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an optional package
        from confluent_kafka.admin import NewTopic  # noqa: PLC0415

        if topic in self._known:
            return self._known[topic]
        wanted = partitions or self._wanted
        if not self.check(topic, partitions):
            made = NewTopic(topic, wanted, self._replicas or -1, config=config or {})
            answer_s = self._place.answer_s
            try:
                self._admin.create_topics([made], operation_timeout=answer_s, request_timeout=answer_s)[topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._place.down(error) from error
        self._known[topic] = wanted
        return wanted


def read_positions(place: KafkaPlace, topic: str) -> dict[str, BridgePosition]:
    """Return the committed positions by topic. Raises: TargetDownError."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition  # noqa: PLC0415

    config = place.config(
        group_id="topics-bridge",
        enable_auto_commit=False,
        isolation_level="read_committed",
        enable_partition_eof=True,
        fetch_wait_max_ms=10,  # 500 by default: so late would the end be known
    )
    reader = Consumer(config)
    found: dict[str, BridgePosition] = {}
    try:
        _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=place.answer_s)
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = reader.poll(place.answer_s)
            if message is None:
                raise place.down(TimeoutError(f"the positions in {topic} were not read in {place.answer_s:g} s"))
            error = message.error()
            if error is None:
                found[message.key().decode()] = BridgePosition.of_json(message.value())
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif message.offset() >= end:  # below it, a transaction has not ended yet
                return found
    except KafkaException as error:
        raise place.down(error) from error
    finally:
        reader.close()


class KafkaSession:
    """One producer, whose `transactional.id` no other one has."""

    def __init__(
        self,
        place: KafkaPlace,
        producer: Any,
        topics: KafkaTopics,
        positions_topic: str,
        positions: dict[str, BridgePosition],
        *,
        skips_oversize: bool,
    ) -> None:
        self._place = place
        self._producer = producer
        self._topics = topics
        self._positions_topic = positions_topic
        self._positions = positions
        self._skips_oversize = skips_oversize
        limit = int(place.settings.get("message.max.bytes", _RECORDS_BYTES))
        self._limit = limit - _MESSAGE_BYTES

    def position(self, topic: str) -> BridgePosition | None:
        return self._positions.get(topic)

    def put(self, batches: Sequence[TopicBatch]) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an optional package

        fenced = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
        partitions = {batch.topic: self._topics.ensure(batch.topic) for batch in batches}
        try:
            self._producer.begin_transaction()
            for batch in batches:
                self._produce(batch, partitions[batch.topic])
            for topic, position in {batch.topic: batch.position for batch in batches}.items():
                self._send(self._positions_topic, position.as_json(), key=topic)
            self._producer.commit_transaction(_COMMIT_S)
        except KafkaException as error:
            inner = error.args[0]
            if inner.code() in fenced:
                raise FencedError(
                    f"another bridge of the same --id has begun, so {self._place.url} takes nothing from this one: "
                    "use one bridge for each --id"
                ) from error
            if inner.code() in {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}:
                raise UsageError(
                    f"{self._place.url} refused messages that are larger than it takes ({text_of(error)}): give its "
                    "limit as --set message.max.bytes=N"
                ) from error
            raise self._place.down(error) from error

    def _produce(self, batch: TopicBatch, partitions: int) -> None:
        topic, limit, produce = batch.topic, self._limit, self._producer.produce
        small, partition = limit - 1024, 0 if partitions == 1 else -1  # -1: by the key
        for message in batch.messages:
            if len(message.value) > small and message.size > limit:
                message = self._mark_of(topic, message)
            seq, value, key, ts = message.seq, message.value, message.key, message.ts
            headers = [(SEQ, str(seq)), *message.headers] if message.headers else [(SEQ, str(seq))]
            if message.is_mark:
                for each in range(partitions):
                    self._send(topic, value, headers=headers, timestamp=ts, partition=each)
                continue
            try:
                # By place, since names would be looked up for each message.
                produce(topic, value, key, partition, None, None, ts, headers)
            except BufferError:
                self._send(topic, value, headers=headers, timestamp=ts, key=key, partition=partition)

    def _send(self, topic: str, value: bytes | msgspec.Raw, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, **more)
                return
            except BufferError:
                self._producer.poll(_ROOM_S)

    def _mark_of(self, topic: str, message: BridgeMessage) -> BridgeMessage:
        if not self._skips_oversize:
            raise OversizeError(topic, message.seq, message.size, self._limit, "message.max.bytes (--set)")
        return oversize_mark(message, message.size, self._limit)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._producer.purge()
