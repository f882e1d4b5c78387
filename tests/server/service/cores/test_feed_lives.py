"""WebSockets and watch sessions over topics of several cores: two to four whole servers, engines included, as one.

Goal: a client gets each record of each topic once, in order, as far as its connection lasts, and misses nothing when it
connects again; a publish is acknowledged in its turn, before its records, and is there once, under the seq of its ack;
what was refused is not there. So it is, too, if a core is killed after any of its effects.
"""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from typing import Any

import pytest

from tests.amount import seeds, stride
from tests.http.spanning.test_spanning import Spanning
from tests.server.service.cores.test_stream_relays import SMALL, Watcher
from tests.server.service.test_relays import Asked, Relayed, Staying
from tests.server.service.two_cores import TwoCores, request
from tests.sim import SimClient
from tests.ws.frame_client import CLOSE, TEXT, Incoming, close_code, text
from topics.http.plan.call import Call
from topics.http.relay.relay_client import RelayClient
from topics.http.streams.watch_cursors import read_cursor_id
from topics.http.wire.error_answers import ElsewhereError
from topics.server.cores.neighbours import Neighbours

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
IN_FLIGHT = 3
ENDS = {1001, 1011}


class Socket:
    """A WebSocket that follows all topics and publishes to them, and connects again when it ends."""

    def __init__(self, world: Feeds, number: int, rounds: int) -> None:
        self.world = world
        self.rounds = rounds
        self.records: dict[str, dict[int, int]] = {topic: {} for topic in world.topics}
        self.asked: list[Asked] = []
        self.connections = 0
        self.codes: list[int | None] = []
        self.tcp: SimClient | None = None
        self._next = number * 1000
        self._begin()

    def _begin(self) -> None:
        self._got = b""
        self._incoming: Incoming | None = None
        self._pending: deque[Asked] = deque()
        self._sent: dict[int, Asked] = {}
        self._command = ""
        """The command that is not answered, beside publishes."""
        self._followed: set[str] = set()

    @property
    def is_done(self) -> bool:
        return not (self.rounds or self._pending)

    @property
    def wants_all(self) -> bool:
        """Whether all topics are followed."""
        return self._followed == set(self.world.topics)

    def act(self) -> None:
        """Do what is possible now."""
        if self.tcp is None or self.tcp.ended:
            try:
                self.tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return
            self._begin()
            self.connections += 1
            self.tcp.send(UPGRADE)
        self._receive(self.tcp.receive())
        if self._incoming is not None and not self.tcp.ended:
            self._say()

    def _receive(self, data: bytes) -> None:
        if self._incoming is None:
            self._got += data
            head, end, data = self._got.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101 "):
                assert head.startswith(b"HTTP/1.1 503 ")
                assert self.tcp is not None
                self.tcp.close()
                self.tcp = None
                return
            self._incoming = Incoming()
        for opcode, payload in self._incoming.feed(data):
            if opcode == CLOSE:
                self.codes.append(close_code(payload))
                assert self.codes[-1] in ENDS
            else:
                assert opcode == TEXT
                self._take(json.loads(payload))

    def _say(self) -> None:
        rng, tcp = self.world.rng, self.tcp
        assert tcp is not None
        if not self._command and not self.wants_all:
            names = [topic for topic in self.world.topics if topic not in self._followed]
            begins = {topic: {"from_seq": max(self.records[topic], default=0)} for topic in names}
            self._command = "subscribe"
            tcp.send(text({"op": "subscribe", "request_id": names, "topics": begins}))
        elif not self._command and self.rounds and rng.random() < 0.1:
            self._command = "unsubscribe"
            tcp.send(text({"op": "unsubscribe", "request_id": 0, "topic": rng.choice(self.world.topics)}))
        self._publish()

    def _publish(self) -> None:
        rng, tcp = self.world.rng, self.tcp
        assert tcp is not None
        if self.rounds and len(self._pending) < IN_FLIGHT and rng.random() < 0.3:
            self.rounds -= 1
            self._next += 1
            asked = Asked(rng.choice(self.world.topics), self._next)
            self.asked.append(asked)
            self._pending.append(asked)
            self._sent[asked.number] = asked
            publish = {"op": "publish", "request_id": asked.number, "topic": asked.topic}
            tcp.send(text(publish | {"records": [{"data": asked.number}]}))

    def _take(self, message: dict[str, Any]) -> None:
        op = message["op"]
        if op in {"record", "caught_up"}:
            topic = message["topic"]
            assert topic in self._followed, "not followed, or not any more"
            records = self.records[topic]
            for record in message.get("records", ()):
                seq, data = record["$seq"], record["data"]
                assert seq == max(records, default=0) + 1, "a hole, or twice"
                records[seq] = data
                assert data not in self._sent or self._sent[data].seq == seq, "a record before its ack (R-WS-2)"
        elif op == "ack":
            asked = self._pending.popleft()
            assert (message["request_id"], message["topic"]) == (asked.number, asked.topic), "out of turn (R-WS-1)"
            asked.status, asked.seq = 200, message["first_seq"]
            assert message["seqs"] == [asked.seq]
        elif op == "subscribed":
            self._command = ""
            assert set(message["topics"]) == set(message["request_id"])
            self._followed |= set(message["topics"])
        elif op == "unsubscribed":
            self._command = ""
            self._followed -= set(message["topics"])
        else:
            self._take_error(message)

    def _take_error(self, message: dict[str, Any]) -> None:
        assert message["op"] == "error"
        assert message["code"] in {"not_ready", "server_shutting_down"}, message
        answered = message.get("request_id")
        if isinstance(answered, list):
            self._command = ""
        elif answered is not None:
            asked = self._pending.popleft()
            assert answered == asked.number
            asked.status = 503

    def leave(self) -> None:
        if self.tcp is not None:
            self.tcp.close()


class PrefixSocket(Socket):
    """Follows all topics by their prefix, from their first records on, also those that are made later."""

    @property
    def wants_all(self) -> bool:
        return bool(self._followed)

    def _begin(self) -> None:
        super()._begin()
        self._again()

    def _again(self) -> None:
        """Expect all records from the first one on."""
        self.records = {topic: {} for topic in self.world.topics}

    def _say(self) -> None:
        assert self.tcp is not None
        rng = self.world.rng
        if not self._command and not self.wants_all:
            self._command = "subscribe"
            self.tcp.send(text({"op": "subscribe", "request_id": [], "prefixes": {"t": {}}}))
        elif not self._command and self.rounds and rng.random() < 0.05:
            self._command = "unsubscribe"
            self.tcp.send(text({"op": "unsubscribe", "request_id": 0, "prefixes": ["t"]}))
        self._publish()

    def _take(self, message: dict[str, Any]) -> None:
        if message["op"] == "subscribed":
            self._command = ""
            assert set(message["topics"]) <= set(self.world.topics)
            self._followed = set(self.world.topics)
            self._again()
        elif message["op"] == "unsubscribed":
            self._command = ""
            self._followed = set()
        else:
            super()._take(message)


class ManyWatcher(Watcher):
    """Follows all topics by one session."""

    def __init__(self, world: Feeds) -> None:
        super().__init__(world, "")
        self.found: dict[str, dict[int, int]] = {topic: {} for topic in world.topics}

    def _begins(self) -> dict[str, Any]:
        return {topic: {"from_seq": max(found, default=0)} for topic, found in self.found.items()}

    def _take(self, frame: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in frame.decode().split("\n"))
        if "event" not in fields:
            return
        data = json.loads(fields["data"])
        if fields["event"] == "error":
            return
        assert fields["event"] in {"record", "caught-up"}
        found = self.found[data["topic"]]
        for record in data.get("records", ()):
            assert record["$seq"] == max(found, default=0) + 1, "a hole, or twice"
            found[record["$seq"]] = record["data"]
        self._id = fields["id"]
        cursors = read_cursor_id(self._id.encode())
        assert cursors == {topic: max(found, default=0) for topic, found in self.found.items()}, "R-WATCH-7"


class PrefixWatcher(ManyWatcher):
    """Follows all topics by their prefix, and the topics that it knows from where it is."""

    def _begins(self) -> dict[str, Any]:
        return {topic: {"from_seq": max(found)} for topic, found in self.found.items() if found}

    def _body(self) -> dict[str, Any]:
        return {"topics": self._begins(), "prefixes": {"t": {}}}

    def _take(self, frame: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in frame.decode().split("\n"))
        if fields.get("event") not in {"record", "caught-up"}:
            return
        data = json.loads(fields["data"])
        found = self.found[data["topic"]]
        for record in data.get("records", ()):
            assert record["$seq"] == max(found, default=0) + 1, "a hole, or twice"
            found[record["$seq"]] = record["data"]
        self._id = fields["id"]
        cursors = read_cursor_id(self._id.encode())
        for topic, each in self.found.items():
            assert cursors.get(topic, 0) == max(each, default=0), "R-WATCH-7"


class Feeds(Relayed):
    """A topic or two on each core, with WebSockets that follow and write all, and watch sessions of all."""

    def __init__(
        self,
        seed: int,
        cores: int = 2,
        neighbours: type[Neighbours] = Staying,
        *,
        rounds: int = 5,
        answers: int = 0,
        by_prefix: bool = False,
        **settings: Any,
    ) -> None:
        """answers: how many a pass may give, so that others wait; 0: as many as usual.

        by_prefix: topics are followed by their prefix, and one of each core is not there at first.
        """
        self._answers = answers
        super().__init__(seed, neighbours, cores=cores, **settings)
        self.topics = sorted(self.topic_of(core, f"t{core}") for core in range(cores))
        for topic in self.topics:
            tcp = self.connect(self.slots.core_of(topic))
            assert self.ask(tcp, request("PUT", f"/v0/topics/{topic}", {})).status == 201
        if by_prefix:
            self.topics = sorted([*self.topics, *(self.topic_of(core, f"tt{core}") for core in range(cores))])
        sockets, watchers = (PrefixSocket, PrefixWatcher) if by_prefix else (Socket, ManyWatcher)
        self.sockets = [sockets(self, number + 1, rounds) for number in range(2)]
        self.watchers: list[ManyWatcher] = [watchers(self) for _ in range(2)]

    def _start(self, core: int) -> None:
        super()._start(core)
        if self._answers:
            turns = self.servers[core].service.answer_turns
            turns._budget = turns._share = turns.left = self._answers

    @property
    def asked(self) -> list[Asked]:
        return [each for socket in self.sockets for each in socket.asked]

    def work(self) -> bool:
        """Return whether each client has all that is there for certain."""
        for each in (*self.sockets, *self.watchers):
            each.act()
        if not all(socket.is_done and socket.wants_all for socket in self.sockets):
            return False
        found = [socket.records for socket in self.sockets] + [watcher.found for watcher in self.watchers]
        return all(
            each.number == records[each.topic].get(each.seq) for each in self.asked if each.seq for records in found
        )

    def check_all(self) -> None:
        """Compare what was acknowledged, delivered and refused with what is there."""
        for topic in self.topics:
            there = dict(self.records(topic))
            assert len(set(there.values())) == len(there), "a write is there twice"
            for each in self.asked:
                if each.topic == topic and each.seq:
                    assert there.get(each.seq) == each.number, "acknowledged, and not there, or elsewhere"
                elif each.topic == topic and each.status:
                    assert each.number not in there.values(), "refused, and there"
            for records in [s.records for s in self.sockets] + [w.found for w in self.watchers]:
                assert records[topic].items() <= there.items(), "delivered, and not there"

    def leave(self) -> None:
        """End all connections: nothing of theirs stays on any core."""
        for socket in self.sockets:
            socket.leave()
        for watcher in self.watchers:
            watcher.leave()
        self.run(lambda: self.kept == [(0, 0, 0)] * len(self.servers))

    @property
    def kept(self) -> list[tuple[int, int, int]]:
        """Slots of streams, streams and feeds of each core, and its streams of others."""
        found = []
        for server, neighbours in zip(self.servers, self.neighbours, strict=True):
            streams = server.service.streams
            assert neighbours.relays is not None
            asked = [each._asked for each in neighbours.relays.asked if each._asked is not None]
            found.append((streams.slots.open, len(streams.watches), sum(len(each.streams) for each in asked)))
        return found


@pytest.mark.parametrize("by_prefix", [False, True])
@pytest.mark.parametrize("settings", [{}, SMALL])
@pytest.mark.parametrize("cores", [2, 3, 4])
@pytest.mark.parametrize("seed", seeds(6))
def test_clients_follow_and_write_topics_of_all_cores(
    seed: int, cores: int, settings: dict[str, int], by_prefix: bool
) -> None:
    """R-CORE-6, R-CORE-8, R-CORE-10, R-WS-1, R-WS-2, R-WATCH-7."""
    world = Feeds(seed, cores, answers=seed % 3, by_prefix=by_prefix, **settings)
    world.run(world.work)
    world.check_all()
    assert [socket.connections for socket in world.sockets] == [1, 1]
    assert [(watcher.sessions, watcher.streams) for watcher in world.watchers] == [(1, 1)] * 2
    assert all(each.seq for each in world.asked)
    world.leave()


@pytest.mark.parametrize("by_prefix", [False, True])
@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_core_may_be_killed_amid_feeds(seed: int, cores: int, by_prefix: bool) -> None:
    for effects in range(1, 3000, stride(13)):
        dies = effects % cores
        neighbours = Neighbours if effects % 2 else Staying
        settings: dict[str, Any] = SMALL if effects % 3 else {}
        world = Feeds(seed, cores, neighbours, answers=effects % 5 % 3, by_prefix=by_prefix, **settings)
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(world.work, dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        world.run(world.work)
        world.check_all()
        world.leave()
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


class Talk:
    """A WebSocket of one core, whose messages a test looks at."""

    def __init__(self, world: TwoCores, core: int, line: bytes = b"") -> None:
        """line: a further one of the head."""
        self.world = world
        self.tcp = world.connect(core)
        self.tcp.send(UPGRADE.replace(b"\r\n", b"\r\n" + line, 1))
        self.heard: list[Any] = []
        self._got = b""
        self._incoming: Incoming | None = None

    def ask(self, message: Any) -> Any:
        """Say it, and return what comes next."""
        self.tcp.send(text(message))
        return self.next()

    def next(self) -> Any:
        """The next message, or the code of the close."""
        self.world.run(self._has_come)
        return self.heard.pop(0)

    def _has_come(self) -> bool:
        self._got += self.tcp.receive()
        if self._incoming is None:
            head, end, rest = self._got.partition(b"\r\n\r\n")
            if not end:
                return False
            assert head.startswith(b"HTTP/1.1 101 ")
            self._incoming, self._got = Incoming(), rest
        for opcode, payload in self._incoming.feed(self._got):
            self.heard.append(close_code(payload) if opcode == CLOSE else json.loads(payload))
        self._got = b""
        return bool(self.heard)


def lose(world: Feeds, core: int) -> None:
    """Kill a core, which is not started again."""
    world.rings[core] = world.rings[core].next_life(power_cut=False)
    world.servers[core] = world.servers[0]


def test_what_needs_a_core_that_is_not_there_is_refused_and_the_rest_is_not() -> None:
    """R-CORE-8: nothing of it was executed."""
    world = Feeds(4, rounds=0)
    near, far = (next(topic for topic in world.topics if world.slots.core_of(topic) == core) for core in range(2))
    talk = Talk(world, 0)
    lose(world, 1)
    publish = {"op": "publish", "records": [{"data": 1}], "request_id": 7}
    subscribe = {"op": "subscribe", "request_id": 8}
    for command in (publish | {"topic": far}, subscribe | {"topics": {near: {}, far: {}}}):
        answer = talk.ask(command)
        assert (answer["op"], answer["code"], answer["request_id"]) == ("error", "not_ready", command["request_id"])
    assert talk.ask(publish | {"topic": near})["op"] == "ack"
    assert talk.ask(subscribe | {"topic": near})["op"] == "subscribed"
    body = {"topics": {near: {}, far: {}}}
    answer = world.ask(world.connect(0), request("POST", "/v0/watch", body))
    assert (answer.status, answer.json["error"]["detail"]) == (503, {"core": 1})


@pytest.mark.parametrize("is_publish", [False, True])
def test_a_core_that_is_lost_ends_the_connections_that_need_it(is_publish: bool) -> None:
    """R-CORE-8: 1011 after an error, and a publish that was sent there has no answer."""
    world = Feeds(5, rounds=0)
    far = next(topic for topic in world.topics if world.slots.core_of(topic) == 1)
    talk, other = Talk(world, 0), Talk(world, 0)
    assert talk.ask({"op": "subscribe", "topic": far})["op"] == "subscribed"
    assert talk.next()["op"] == "caught_up"
    assert other.ask({"op": "ping"})["op"] == "pong"
    if is_publish:
        talk, before = other, world.relayed[0]
        talk.tcp.send(text({"op": "publish", "topic": far, "records": [{"data": 1}]}))
        world.run(lambda: world.relayed[0] > before)
    lose(world, 1)
    error = talk.next()
    assert (error["op"], error["code"], "request_id" in error) == ("error", "not_ready", False)
    assert talk.next() == 1011
    if not is_publish:
        assert other.ask({"op": "ping"})["op"] == "pong", "it has nothing to do with that core"


def test_a_feed_that_is_refused_while_it_is_asked_for_ends_the_connection_after_its_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The core may have too many calls under way once the begins of the topics are known."""
    world = Feeds(5, rounds=0)
    far = next(topic for topic in world.topics if world.slots.core_of(topic) == 1)
    by_name, by_prefix = Talk(world, 0), Talk(world, 0)
    assert by_name.ask({"op": "ping"})["op"] == by_prefix.ask({"op": "ping"})["op"] == "pong"
    ask = RelayClient.ask

    def has_no_room(client: RelayClient, call: Call) -> None:
        if call.plan.is_of_stream:
            call.fail(ElsewhereError(1))
        else:
            ask(client, call)

    monkeypatch.setattr(RelayClient, "ask", has_no_room)
    for talk, wanted in ((by_name, {"topic": far}), (by_prefix, {"prefixes": {"t": {}}})):
        heard = [talk.ask({"op": "subscribe", **wanted})]
        while heard[-1] != 1011:
            heard.append(talk.next())
        assert (heard[0]["op"], heard[-2].get("code")) == ("subscribed", "not_ready")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def said(talk: Talk) -> list[Any]:
    """The messages before the answer to a ping."""
    found: list[Any] = []
    answer = talk.ask({"op": "ping", "request_id": "end"})
    while answer["op"] != "pong":
        found.append(answer)
        answer = talk.next()
    return found


def settle(world: TwoCores) -> None:
    """Make passes until all is delivered."""
    for _ in range(300):
        for server in world.servers:
            server.loop.run_pass(20_000)


@pytest.mark.parametrize("cores", [2, 3])
def test_prefixes_take_in_no_more_topics_than_there_are_places(cores: int) -> None:
    """R-CORE-10, R-PREFIX-5, R-PREFIX-9: a share of each core, and what is left out is reported."""
    world = Feeds(6, cores, rounds=0, max_watch_topics=2 * cores)
    talk = Talk(world, 0)
    answer = talk.ask({"op": "subscribe", "prefixes": {"t": {}, "u": {}}})
    assert sorted(answer["topics"]) == world.topics
    names = [
        [name for n in range(10, 100) if world.slots.core_of(name := f"u{core}-{n}") == core][:3]
        for core in range(cores)
    ]
    tcp = world.connect(0)
    for name in (name for of_core in names for name in of_core):
        assert world.ask(tcp, request("PUT", f"/v0/topics/{name}", {})).status == 201
    settle(world)
    found = said(talk)
    caught_up = {message["topic"] for message in found if message["op"] == "caught_up"}
    assert caught_up == {*world.topics, *(of_core[0] for of_core in names)}, "one more of each core"
    left_out = {message["topic"]: message["max"] for message in found if message["op"] == "left_out"}
    assert left_out == {of_core[1]: 2 for of_core in names}

    far = names[1]
    assert world.ask(tcp, request("DELETE", f"/v0/topics/{far[0]}", {})).status == 200
    settle(world)
    found = said(talk)
    assert [(message["op"], message["topic"]) for message in found] == [
        ("topic_deleted", far[0]),
        ("left_out", far[2]),
        ("caught_up", far[1]),
    ], "its place is for the lowest name that has none (R-PREFIX-6)"


def test_a_connection_has_no_more_topics_than_it_may_follow() -> None:
    """R-WS-6: what another core takes in beyond it is given back, and taken in once there is a place."""
    world = Feeds(7, rounds=0, ws_max_subscriptions=3)
    far = [f"u{n}" for n in range(10, 100) if world.slots.core_of(f"u{n}") == 1][:3]
    talk = Talk(world, 0)
    assert set(talk.ask({"op": "subscribe", "topics": {topic: {} for topic in world.topics}})["topics"]) == {
        *world.topics
    }
    assert talk.ask({"op": "subscribe", "prefixes": {"u": {}}})["op"] in {"subscribed", "caught_up"}
    tcp = world.connect(0)
    for name in far:
        assert world.ask(tcp, request("PUT", f"/v0/topics/{name}", {})).status == 201
    settle(world)
    found = said(talk)
    assert {message["topic"] for message in found if message["op"] == "caught_up"} >= {far[0]}
    assert [(message["topic"], message["max"]) for message in found if message["op"] == "left_out"] == [(far[1], 3)]
    assert talk.ask({"op": "unsubscribe", "topic": world.topics[0]})["op"] == "unsubscribed"
    settle(world)
    found = said(talk)
    assert {message["topic"] for message in found if message["op"] == "caught_up"} == {far[1]}
    assert world.ask(tcp, request("POST", f"/v0/topics/{far[2]}", {"records": [{"data": 1}]})).status == 200
    settle(world)
    assert [message for message in said(talk) if message["op"] == "record"] == [], "it has no place"


def test_a_key_follows_no_topic_of_any_core_that_it_may_not_name() -> None:
    """R-PREFIX-2, R-AUTH-1: neither by its prefix, nor by its name, and it writes to none."""
    all_keys = "all-all-all-all-all-all,mine-mine-mine-mine:read+write:mine-"
    world = Spanning(2, api_keys=all_keys)
    world.lines = ["Authorization: Bearer all-all-all-all-all-all"]
    names = [world.topic_of(core, f"{whose}-") for core in range(2) for whose in ("mine", "theirs")]
    world.put(*names)
    talk = Talk(world, 0, b"Authorization: Bearer mine-mine-mine-mine\r\n")
    answer = talk.ask({"op": "subscribe", "prefixes": {"": {}}})
    mine = sorted(name for name in names if name.startswith("mine-"))
    assert sorted(answer["topics"]) == mine
    later = [world.topic_of(core, f"{whose}-later") for core in range(2) for whose in ("mine", "theirs")]
    world.put(*later)
    settle(world)
    mine += [name for name in later if name.startswith("mine-")]
    assert {message["topic"] for message in said(talk)} == set(mine)
    for name in (name for name in names if name not in mine):
        assert talk.ask({"op": "subscribe", "topic": name})["code"] == "forbidden"
        assert talk.ask({"op": "publish", "topic": name, "records": [{"data": 1}]})["code"] == "forbidden"


def test_an_absent_topic_that_is_named_takes_no_place_of_those_with_a_prefix() -> None:
    """R-PREFIX-3, over all cores: as many have a place as on one."""
    world = Feeds(10, rounds=0, max_watch_topics=2)
    tcp = world.connect(0)
    body = {"topics": {"absent": {}}, "prefixes": {"t": {}}}
    answer = world.ask(tcp, request("POST", "/v0/watch?lenient=true", body))
    assert sorted(answer.json["topics"]) == world.topics
    body = {"topics": {world.topics[1]: {}}, "prefixes": {"t": {}}}
    assert world.ask(tcp, request("PUT", "/v0/topics/t", {})).status == 201
    answer = world.ask(tcp, request("POST", "/v0/watch", body))
    assert sorted(answer.json["topics"]) == ["t", world.topics[1]]


def test_prefixes_need_all_cores() -> None:
    """R-CORE-10."""
    world = Feeds(9, rounds=0)
    talk = Talk(world, 0)
    lose(world, 1)
    answer = talk.ask({"op": "subscribe", "prefixes": {"t": {}}, "request_id": 1})
    assert (answer["code"], answer["request_id"]) == ("not_ready", 1)
    response = world.ask(world.connect(0), request("POST", "/v0/watch", {"prefixes": {"t": {}}}))
    assert (response.status, response.json["error"]["detail"]) == (503, {"core": 1})


def test_a_stop_of_all_ends_connections_as_that_of_one_does() -> None:
    """11.6, R-WATCH-15."""
    world = Feeds(3, 3, rounds=0)
    world.run(lambda: world.work() and all(watcher.is_open for watcher in world.watchers))
    for server in world.servers:
        server.stop()

    def ended() -> bool:
        for socket in world.sockets:
            assert socket.tcp is not None
            socket._receive(socket.tcp.receive())
        return len(world.codes) == 3

    world.run(ended)
    assert world.codes == [0, 0, 0]
    assert [socket.codes for socket in world.sockets] == [[1001], [1001]]
