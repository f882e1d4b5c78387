"""A bridge from JetStream on a stream in memory: where it begins, what it leaves out, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.bridge.fake_jetstream import FakeConsumer, FakeLink, FakeReadStream, nats_errors
from topics.bridge.bridge_errors import SourceDownError
from topics.bridge.incoming import BridgeMark, IncomingBatch
from topics.bridge.jetstream.jetstream_source import JetStreamSource
from topics.bridge.topic_source import NamedTopics, TopicPatterns
from topics.errors import UsageError


class Here:
    """Topics here: what was appended, and the mark of the newest append."""

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}
        self.marks: dict[str, BridgeMark] = {}

    def put(self, batch: IncomingBatch) -> None:
        self.rows.setdefault(batch.topic, []).extend(int(message.value or b"") for message in batch.messages)
        self.marks[batch.topic] = BridgeMark("b", 1, "p", dict(batch.at))


class Reading:
    """A source of one process, whose batches go into topics here."""

    def __init__(self, stream: FakeReadStream, here: Here, topics: str = "*", *, is_once: bool = False) -> None:
        self.here = here
        self.link: Any = FakeLink(stream)
        self.source = JetStreamSource(
            self.link, "topics", "t.", TopicPatterns.parse(topics), mark=here.marks.get, is_once=is_once
        )

    def next(self, appends: int = 1000) -> bool:
        """Append the next batches, or so many of them. Return whether there were some."""
        batches = self.source.next(0)
        for batch in batches[:appends]:
            self.here.put(batch)
        return bool(batches)

    def all(self) -> dict[str, list[int]]:
        while self.next():
            pass
        return self.here.rows


def no_mark(_topic: str) -> BridgeMark | None:
    return None


def check_refused(
    stream: FakeReadStream,
    error: type[Exception],
    match: str,
    mark: Callable[[str], BridgeMark | None] = no_mark,
) -> None:
    """Check that a source cannot begin, and has closed its link."""
    link: Any = FakeLink(stream)
    with pytest.raises(error, match=match):
        JetStreamSource(link, "topics", "t.", TopicPatterns.parse("*"), mark=mark, is_once=False)
    assert link.is_closed


@pytest.fixture
def stream() -> FakeReadStream:
    return FakeReadStream()


def test_messages_become_batches_by_topic_with_the_end_of_what_was_read(stream: FakeReadStream) -> None:
    stream.publish("t.a", "t.b", "other.x", "t.a", headers={"by": "test"})
    reading = Reading(stream, Here())
    first, second = reading.source.next(0)
    assert (first.topic, second.topic, first.at, second.at) == ("a", "b", {"to": 4}, {"to": 4})
    message = first.messages[1]
    assert (message.value, message.headers, message.key) == (b"4", [("by", b"test")], None)
    assert message.place == "message 4 of stream topics"
    assert reading.source.next(0) == []


@pytest.mark.parametrize("fetched", [1, 2, 3, 100])
@pytest.mark.parametrize("kill", range(1, 12))
def test_a_process_that_ends_after_any_append_loses_and_doubles_nothing(
    stream: FakeReadStream, monkeypatch: pytest.MonkeyPatch, fetched: int, kill: int
) -> None:
    monkeypatch.setattr(FakeConsumer, "fetch_max", fetched)
    stream.publish("t.a", "t.b", "t.a", "t.c", "t.b", "t.a", "t.b", "t.c", "t.c")
    here = Here()
    for appends in (kill, 1, 2):
        reading = Reading(stream, here)
        while appends > 0:
            batches = reading.source.next(0)
            if not batches:
                break
            for batch in batches[:appends]:
                here.put(batch)
            appends -= len(batches)
    assert Reading(stream, here).all() == {"a": [1, 3, 6], "b": [2, 5, 7], "c": [4, 8, 9]}


def test_topics_that_are_taken_in_later_come_from_their_first_message(stream: FakeReadStream) -> None:
    stream.publish("t.jobs", "t.orders", "t.jobs", "t.orders")
    here = Here()
    assert Reading(stream, here, "orders").all() == {"orders": [2, 4]}
    stream.publish("t.orders", "t.jobs")
    reading = Reading(stream, here, "orders,jobs")
    reading.next()
    assert here.rows == {"orders": [2, 4, 5], "jobs": [1, 3, 6]}
    del here.rows["jobs"], here.marks["jobs"]  # it is deleted here
    assert Reading(stream, here, "orders,jobs").all() == {"orders": [2, 4, 5], "jobs": [1, 3, 6]}


def test_a_process_that_ends_while_a_topic_is_caught_up_continues_there(
    stream: FakeReadStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConsumer, "fetch_max", 2)
    stream.publish(*["t.jobs", "t.orders"] * 4)
    here = Here()
    assert Reading(stream, here, "orders").all() == {"orders": [2, 4, 6, 8]}
    Reading(stream, here).next()
    assert here.rows["jobs"] == [1]
    assert Reading(stream, here).all() == {"orders": [2, 4, 6, 8], "jobs": [1, 3, 5, 7]}


def test_nothing_is_read_again_of_a_stream_that_is_carried(stream: FakeReadStream) -> None:
    stream.publish("t.a", "t.b", "t.a", "t.a")
    here = Here()
    Reading(stream, here).all()
    assert Reading(stream, here).source.left() == {"topics": 0}
    stream.publish("t.new")
    reading = Reading(stream, here)
    assert reading.source.left() == {"topics": 1}
    assert reading.all() == {"a": [1, 3, 4], "b": [2], "new": [5]}
    assert reading.source.left() == {"topics": 0}


def test_subjects_that_do_not_match_are_left_out(stream: FakeReadStream, caplog: pytest.LogCaptureFixture) -> None:
    stream.publish("t.orders", "t.orders.eu", "t.jobs", "u.orders")
    assert Reading(stream, Here(), "orders*").all() == {"orders": [1], "orders.eu": [2]}
    assert not caplog.records
    assert Reading(stream, Here(), "nope*").all() == {}
    assert "has no message of a topic that --topics matches" in caplog.text


def test_a_subject_that_is_no_name_of_a_topic_is_named_or_left_out(stream: FakeReadStream) -> None:
    stream.publish("t.orders", "t.a/b", "t.ünï", "t.-dash", "t.a/b", "t.orders", "u.a/b")
    here, skipped = Here(), list[str]()
    patterns = TopicPatterns.parse("*")
    link: Any = FakeLink(stream)
    with pytest.raises(UsageError, match=r"'-dash' of stream topics is no name of a topic here: .*--oversize skip"):
        JetStreamSource(
            link, "topics", "t.", NamedTopics(patterns, "stream topics", None), mark=here.marks.get, is_once=True
        )
    assert link.is_closed
    names = NamedTopics(patterns, "stream topics", skipped.append)
    source = JetStreamSource(link, "topics", "t.", names, mark=here.marks.get, is_once=True)
    assert [(batch.topic, len(batch.messages), batch.at) for batch in source.next(0)] == [("orders", 2, {"to": 6})]
    assert (skipped, source.ended) == (["-dash", "a/b", "ünï"], True)


def test_one_that_ends_has_read_what_was_there_at_its_start(stream: FakeReadStream) -> None:
    stream.publish("t.a", "t.a")
    reading = Reading(stream, Here(), is_once=True)
    stream.publish("t.a")
    assert not reading.source.ended
    reading.all()
    assert reading.source.ended
    assert Reading(FakeReadStream(), Here(), is_once=True).source.ended
    assert not Reading(FakeReadStream(), Here()).source.ended


def test_one_that_ends_is_refused_where_nothing_of_a_stream_with_messages_matches(stream: FakeReadStream) -> None:
    """It ended with exit code 0: a mistyped name looked like a topic that is carried."""
    stream.publish("t.orders", "u.x")
    said = r"^--topics matches no topic of stream topics with the prefix 't.': mend it, --stream or --prefix, or leave"
    for topics in ("oders", "oders*"):
        with pytest.raises(UsageError, match=said):
            Reading(stream, Here(), topics, is_once=True)
        assert not Reading(stream, Here(), topics).source.ended
    here = Here()
    Reading(stream, here, "orders", is_once=True).all()
    stream.remove(1)
    assert Reading(stream, here, "orders", is_once=True).source.ended, "the stream has removed what was carried"


def test_a_message_that_is_left_out_is_the_sources_failure_and_comes_again(stream: FakeReadStream) -> None:
    stream.publish("t.a", "t.a", "t.a")
    stream.left_out = {2}
    here = Here()
    reading = Reading(stream, here)
    with pytest.raises(SourceDownError, match="nats://h has left out a message before 3"):
        reading.next()
    stream.left_out = set()
    assert Reading(stream, here).all() == {"a": [1, 2, 3]}


def test_a_stream_that_is_not_there_is_named_with_the_remedy(stream: FakeReadStream) -> None:
    stream.name = "ORDERS"
    check_refused(stream, UsageError, "nats://h has no stream 'topics': name one with --stream")


@pytest.mark.parametrize(
    ("code", "number", "error"),
    [
        (400, 10101, UsageError),
        (400, 10026, SourceDownError),
        (503, 10023, SourceDownError),
        (404, 10014, SourceDownError),
    ],
)
def test_a_refusal_that_passes_is_tried_again_and_any_other_ends_the_bridge(
    stream: FakeReadStream, code: int, number: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_args: Any, **_more: Any) -> Any:
        raise nats_errors.APIError(code=code, err_code=number, description="it is refused")

    monkeypatch.setattr(stream, "pull_subscribe", refuses)
    check_refused(stream, error, r"^stream topics cannot be read \(it is refused\)")


def test_a_link_that_is_lost_is_the_sources_failure(stream: FakeReadStream) -> None:
    stream.publish("t.a")
    reading = Reading(stream, Here())
    stream.is_down = True
    with pytest.raises(SourceDownError, match="does not answer"):
        reading.next()
    check_refused(stream, SourceDownError, "does not answer")


def test_an_error_of_the_look_for_a_mark_closes_the_link(stream: FakeReadStream) -> None:
    stream.publish("t.a")

    def mark(_topic: str) -> BridgeMark | None:
        raise UsageError("records of others")

    check_refused(stream, UsageError, "records of others", mark)


def test_a_dry_run_counts_what_would_be_carried_by_topic(
    stream: FakeReadStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConsumer, "fetch_max", 4)
    stream.publish("t.a", "t.b", "t.a", "t.left.out", "t.a", "t.c", "t.a", "t.left.out")
    here = Here()
    assert Reading(stream, here, "a,b,c").source.count() == {"a": 4, "b": 1, "c": 1}
    Reading(stream, here, "a,b,c").next(appends=1)  # a's part of the first four
    assert here.rows == {"a": [1, 3]}
    assert Reading(stream, here, "a,b,c").source.count() == {"a": 2, "b": 1, "c": 1}
    Reading(stream, here, "a,b,c").all()
    assert Reading(stream, here, "a,b,c").source.count() == {"a": 0, "b": 0, "c": 0}
    stream.remove(1, 2)
    stream.publish("t.b", "t.b")
    assert Reading(stream, here, "*").source.count() == {"a": 0, "b": 2, "c": 0, "left.out": 2}
    assert stream.consumers == 0
