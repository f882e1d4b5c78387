"""Servers that are the cores of one: requests that are relayed, over connections that stay where they were accepted.

Goal: a relayed request is answered as a local one. Each write that was acknowledged is there once, under the seq of its
answer, one that was refused is not there, and one without an answer is there at most once, also if a core is killed.
Method: no connection is given away, and clients write records that occur once, without keys: some over HTTP/1, several
at once over HTTP/2, to topics of both cores. A core is killed after one of its effects, and started again.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.amount import seeds, stride
from tests.http.byte_stream import Response
from tests.http.http2.h2_peer import H2Client
from tests.server.service.two_cores import TwoCores, is_whole, request, request_of, write
from tests.sim import SimClient
from topics.http.relay import relay_client
from topics.http.relay.relay_server import RelayServer
from topics.server.cores.neighbours import Neighbours

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

JSON = {"Content-Type": "application/json"}


class Staying(Neighbours):
    """Gives no connection away, so that every request for another core's topic is relayed."""

    def give(self, *_values: Any) -> bool:
        return False


class Misled(Staying):
    """Takes the other core for the owner of every topic."""

    def elsewhere(self, topic: str) -> int | None:
        return 1 - self._core


@dataclass
class Asked:
    """A write that a client has sent. status: of its answer; 0: none came."""

    topic: str
    number: int
    status: int = 0
    seq: int = 0

    @property
    def body(self) -> bytes:
        return json.dumps({"records": [{"data": self.number}]}).encode()

    def take(self, status: int, body: bytes) -> None:
        assert not self.status, "answered twice"
        self.status = status
        if status in {200, 201}:
            (self.seq,) = self.seqs(json.loads(body))
        else:
            assert (status, json.loads(body)["error"]["code"]) == (503, "not_ready")

    @staticmethod
    def seqs(answer: dict[str, Any]) -> list[int]:
        return list(range(answer["first_seq"], answer["last_seq"] + 1))


class Session:
    """A client that sends rounds of writes over one connection, until it ends. `asked`: in their order."""

    is_cut = True
    """Whether it sends a round piece by piece."""

    def __init__(self, world: TwoCores, number: int, topics: list[str], rounds: int) -> None:
        self.world = world
        self.tcp: SimClient = world.rings[0].network.client(world.port)
        self.topics = topics
        self.rounds = rounds
        self.asked: list[Asked] = []
        self._next = number * 1000
        self._rest = b""

    def write(self) -> Asked:
        self._next += 1
        self.asked.append(Asked(self.world.rng.choice(self.topics), self._next))
        return self.asked[-1]

    def act(self) -> bool:
        """Do what is possible now. Return whether all is done, or the connection has ended."""
        if self._rest:
            size = self.world.rng.randint(1, len(self._rest)) if self.is_cut else len(self._rest)
            self.tcp.send(self._rest[:size])
            self._rest = self._rest[size:]
        self.receive(self.tcp.receive())
        if self.tcp.ended:
            return True
        if not self.is_waiting:
            if not self.rounds:
                return True
            self.rounds -= 1
            self._rest += self.requests()
        return False

    @property
    def is_waiting(self) -> bool:
        raise NotImplementedError

    def requests(self) -> bytes:
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        raise NotImplementedError


class Http1Session(Session):
    """Sends the requests of a round at once."""

    _got = b""
    _answered = 0

    @property
    def is_waiting(self) -> bool:
        return self._answered < len(self.asked)

    def requests(self) -> bytes:
        writes = [self.write() for _ in range(self.world.rng.randint(1, 3))]
        return b"".join(request("POST", f"/v0/topics/{each.topic}", json.loads(each.body)) for each in writes)

    def receive(self, data: bytes) -> None:
        self._got += data
        while is_whole(self._got):
            head, _, rest = self._got.partition(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.asked[self._answered].take(int(head[9:12]), rest[:size])
            self._answered += 1
            self._got = rest[size:]


class PlainSession(Http1Session):
    """Sends whole requests, one by one, as the lane takes them."""

    is_cut = False

    def requests(self) -> bytes:
        asked = self.write()
        return request("POST", f"/v0/topics/{asked.topic}", json.loads(asked.body))


class Http2Session(Session):
    """Sends the requests of a round as streams of their own."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.client = H2Client()
        self._open: dict[int, Asked] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._open)

    def requests(self) -> bytes:
        for _ in range(self.world.rng.randint(1, 6)):
            asked = self.write()
            self._open[self.client.begin("POST", f"/v0/topics/{asked.topic}", asked.body, JSON)] = asked
        return self.client.take()

    def receive(self, data: bytes) -> None:
        if data:
            self.client.feed(data)
            self._rest += self.client.take()
        for stream in list(self._open):
            seen = self.client.seen[stream]
            if seen.ended:
                self._open.pop(stream).take(seen.status, seen.body)
            elif seen.reset is not None:
                self._open.pop(stream)


class Relayed(TwoCores):
    """Two cores that give no connection away. lone: each client seems to have its core to itself."""

    def __init__(
        self, seed: int, neighbours: type[Neighbours] = Staying, *, lone: bool = False, **settings: Any
    ) -> None:
        self.lone = lone
        super().__init__(seed, neighbours, **{"split": True} | settings)

    def _start(self, core: int) -> None:
        super()._start(core)
        server = self.servers[core]
        assert server.lane is not None
        if self.lone:
            server.loop._senders.least_passes = 0  # the only receive of a pass is served by itself
        else:
            server.lane.least = 1  # plain writes are columns

    @property
    def asked_as_columns(self) -> int:
        return sum(server.lane._far.taken for server in self.servers if server.lane is not None)

    @property
    def taken_by_themselves(self) -> int:
        """Writes that the cores which own their topics have served by themselves."""
        states = [conn.state for server in self.servers for conn in server.loop._traffic.connections()]
        return sum(each._writes.lone for each in states if isinstance(each, RelayServer) and each._writes)

    def sessions(self, count: int, rounds: int) -> list[Session]:
        topics = [self.topic_of(number % 2, f"t{number}") for number in range(4)]
        kinds = [Http1Session, Http2Session, PlainSession, PlainSession]
        return [kinds[number % 4](self, number + 1, topics, rounds) for number in range(count)]

    def records(self, topic: str) -> list[tuple[int, int]]:
        """Seq and data of each record, as the core that owns the topic has it."""
        tcp = self.connect(self.slots.core_of(topic))
        answer = self.ask(tcp, request("POST", f"/v0/topics/{topic}/diff", {}))
        if answer.status == 404:
            return []
        return [(record["$seq"], record["data"]) for record in answer.json["records"]]

    def check(self, sessions: list[Session]) -> Counter[int]:
        """Compare the answers of all requests with the records. Return how many requests had which status."""
        everything = [each for session in sessions for each in session.asked]
        for topic in {each.topic for each in everything}:
            found = self.records(topic)
            count = Counter(data for _, data in found)
            assert max(count.values(), default=1) == 1, "a write is there twice"
            for each in everything:
                if each.topic == topic and each.seq:
                    assert (each.seq, each.number) in found, "acknowledged, and not there, or elsewhere"
                elif each.topic == topic and each.status:
                    assert each.number not in count, "refused, and there"
            for number, server in enumerate(self.servers):
                assert server.engine is not None
                names = [state.name for state in server.engine.topic_states("", (), 100)]
                assert topic not in names or self.slots.core_of(topic) == number
            for session in sessions:
                seqs = [each.seq for each in session.asked if each.topic == topic and each.seq]
                assert seqs == sorted(seqs), "two requests of a connection have changed places"
        return Counter(each.status for each in everything)


def all_done(sessions: list[Session]) -> bool:
    acted = [session.act() for session in sessions]
    return all(acted)


@pytest.mark.parametrize("seed", seeds(20))
def test_relayed_writes_are_answered_in_their_order(seed: int) -> None:
    world = Relayed(seed)
    sessions = world.sessions(6, 4)
    world.run(lambda: all_done(sessions))
    statuses = world.check(sessions)
    assert set(statuses) == {200, 201}
    assert not [session for session in sessions if session.tcp.ended]
    assert all(world.relayed)


def test_writes_that_come_whole_are_asked_and_answered_as_columns() -> None:
    world = Relayed(8)
    sessions = [PlainSession(world, number, [world.topic_of(number % 2, "t")], 20) for number in range(6)]
    world.run(lambda: all_done(sessions))
    assert set(world.check(sessions)) == {200, 201}
    assert world.asked_as_columns > 10, "half of them are at home, and many come in pieces"


@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
def test_the_write_of_a_lone_client_is_asked_and_answered_in_the_call_that_receives_it(durability: str) -> None:
    world = Relayed(10, lone=True, split=False)
    tcp, topic = world.connect(0), world.topic_of(1, "t")
    assert world.ask(tcp, request("PUT", f"/v0/topics/{topic}", {"durability": durability})).status == 201
    for number in range(16):  # some passes after its start a core has one sender
        assert world.ask(tcp, request("POST", f"/v0/topics/{topic}", {"records": [{"data": number}]})).status == 200
    before = world.asked_as_columns, world.taken_by_themselves
    assert world.ask(tcp, request("POST", f"/v0/topics/{topic}", {"records": [{"data": 16}]})).json["first_seq"] == 17
    assert (world.asked_as_columns, world.taken_by_themselves) == (before[0] + 1, before[1] + 1)
    assert world.records(topic) == [(number + 1, number) for number in range(17)]


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("neighbours", [Staying, Neighbours])
@pytest.mark.parametrize("seed", seeds(6))
def test_a_core_may_be_killed_amid_relays(seed: int, neighbours: type[Neighbours], dies: int) -> None:
    """With hand-overs, too: each connection of HTTP/1 may travel once. Half of the seeds have lone clients."""
    for effects in range(1, 1000, stride(1)):
        world = Relayed(seed, neighbours, lone=bool(seed % 2))
        sessions = world.sessions(4, 3)
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(partial(all_done, sessions), dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        world.check(sessions)
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


def test_a_request_is_relayed_once_even_if_the_cores_take_each_other_for_its_owner() -> None:
    world = Relayed(1, Misled)
    for core in range(2):
        answer = world.ask(world.connect(core), write("t", 1))
        assert (answer.status, answer.code) == (503, "not_ready")
    assert world.relayed == [1, 1]
    assert [server.topic_count() for server in world.servers] == [0, 0]


def test_a_pass_that_has_sent_its_messages_is_followed_by_none_that_has_nothing_to_do() -> None:
    world = Relayed(9)
    tcp, topic = world.connect(0), world.topic_of(1, "t")
    assert world.ask(tcp, write(topic, 0)).status == 201
    tcp.send(write(topic, 1))
    got = bytearray()
    while not is_whole(bytes(got)):
        for server in world.servers:
            server.loop.run_pass(20_000)
            assert not server.loop._ready
        got.extend(tcp.receive())


def test_names_in_a_body_are_checked_with_the_rights_of_the_key() -> None:
    world = Relayed(2, api_keys="secret-secret-secret:read+write+delete+admin:mine-")
    tcp, topic = world.connect(0), world.topic_of(1, "mine-queue")
    key = "Authorization: Bearer secret-secret-secret"

    def put(dead_letter: str, *lines: str) -> Response:
        config = {"queue": {}, "dead_letter": dead_letter}
        return world.ask(tcp, request("PUT", f"/v0/topics/{topic}", config, *lines))

    assert put("mine-dead").code == "unauthorized"
    assert world.relayed == [0, 0], "the key is checked before"
    assert put("theirs", key).code == "forbidden"
    assert world.relayed == [1, 0], "names in a body are known only there"


@pytest.mark.parametrize("encoding", [(), ("Content-Encoding: gzip",)])
def test_large_bodies_and_answers_are_relayed(encoding: tuple[str, ...]) -> None:
    world = Relayed(3)
    tcp, topic = world.connect(0), world.topic_of(1, "large")
    text = "x" * 300_000
    data = json.dumps({"records": [{"data": text}]}).encode()
    body = gzip.compress(data) if encoding else data
    assert world.ask(tcp, request_of(f"/v0/topics/{topic}", body, *encoding)).status == 201
    answer = world.ask(tcp, request("POST", f"/v0/topics/{topic}/diff", {}))
    assert [record["data"] for record in answer.json["records"]] == [text]


def test_a_long_poll_on_another_core_ends_with_a_record_and_with_its_client() -> None:
    world = Relayed(4)
    topic = world.topic_of(1, "t")
    assert world.ask(world.connect(1), write(topic, 0)).status == 201
    waits, leaves = world.connect(0), world.connect(0)
    for tcp in (waits, leaves):
        tcp.send(request("POST", f"/v0/topics/{topic}/diff", {"from_seq": 1, "wait_ms": 20_000}))
    in_flight = [server.service.in_flight for server in world.servers]
    world.run(lambda: [each.requests for each in in_flight] == [2, 2])
    leaves.close()
    world.run(lambda: [each.requests for each in in_flight] == [1, 1])
    assert world.ask(world.connect(0), write(topic, 1)).status == 200
    got = bytearray()

    def came() -> bool:
        got.extend(waits.receive())
        return is_whole(bytes(got))

    world.run(came)
    assert b'"data":1' in got
    assert [each.requests for each in in_flight] == [0, 0]


def test_a_core_that_stands_still_is_given_up_and_asked_again_once_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_client, "BEGIN_NS", 10_000_000)
    world = Relayed(5)
    far, near = world.topic_of(1, "t"), world.topic_of(0, "t")
    tcp, other = world.connect(0), world.connect(0)
    tcp.send(write(far, 1))
    stopped = world.servers[1]
    world.servers[1] = world.servers[0]
    world.run(lambda: tcp.ended)
    assert tcp.receive() == b""
    assert world.ask(other, write(near, 1)).status == 201
    world.servers[1] = stopped
    assert world.ask(other, write(far, 2)).status in {200, 201}
    assert [data for _, data in world.records(far)] in ([2], [1, 2])


def test_requests_for_a_core_that_has_stopped_are_refused_by_the_other_one_which_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Relayed(6)
    tcp, topic = world.connect(0), world.topic_of(1, "t")
    assert world.ask(tcp, write(topic, 0)).status == 201
    world.servers[1].stop()
    world.run(lambda: world.codes == [0])
    assert world.ask(tcp, write(topic, 1)).code == "shutting_down", "its own answer, while the process lives"
    world.rings[1] = world.rings[1].next_life(power_cut=False)
    world.servers[1] = world.servers[0]
    for number in range(2, 4):
        assert world.ask(tcp, write(topic, number)).code == "not_ready"
    assert sum("core 1 cannot be asked" in message for message in caplog.messages) == 1


def test_metrics_count_each_answer_once_and_what_passes_between_the_cores() -> None:
    world = Relayed(7, Neighbours)
    staying, travels = world.connect(0), world.connect(1)
    near, far = world.topic_of(0, "t"), world.topic_of(1, "t")
    assert world.ask(travels, write(near, 0)).status == 201
    assert world.ask(staying, write(near, 1)).status == 200
    assert world.ask(travels, write(far, 2)).status == 201

    def samples(tcp: SimClient) -> dict[str, float]:
        page = world.ask(tcp, request("GET", "/v0/metrics", {})).body.decode()
        lines = [line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#")]
        assert len({name for name, _, _ in lines}) == len(lines), "a sample is there twice"
        return {name: float(value) for name, _, value in lines}

    found = samples(staying)
    responses = 'topics_http_responses_total{method="POST",route="/v0/topics/:topic",status="%d"}'
    assert [found[responses % status] for status in (200, 201)] == [1, 2]
    connections = 'topics_core_connections_total{event="%s"}'
    assert [found[connections % event] for event in ("given", "kept", "taken", "lost")] == [1, 0, 1, 0]
    requests = 'topics_core_requests_total{event="%s"}'
    assert found[requests % "asked"] in {1, 2}, "a write, and perhaps this page"
    assert found[requests % "in_doubt"] == 0
