"""A bridge to Kafka on a broker in memory: positions and messages are one transaction."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from tests.cli.bridge.fake_kafka import FakeBroker, FakeProducer, KafkaError
from topics.bridge.bridge_errors import FencedError, OversizeError, TargetDownError
from topics.bridge.bridge_messages import BridgeMessage, BridgePosition, TopicBatch
from topics.bridge.kafka.kafka_place import KafkaPlace
from topics.bridge.kafka.kafka_target import KafkaTarget
from topics.errors import UsageError

INCARNATION = "00000000000000aa"
URL = "kafka://broker:9092"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    return FakeBroker().installed(monkeypatch)


def target(
    *,
    bridge: str = "b",
    partitions: int = 1,
    replicas: int = 0,
    skips_oversize: bool = False,
    settings: dict[str, str] | None = None,
) -> KafkaTarget:
    place = KafkaPlace.parse(URL, settings or {})
    return KafkaTarget(place, bridge, partitions=partitions, replicas=replicas, skips_oversize=skips_oversize)


def batch(first: int, last: int, topic: str = "orders", size: int = 1, key: str | None = "eu") -> TopicBatch:
    messages = [BridgeMessage(seq, b"x" * size, key, (("topics-node", b"n"),), 5) for seq in range(first, last + 1)]
    return TopicBatch(topic, messages, BridgePosition(INCARNATION, last), last, 0)


def seqs(broker: FakeBroker, topic: str = "orders", partition: int = 0) -> list[int]:
    return [int(dict(row.headers)["topics-seq"]) for row in broker.read(topic, partition)]


def test_messages_and_positions_are_stored_together_and_found_by_the_next_process(broker: FakeBroker) -> None:
    first = target().open()
    assert first.position("orders") is None
    first.put([batch(1, 3), batch(1, 2, "jobs"), batch(4, 4)])
    again = target().open()
    assert again.position("orders") == BridgePosition(INCARNATION, 4)
    assert again.position("jobs") == BridgePosition(INCARNATION, 2)
    assert seqs(broker) == [1, 2, 3, 4]
    assert broker.configs["topics-bridge-b"] == {"cleanup.policy": "compact"}
    assert len(broker.read("topics-bridge-b")) == 2, "one position a topic and transaction"
    row = broker.read("orders")[0]
    assert (row.value, row.key, row.timestamp) == (b"x", b"eu", 5)
    assert row.headers == [("topics-seq", b"1"), ("topics-node", b"n")]


@pytest.mark.parametrize("call", ["begin_transaction", "produce", "commit_transaction"])
def test_a_transaction_that_fails_leaves_nothing_and_is_done_again(broker: FakeBroker, call: str) -> None:
    first = target().open()
    first.put([batch(1, 2)])
    broker.fail(call)
    with pytest.raises(TargetDownError, match="kafka://broker:9092 does not answer: broker transport failure"):
        first.put([batch(3, 4)])
    first.close()
    again = target().open()
    assert again.position("orders") == BridgePosition(INCARNATION, 2)
    again.put([batch(3, 4)])
    assert seqs(broker) == [1, 2, 3, 4]


def test_a_bridge_is_fenced_by_the_next_one_of_its_id_and_not_by_others(broker: FakeBroker) -> None:
    first, other = target().open(), target(bridge="other").open()
    second = target().open()
    with pytest.raises(FencedError, match="another bridge of the same --id has begun"):
        first.put([batch(1, 2)])
    broker.end_transaction("topics-bridge-b", "aborted")
    second.put([batch(1, 2)])
    other.put([batch(1, 1, "jobs")])
    assert (seqs(broker), seqs(broker, "jobs")) == ([1, 2], [1])


def test_positions_are_read_to_the_end_of_a_transaction_that_is_open(broker: FakeBroker) -> None:
    writer = target().open()
    writer.put([batch(1, 2)])
    broker.fail("commit_transaction")
    with pytest.raises(TargetDownError):
        writer.put([batch(3, 9)])
    polls = []

    def ends_later() -> None:
        polls.append(1)
        if len(polls) == 3:
            broker.end_transaction("topics-bridge-b", "committed")

    broker.on_poll = ends_later
    assert target().seen().position("orders") == BridgePosition(INCARNATION, 9)
    assert len(polls) > 3


def test_positions_that_do_not_come_in_time_are_no_positions(broker: FakeBroker) -> None:
    writer = target().open()
    broker.fail("commit_transaction")
    with pytest.raises(TargetDownError):
        writer.put([batch(1, 2)])
    with pytest.raises(TargetDownError, match="the positions in topics-bridge-b were not read in 10 s"):
        target().seen()
    assert broker.closed == 2


def test_a_look_makes_nothing(broker: FakeBroker) -> None:
    assert target().seen().position("orders") is None
    assert (broker.topics, broker.epochs) == ({}, {})
    writer = target().open()
    writer.put([batch(1, 2)])
    assert target().seen().position("none") is None
    writer.put([batch(3, 3)])  # the look has not fenced it


def test_topics_are_made_with_the_partitions_that_are_asked_for_and_are_refused_with_others(broker: FakeBroker) -> None:
    session = target(partitions=3).open()
    broker.on_made = lambda: broker.make("orders", 3)  # another program is faster
    session.put([batch(1, 1)])
    assert len(broker.topics["orders"]) == 3
    broker.make("jobs", 2)
    with pytest.raises(UsageError, match="topic jobs of Kafka has 2 partitions, and --partitions is 3: give"):
        session.put([batch(1, 1, "jobs")])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("create_topics", KafkaError.INVALID_REPLICATION_FACTOR),
        ("create_topics", KafkaError.POLICY_VIOLATION),
        ("list_topics", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("init_transactions", KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_refusal_that_no_wait_ends_is_none_that_is_waited_for(broker: FakeBroker, call: str, code: int) -> None:
    """With --replicas 3 and one broker the bridge tried for ever, of a broker that does not answer."""
    broker.fail(call, code)
    with pytest.raises(UsageError, match="kafka://broker:9092 refuses what the bridge asks for: .*: mend the options,"):
        target().open()
    target().open()


def test_topics_with_fewer_replicas_than_asked_for_are_refused(broker: FakeBroker) -> None:
    """--replicas had no effect on them, and nothing said so."""
    session = target(replicas=3).open()
    session.put([batch(1, 1)])
    assert [[each.replicas for each in broker.topics[name]] for name in ("topics-bridge-b", "orders")] == [[3], [3]]
    broker.make("jobs", 1, 2)
    with pytest.raises(UsageError) as caught:
        session.put([batch(1, 1, "jobs")])
    assert str(caught.value) == (
        "topic jobs of Kafka has a replication factor of 2, and --replicas is 3: leave out --replicas, or give the "
        "topic more (kafka-reassign-partitions.sh)"
    )
    assert not broker.read("jobs")
    target(replicas=2).open().put([batch(1, 1, "jobs")])
    assert seqs(broker, "jobs") == [1]


def test_more_replicas_than_brokers_are_refused_before_anything_is_made(broker: FakeBroker) -> None:
    broker.brokers = 2
    said = r"^kafka://broker:9092 has fewer brokers \(2\) than --replicas 3: leave out --replicas, or add brokers$"
    with pytest.raises(UsageError, match=said):
        target(replicas=3).open()
    assert not broker.topics


@pytest.mark.parametrize(
    ("topic", "options", "brokers", "said"),
    [
        ("orders", {"replicas": 3}, 2, r"kafka://broker:9092 has fewer brokers \(2\) than --replicas 3"),
        ("jobs", {"replicas": 3}, 3, "topic jobs of Kafka has a replication factor of 2, and --replicas is 3"),
        ("jobs", {"partitions": 3}, 3, "topic jobs of Kafka has 1 partitions, and --partitions is 3"),
        ("a/b", {}, 3, "topic 'a/b' is no name of Kafka"),
    ],
)
def test_a_look_refuses_what_the_bridge_itself_would_refuse(
    broker: FakeBroker, topic: str, options: Any, brokers: int, said: str
) -> None:
    """--dry-run showed where each topic continues, and the bridge refused the topic."""
    broker.make("topics-bridge-b", 1, 3)
    broker.make("jobs", 1, 2)
    broker.brokers = brokers
    for position in (
        lambda: target(**options).seen().position(topic),
        lambda: target(**options).open().put([batch(1, 1, topic)]),
    ):
        with pytest.raises(UsageError, match=said):
            position()


@pytest.mark.parametrize("topic", ["größe", "a/b", "n" * 250])
def test_a_topic_of_which_kafka_has_no_name_is_refused(broker: FakeBroker, topic: str) -> None:
    session = target().open()
    with pytest.raises(UsageError, match="is no name of Kafka"):
        session.put([batch(1, 1, topic)])
    with pytest.raises(UsageError, match="is no name of Kafka"):
        target(bridge=topic).open()


def test_keys_choose_the_partition_and_marks_are_in_each(broker: FakeBroker) -> None:
    session = target(partitions=2).open()
    mark = BridgeMessage(3, b"lost", None, (("topics-gap", b"cap"),), 0, is_mark=True)
    session.put(
        [
            batch(1, 1, key="a"),
            batch(2, 2, key="b"),
            TopicBatch("orders", [mark], BridgePosition(INCARNATION, 3), 3, 0),
        ]
    )
    assert [seqs(broker, partition=ord("a") % 2), seqs(broker, partition=ord("b") % 2)] == [[1, 3], [2, 3]]


def test_messages_keep_their_order_when_the_queue_of_the_client_is_full(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProducer, "queue_max", 3)
    session = target().open()
    session.put([batch(1, 20)])
    assert seqs(broker) == list(range(1, 21))
    assert {row.key for row in broker.read("orders")} == {b"eu"}


def test_a_record_too_large_names_topic_seq_limit_and_remedy_or_is_marked(broker: FakeBroker) -> None:
    small = {"message.max.bytes": "3000"}
    with pytest.raises(OversizeError, match=r"orders: record 1 .*message.max.bytes .* is 2872: .*--oversize skip"):
        target(settings=small).open().put([batch(1, 1, size=2900)])
    target(settings=small, skips_oversize=True).open().put([batch(1, 1, size=2900), batch(2, 2, size=2800)])
    marked, whole = broker.read("orders")
    assert marked.value == b'{"seq":1,"bytes":2914,"limit":2872}'
    assert dict(marked.headers)["topics-oversize"] == b"2914"
    assert len(whole.value or b"") == 2800


def test_a_limit_of_the_broker_is_refused_with_the_remedy(broker: FakeBroker) -> None:
    broker.max_bytes = 100
    with pytest.raises(UsageError, match=r"refused messages .*\(message too large\).*--set message.max.bytes=N"):
        target().open().put([batch(1, 1, size=200)])


@pytest.mark.parametrize("call", ["list_topics", "create_topics", "init_transactions", "get_watermark_offsets"])
def test_a_broker_that_does_not_answer_is_asked_again(broker: FakeBroker, call: str) -> None:
    broker.fail(call)
    with pytest.raises(TargetDownError, match="does not answer"):
        target().open()
    target().open().put([batch(1, 1)])
    broker.fail("consume")
    with pytest.raises(TargetDownError, match="does not answer"):
        target().open()


def test_a_session_closes_also_on_a_producer_that_fails(broker: FakeBroker) -> None:
    session = target().open()
    broker.fail("purge", KafkaError._FENCED)
    session.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"group.id": "x"}, "--set group.id is the bridge's own setting: leave it out"),
        ({"no.such.setting": "x"}, 'librdkafka refuses .*No such configuration property: "no.such.setting"'),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(broker: FakeBroker, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        KafkaPlace.parse(URL, settings)


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(UsageError, match="needs confluent-kafka, which is not installed: "):
        KafkaPlace.parse(URL, {})


@pytest.mark.parametrize(("patience_s", "longest_s"), [(1.5, 1.5), (math.inf, 30)])
def test_no_answer_is_waited_for_longer_than_the_bridge_has_patience(
    broker: FakeBroker, patience_s: float, longest_s: float
) -> None:
    """`--once --timeout 1` took 10 s or more for each question that no broker answered."""
    place = KafkaPlace.parse(URL, {}, patience_s)
    session = KafkaTarget(place, "b", partitions=1, replicas=0, skips_oversize=False).open()
    session.put([batch(1, 3)])
    assert broker.longest_wait_s == longest_s
