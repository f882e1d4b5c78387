"""Servers that are the cores of one, and share its limits: a spent share asks the others before it refuses.

Goal: all together never use more than a limit, a request is refused only if nothing is left anywhere, and the answer
has the whole limit. Method: whole servers on simulated rings. Clients make and delete topics of all cores, and each of
them may be killed after any of its effects.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.amount import seeds
from tests.http.byte_stream import Response
from tests.server.service.test_relays import Staying
from tests.server.service.two_cores import TwoCores, is_whole, request
from tests.sim import SimClient
from topics.engine.shared.limits import ShareSpentError
from topics.errors import RequestError
from topics.server.cores import shares

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SECRET = "0123456789-secret"


def names(world: TwoCores, core: int, count: int) -> list[str]:
    return [world.topic_of(core, f"n{number}") for number in range(count)]


def put(world: TwoCores, tcp: SimClient, topic: str) -> Response:
    return world.ask(tcp, request("PUT", f"/v0/topics/{topic}", {}))


def refused(answer: Response, limit: str, whole: int) -> bool:
    assert (answer.status, answer.code) == (429, "throttled"), answer
    assert answer.json["error"]["detail"] == {"limit": limit, "max": whole}
    return True


@pytest.mark.parametrize("cores", [2, 3])
def test_one_core_may_use_all_of_a_limit(cores: int) -> None:
    """R-CORE-7."""
    world = TwoCores(1, cores=cores, max_topics=7)
    tcp = world.connect(0)
    first = names(world, 0, 8)
    assert [put(world, tcp, name).status for name in first[:7]] == [201] * 7
    refused(put(world, tcp, first[7]), "max_topics", 7)
    other = world.topic_of(1, "other")
    refused(put(world, tcp, other), "max_topics", 7)
    assert world.ask(tcp, request("DELETE", f"/v0/topics/{first[0]}", {})).status == 200
    assert put(world, tcp, other).status == 201
    refused(put(world, tcp, first[0]), "max_topics", 7)


def test_a_write_of_several_records_waits_for_the_room_of_all() -> None:
    world = TwoCores(2, max_total_bytes=20_000)
    tcp, topic = world.connect(0), world.topic_of(0, "t")
    body = {"records": [{"data": "x" * 1000} for _ in range(3)]}
    statuses = [world.ask(tcp, request("POST", f"/v0/topics/{topic}", body)).status for _ in range(8)]
    assert statuses[:6] == [201 if not number else 200 for number in range(6)]
    assert statuses[-1] == 429


def test_a_body_that_takes_turns_waits_like_others() -> None:
    world = TwoCores(3, max_total_bytes=1_000_000, pass_body_bytes=10_000)
    tcp, topic = world.connect(0), world.topic_of(0, "t")
    body = {"records": [{"data": "x" * 1000} for _ in range(300)]}
    statuses = [world.ask(tcp, request("POST", f"/v0/topics/{topic}", body)).status for _ in range(4)]
    assert statuses == [201, 200, 200, 429]


def test_what_is_refused_in_one_pass_is_asked_for_at_once() -> None:
    """There is one question for all, and each of them finds room."""
    world = TwoCores(4, max_waits=40)
    topic = world.topic_of(0, "t")
    tcp = world.connect(0)
    put(world, tcp, topic)
    before = [neighbours.shares.questions for neighbours in world.neighbours]
    clients = [world.connect(0) for _ in range(40)]
    for client in clients:
        client.send(request("POST", "/v0/wait", {"topics": {topic: 0}, "wait_ms": 100_000}))
    engine = world.servers[0].engine
    assert engine is not None
    world.run(lambda: engine.limits.waits.used() == 40)
    refused(world.ask(tcp, request("POST", "/v0/wait", {"topics": {topic: 0}, "wait_ms": 9})), "max_waits", 40)
    after = [neighbours.shares.questions for neighbours in world.neighbours]
    assert after[0] - before[0] < 10


def test_sessions_and_streams_are_limited_over_all_cores() -> None:
    world = TwoCores(5, max_watch_sessions=6, max_sse_connections=6)
    topics = [world.topic_of(core, "t") for core in range(2)]
    tcp = world.connect(0)
    for topic in topics:
        put(world, tcp, topic)
    wids = []
    for _ in range(6):
        answer = world.ask(tcp, request("POST", "/v0/watch", {"topics": {topics[0]: {}}}))
        assert answer.status == 200
        wids.append(answer.json["wid"])
    refused(world.ask(tcp, request("POST", "/v0/watch", {"topics": {topics[1]: {}}})), "max_watch_sessions", 6)
    streams = [world.connect(1) for _ in wids]
    for stream, wid in zip(streams, wids, strict=True):
        assert read_head(world, stream, wid).startswith(b"HTTP/1.1 200")
    late = world.connect(1)
    assert read_head(world, late, wids[0]).startswith(b"HTTP/1.1 429")
    streams[0].close()
    world.run(lambda: sum(server.service.streams.slots.of_clients for server in world.servers) == 5)
    assert read_head(world, world.connect(1), wids[0]).startswith(b"HTTP/1.1 200")


def test_a_key_has_its_limits_over_all_cores() -> None:
    """R-CORE-7, R-SSE-5: one core may use what others have left, and another key has limits of its own."""
    limits = {"max_watch_sessions_per_key": 5, "max_sse_connections_per_key": 5}
    world = TwoCores(8, cores=3, api_keys=f"{SECRET},{SECRET}-of-others", **limits)
    mine, others = (f"Authorization: Bearer {secret}" for secret in (SECRET, f"{SECRET}-of-others"))
    topics = [world.topic_of(core, "t") for core in range(3)]

    def watch(core: int, key: str = mine) -> Response:
        return world.ask(world.connect(core), request("POST", "/v0/watch", {"topics": {topics[core]: {}}}, key))

    def streams(core: int, wid: str, key: str = mine) -> bool:
        opened.append(world.connect(core))
        head = read_head(world, opened[-1], wid, key)
        assert head.startswith(b"HTTP/1.1 200") or b"this key has 5 streams open" in head
        return head.startswith(b"HTTP/1.1 200")

    opened: list[SimClient] = []
    for core, topic in enumerate(topics):
        assert world.ask(world.connect(core), request("PUT", f"/v0/topics/{topic}", {}, mine)).status == 201
    answers = [watch(core) for core in (0, 0, 0, 1, 2)]
    assert [answer.status for answer in answers] == [200] * 5
    wids = [answer.json["wid"] for answer in answers]
    for core in range(3):
        refused(watch(core), "max_watch_sessions_per_key", 5)
    assert [streams(0, wid) for wid in (*wids[:3], wids[0])] == [True] * 4
    assert streams(1, wids[3])
    assert [streams(core, wid) for core, wid in enumerate(wids[2:])] == [False] * 3
    assert streams(2, watch(2, others).json["wid"], others)
    opened[0].close()
    world.run(lambda: sum(server.service.streams.slots.of_clients for server in world.servers) == 5)
    assert streams(2, wids[4])
    assert [server.service.streams.slots.of_clients for server in world.servers] == [3, 1, 2]


def test_streams_that_are_relayed_in_one_pass_use_what_any_core_has_left() -> None:
    """R-CORE-7: each counts from the moment on in which the other core is to be asked for it."""
    world = TwoCores(9, Staying, cores=3, api_keys=SECRET, max_sse_connections_per_key=3)
    key = f"Authorization: Bearer {SECRET}"
    topic = world.topic_of(0, "t")
    session = request("POST", "/v0/watch", {"topics": {topic: {}}}, key)
    assert world.ask(world.connect(0), request("PUT", f"/v0/topics/{topic}", {}, key)).status == 201
    wid = world.ask(world.connect(0), session).json["wid"]
    streams = [world.connect(1) for _ in range(4)]
    for stream in streams:
        stream.send(head_of(wid, key))
    heads = [head_in(world, stream) for stream in streams]
    assert sorted(head[:12] for head in heads) == [b"HTTP/1.1 200"] * 3 + [b"HTTP/1.1 429"]
    assert [server.service.streams.slots.of_clients for server in world.servers] == [0, 3, 0]
    streams[0].close()
    world.run(lambda: world.servers[1].service.streams.slots.of_clients == 2)


def head_of(wid: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET /v0/watch/{wid} HTTP/1.1", "Host: localhost", *lines, "\r\n")).encode()


def read_head(world: TwoCores, tcp: SimClient, wid: str, *lines: str) -> bytes:
    tcp.send(head_of(wid, *lines))
    return head_in(world, tcp)


def head_in(world: TwoCores, tcp: SimClient) -> bytes:
    got = b""

    def came() -> bool:
        nonlocal got
        got += tcp.receive()
        return b"\r\n\r\n" in got

    world.run(came)
    return got


def test_a_core_that_does_not_answer_is_waited_for_no_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares.ANSWER_NS == 1_000_000_000
    monkeypatch.setattr(shares, "ANSWER_NS", 100_000_000)  # fewer passes
    world = TwoCores(6, max_topics=2)
    tcp = world.connect(0)
    first = names(world, 0, 2)
    assert put(world, tcp, first[0]).status == 201
    asleep = world.servers[1]
    world.servers[1] = world.servers[0]
    before = world.rings[0].clock.monotonic_ns()
    refused(put(world, tcp, first[1]), "max_topics", 2)
    assert world.rings[0].clock.monotonic_ns() - before >= shares.ANSWER_NS
    world.servers[1] = asleep
    world.run(lambda: put_soon(world, tcp, first[1]))


def put_soon(world: TwoCores, tcp: SimClient, topic: str) -> bool:
    return put(world, tcp, topic).status == 201


class Maker:
    """A client that makes topics and deletes them again, of any core."""

    def __init__(self, world: TwoCores, topics: list[str], rounds: int) -> None:
        self.world = world
        self.topics = topics
        self.rounds = rounds
        self.statuses: list[int] = []
        self._tcp: SimClient | None = None
        self._got = b""
        self._waits = False

    def act(self) -> bool:
        if self.rounds == 0:
            return True
        if self._tcp is None:
            try:
                self._tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return False
            self._got, self._waits = b"", False
        if not self._waits:
            method = self.world.rng.choice(["PUT", "PUT", "DELETE"])
            self._tcp.send(request(method, f"/v0/topics/{self.world.rng.choice(self.topics)}", {}))
            self._waits = True
        self._got += self._tcp.receive()
        if is_whole(self._got):
            status = int(self._got.split()[1])
            assert status in {200, 201, 404, 429, 503}, self._got
            if status == 429:
                assert json.loads(self._got.partition(b"\r\n\r\n")[2])["error"]["detail"]["max"] == MOST
            self.statuses.append(status)
            self.rounds -= 1
            self._got, self._waits = b"", False
        elif self._tcp.ended:
            self._tcp = None
        return False


MOST = 5


def live(seed: int, *kills: tuple[int, int], cuts_power: bool = False) -> TwoCores:
    """One life of two to four cores. kills: one after the other, the core and after how many of its effects."""
    world = TwoCores(seed, cores=2 + seed % 3, max_topics=MOST)
    world.cuts_power = cuts_power
    topics = [world.topic_of(core, f"m{number}") for core in range(len(world.rings)) for number in range(3)]
    makers = [Maker(world, topics, 12) for _ in range(4)]

    def done() -> bool:
        count = sum(server.engine.topic_count() for server in world.servers if server.engine is not None)
        assert count <= MOST
        acted = [maker.act() for maker in makers]
        return all(acted)

    for core, effects in kills:
        core %= len(world.rings)
        world.rings[core].stop_at(world.rings[core].effects + effects)
        before = len(world.killed)
        world.run(lambda before=before: len(world.killed) > before or done(), dies=core)  # type: ignore[misc]
    world.run(done)
    world.run(lambda: world.is_ready)
    assert sum(server.topic_count() for server in world.servers) <= MOST
    return world


@pytest.mark.parametrize("seed", seeds(20))
def test_all_cores_together_have_no_more_topics_than_the_limit(seed: int) -> None:
    world = live(seed)
    assert not world.killed


@pytest.mark.parametrize("seed", seeds(60))
def test_nor_if_cores_are_killed(seed: int) -> None:
    """Two of them, one after the other, so that both may be away at once. Some lose their power."""
    world = live(seed, (seed, 1 + 7 * seed % 31), (seed // 3 + 1, 1 + 3 * seed % 20), cuts_power=seed % 5 == 0)
    assert world.killed


def test_a_request_that_two_limits_refuse_asks_for_both() -> None:
    """Once for each."""
    world = TwoCores(7, max_producers=3, max_producer_parts=5)
    tcp, topic = world.connect(1), world.topic_of(1, "t")
    put(world, tcp, topic)
    clients = [world.connect(1) for _ in range(6)]
    for number, client in enumerate(clients):
        producer = {"id": f"p{number}", "epoch": 1, "part": 0}
        client.send(request("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}], "producer": producer}))
    got = [b""] * 6

    def answered() -> bool:
        got[:] = [before + client.receive() for before, client in zip(got, clients, strict=True)]
        return all(map(is_whole, got))

    world.run(answered)
    assert sorted(int(each.split()[1]) for each in got) == [200] * 3 + [429] * 3


def test_calls_that_wait_for_one_limit_leave_as_many_places_as_they_take() -> None:
    """One key has a limit of its own, and refuses no request of another one by very many of its own."""
    cores: Any = SimpleNamespace(own=0, count=2)
    asked = shares.CoreShares(cores, _nothing, 1)

    def waits(limit: str) -> bool:
        call: Any = SimpleNamespace(body=b"")
        return asked.ask(ShareSpentError(RequestError("throttled", "none is left"), limit, 1, _nothing), call)

    assert [waits("of one key") for _ in range(2000)].count(True) == shares.WAITING_MAX // 2
    assert [waits("of another") for _ in range(2000)].count(True) == shares.WAITING_MAX // 4
    assert waits("of a third")


def _nothing(*_arguments: object) -> Any: ...
