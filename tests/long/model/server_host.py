"""Where the server under test runs: the machine knows of it what is here, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.contract.world.http2_bytes import Http2Connection
from tests.contract.world.live_world import LiveWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.sse_client import EventStream
from tests.contract.world.world import Connection, World
from tests.long.model.oracle import READERS_MAX
from topics.store.format.compressed_segment import is_compressed

_FEW = {"max_readers": READERS_MAX, "max_reader_pages": READERS_MAX}
_MOVES: dict[str, Any] = {"segment_max_events": 4, "hot_retain_segments": 0}
"""Sealed segments go to the cold directory with the next checkpoint."""
_COLD = "/srv/cold"


class Host:
    """One server, life after life.

    guard_ms: longer than a request takes; endings: the ways in which a life may end.
    """

    guard_ms: int
    endings: tuple[str, ...]
    restarts_max: int

    def __init__(self, world: World) -> None:
        self.world = world
        self._main: Connection | None = None

    def begin(self, *, http2: bool, **settings: Any) -> None:
        """A life begins: every connection of it speaks one protocol."""
        self.world.connection_type = Http2Connection if http2 else Connection
        self.world.start(**settings)
        self._main = None

    @property
    def connection(self) -> Connection:
        """The one most requests go over."""
        if self._main is None:
            self._main = self.world.connect()
        return self._main

    def others(self, count: int) -> list[Connection]:
        """New connections, beside the main one, which stays the youngest: it is the one that is waited for."""
        found = [self.world.connect() for _ in range(count)]
        self._main = None
        return found

    def stream(self, path: str) -> EventStream:
        """An open stream of events, on a connection of its own."""
        self._main = None
        return EventStream(self.world, path)

    def now_ms(self) -> int:
        return self.world.now_ms()

    def pass_ms(self, milliseconds: int) -> None:
        raise NotImplementedError

    def end(self, how: str) -> None:
        """stop, crash or power_cut."""
        if how == "stop":
            assert self.world.stop() == 0
        else:
            getattr(self.world, how)()

    def compressed_segments(self) -> int:
        """Return how many segments of the example are compressed now."""
        raise NotImplementedError

    def close(self) -> None:
        """End the example."""
        raise NotImplementedError


class SimHost(Host):
    """A machine of its own for every example."""

    guard_ms = 40
    endings = ("stop", "crash", "power_cut")
    restarts_max = 1000

    def __init__(self, seed: int) -> None:
        options = {"shuffle": bool(seed), "all_in_lane": seed % 3 > 0, "only_woken": seed % 2 == 0}
        self._sim = SimWorld(seed, **options, checkpoint_wal_bytes=24_000, cold_dir=_COLD, **_MOVES, **_FEW)
        super().__init__(self._sim)

    def pass_ms(self, milliseconds: int) -> None:
        self.world.advance_ms(milliseconds)

    def compressed_segments(self) -> int:
        paths = (path for path in self._sim._files(_COLD) if path.endswith(".data"))
        return sum(is_compressed(self._sim.ring.file_bytes(path)) for path in paths)

    def close(self) -> None:
        self.world.close()


class LiveHost(Host):
    """A real process, shared by all examples: each begins with no topics."""

    guard_ms = 80
    endings = ("stop", "crash")

    def __init__(self, directory: Path, restarts_max: int) -> None:
        self._cold = directory / "cold"
        settings = _FEW | _MOVES | {"cold_dir": str(self._cold)}
        super().__init__(LiveWorld(directory, checkpoint_wal_bytes=64_000, checkpoint_every_ms=1000, **settings))
        self.restarts_max = restarts_max
        """Restarts of one example: each costs a second."""
        self._runs = False

    def begin(self, *, http2: bool, **settings: Any) -> None:
        if not self._runs:
            super().begin(http2=http2, **settings)
            self._runs = True
        self.world.connection_type = Http2Connection if http2 else Connection
        self._main = None

    def end(self, how: str) -> None:
        super().end(how)
        self._runs = False

    def pass_ms(self, milliseconds: int) -> None:
        self.connection.receive()
        self.world.wait_until(lambda: False, milliseconds)

    def compressed_segments(self) -> int:
        return sum(is_compressed(path.read_bytes()) for path in self._cold.glob("topics/*/seg-*.data"))

    def close(self) -> None:
        if self._runs:
            connection = self.connection
            for row in connection.request("GET", "/v0/topics?page_size=1000").json["topics"]:
                assert connection.request("DELETE", f"/v0/topics/{row['topic']}").status == 200

    def end_all(self) -> None:
        self.world.close()
