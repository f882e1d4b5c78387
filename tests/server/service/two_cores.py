"""Whole servers that are the cores of one, engines included, on simulated rings that share a network and a port."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.http.byte_stream import Response, Wire
from tests.sim import SimClient, SimDisk, SimRing, SimStoppedError
from topics.config import tiny_config
from topics.engine.stored_engine import StoredEngine
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.server.cores.neighbours import Neighbours
from topics.store.cores.core_directories import read_cores
from topics.store.cores.slot_map import SlotMap
from topics.store.disk.data_directory import lock_directory

US = 1_000
PASSES_MAX = 50_000


class TwoCores:
    """Servers that share a port. `killed`: the number of the core whose ring stopped the run, once it did.

    neighbours: how a core sees the other ones. cores: how many. settings: of all.
    data: a directory of as many cores, with the disk that all share; None: each has a disk of its own.
    """

    def __init__(
        self,
        seed: int,
        neighbours: type[Neighbours] = Neighbours,
        *,
        split: bool = False,
        cores: int = 2,
        data: tuple[SimDisk, str] | None = None,
        **settings: Any,
    ) -> None:
        self.rng = random.Random(seed)
        self._neighbours = neighbours
        self._settings = settings
        disk, self.data_dir = data or (None, "")
        first = SimRing(seed, disk=disk, shuffle=True, split=split)
        network = first.network
        others = [SimRing(seed + 1000 * core, disk=disk, network=network, shuffle=True) for core in range(1, cores)]
        self.rings = [first, *others]
        self.slots = SlotMap.balanced(cores)
        self.port = 0
        self.servers: list[Server] = []
        self.neighbours: list[Neighbours] = []
        self.codes: list[int] = []
        self.killed: list[int] = []
        self.cuts_power = False
        """Whether the disk of a core that is killed loses what was not synced. If it is that of all, all end."""
        for core in range(cores):
            self._start(core)
        self.run(lambda: self.is_ready)

    def _start(self, core: int) -> None:
        ring = self.rings[core]
        loop = Loop(ring, ring.clock)
        config = replace(tiny_config(f"{self.data_dir}/core-{core:02}"), port=self.port, **self.settings_of(core))
        of_core: dict[str, int] = {}
        if self.data_dir:
            layout = loop.run_task(read_cores(loop.files, self.data_dir))
            assert layout is not None
            of_core = {"core": core, "number": layout.number_of(core)}
        neighbours = self._neighbours(
            loop, self.slots, core, [f"core-{each:02}/mailbox" for each in range(len(self.rings))]
        )
        server = Server(
            config,
            loop,
            partial(StoredEngine.open, directory=lock_directory(ring, config, **of_core)),
            on_end=self.codes.append,
            neighbours=neighbours,
        )
        server.start()
        self.neighbours[core : core + 1] = [neighbours]
        self.port = server.address[1]
        self.servers[core : core + 1] = [server]

    def settings_of(self, core: int) -> dict[str, Any]:
        """The settings of a core."""
        return self._settings

    def run(self, done: Callable[[], bool], dies: int = -1) -> None:
        """Make passes of all until `done()`. dies: the core that is killed and started again when its ring stops."""
        for _ in range(PASSES_MAX):
            if done():
                return
            try:
                self.next_server().loop.run_pass(20 * US)
            except SimStoppedError:
                self.killed.append(dies)
                self._begin_next_life(dies)
        raise AssertionError("it never came to an end")

    def _begin_next_life(self, dies: int) -> None:
        """Start a core that was killed. Those with the same disk begin anew, too, if the power was cut."""
        has_one_disk = self.cuts_power and bool(self.data_dir)
        others = [core for core in range(len(self.rings)) if core != dies and has_one_disk]
        for core in others:
            self.rings[core].kill()
        self.rings[dies] = self.rings[dies].next_life(power_cut=self.cuts_power)
        self.rings[dies].clock.advance_ns(1)  # a process begins later than the one before it
        for core in others:
            self.rings[core] = self.rings[dies].beside(f"core {core}")
        for core in sorted([dies, *others]):
            self._start(core)

    def next_server(self) -> Server:
        """The one that makes the next pass."""
        return self.rng.choice(self.servers)

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
    def relayed(self) -> list[int]:
        """How many requests each core has had another one answer."""
        relays = [neighbours.relays for neighbours in self.neighbours]
        return [sum(asked.relayed for asked in each.asked) if each is not None else 0 for each in relays]

    @property
    def is_ready(self) -> bool:
        return all(server.not_ready() is None for server in self.servers)


def peers(server: Server) -> set[tuple[str, int]]:
    return {conn.peer for conn in server.listener.connections}


def is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    return bool(end) and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


def request(method: str, path: str, body: object, *lines: str) -> bytes:
    return request_of(path, json.dumps(body).encode(), *lines, method=method)


def request_of(path: str, data: bytes, *lines: str, method: str = "POST") -> bytes:
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
