"""A server with everything around it simulated: ring, network, time, and an engine that answers as the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.http.byte_stream import Response, Wire
from tests.http.fake_engine import FakeEngine
from tests.sim import SimClient, SimRing
from topics.clock import ManualClock
from topics.config import Config, tiny_config
from topics.engine.scheduling.scheduler import LoadStats
from topics.engine.shared.outside import Outside
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import EngineStats, TopicState
from topics.engine.values.topic_config import DURABILITIES
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.store.archive.archiver import NO_ARCHIVE
from topics.store.backup.backup_counters import BackupCounters
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.recovery.recovery_counters import RecoveryCounters
from topics.store.wal.counters import LogCounters
from topics.store.wal.log_bound import LogBound

MS = 1_000_000


class ServedFakeEngine(FakeEngine):
    """With what a server asks for besides; `begin_shutdown` answers what waits, as long polls would be."""

    states: list[TopicState]
    at_shutdown: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.states = []
        self.shutting_down = False
        self.moving = 0

    def begin_shutdown(self) -> None:
        self.shutting_down = True
        if self.at_shutdown is not None:
            for done in self.waiting:
                done(self.at_shutdown)

    def stats(self) -> EngineStats:
        by_class = dict.fromkeys(DURABILITIES, 0) | {"disk": len(self.states)}
        live = sum(state.count for state in self.states)
        return EngineStats(len(self.states), by_class, 0, 0, live, sum(state.bytes for state in self.states))

    def load(self) -> LoadStats:
        return LoadStats(0.0, 0, 0, 0, {})

    def topic_count(self) -> int:
        return len(self.states)

    def leases_in_flight(self) -> Iterator[int]:
        return iter((0,))

    def moving_jobs(self, name: str) -> int:
        return self.moving

    def topic_states(self, after: str, within: Prefixes, limit: int) -> list[TopicState]:
        return [state for state in self.states if state.name > after][:limit]


class FakeLog:
    def __init__(self) -> None:
        self.counters = LogCounters()
        self.bound = LogBound(ManualClock(), max_bytes=0, max_wait_ns=0)
        self.queue_depth = 0
        self.unsynced_bytes = 0
        self.read_only = ""
        self.disk_full = False


class FakeBackend:
    def __init__(self) -> None:
        self.engine = ServedFakeEngine()
        self.log = FakeLog()
        self.checkpoints = CheckpointCounters()
        self.archive = NO_ARCHIVE
        self.backups = BackupCounters()
        self.recovery = RecoveryCounters()
        self.checksum_failures = 0
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class World:
    """`recovered` lets the server's recovery end; `client()` connects."""

    def __init__(self, **settings: Any) -> None:
        self.ring = SimRing(1)
        self.loop = Loop(self.ring, self.ring.clock)
        self.config: Config = replace(tiny_config("data"), **settings)
        self.backend = FakeBackend()
        self.recovered = True
        self.recovery_error: Exception | None = None
        self.progress: Callable[[float], None] = lambda share: None
        self.codes: list[int] = []
        self.server = Server(self.config, self.loop, self._open, on_end=self.codes.append)

    async def _open(
        self, loop: Loop, config: Config, on_progress: Callable[[float], None], outside: Outside
    ) -> FakeBackend:
        self.is_memory_short = outside.is_memory_short
        self.progress = on_progress
        while not self.recovered:
            await loop.sleep(MS)
        if self.recovery_error is not None:
            raise self.recovery_error
        return self.backend

    def start(self) -> World:
        self.server.start()
        self.run_ms(5)
        return self

    def run_ms(self, ms: int) -> None:
        """Passes until so much simulated time has gone."""
        until_ns = self.loop.clock.monotonic_ns() + ms * MS
        woken: list[bool] = []
        self.loop.call_later(ms * MS, lambda: woken.append(True))
        while not woken or self.loop.clock.monotonic_ns() < until_ns:
            self.loop.run_pass(None)

    def connect(self) -> Client:
        return Client(self)


class Client:
    """One simulated TCP client."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tcp: SimClient = world.ring.network.client(world.server.address[1])
        world.run_ms(2)

    def ask(self, data: bytes, *, wait_ms: int = 10) -> list[Response]:
        """Sends and returns the whole responses that came within the time."""
        self.tcp.send(data)
        return self.responses(wait_ms)

    def get(self, path: str, *lines: str) -> Response:
        head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines])
        (response,) = self.ask(head.encode() + b"\r\n\r\n")
        return response

    def responses(self, wait_ms: int = 10) -> list[Response]:
        self.world.run_ms(wait_ms)
        wire = Wire()
        wire.sent = self.tcp.receive()
        return wire.take()
