"""An engine on the real store on the simulated ring: the harness's requests, with passes of the loop between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.engine.harness import Answer, Harness
from tests.sim import SimRing
from topics.config import Config, tiny_config
from topics.engine.engine import Engine
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.engine.shared.outside import JoinedCores, Outside
from topics.engine.shared.stored_state import StoredState
from topics.loop import Loop, PassEnd
from topics.store.disk.data_directory import lock_directory
from topics.store.disk.directory_format import NO_CORE
from topics.store.store import Store


class RealWorld(Harness):
    """One life after another of one data directory."""

    def __init__(
        self,
        seed: int = 0,
        *,
        ring: SimRing | None = None,
        core: int = NO_CORE,
        number: int = 0,
        joined: JoinedCores | None = None,
        **config: Any,
    ) -> None:
        """ring: of a disk that is there already. core, number: as in `lock_directory`. joined: see `Outside`."""
        self.outside = Outside(joined)
        self.core = core
        self.number = number
        base = replace(
            tiny_config("data"), disk_low_water_bytes=0, disk_reserve_bytes=0, wal_file_bytes=65536, wal_spare_files=1
        )
        self.config: Config = replace(base, **config)
        self.answers: list[Answer] = []
        self._open(ring or SimRing(seed))

    def _open(self, ring: SimRing) -> None:
        self.ring = ring
        self.real_loop = self.loop = Loop(ring, ring.clock)  # type: ignore[assignment]
        cores = self.outside.cores
        owners = () if cores is None else (cores.core_of, cores.own)
        self.stored = StoredState(self.loop, self.config, self.number, *owners)
        directory = lock_directory(ring, self.config, core=self.core, number=self.number)
        self.catalog = EngineCatalog(self.loop, self.stored)
        opening = Store.open(self.real_loop, self.config, self.catalog, directory=directory)
        self.store = self.real_loop.run_task(opening)  # type: ignore[assignment]
        self.engine = Engine(self.loop, self.config, self.stored, self.store, self.outside)
        self.real_loop.on_pass_end(self.engine.flush, PassEnd.WAITERS)
        self.real_loop.on_pass_end(self.engine.look_again, PassEnd.LOOK)

    def settle(self, error: Any = None) -> None:
        """Passes until nothing staged is left undecided."""
        topics = self.engine._core.registry.by_id
        self.real_loop.run_pass(0)
        self.real_loop.run_until(lambda: not any(topic.pending for topic in topics.values()))

    def advance_ms(self, ms: int) -> None:
        woken: list[bool] = []
        self.real_loop.call_later(ms * 1_000_000, lambda: woken.append(True))
        self.real_loop.run_until(lambda: bool(woken))

    def checkpoint(self) -> None:
        self.real_loop.run_task(self.real_store.checkpointer.run())

    @property
    def real_store(self) -> Store:
        return self.store  # type: ignore[return-value]

    def restart(self, *, power_lost: bool = False, graceful: bool = False) -> None:
        if graceful:
            self.engine.begin_shutdown()
            self.real_loop.run_task(self.real_store.close())
        self._open(self.ring.next_life(power_cut=power_lost))

    def wait(self, answer: Answer) -> Any:
        self.real_loop.run_until(lambda: answer.given)
        return answer.get()

    def diff(self, from_seq: int = 0, name: str = "t", **query: Any) -> Any:
        return self.wait(self.start_diff(from_seq, name, **query))

    def until(self, done: Callable[[], bool]) -> None:
        self.real_loop.run_until(done)
