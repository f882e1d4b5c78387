"""Streams whose topic is of another core than their connection, on two servers that are the cores of one.

Goal: a relayed stream has the bytes of a local one. What it delivers is a prefix of what it would have, in order, none
of it twice, and a client that connects again misses nothing, also if a core is killed.
Method: workers read the jobs of queues of both cores over HTTP/1 and HTTP/2, and connect again when their stream ends.
They give nothing back, so each job comes again after its lease, and comes to an end with its topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.amount import seeds, stride
from tests.http.http2.h2_peer import H2Client
from tests.server.service.test_relays import JSON, PlainSession, Relayed, Session, Staying, all_done
from tests.server.service.two_cores import TwoCores, request
from tests.sim import SimClient
from topics.http.wire.stream import LAST_CHUNK
from topics.server.cores.neighbours import Neighbours

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LEASE_MS = 100
SMALL = {"stream_high_water_bytes": 300, "stream_low_water_bytes": 100}
"""Marks that a few jobs reach."""


def get(topic: str, *lines: str) -> bytes:
    head = [f"GET /v0/topics/{topic}/work?node=w&max=64 HTTP/1.1", "Host: localhost", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


def unchunked(data: bytes) -> tuple[bytes, bool]:
    """The whole chunks of a body, and whether its last one has come."""
    text, rest = b"", data
    while rest:
        line, end, rest = rest.partition(b"\r\n")
        if not end or len(rest) < int(line, 16) + 2:
            break
        if not int(line, 16):
            return text, True
        text += rest[: int(line, 16)]
        rest = rest[int(line, 16) + 2 :]
    return text, False


class Worker:
    """Reads the jobs of a topic, over one stream after the other."""

    def __init__(self, world: TwoCores, topic: str) -> None:
        self.world = world
        self.topic = topic
        self.jobs: dict[int, int] = {}
        """The data of each job that came, by seq."""
        self.streams = 0
        self.goodbye: Any = None
        """The last frame of a stream, if it says that there is no queue any more."""
        self._has_ended = False
        """Whether that stream has ended, too."""
        self._tcp: SimClient | None = None
        self._seen: list[tuple[int, int]] = []
        self._text = b""

    @property
    def is_open(self) -> bool:
        """Whether the first bytes of the stream have come."""
        return bool(self._text) and self._tcp is not None and not self._tcp.ended

    def act(self) -> bool:
        """Do what is possible now. Return whether the queue is gone, and the stream has ended."""
        if self._has_ended:
            return True
        if self._tcp is None or self._tcp.ended:
            try:
                self._tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return False
            self._connected()
        text, is_whole = self._read(self._tcp)
        if not text.startswith(self._text):
            self._text, self._seen = b"", []
        for frame in text[len(self._text) :].split(b"\n\n")[:-1]:
            self._take(frame)
            self._text += frame + b"\n\n"
        self._has_ended = self.goodbye is not None and is_whole
        return self._has_ended

    def _take(self, frame: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in frame.decode().split("\n"))
        if "event" not in fields:
            assert fields == {"retry": "2000"} or not fields.pop("", "hb").strip("hb")
            return
        data = json.loads(fields["data"])
        assert data["topic"] == self.topic
        if fields["event"] == "error":
            if data["code"] == 409:
                self.goodbye = data
            return
        assert (fields["event"], fields["id"]) == ("job", str(data["$seq"]))
        came = data["$seq"], data["deliveries"]
        assert came not in self._seen, "a job came twice"
        first = [seq for seq, deliveries in self._seen if deliveries == 1]
        assert data["deliveries"] > 1 or not first or data["$seq"] > first[-1], "jobs have changed places"
        self._seen.append(came)
        self.jobs[data["$seq"]] = data["data"]

    def _connected(self) -> None:
        raise NotImplementedError

    def _read(self, tcp: SimClient) -> tuple[bytes, bool]:
        """The body of the stream up to now, whole chunks of it, and whether it has ended. A new one begins anew."""
        raise NotImplementedError


class Http1Worker(Worker):
    _got = b""

    def _connected(self) -> None:
        assert self._tcp is not None
        self._got = b""
        self._text, self._seen = b"", []
        self.streams += 1
        self._tcp.send(get(self.topic))

    def _read(self, tcp: SimClient) -> tuple[bytes, bool]:
        self._got += tcp.receive()
        head, end, body = self._got.partition(b"\r\n\r\n")
        if end and not head.startswith(b"HTTP/1.1 200 "):
            assert head.startswith(b"HTTP/1.1 503 ")
            tcp.close()
            self._tcp = None
            return b"", False
        return unchunked(body)


class Http2Worker(Worker):
    def _connected(self) -> None:
        self._client = H2Client()
        self._begin()

    def _begin(self) -> None:
        self._text, self._seen = b"", []
        self.streams += 1
        self._stream = self._client.begin("GET", f"/v0/topics/{self.topic}/work?node=w&max=64")
        self._send()

    def _send(self) -> None:
        assert self._tcp is not None
        self._tcp.send(self._client.take())

    def _read(self, tcp: SimClient) -> tuple[bytes, bool]:
        data = tcp.receive()
        if data:
            self._client.feed(data)
            self._send()
        seen = self._client.seen[self._stream]
        if seen.reset is not None or (seen.ended and b'"code":409' not in seen.body):
            assert seen.status in {0, 200, 503}
            self._begin()
            return b"", False
        return seen.body, seen.ended


class Watcher:
    """Follows a topic by a session, whose stream it opens again, and makes another one when that is gone."""

    def __init__(self, world: TwoCores, topic: str) -> None:
        self.world = world
        self.topic = topic
        self.records: dict[int, int] = {}
        """The data of each record, by seq."""
        self.sessions = 0
        self.streams = 0
        self._wid = ""
        self._id = ""
        self._tcp: SimClient | None = None
        self._client = H2Client()
        self._asked = 0
        self._asks_stream = False
        self._taken = 0

    def act(self) -> None:
        """Do what is possible now."""
        if self._tcp is None or self._tcp.ended:
            try:
                self._tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return
            self._client = H2Client()
            self._asked = 0
        data = self._tcp.receive()
        if data:
            self._client.feed(data)
        if self._asked:
            self._look()
        if not self._asked:
            self._ask()
        self._tcp.send(self._client.take())

    def _ask(self) -> None:
        if self._asks_stream and not self._id:
            self._wid = ""  # its stream may have sent a frame that did not come, and no id leads back before it
        self._asks_stream = bool(self._wid)
        self._taken = 0
        if self._wid:
            self.streams += 1
            last = {"Last-Event-ID": self._id} if self._id else {}
            self._asked = self._client.begin("GET", f"/v0/watch/{self._wid}", None, last)
        else:
            self.sessions += 1
            body = json.dumps(self._body()).encode()
            self._asked = self._client.begin("POST", "/v0/watch", body, JSON)

    def _body(self) -> dict[str, Any]:
        return {"topics": self._begins()}

    def _begins(self) -> dict[str, Any]:
        return {self.topic: {"from_seq": max(self.records, default=0)}}

    def leave(self) -> None:
        """End the connection."""
        if self._tcp is not None:
            self._tcp.close()

    @property
    def is_open(self) -> bool:
        """Whether a frame of this stream has come."""
        return self._asks_stream and bool(self._id)

    def _look(self) -> None:
        seen = self._client.seen[self._asked]
        if self._asks_stream and seen.status == 200:
            for frame in seen.body[self._taken :].split(b"\n\n")[:-1]:
                self._taken += len(frame) + 2
                self._take(frame)
        elif seen.ended:
            answer = json.loads(seen.body)
            if seen.status == 200:
                self._wid, self._id = answer["wid"], ""
            else:
                assert seen.status in {404, 503}
                self._wid = ""
        if seen.ended or seen.reset is not None:
            self._asked = 0

    def _take(self, frame: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in frame.decode().split("\n"))
        if "event" not in fields:
            return
        data = json.loads(fields["data"])
        assert fields["event"] in {"record", "caught-up"}
        assert data["topic"] == self.topic
        for record in data.get("records", ()):
            assert record["$seq"] == max(self.records, default=0) + 1, "a hole, or twice"
            self.records[record["$seq"]] = record["data"]
        self._id = fields["id"]


class Watched(Relayed):
    """Two topics, one of each core, with two watchers each, and clients that write."""

    def __init__(self, seed: int, neighbours: type[Neighbours] = Staying, **settings: Any) -> None:
        super().__init__(seed, neighbours, **settings)
        self.topics = [self.topic_of(core, "t") for core in range(2)]
        for topic in self.topics:
            tcp = self.connect(self.slots.core_of(topic))
            assert self.ask(tcp, request("PUT", f"/v0/topics/{topic}", {})).status == 201
        self.watchers = [Watcher(self, topic) for topic in self.topics for _ in range(2)]
        self.writers: list[Session] = [PlainSession(self, number + 1, self.topics, 6) for number in range(2)]

    def work(self) -> bool:
        """Return whether each watcher has all that is there for certain."""
        for watcher in self.watchers:
            watcher.act()
        asked = [each for writer in self.writers for each in writer.asked if each.seq]
        return all_done(self.writers) and all(
            watcher.records.get(each.seq) == each.number
            for watcher in self.watchers
            for each in asked
            if each.topic == watcher.topic
        )


class Streaming(Relayed):
    """Two queues, one of each core, with two workers each, and clients that write jobs."""

    def __init__(self, seed: int, neighbours: type[Neighbours] = Staying, **settings: Any) -> None:
        super().__init__(seed, neighbours, **settings)
        self.topics = [self.topic_of(core, "q") for core in range(2)]
        for topic in self.topics:
            tcp = self.connect(self.slots.core_of(topic))
            answer = self.ask(tcp, request("PUT", f"/v0/topics/{topic}", {"type": "queue", "lease_ms": LEASE_MS}))
            assert answer.status == 201
        self.workers: list[Worker] = [kind(self, topic) for topic in self.topics for kind in (Http1Worker, Http2Worker)]
        self.writers: list[Session] = [PlainSession(self, number + 1, self.topics, 6) for number in range(2)]

    def jobs(self, topic: str) -> dict[int, int]:
        """The jobs that workers have got."""
        return {seq: data for each in self.workers if each.topic == topic for seq, data in each.jobs.items()}

    def written(self, topic: str) -> dict[int, int]:
        asked = [each for writer in self.writers for each in writer.asked]
        return {each.seq: each.number for each in asked if each.topic == topic and each.seq}

    def work(self) -> bool:
        """Return whether all jobs that are there for certain have come."""
        for worker in self.workers:
            worker.act()
        return all_done(self.writers) and all(
            self.written(topic).items() <= self.jobs(topic).items() for topic in self.topics
        )

    def end(self) -> None:
        """Delete the queues, which ends the streams. A worker that finds no queue has missed the end of its own."""
        self.run(self._are_open)
        for topic in self.topics:
            answer = self.ask(self.connect(self.slots.core_of(topic)), request("DELETE", f"/v0/topics/{topic}", {}))
            assert answer.status in {200, 204}
        self.run(self._have_ended)
        assert {worker.goodbye["error"] for worker in self.workers} == {
            "the topic was deleted, or is no longer a queue"
        }
        self.run(lambda: self.open_streams == [0, 0])

    def _are_open(self) -> bool:
        for worker in self.workers:
            worker.act()
        return all(worker.is_open for worker in self.workers)

    def _have_ended(self) -> bool:
        acted = [worker.act() for worker in self.workers]
        return all(acted)

    @property
    def open_streams(self) -> list[int]:
        return [server.service.streams.slots.open for server in self.servers]


@pytest.mark.parametrize("settings", [{}, SMALL])
@pytest.mark.parametrize("seed", seeds(12))
def test_relayed_streams_deliver_each_job_once_and_end_with_their_topic(seed: int, settings: dict[str, int]) -> None:
    world = Streaming(seed, **settings)
    world.run(world.work)
    for topic in world.topics:
        assert world.jobs(topic) == world.written(topic)
    world.end()
    assert [worker.streams for worker in world.workers] == [1, 1, 1, 1]


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("neighbours", [Staying, Neighbours])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_core_may_be_killed_amid_streams(seed: int, neighbours: type[Neighbours], dies: int) -> None:
    """With hand-overs, too: the streams of HTTP/1 are at home then."""
    for effects in range(1, 2000, stride(2)):
        world = Streaming(seed, neighbours, lone=bool(seed % 2), **SMALL if effects % 3 else {})
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(world.work, dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        world.run(world.work)
        world.check(world.writers)
        world.end()
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


@pytest.mark.parametrize("settings", [{}, SMALL])
@pytest.mark.parametrize("seed", seeds(12))
def test_sessions_are_on_the_core_of_their_topic_and_relayed_there(seed: int, settings: dict[str, int]) -> None:
    """R-CORE-6, R-WATCH-6, R-WATCH-16."""
    world = Watched(seed, **settings)
    world.run(world.work)
    assert [(watcher.sessions, watcher.streams) for watcher in world.watchers] == [(1, 1)] * 4
    assert [len(server.service.streams.sessions) for server in world.servers] == [2, 2]


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_core_may_be_killed_amid_watches(seed: int, dies: int) -> None:
    """A watcher has got a prefix of its topic, and continues from there."""
    for effects in range(1, 2000, stride(2)):
        world = Watched(seed, lone=bool(seed % 2), **SMALL if effects % 3 else {})
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(world.work, dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        world.run(world.work)
        world.check(world.writers)
        for watcher in world.watchers:
            assert watcher.records.items() <= dict(world.records(watcher.topic)).items()
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


def test_a_session_belongs_to_its_key_on_another_core_too() -> None:
    """R-WATCH-3, R-SSE-5."""
    keys = "first-first-first,second-second-second"
    world = Relayed(1, api_keys=keys, split=False, max_sse_connections_per_key=1)
    topic = world.topic_of(1, "t")
    mine, other = "Authorization: Bearer first-first-first", "Authorization: Bearer second-second-second"
    assert world.ask(world.connect(1), request("PUT", f"/v0/topics/{topic}", {}, mine)).status == 201
    made = world.ask(world.connect(0), request("POST", "/v0/watch", {"topics": {topic: {}}}, mine))
    assert made.status == 200
    assert world.relayed == [1, 0]
    for core in range(2):
        for lines in ((), (other,)):
            answer = world.ask(world.connect(core), request("GET", made.json["stream_url"], {}, *lines))
            assert (answer.status, answer.code) == (401, "unauthorized")
    tcp, got = world.connect(0), bytearray()
    tcp.send(request("GET", made.json["stream_url"], {}, mine))

    def came() -> bool:
        got.extend(tcp.receive())
        return b"caught-up" in got

    world.run(came)
    assert got.startswith(b"HTTP/1.1 200 ")
    again = world.ask(world.connect(1), request("GET", made.json["stream_url"], {}, mine))
    assert again.code == "throttled", "it is open, of the same key"


def test_a_session_of_topics_of_several_cores_is_where_it_was_asked() -> None:
    """R-CORE-6."""
    world = Relayed(1, split=False)
    topics = [world.topic_of(core, "t") for core in range(2)]
    for topic in topics:
        assert world.ask(world.connect(0), request("PUT", f"/v0/topics/{topic}", {})).status == 201
    tcp = world.connect(0)
    assert world.ask(tcp, request("POST", "/v0/watch", {"topics": {each: {} for each in topics}})).status == 200
    assert [len(server.service.streams.sessions) for server in world.servers] == [1, 0]


def opened(world: TwoCores, core: int, topic: str) -> tuple[SimClient, bytearray]:
    """A stream of a connection of this core, and what came of it, beyond its head."""
    tcp, got = world.connect(core), bytearray()
    tcp.send(get(topic, "Accept: text/event-stream"))

    def came() -> bool:
        got.extend(tcp.receive())
        return b"retry: 2000" in got

    world.run(came)
    assert got.startswith(b"HTTP/1.1 200 ")
    return tcp, got


def after(world: TwoCores, core: int, end: Callable[[], None]) -> tuple[bytes, bytes, bool]:
    """All that a stream of core 1's queue has for a connection of this core, when it is ended so."""
    tcp, got = opened(world, core, world.topic_of(1, "q"))
    end()

    def came() -> bool:
        got.extend(tcp.receive())
        return got.endswith(LAST_CHUNK)

    world.run(came)
    head, _, body = bytes(got).partition(b"\r\n\r\n")
    return head, *unchunked(body)


def made(neighbours: type[Neighbours] = Staying) -> Relayed:
    """Two cores, of which core 1 has a queue."""
    world = Relayed(1, neighbours, split=False)
    topic = world.topic_of(1, "q")
    assert world.ask(world.connect(1), request("PUT", f"/v0/topics/{topic}", {"type": "queue"})).status == 201
    return world


@pytest.mark.parametrize("stops", [0, 1])
def test_a_stop_of_either_core_ends_a_relayed_stream_as_a_local_one(stops: int) -> None:
    ends = []
    for core in (1, 0):
        world = made()
        ends.append(after(world, core, world.servers[stops if core == 0 else 1].stop))
        world.run(lambda world=world: world.codes == [0])  # type: ignore[misc]
    assert ends[0][1:] == ends[1][1:]
    assert b"server_shutting_down" in ends[0][1]


def test_a_stream_that_is_the_first_request_of_its_connection_goes_home_with_it() -> None:
    world = made(Neighbours)
    topic = world.topic_of(1, "q")
    opened(world, 0, topic)
    assert world.relayed == [0, 0]
    assert world.neighbours[0].hand_overs()["given"] == 1
    assert [server.service.streams.slots.open for server in world.servers] == [0, 1]


def test_a_stream_of_a_connection_that_stays_is_relayed_and_its_client_s_end_ends_it() -> None:
    world = made()
    tcp, _ = opened(world, 0, world.topic_of(1, "q"))
    assert world.relayed == [1, 0]
    slots = [server.service.streams.slots for server in world.servers]
    assert [each.open for each in slots] == [1, 1]
    tcp.close()
    world.run(lambda: [each.open for each in slots] == [0, 0])


def test_a_client_that_reads_nothing_holds_up_no_other_stream_of_its_core() -> None:
    world = made()
    topic, other = world.topic_of(1, "q"), world.topic_of(1, "r")
    assert world.ask(world.connect(1), request("PUT", f"/v0/topics/{other}", {"type": "queue"})).status == 201
    slow, _ = opened(world, 0, topic)
    quick, got = opened(world, 0, other)
    writer, text = world.connect(1), "x" * 20_000
    for _ in range(60):
        for name in (topic, other):
            assert world.ask(writer, request("POST", f"/v0/topics/{name}", {"records": [{"data": text}]})).status == 200

    def came() -> bool:
        got.extend(quick.receive())
        return got.count(b"event: job") == 60

    world.run(came)
    (asking,) = [conn.state for conn in world.servers[1].loop._traffic.connections() if hasattr(conn.state, "_streams")]
    held, taken = asking._streams.values()
    world.run(lambda: not taken.over_high_water)
    assert held.over_high_water
    assert held._untaken < 65_536 + 2 * len(text)
    connections = world.servers[0].listener.connections
    assert max(conn.outbound_bytes for conn in connections) < 2 * 65_536 + 4 * len(text)
    slow.close()
