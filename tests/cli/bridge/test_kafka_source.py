"""A bridge from Kafka on a broker in memory: where it begins, what it reads, and when it looks again."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.cli.bridge.fake_kafka import FakeBroker
from topics.bridge.bridge_errors import SourceDownError
from topics.bridge.incoming import BridgeMark
from topics.bridge.kafka.kafka_place import KafkaPlace
from topics.bridge.kafka.kafka_source import KafkaSource
from topics.bridge.topic_source import NamedTopics, TopicPatterns
from topics.clock import ManualClock
from topics.errors import UsageError

S = 1_000_000_000


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    return FakeBroker().installed(monkeypatch)


class Reading:
    """A source, and what it has read."""

    def __init__(
        self, topics: str, at: Mapping[str, dict[str, int]] | None = None, *, is_once: bool = False, most: int = 1000
    ) -> None:
        self.clock = ManualClock()
        marks = {topic: BridgeMark("b", 1, "p", offsets) for topic, offsets in (at or {}).items()}
        self.source = KafkaSource(
            KafkaPlace.parse("kafka://h:1", {}),
            NamedTopics(TopicPatterns.parse(topics), "Kafka", None),
            marks.get,
            is_once=is_once,
            batch_messages=most,
            clock=self.clock,
        )
        self.at: dict[str, Mapping[str, int]] = {}

    def next(self) -> dict[str, list[bytes | None]]:
        """The values of the next batches, by topic."""
        batches = self.source.next(0)
        self.at |= {batch.topic: batch.at for batch in batches}
        return {batch.topic: [message.value for message in batch.messages] for batch in batches}


def test_each_partition_is_read_from_its_mark_or_from_its_start(broker: FakeBroker) -> None:
    broker.make("orders", 2)
    broker.make("jobs")
    broker.make("other")
    broker.write("orders", b"a", b"b", b"c", key=b"k")
    broker.write("orders", b"d", partition=1)
    broker.write("jobs", None)
    broker.write("other", b"x")
    reading = Reading("orders,jobs*", {"orders": {"0": 2}})
    assert reading.next() == {"orders": [b"c", b"d"], "jobs": [None]}
    assert reading.at == {"orders": {"0": 3, "1": 1}, "jobs": {"0": 1}}
    assert reading.next() == {}
    broker.write("orders", b"e")
    message = reading.source.next(0)[0].messages[0]
    assert (message.value, message.key, message.headers) == (b"e", None, [("by", b"test")])
    assert message.place == "message 3 of partition 0 of orders"


def test_topics_of_brokers_and_bridges_are_left_out(broker: FakeBroker) -> None:
    for topic in ("__consumer_offsets", "topics-bridge-b", "orders"):
        broker.make(topic)
        broker.write(topic, b"x")
    assert Reading("*").next() == {"orders": [b"x"]}


def test_a_topic_that_has_no_name_here_is_named(broker: FakeBroker) -> None:
    broker.make("_schemas")
    with pytest.raises(UsageError, match="'_schemas' of Kafka is no name of a topic here"):
        Reading("*").next()


def test_new_topics_and_partitions_are_found_within_five_seconds(broker: FakeBroker) -> None:
    broker.make("orders")
    reading = Reading("*")
    assert reading.next() == {}
    broker.make("jobs")
    broker.write("jobs", b"j")
    broker.topics["orders"] += [type(broker.topics["orders"][0])()]
    broker.write("orders", b"o", partition=1)
    reading.clock.advance_ns(5 * S - 1)
    assert reading.next() == {}, "it looks every five seconds"
    reading.clock.advance_ns(1)
    assert reading.next() == {"jobs": [b"j"], "orders": [b"o"]}


def test_one_that_ends_has_read_every_partition_that_was_there_and_looks_no_more(broker: FakeBroker) -> None:
    broker.make("orders", 3)
    broker.write("orders", b"a", b"b", b"c")
    broker.write("orders", b"d", partition=2)
    reading = Reading("*", is_once=True, most=2)
    assert not reading.source.ended
    found: list[bytes | None] = []
    for _ in range(10):
        found += reading.next().get("orders", [])
        if reading.source.ended:
            break
    assert sorted(value or b"" for value in found) == [b"a", b"b", b"c", b"d"]
    assert reading.source.ended
    broker.make("later")
    broker.write("later", b"x")
    reading.clock.advance_ns(60 * S)
    assert reading.next() == {}


def test_one_that_ends_is_refused_where_nothing_matches_and_not_where_it_is_empty(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended with exit code 0: a mistyped name looked like a topic that is carried."""
    broker.make("orders")
    said = "^--topics matches no topic of kafka://h:1: mend it, or leave out --once to wait for one$"
    for look in (lambda source: source.next(0), lambda source: source.count()):
        with pytest.raises(UsageError, match=said):
            look(Reading("oders*", is_once=True).source)
    assert Reading("oders*").next() == {}
    assert [record.getMessage() for record in caplog.records] == ["kafka://h:1 has no topic that --topics matches"]
    empty = Reading("orders", is_once=True)
    assert empty.next() == {}
    assert empty.source.ended


@pytest.mark.parametrize(
    ("low", "mark", "bounds", "then"),
    [(3, 1, (1, 2, "retention"), [b"d"]), (0, 9, (9, -1, "recreated"), [b"a", b"b", b"c", b"d"])],
)
def test_messages_that_are_lost_leave_a_mark_before_those_after_them(
    broker: FakeBroker, low: int, mark: int, bounds: tuple[int, int, str], then: list[bytes]
) -> None:
    first, last, reason = bounds
    broker.make("orders")
    broker.write("orders", b"a", b"b", b"c", b"d")
    broker.topics["orders"][0].low = low
    reading = Reading("orders", {"orders": {"0": mark}})
    (gap,) = reading.source.next(0)
    assert gap.at == {"0": low}
    assert gap.messages[0].headers == (("topics-gap", reason.encode()),)
    value = json.loads(gap.messages[0].value or b"")
    assert value == {"partition": 0, "gap_from": first, "gap_to": last, "reason": reason}
    assert reading.next() == {"orders": then}


def test_a_mark_at_the_very_end_is_no_loss(broker: FakeBroker) -> None:
    broker.make("orders")
    broker.write("orders", b"a", b"b")
    broker.topics["orders"][0].low = 2
    reading = Reading("orders", {"orders": {"0": 2}})
    assert reading.next() == {}
    broker.write("orders", b"c")
    assert reading.next() == {"orders": [b"c"]}


def test_messages_count_once_their_transaction_is_committed(broker: FakeBroker) -> None:
    broker.make("orders")
    broker.write("orders", b"a")
    broker.write("orders", b"dropped", state="aborted")
    broker.write("orders", b"open", state="open")
    broker.write("orders", b"behind it")
    reading = Reading("orders")
    assert reading.next() == {"orders": [b"a"]}
    assert reading.next() == {}
    broker.topics["orders"][0].rows[2].state = "committed"
    assert reading.next() == {"orders": [b"open", b"behind it"]}


def test_what_is_left_is_counted_before_the_first_read_and_after_each(broker: FakeBroker) -> None:
    broker.make("orders", 2)
    broker.make("empty")
    broker.write("orders", b"a", b"b", b"c")
    broker.write("orders", b"d", partition=1)
    reading = Reading("*", {"orders": {"0": 1}}, most=3)
    assert reading.source.left() == {"orders": 3, "empty": 0}
    reading.next()
    assert reading.source.left()["orders"] == 1
    reading.next()
    broker.write("orders", b"e")
    assert reading.source.left()["orders"] == 1


@pytest.mark.parametrize("call", ["list_topics", "get_watermark_offsets", "consume"])
def test_a_broker_that_does_not_answer_is_the_sources_failure(broker: FakeBroker, call: str) -> None:
    broker.make("orders")
    reading = Reading("*")
    broker.fail(call)
    with pytest.raises(SourceDownError, match="kafka://h:1 does not answer: broker transport failure"):
        reading.next()
    if call != "consume":
        broker.fail(call)
        with pytest.raises(SourceDownError, match="does not answer"):
            Reading("*").source.left()
    reading.source.close()
    assert broker.closed == 1
