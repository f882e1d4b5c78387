"""Which topics a bridge reads, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.cli.bridge.fake_sides import FakeServer
from topics.bridge.bridge_messages import BridgePosition
from topics.bridge.topic_source import TopicPatterns, TopicSource
from topics.common.values.answers import TopicHead
from topics.errors import UsageError


def nowhere(_topic: str) -> BridgePosition | None:
    return None


def test_patterns_are_names_and_beginnings_of_names() -> None:
    patterns = TopicPatterns.parse(" orders*, jobs ")
    assert [name for name in ("orders", "orders.eu", "jobs", "jobs.x", "other") if patterns.match(name)] == [
        "orders",
        "orders.eu",
        "jobs",
    ]
    assert TopicPatterns.parse("*").match("anything")


@pytest.mark.parametrize("text", ["", " , ", "a*b", "*a", "!x", "or ders*"])
def test_a_pattern_that_names_no_topic_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--topics"):
        TopicPatterns.parse(text)


def test_topics_are_read_by_turns() -> None:
    server = FakeServer()
    server.append("a", *"123456")
    server.append("b", *"123456")
    source = TopicSource(server, TopicPatterns.parse("*"), nowhere)
    assert [batch.topic for batch in (source.next(0) for _ in range(4)) if batch] == ["a", "b", "a", "b"]
    assert source.next(0) is None
    assert not source.ended


def test_a_source_that_ends_reads_up_to_the_heads_of_its_beginning() -> None:
    server = FakeServer()
    server.append("a", *"1234")
    source = TopicSource(server, TopicPatterns.parse("a*"), nowhere, is_once=True)
    assert source.next(0) is not None
    server.append("a", *"567")
    server.append("a.later", "1")
    batch = source.next(0)
    assert batch is not None
    assert [message.seq for message in batch.messages] == [4, 5, 6]
    assert (source.next(0), source.ended) == (None, True)


def test_a_topic_continues_where_the_other_side_says() -> None:
    server = FakeServer()
    server.append("a", *"12345")
    place = BridgePosition(server.topics["a"].incarnation, 4)
    source = TopicSource(server, TopicPatterns.parse("a"), lambda _topic: place, is_once=True)
    batch = source.next(0)
    assert batch is not None
    assert [message.seq for message in batch.messages] == [5]


def test_a_topic_that_is_deleted_while_it_is_due_is_passed() -> None:
    server = FakeServer()
    server.append("a", *"1234")
    source = TopicSource(server, TopicPatterns.parse("a"), nowhere)
    assert source.next(0) is not None
    del server.topics["a"]
    assert source.next(0) is None


@pytest.mark.parametrize("text", ["nope", "nope*", "nope,no*"])
def test_what_matches_no_topic_is_said_and_ends_a_source_that_is_to_end(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = FakeServer()
    server.append("a", "1")
    with pytest.raises(UsageError, match="--topics matches no topic of the server: mend it, or leave out --once"):
        TopicSource(server, TopicPatterns.parse(text), nowhere, is_once=True).next(0)
    source = TopicSource(server, TopicPatterns.parse(text), nowhere)
    assert [source.next(0), source.next(0)] == [None, None]
    names = "nope is there" if text != "nope*" else "that --topics matches is there"
    assert [record.getMessage() for record in caplog.records] == [f"no topic {names} yet"]


def test_a_name_that_is_not_there_is_said_beside_others_that_are(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer()
    server.append("a", "1")
    assert TopicSource(server, TopicPatterns.parse("a,nope"), nowhere, is_once=True).next(0) is not None
    assert [record.getMessage() for record in caplog.records] == ["no topic nope is there yet"]


def test_more_topics_than_a_wait_takes_are_refused_with_the_remedy() -> None:
    class Crowded(FakeServer):
        def heads(
            self, known: Mapping[str, BridgePosition | None], prefixes: Sequence[str], wait_ms: int
        ) -> tuple[Mapping[str, TopicHead | None], str | None]:
            return {}, "orders.257"

    with pytest.raises(UsageError, match=r"more than 256 topics, such as orders\.257.*an --id of its own"):
        TopicSource(Crowded(), TopicPatterns.parse("*"), nowhere).next(0)
