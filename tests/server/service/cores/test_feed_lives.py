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
from tests.server.service.cores.test_stream_relays import SMALL, Watcher
from tests.server.service.test_relays import Asked, Relayed, Staying
from tests.server.service.two_cores import request
from tests.sim import SimClient
from tests.ws.frame_client import CLOSE, TEXT, Incoming, close_code, text
from topics.http.streams.watch_cursors import read_cursor_id
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
        **settings: Any,
    ) -> None:
        """answers: how many a pass may give, so that others wait; 0: as many as usual."""
        self._answers = answers
        super().__init__(seed, neighbours, cores=cores, **settings)
        self.topics = sorted(self.topic_of(core, f"t{core}") for core in range(cores))
        for topic in self.topics:
            tcp = self.connect(self.slots.core_of(topic))
            assert self.ask(tcp, request("PUT", f"/v0/topics/{topic}", {})).status == 201
        self.sockets = [Socket(self, number + 1, rounds) for number in range(2)]
        self.watchers = [ManyWatcher(self) for _ in range(2)]

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


@pytest.mark.parametrize("settings", [{}, SMALL])
@pytest.mark.parametrize("cores", [2, 3, 4])
@pytest.mark.parametrize("seed", seeds(6))
def test_clients_follow_and_write_topics_of_all_cores(seed: int, cores: int, settings: dict[str, int]) -> None:
    """R-CORE-6, R-CORE-8, R-WS-1, R-WS-2, R-WATCH-7."""
    world = Feeds(seed, cores, answers=seed % 3, **settings)
    world.run(world.work)
    world.check_all()
    assert [socket.connections for socket in world.sockets] == [1, 1]
    assert [(watcher.sessions, watcher.streams) for watcher in world.watchers] == [(1, 1)] * 2
    assert all(each.seq for each in world.asked)
    world.leave()


@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_core_may_be_killed_amid_feeds(seed: int, cores: int) -> None:
    for effects in range(1, 3000, stride(13)):
        dies = effects % cores
        neighbours = Neighbours if effects % 2 else Staying
        world = Feeds(seed, cores, neighbours, answers=effects % 5 % 3, **SMALL if effects % 3 else {})
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

    def __init__(self, world: Feeds, core: int) -> None:
        self.world = world
        self.tcp = world.connect(core)
        self.tcp.send(UPGRADE)
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


def test_prefixes_are_refused() -> None:
    """R-CORE-6."""
    world = Feeds(6, rounds=0)
    answer = Talk(world, 0).ask({"op": "subscribe", "prefixes": {"t": {}}, "request_id": 1})
    assert (answer["code"], answer["request_id"]) == ("invalid_request", 1)


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
