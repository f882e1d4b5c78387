"""A bridge to JetStream on a stream in memory that takes, refuses and loses messages as a server does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.bridge.fake_jetstream import FakeLink
from topics.bridge.bridge_errors import FencedError, OversizeError, TargetDownError
from topics.bridge.bridge_messages import BridgeMessage, BridgePosition, TopicBatch
from topics.bridge.jetstream import jetstream_target
from topics.bridge.jetstream.jetstream_target import JetStreamSession, JetStreamTarget, SentSeqs, StreamChoice
from topics.bridge.jetstream.nats_place import NatsPlace
from topics.errors import UsageError

nats_errors = pytest.importorskip("nats.js.errors", reason="nats-py is not installed: `make bridge` installs it")

INCARNATION = "00000000000000aa"


class FakeStream:
    """A stream, which checks the sequence that a publication expects."""

    def __init__(self, name: str = "topics") -> None:
        self.name = name
        self.messages: list[tuple[str, bytes, dict[str, str]]] = []
        self.refusal: Exception | None = None
        """The answer to each publication and each look."""
        self.lost: set[int] = set()
        """Publications, counted from 0, that never arrive."""
        self._count = 0

    async def publish_async(self, subject: str, value: bytes, headers: dict[str, str]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number, self._count = self._count, self._count + 1
        if self.refusal is not None:
            answer.set_exception(self.refusal)
        elif number in self.lost:
            answer.set_exception(nats_errors.APIError(code=408, err_code=0, description="a lost publication"))
        elif int(headers["Nats-Expected-Last-Sequence"]) != len(self.messages):
            answer.set_exception(nats_errors.APIError(code=400, err_code=10071, description="wrong last sequence"))
        else:
            self.messages.append((subject, value, headers))
            answer.set_result(SimpleNamespace(stream=self.name, seq=len(self.messages), duplicate=False))
        return answer

    async def get_last_msg(self, _stream: str, subject: str) -> Any:
        if self.refusal is not None:
            raise self.refusal
        for sequence, (found, _, headers) in reversed(list(enumerate(self.messages, 1))):
            if found == subject:
                return SimpleNamespace(headers=headers, seq=sequence)
        raise nats_errors.NotFoundError(code=404, err_code=10037, description="no message found")


def session(
    stream: FakeStream, sent: SentSeqs | None = None, *, max_payload: int = 1 << 20, skips_oversize: bool = False
) -> JetStreamSession:
    link: Any = FakeLink(stream, max_payload)
    choice = StreamChoice("topics", "topics.")
    return JetStreamSession(
        link, choice, len(stream.messages), {} if sent is None else sent, skips_oversize=skips_oversize
    )


class OneStream:
    """Answers about a stream that is there and has no messages."""

    def __init__(
        self, subjects: list[str] | None, transform: object = None, *, replicas: int = 1, max_age: float = 0
    ) -> None:
        limits = {
            "retention": "limits",
            "max_age": max_age,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msg_size": -1,
            "discard": "old",
            "num_replicas": replicas,
        }
        self._config = SimpleNamespace(subjects=subjects, subject_transform=transform, **limits)

    async def stream_info(self, _name: str) -> Any:
        return SimpleNamespace(config=self._config, state=SimpleNamespace(last_seq=0))

    async def get_last_msg(self, _stream: str, _subject: str) -> Any:
        raise nats_errors.NotFoundError(code=404, err_code=10037, description="no message found")


class ManyStreams:
    """Answers about streams: none is there, and one is made or not."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.made: list[Any] = []

    async def stream_info(self, _name: str) -> Any:
        raise nats_errors.NotFoundError(code=404, err_code=10059, description="stream not found")

    async def add_stream(self, config: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.made.append(config)
        return SimpleNamespace(config=config, state=SimpleNamespace(last_seq=0))


def target(
    streams: ManyStreams | OneStream, prefix: str, monkeypatch: pytest.MonkeyPatch, replicas: int = 0
) -> JetStreamTarget:
    link: Any = FakeLink(streams, 1 << 20)
    monkeypatch.setattr(jetstream_target, "JetStreamLink", lambda _place: link)
    return JetStreamTarget(NatsPlace("nats://h", {}), StreamChoice("topics", prefix, replicas), skips_oversize=False)


def opened(streams: ManyStreams | OneStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> JetStreamSession:
    return target(streams, prefix, monkeypatch).open()


def test_no_stream_is_made_of_all_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    """nats-server 2.15 refused it, and the bridge ended with a traceback; 2.9 made one that took the API's requests."""
    streams = ManyStreams()
    for call in (target(streams, "", monkeypatch).open, target(streams, "", monkeypatch).seen):
        with pytest.raises(UsageError, match=r"stream topics is missing, and --prefix '' leaves every subject to it"):
            call()
    assert not streams.made
    opened(streams, "topics.", monkeypatch)
    assert [config.subjects for config in streams.made] == [["topics.>"]]


@pytest.mark.parametrize(
    ("error", "raised", "sentence"),
    [
        (
            nats_errors.BadRequestError(code=400, err_code=10065, description="subjects overlap"),
            UsageError,
            "topics.> cannot be made: subjects overlap: use another --stream or --prefix",
        ),
        (nats_errors.ServerError(code=500, err_code=10049, description="no room"), TargetDownError, "no room"),
        (
            nats_errors.ServerError(code=500, err_code=10074, description="replicas > 1 not supported"),
            UsageError,
            r"stream topics cannot be made \(replicas > 1 not supported\): change the options or the stream",
        ),
    ],
)
def test_a_stream_that_cannot_be_made_is_a_sentence(
    error: Exception, raised: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(raised, match=sentence):
        opened(ManyStreams(error), "topics.", monkeypatch)


@pytest.mark.parametrize("subjects", [["bb.*"], ["aa.>", "bb.>"], ["*.orders"], [">"], ["bb.orders"], ["bb.*", "cc"]])
def test_a_stream_takes_in_the_subjects_that_its_patterns_cover(
    subjects: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(OneStream(subjects), "bb.", monkeypatch).position("orders") is None


@pytest.mark.parametrize(
    ("subjects", "named"),
    [
        (["aa.>"], "the subjects aa.>,"),
        (["bb.orders.>", "bb.*.*"], "the subjects bb.orders.>, bb.*.*,"),
        (["bb", "b.>", "bb.orders.eu"], "the subjects bb, b.>, bb.orders.eu,"),
        ([f"s{number}" for number in range(7)], "the subjects s0, s1, s2, s3, s4 and 2 more,"),
        (None, "no subjects of its own,"),
    ],
)
def test_a_stream_that_lacks_the_subject_of_a_topic_is_refused_before_anything_is_published(
    subjects: list[str] | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages went to another stream, where no position was looked for, and were carried again and again."""
    session = opened(OneStream(subjects), "bb.", monkeypatch)
    with pytest.raises(UsageError) as caught:
        session.position("orders")
    assert str(caught.value) == (
        f"stream topics (--stream) has {named} and does not take in bb.orders: use a --prefix that it has, add "
        "bb.orders to it, or name another --stream"
    )


@pytest.mark.parametrize(("has", "wanted"), [(1, 0), (1, 1), (3, 1), (3, 3)])
def test_a_stream_with_the_replicas_that_are_wanted_is_taken(
    has: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = target(OneStream(["bb.>"], replicas=has), "bb.", monkeypatch, wanted)
    for session in (bridge.open(), bridge.seen()):
        assert session is not None
        assert session.position("orders") is None


@pytest.mark.parametrize("has", [1, 2])
def test_a_stream_with_fewer_replicas_than_wanted_is_refused_also_by_a_look(
    has: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--replicas had no effect then, and nothing said so."""
    bridge = target(OneStream(["bb.>"], replicas=has), "bb.", monkeypatch, 3)
    for call in (bridge.open, bridge.seen):
        with pytest.raises(UsageError) as caught:
            call()
        assert str(caught.value) == (
            f"stream topics has num_replicas {has}, and --replicas is 3: leave out --replicas, or give the stream "
            "more (`nats stream edit topics --replicas 3`)"
        )


def test_a_stream_is_made_with_the_replicas_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, made in ((0, 1), (3, 3)):
        streams = ManyStreams()
        target(streams, "topics.", monkeypatch, wanted).open()
        assert [config.num_replicas for config in streams.made] == [made]


def test_a_stream_that_removes_positions_is_refused_also_by_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """--dry-run showed where each topic continues, and the bridge refused the stream."""
    bridge = target(OneStream(["bb.>"], max_age=60), "bb.", monkeypatch)
    for call in (bridge.open, bridge.seen):
        with pytest.raises(UsageError, match="stream topics removes messages by age"):
            call()


def test_a_stream_that_stores_under_other_subjects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"stream topics stores messages under other subjects .*another --stream"):
        opened(OneStream(["bb.>"], SimpleNamespace(src="bb.>", dest="cc.>")), "bb.", monkeypatch)


def test_messages_that_arrive_in_another_stream_end_the_bridge() -> None:
    with pytest.raises(UsageError, match=r"for stream topics \(--stream\) arrived in beta, .*use --stream beta"):
        session(FakeStream("beta")).put([batch(1, 3)])


def batch(first: int, last: int, topic: str = "orders", size: int = 1) -> TopicBatch:
    messages = [BridgeMessage(seq, b"x" * size, "eu", (), 5) for seq in range(first, last + 1)]
    return TopicBatch(topic, messages, BridgePosition(INCARNATION, last), last, 0)


def seqs(stream: FakeStream) -> list[int]:
    return [int(headers["topics-seq"]) for _, _, headers in stream.messages]


def test_the_newest_message_of_a_subject_is_the_position_of_its_topic() -> None:
    stream = FakeStream()
    first = session(stream)
    assert first.position("orders") is None
    first.put([batch(1, 3), batch(1, 2, "jobs"), batch(4, 4)])
    assert session(stream).position("orders") == BridgePosition(INCARNATION, 4)
    assert session(stream).position("jobs") == BridgePosition(INCARNATION, 2)
    assert stream.messages[0] == (
        "topics.orders",
        b"x",
        {
            "Nats-Expected-Last-Sequence": "0",
            "Nats-Expected-Stream": "topics",
            "Nats-Msg-Id": f"orders/{INCARNATION}/1",
            "topics-seq": "1",
            "topics-incarnation": INCARNATION,
            "topics-ts": "5",
            "topics-tag": "eu",
        },
    )


def test_no_message_is_stored_after_one_that_was_lost() -> None:
    stream, sent = FakeStream(), dict[str, dict[str, int]]()
    stream.lost = {2}
    with pytest.raises(TargetDownError):
        session(stream, sent).put([batch(1, 6)])
    assert seqs(stream) == [1, 2]
    again = session(stream, sent)
    assert again.position("orders") == BridgePosition(INCARNATION, 2)
    again.put([batch(3, 6)])
    assert seqs(stream) == [1, 2, 3, 4, 5, 6]


def test_a_message_that_arrives_late_is_refused() -> None:
    stream = FakeStream()
    late = session(stream)
    session(stream).put([batch(1, 3)])
    with pytest.raises(TargetDownError):
        late.put([batch(1, 3)])
    assert seqs(stream) == [1, 2, 3]


def test_a_bridge_that_another_one_has_passed_ends() -> None:
    stream, mine = FakeStream(), dict[str, dict[str, int]]()
    session(stream, mine).put([batch(1, 2)])
    session(stream).put([batch(3, 9)])
    with pytest.raises(FencedError, match=r"another bridge.*at record 9"):
        session(stream, mine).position("orders")


def test_a_message_of_another_program_is_no_position() -> None:
    stream = FakeStream()
    stream.messages.append(("topics.orders", b"x", {}))
    with pytest.raises(FencedError, match="not of a bridge"):
        session(stream).position("orders")


def test_a_record_too_large_names_topic_seq_limit_and_remedy_or_is_marked() -> None:
    stream = FakeStream()
    with pytest.raises(OversizeError, match=r"orders: record 1 .*max_payload .* is 1000: .*--oversize skip"):
        session(stream, max_payload=1000).put([batch(1, 1, size=2000)])
    session(stream, max_payload=1000, skips_oversize=True).put([batch(1, 1, size=2000)])
    _, value, headers = stream.messages[0]
    assert (value, headers["topics-oversize"]) == (b'{"seq":1,"bytes":2514,"limit":1000}', "2514")


@pytest.mark.parametrize(
    ("code", "number", "text", "raised", "sentence"),
    [
        (503, 10077, "maximum messages exceeded", TargetDownError, "it is full or cannot store .maximum messages exce"),
        (503, 10023, "insufficient resources", TargetDownError, "stream topics takes no message .insufficient resourc"),
        (400, 10071, "wrong last sequence: 7", TargetDownError, "stream topics takes no message .wrong last sequence"),
        (400, 10109, "invalid operation on sealed stream", UsageError, "on sealed stream.: change the options or the"),
        (400, 10060, "expected stream does not match", UsageError, "stream topics takes no message .expected stream "),
    ],
)
def test_a_refusal_that_passes_is_tried_again_and_any_other_ends_the_bridge(
    code: int, number: int, text: str, raised: type[Exception], sentence: str
) -> None:
    stream = FakeStream()
    stream.refusal = nats_errors.APIError(code=code, err_code=number, description=text)
    with pytest.raises(raised, match=sentence) as caught:
        session(stream).put([batch(1, 3)])
    assert "does not answer" not in str(caught.value)


def test_a_stream_that_is_gone_has_no_position_that_is_unknown() -> None:
    stream = FakeStream()
    stream.refusal = nats_errors.NotFoundError(code=404, err_code=10059, description="stream not found")
    with pytest.raises(TargetDownError, match=r"the position of orders cannot be read \(stream not found\)"):
        session(stream).position("orders")


def test_the_stream_may_take_less_than_the_server() -> None:
    link: Any = FakeLink(FakeStream())
    choice = StreamChoice("topics", "topics.", max_msg_size=1000)
    with pytest.raises(OversizeError, match=r"orders: record 1 .*max_msg_size of stream topics is 1000: .*--oversize"):
        JetStreamSession(link, choice, 0, {}, skips_oversize=False).put([batch(1, 1, size=2000)])


def test_a_topic_whose_name_is_no_subject_is_refused() -> None:
    with pytest.raises(UsageError, match="no empty part"):
        session(FakeStream()).position("orders..eu")
