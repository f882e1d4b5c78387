"""A session without a server: whatever comes in whatever order, replies are in order and nothing raises."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.ws import frame_client
from tests.ws.frame_client import Incoming, frame, text
from tests.ws.passes import Passes
from topics.common.values.begin import Begin, Beginning
from topics.config import Config
from topics.engine.bodies.long_bodies import LongBodies
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.state.append_request import AppendRequest
from topics.engine.values.results import AppendResult
from topics.errors import RequestError, StorageError
from topics.http.plan.answer_turns import ANSWERS_A_PASS, AnswerTurns
from topics.ws.frame_turns import FrameTurns
from topics.ws.host import Host
from topics.ws.session import HELD_BYTES, Rights, WebSocketSession

CONFIG = Config(ws_publishes_in_flight=8, max_watch_topics=10_000)


class Feed:
    """The calls of a session on its feed. `paused`: nothing may be delivered."""

    def __init__(self) -> None:
        self.paused = True
        self.resumed = 0
        self.closed = False
        self.subscriptions: dict[str, None] = {}
        self.prefixes = None

    @property
    def names(self) -> set[str]:
        return set(self.subscriptions)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        assert not self.closed
        self.paused = False
        self.resumed += 1

    resume_soon = resume

    def close(self) -> None:
        self.closed = True

    def subscribe(self, name: str, query: Any, from_seq: int) -> None:
        self.subscriptions[name] = None

    def unsubscribe(self, name: str) -> bool:
        self.subscriptions.pop(name, None)
        return True


class Engine:
    """An engine that answers when the test says so."""

    refuses_writes = False
    has_expired_enough = False
    throttle_window_ns = 0
    is_settled = True

    def __init__(self) -> None:
        self.feed = Feed()
        self.waiting: list[Callable[[Any], None]] = []
        self.lone: list[str] = []
        """Topics of the lone writes asked for; "t" takes them."""

    def settle_lone(self) -> bool:
        self.lone.append("delivered")
        return self.is_settled

    def plain_topic(self, name: str) -> None:
        return None

    def write_streak(self, framing: Any) -> Any:
        return None

    def append_lone(self, request: AppendRequest, on_committed: Callable[[Any], None]) -> Any:
        self.lone.append(request.topic)
        if request.topic == "read only":
            raise StorageError("broken")
        if request.topic != "t":
            return None
        result = AppendResult(1, 1, 1, 1, False, False, 0, 0)
        resumed = self.feed.resumed
        on_committed(result)
        assert self.feed.resumed == resumed, "its records are not visible yet"
        return result

    def open_feed(self, sink: Any) -> Feed:
        return self.feed

    def append(self, request: AppendRequest, done: Callable[[Any], None]) -> None:
        if request.violation is not None:
            done(request.violation)
        elif request.topic == "bug":
            raise ValueError("a bug of ours")
        else:
            self.waiting.append(done)

    def begin(self, name: str, begin: Begin, done: Callable[[Any], None]) -> None:
        if name.startswith("absent"):
            done(RequestError("topic_not_found", "no"))
        elif name == "bug":
            raise ValueError("a bug of ours")
        else:
            self.waiting.append(lambda result: done(Beginning(begin.number, 5, 1)))


class Wire:
    def __init__(self) -> None:
        self.over_high_water = False
        self.closed = False
        self.paused = False
        self.incoming = Incoming()
        self.frames: list[tuple[int, bytes]] = []

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after close"
        self.frames += self.incoming.feed(data)

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    @property
    def messages(self) -> list[Any]:
        return [json.loads(payload) for opcode, payload in self.frames if opcode == frame_client.TEXT]


class Peer:
    def __init__(self, budget: int = 0, *, has_one_sender: bool = False, acks: AnswerTurns | None = None) -> None:
        self.engine = Engine()
        self.wire = Wire()
        self.released = 0
        self.passes = Passes()
        self.turns = FrameTurns(self.passes, budget)
        bodies = LongBodies(CONFIG, self.passes)
        if acks is None:
            acks = AnswerTurns(self.passes)
            acks.left = 1 << 62
        scanner = WriteScanner(CONFIG)
        host = Host(CONFIG, lambda: 0, scanner, self.engine, self.turns, bodies, acks)  # type: ignore[arg-type]
        host.has_one_sender = lambda: has_one_sender
        self.session = WebSocketSession(
            host, self.wire, Rights(True, True, True, lambda name: name != "secret"), self._release
        )

    def _release(self) -> None:
        self.released += 1

    def answer(self, at: int = 0, result: Any = None) -> None:
        self.engine.waiting.pop(at)(result or AppendResult(1, 1, 1, 1, False, False, 0, 0))


def publish(number: int, topic: str = "t") -> bytes:
    return text({"op": "publish", "topic": topic, "records": [{"data": 1}], "request_id": number})


LONG = text({"op": "publish", "topic": "t", "request_id": 1, "records": [{"data": "x" * 2000}] * 600})
assert len(LONG) > CONFIG.pass_body_bytes


def test_acks_wait_for_those_before_them_and_deliveries_for_all() -> None:
    peer = Peer()
    peer.session.receive(publish(0) + publish(1) + publish(2, "bug"))
    assert len(peer.engine.waiting) == 2
    assert peer.wire.messages == []
    peer.engine.feed.resume()
    peer.answer(1)
    assert peer.engine.feed.paused, "its records may not come before its ack"
    assert peer.wire.messages == []
    peer.answer(0, StorageError("broken"))
    codes = [(message["op"], message["request_id"], message.get("code")) for message in peer.wire.messages]
    assert codes == [("error", 0, "internal"), ("ack", 1, None), ("error", 2, "internal")]
    assert not peer.engine.feed.paused


def test_acks_of_one_commit_take_turns_and_deliveries_wait_for_them() -> None:
    """All acks of thousands of publishes were sent in the pass of their commit."""
    passes = Passes()
    acks = AnswerTurns(passes)
    peers = [Peer(acks=acks) for _ in range(600)]
    for number, peer in enumerate(peers):
        peer.session.receive(publish(number))
        peer.engine.feed.resume()
    for peer in peers:
        peer.answer()
    sent = [0, sum(len(peer.wire.messages) for peer in peers)]
    while sent[-1] < 600:
        assert sent[-1] - sent[-2] <= 2 * ANSWERS_A_PASS
        for number, peer in enumerate(peers):
            assert bool(peer.wire.messages) == (number < sent[-1])
            assert peer.engine.feed.paused == (number >= sent[-1]), "its records may not come before its ack"
        passes.end(acks)
        sent.append(sum(len(peer.wire.messages) for peer in peers))
    assert len(sent) > 3
    assert [peer.wire.messages[0]["request_id"] for peer in peers] == list(range(600))
    assert not any(peer.engine.feed.paused for peer in peers)


def test_a_session_that_ends_or_is_to_end_before_the_turn_of_its_ack() -> None:
    passes = Passes()
    acks = AnswerTurns(passes)
    peers = [Peer(acks=acks) for _ in range(2)]
    acks.left = 0
    for peer in peers:
        peer.session.receive(publish(1))
        peer.answer()
        assert peer.wire.messages == []
    peers[0].session.lost()
    peers[1].session.going_away()
    assert not peers[1].wire.closed
    passes.end(acks)
    assert peers[0].wire.messages == []
    assert [message["op"] for message in peers[1].wire.messages] == ["ack", "error"]
    assert peers[1].wire.closed


def test_a_publish_by_itself_of_the_only_sender_is_committed_within_the_call() -> None:
    peer = Peer(has_one_sender=True)
    peer.session.receive(publish(0))
    assert [message["request_id"] for message in peer.wire.messages] == [0]
    assert peer.engine.waiting == []
    for topic in ("needs more", "read only"):
        peer.session.receive(publish(1, topic))
        peer.answer()
    assert peer.engine.lone == ["t", "delivered", "needs more", "read only"]
    assert [message["request_id"] for message in peer.wire.messages] == [0, 1, 1]


def test_a_publish_by_itself_leaves_out_the_end_of_its_pass_and_the_budget_of_frames_is_whole() -> None:
    """R-WS-7: what the end of a pass would renew is renewed without it."""
    peer = Peer(4, has_one_sender=True)
    for number in range(9):
        assert peer.session.receive_single(publish(number)) is True
    assert [message["request_id"] for message in peer.wire.messages] == list(range(9))
    assert (peer.turns.left, len(peer.turns)) == (4, 0)
    for more in (text({"op": "ping"}), publish(0, "needs more"), publish(0)[:9], publish(0)[9:] + publish(1)[:1]):
        assert peer.session.receive_single(more) is False, "the end of the pass has work"
        for _ in peer.engine.waiting[:]:
            peer.answer()
        peer.passes.end(peer.turns)
    assert Peer(has_one_sender=False).session.receive_single(publish(0)) is None
    peer = Peer(has_one_sender=True)
    peer.engine.is_settled = False
    assert peer.session.receive_single(publish(0)) is False, "readers wait for its record"


class Lone:
    """A streak of a session, which takes everything."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.taken = 0

    def take(self, data: bytes) -> bool:
        self.taken += 1
        return True

    def begin(self, owner: object, write: Any, name: str, *, strict: bool) -> None:
        assert owner is self.owner

    def end(self, owner: object) -> None:
        self.owner = None


def test_a_session_leaves_the_streak_while_its_publishes_have_to_wait_or_are_refused() -> None:
    """R-WS-3, 8.3."""
    peer = Peer(has_one_sender=True)
    host = peer.session._host
    lone = host.lone = Lone(peer.session)  # type: ignore[assignment]
    for settled in (True, False):
        peer.engine.is_settled = settled
        assert peer.session.receive_single(publish(0)) is settled, "readers that wait are for the end of the pass"
    taken = lone.taken
    peer.wire.over_high_water = True
    peer.session.receive_single(publish(0))
    assert peer.wire.messages == []
    peer.wire.over_high_water = False
    peer.engine.refuses_writes = True
    peer.engine.refuse_write = lambda: RequestError("throttled", "no")  # type: ignore[attr-defined]
    peer.session.receive_single(publish(1))
    assert {message["code"] for message in peer.wire.messages} == {"throttled"}
    peer.engine.refuses_writes = False
    lone.owner = object()
    peer.session.receive_single(publish(2))
    assert (lone.taken, peer.wire.messages[-1]["op"]) == (taken, "ack"), "the streak is that of another session"
    lone.owner = peer.session
    peer.session.lost()
    assert lone.owner is None
    assert peer.session.receive_single(publish(0)) is None


def test_a_session_goes_on_once_the_records_of_its_lone_publish_are_visible() -> None:
    peer = Peer(has_one_sender=True)
    resumed = peer.engine.feed.resumed
    peer.session.receive(publish(0))
    assert peer.engine.lone == ["t", "delivered"]
    assert peer.engine.feed.resumed > resumed


def test_a_session_that_goes_on_later_commits_with_others() -> None:
    """Many may continue in one pass, and each commit by itself would hold up all."""
    peer = Peer(has_one_sender=True)
    peer.wire.over_high_water = True
    peer.session.receive(publish(0))
    peer.wire.over_high_water = False
    peer.session.drained()
    assert (len(peer.engine.waiting), peer.engine.lone) == (1, [])


def test_publishes_that_come_together_share_a_commit() -> None:
    peer = Peer(has_one_sender=True)
    peer.session.receive(publish(0) + publish(1) + publish(2)[:9])
    assert peer.engine.lone == []
    peer.session.receive(publish(2)[9:])
    assert (len(peer.engine.waiting), peer.engine.lone) == (3, []), "others are in progress"
    alone = Peer(has_one_sender=False)
    alone.session.receive(publish(0))
    assert (len(alone.engine.waiting), alone.engine.lone) == (1, [])


def test_only_so_many_publishes_wait_and_the_rest_is_not_read() -> None:
    peer = Peer()
    peer.session.receive(b"".join(publish(number) for number in range(1000)))
    assert len(peer.engine.waiting) == CONFIG.ws_publishes_in_flight
    assert peer.session.held_bytes > HELD_BYTES
    assert peer.wire.paused
    while peer.engine.waiting:
        peer.answer()
    assert [message["request_id"] for message in peer.wire.messages] == list(range(1000))
    assert not peer.wire.paused
    assert peer.session.held_bytes == 0


def test_a_message_that_waits_for_those_before_it_is_counted_as_held() -> None:
    peer = Peer()
    big = text({"op": "ping", "request_id": "x" * 1_000_000})
    peer.session.receive(publish(0) + big)
    assert peer.session.held_bytes >= 1_000_000
    peer.answer()
    assert peer.session.held_bytes == 0
    assert len(peer.wire.messages) == 2


def test_a_long_message_is_counted_as_held_whatever_comes_behind_it() -> None:
    peer = Peer()
    peer.session.receive(LONG + text({"op": "ping", "request_id": 2}))
    assert peer.session.held_bytes > CONFIG.pass_body_bytes
    while peer.passes.waits:
        peer.passes.end(peer.turns)
    peer.answer()
    assert peer.session.held_bytes == 0
    assert [message["request_id"] for message in peer.wire.messages] == [1, 2]


def test_a_long_message_that_waits_for_its_turns_is_let_go_with_its_connection() -> None:
    peer = Peer()
    peer.session.receive(LONG)
    assert (peer.session.held_bytes > CONFIG.pass_body_bytes, peer.session.busy) == (True, True)
    peer.session.lost()
    assert (peer.session.held_bytes, peer.session.busy) == (0, False)
    while peer.passes.waits:
        peer.passes.end(peer.turns)
    assert not peer.engine.waiting


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    peer = Peer()
    peer.wire.over_high_water = True
    peer.session.receive(text({"op": "ping"}) * 5000)
    assert (peer.wire.frames, peer.wire.paused) == ([], True)
    peer.wire.over_high_water = False
    peer.session.drained()
    assert len(peer.wire.messages) == 5000
    assert not peer.wire.paused


def test_a_subscribe_waits_for_the_commands_before_it() -> None:
    peer = Peer()
    subscribe = text({"op": "subscribe", "topics": {"a": {}, "b": {}}, "request_id": 1})
    peer.session.receive(publish(0) + subscribe + publish(2))
    for _ in ("the publish", "the state of a", "the state of b"):
        assert len(peer.engine.waiting) == 1
        assert peer.engine.feed.names == set()
        peer.answer()
    assert peer.engine.feed.names == {"a", "b"}
    peer.answer()
    assert [message["request_id"] for message in peer.wire.messages] == [0, 1, 2]


def test_a_subscribe_may_name_thousands_of_topics_and_what_is_behind_it_is_executed() -> None:
    peer = Peer()
    absent = {f"absent{number}": {} for number in range(5000)}
    subscribe = text({"op": "subscribe", "topics": {**absent, "a": {}}, "lenient": True, "request_id": 1})
    peer.session.receive(subscribe + publish(2) + text({"op": "ping", "request_id": 3}))
    peer.answer()
    peer.answer()
    assert [message["op"] for message in peer.wire.messages] == ["subscribed", "ack", "pong"]


def test_a_subscribe_that_fails_in_any_way_holds_up_nothing_behind_it() -> None:
    peer = Peer()
    for names in (["bug"], ["a", "bug"], ["a", "absent"]):
        subscribe = text({"op": "subscribe", "topics": {key: {} for key in names}, "request_id": 1})
        peer.session.receive(subscribe + publish(2))
        while peer.engine.waiting:
            peer.answer()
        assert [message["op"] for message in peer.wire.messages[-2:]] == ["error", "ack"]
        assert peer.engine.feed.names == set()


def test_a_client_that_left_in_its_subscribe_has_no_more_topics_looked_up() -> None:
    peer = Peer()
    peer.session.receive(text({"op": "subscribe", "topics": {"a": {}, "b": {}, "c": {}}}))
    peer.session.lost()
    peer.answer()
    assert peer.engine.waiting == []


def test_a_shutdown_lets_what_was_begun_end() -> None:
    peer = Peer()
    peer.session.receive(publish(0) + publish(1))
    peer.session.going_away()
    peer.session.receive(publish(2))
    assert (peer.wire.frames, peer.session.busy) == ([], True)
    peer.answer()
    peer.answer()
    peer.session.going_away()
    assert [message.get("code", message["op"]) for message in peer.wire.messages] == [
        "ack",
        "ack",
        "server_shutting_down",
    ]
    assert frame_client.close_code(peer.wire.frames[-1][1]) == 1001
    assert (peer.wire.closed, peer.released, peer.engine.feed.closed) == (True, 1, True)


def test_an_answer_after_the_end_goes_nowhere() -> None:
    for end in ("end_of_stream", "lost"):
        peer = Peer()
        peer.session.receive(publish(0) + text({"op": "ping"}))
        getattr(peer.session, end)()
        peer.session.lost()
        peer.answer()
        peer.session.drained()
        peer.session.receive(publish(1))
        assert (peer.wire.frames, peer.released, peer.engine.waiting) == ([], 1, [])


commands = st.one_of(
    st.builds(publish, st.integers(0, 9), st.sampled_from(["t", "u", "bug", "secret"])),
    st.sampled_from(
        [
            text({"op": "ping", "request_id": [1]}),
            text({"op": "publish", "topic": "t", "records": []}),
            text({"op": "subscribe", "topic": "t", "topics": {"u": {"tail": True}}}),
            text({"op": "subscribe", "topic": "absent"}),
            text({"op": "unsubscribe", "topic": "t"}),
            text("{}"),
            text("nonsense"),
            frame(frame_client.BINARY, b"x"),
            frame(frame_client.PING, b"x"),
            frame(frame_client.CLOSE, b"\x03\xe8"),
        ]
    ),
    st.binary(max_size=20),
    st.text(max_size=20).map(lambda raw: frame(frame_client.TEXT, raw.encode())),
)


@examples(100)
@given(st.lists(commands, max_size=12), st.integers(1, 200), st.randoms(use_true_random=False))
def test_any_bytes_and_any_order_of_answers_give_replies_or_a_close(
    parts: list[bytes], pieces: int, rng: random.Random
) -> None:
    peer = Peer()
    data = b"".join(parts)
    for at in range(0, len(data), pieces):
        peer.session.receive(data[at : at + pieces])
        if peer.engine.waiting and rng.random() < 0.5:
            peer.answer(rng.randrange(len(peer.engine.waiting)))
    while peer.engine.waiting:
        peer.answer(rng.randrange(len(peer.engine.waiting)))
    peer.session.lost()
    assert peer.released == 1
    assert peer.wire.incoming.rest == b""
    closes = [opcode for opcode, _ in peer.wire.frames].count(frame_client.CLOSE)
    assert closes == peer.wire.closed
    assert {message["op"] for message in peer.wire.messages} <= {"ack", "error", "pong", "subscribed", "unsubscribed"}
