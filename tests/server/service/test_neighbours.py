"""Servers that are the cores of one: whole ones, engines included, on simulated rings that share a network and a port.

Goal: a client that asks for one topic is answered wherever it is accepted, and every record that it writes is there
once, also if a core is killed amid a hand-over, because the client repeats a write with its key.
Method: clients write to one topic each, and send requests in pieces. A core is killed after one of its effects, and
started again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.amount import seeds, stride
from tests.http.byte_stream import Response, Wire
from tests.sim import SimClient, SimRing, SimStoppedError
from topics.config import tiny_config
from topics.engine.stored_engine import StoredEngine
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.server.neighbours import Neighbours
from topics.store.cores.slot_map import SlotMap
from topics.store.disk.data_directory import lock_directory

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

US = 1_000
PASSES_MAX = 50_000
MAILBOXES = ("core-00/mailbox", "core-01/mailbox")


class TwoCores:
    """Two servers that share a port. `killed`: the number of the core whose ring stopped the run, once it did."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        first = SimRing(seed, shuffle=True)
        self.rings = [first, SimRing(seed + 1000, network=first.network, shuffle=True)]
        self.slots = SlotMap.balanced(2)
        self.port = 0
        self.servers: list[Server] = []
        self.codes: list[int] = []
        self.killed: list[int] = []
        for core in range(2):
            self._start(core)
        self.run(lambda: self.is_ready)

    def _start(self, core: int) -> None:
        ring = self.rings[core]
        loop = Loop(ring, ring.clock)
        config = replace(tiny_config(f"/core-{core:02}"), port=self.port)
        server = Server(
            config,
            loop,
            partial(StoredEngine.open, directory=lock_directory(ring, config)),
            on_end=self.codes.append,
            neighbours=Neighbours(loop, self.slots, core, MAILBOXES),
        )
        server.start()
        self.port = server.address[1]
        self.servers[core : core + 1] = [server]

    def run(self, done: Callable[[], bool], dies: int = -1) -> None:
        """Make passes of both until `done()`. dies: the core that is killed and started again when its ring stops."""
        for _ in range(PASSES_MAX):
            if done():
                return
            try:
                self.rng.choice(self.servers).loop.run_pass(20 * US)
            except SimStoppedError:
                self.killed.append(dies)
                self.rings[dies] = self.rings[dies].next_life(power_cut=False)
                self._start(dies)
        raise AssertionError("it never came to an end")

    def topic_of(self, core: int, name: str) -> str:
        """A name that the core owns."""
        return next(found for n in range(100) if self.slots.core_of(found := f"{name}-{n}") == core)

    def clients(self, count: int) -> list[Writer]:
        return [
            Writer(self, self.topic_of(number % 2, f"t{number}"), self.rng.randint(1, 4)) for number in range(count)
        ]

    def ask(self, tcp: SimClient, request: bytes) -> Response:
        wire = Wire()
        tcp.send(request)

        def came() -> bool:
            wire.sent += tcp.receive()
            return is_whole(wire.sent)

        self.run(came)
        (response,) = wire.take()
        return response

    def connect(self, core: int) -> SimClient:
        """A connection that this core accepts."""
        for _ in range(100):
            tcp = self.rings[0].network.client(self.port)
            self.run(partial(self.is_accepted, tcp.address))
            if tcp.address in peers(self.servers[core]):
                return tcp
        raise AssertionError(f"core {core} accepted none of a hundred")

    def is_accepted(self, address: tuple[str, int]) -> bool:
        return any(address in peers(server) for server in self.servers)

    @property
    def is_ready(self) -> bool:
        return all(server.not_ready() is None for server in self.servers)


def peers(server: Server) -> set[tuple[str, int]]:
    return {conn.peer for conn in server.listener.connections}


def is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    return bool(end) and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


def request(method: str, path: str, body: object, *lines: str) -> bytes:
    data = json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(data)}"]).encode() + b"\r\n\r\n" + data


def write(topic: str, number: int) -> bytes:
    body = {"records": [{"data": number}]}
    return request("POST", f"/v0/topics/{topic}", body, f"Idempotency-Key: {topic}/{number}")


class Writer:
    """A client that writes its records one after the other, and repeats a request without an answer."""

    def __init__(self, world: TwoCores, topic: str, count: int) -> None:
        self.world = world
        self.topic = topic
        self.count = count
        self.written = 0
        self.refusals = 0
        self.connections = 0
        self._tcp: SimClient | None = None
        self._wire = Wire()
        self._rest = b""

    def act(self) -> bool:
        """Do what is possible now. Return whether all is written."""
        if self.written == self.count:
            return True
        if self._tcp is None:
            try:
                self._tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return False
            self.connections += 1
            self._wire.sent, self._rest = b"", write(self.topic, self.written)
        if self._rest:
            size = self.world.rng.randint(1, len(self._rest))
            self._tcp.send(self._rest[:size])
            self._rest = self._rest[size:]
        self._wire.sent += self._tcp.receive()
        if is_whole(self._wire.sent):
            (response,) = self._wire.take()
            if response.status == 503:
                assert response.code == "not_ready"
                self.refusals += 1
            else:
                assert response.status in (200, 201), response
                self.written += 1
            if self.written < self.count:
                self._rest = write(self.topic, self.written)
        elif self._tcp.ended:
            self._tcp = None
        return self.written == self.count

    def check(self) -> None:
        core = self.world.slots.core_of(self.topic)
        tcp = self.world.connect(core)
        answer = self.world.ask(tcp, request("POST", f"/v0/topics/{self.topic}/diff", {}))
        assert [record["data"] for record in answer.json["records"]] == list(range(self.count))
        for number, server in enumerate(self.world.servers):
            assert server.engine is not None
            found = [state.name for state in server.engine.topic_states("", (), 100)]
            assert (self.topic in found) == (number == core)


def all_written(clients: list[Writer]) -> bool:
    acted = [client.act() for client in clients]
    return all(acted)


@pytest.mark.parametrize("seed", seeds(12))
def test_clients_of_one_topic_are_at_home_after_their_first_request(seed: int) -> None:
    world = TwoCores(seed)
    clients = world.clients(6)
    world.run(lambda: all_written(clients))
    for client in clients:
        client.check()
        assert (client.connections, client.refusals) == (1, 0)
    taken = [server.mailbox.taken for server in world.servers if server.mailbox is not None]
    assert sum(taken) <= len(clients)


@pytest.mark.parametrize("accepts", [0, 1])
def test_a_request_is_answered_by_the_core_that_has_its_topic_and_later_ones_without_a_journey(accepts: int) -> None:
    world = TwoCores(3)
    tcp = world.connect(accepts)
    topic, own = world.topic_of(1 - accepts, "far"), world.topic_of(accepts, "near")
    mailbox = world.servers[1 - accepts].mailbox
    assert mailbox is not None
    for number in range(3):
        assert world.ask(tcp, write(topic, number)).status == (200 if number else 201)
        assert mailbox.taken == 1
    assert not peers(world.servers[accepts])
    assert tcp.address in peers(world.servers[1 - accepts]), "as if it had been accepted there"
    assert world.ask(tcp, write(own, 0)).code == "not_ready", "it travels once, and there are no relays yet"
    assert world.ask(tcp, write(topic, 3)).status == 200


def test_a_request_that_spans_no_topic_is_answered_where_it_arrives() -> None:
    world = TwoCores(4)
    for core in range(2):
        tcp = world.connect(core)
        assert world.ask(tcp, request("GET", "/v0/health", {})).status == 200
        assert tcp.address in peers(world.servers[core])


def test_one_whose_core_has_stopped_is_refused_and_asks_again() -> None:
    world = TwoCores(5)
    world.servers[1].stop()
    world.run(lambda: world.codes == [0])
    tcp = world.connect(0)
    refusal = world.ask(tcp, write(world.topic_of(1, "far"), 0))
    assert (refusal.code, refusal.headers["retry-after"]) == ("not_ready", "1")
    assert world.ask(tcp, write(world.topic_of(0, "near"), 0)).status == 201


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(8))
def test_a_core_may_be_killed_amid_hand_overs_and_every_record_is_there_once(seed: int, dies: int) -> None:
    for effects in range(1, 1000, stride(1)):
        world = TwoCores(seed)
        clients = world.clients(4)
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(partial(all_written, clients), dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        for client in clients:
            client.check()
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")
