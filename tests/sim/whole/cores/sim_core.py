"""One core of a simulated server: its process, its directory, and the monitors that watch both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim import SimRing
from tests.sim.whole.monitors.changes import Changes
from tests.sim.whole.monitors.monitor import Monitor
from tests.sim.whole.monitors.numbers import Numbers
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.server.cores.neighbours import Neighbours
from topics.store.cores.core_directories import MAILBOX_NAME, CoreDirectories
from topics.store.disk.data_directory import lock_directory

if TYPE_CHECKING:
    from tests.sim.whole.machine import Machine


class Core:
    """A core, as monitors see it (monitors/watched_process.py).

    number: of its directory. config: of its process. ring: that of its process.
    """

    def __init__(self, machine: Machine, core: int, number: int, config: Config, ring: SimRing) -> None:
        self.core = core
        self.number = number
        self.config = config
        self.ring = ring
        self.rests_until_ns = 0
        """The time from which it gets a CPU."""
        self.starts = 1
        """How often its process was started in this life of the machine."""
        self.ended: list[int] = []
        self._machine = machine
        self.loop: Loop | None = None
        self.server: Server | None = None
        self.neighbours: Neighbours | None = None
        self.monitor = Monitor(self)
        self.numbers = Numbers(self)
        self.changes = Changes(self)

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self, layout: CoreDirectories) -> None:
        """Start its process, as `serve_core` does. Raises: StorageError, OSError."""
        loop = self.loop = Loop(self.ring, self.ring.clock, one_sender_passes=self._machine.plan.one_sender_passes)
        directory = lock_directory(self.ring, self.config, core=self.core, number=self.number)
        mailboxes = [f"{layout.path_of(each)}/{MAILBOX_NAME}" for each in range(layout.slots.cores)]
        self.neighbours = Neighbours(loop, layout.slots, self.core, mailboxes)
        self._serve(partial(StoredEngine.open, directory=directory))

    def start_alone(self, loop: Loop, open_engine: Any) -> None:
        """Serve the directory of one core, on the loop of the process that has made it one."""
        self.loop = loop
        self._serve(open_engine)

    def _serve(self, open_engine: Any) -> None:
        assert self.loop is not None
        self.server = Server(self.config, self.loop, open_engine, on_end=self.ended.append, neighbours=self.neighbours)
        self.server.start()

    @property
    def is_alive(self) -> bool:
        return self.server is not None and not self.ended

    @property
    def serves(self) -> bool:
        return self.server is not None and self.server.engine is not None

    def kill(self) -> None:
        self._count()
        self.ring.kill()
        self.loop = self.server = self.neighbours = None

    def _count(self) -> None:
        """Count what its process has passed to others."""
        if self.neighbours is not None:
            counts, relayed = self._machine.counts, self.neighbours.relayed_requests()
            counts["connections handed over"] += self.neighbours.hand_overs()["given"]
            counts["requests relayed"] += relayed["asked"]
            counts["requests relayed and in doubt"] += relayed["in_doubt"]

    def due_ns(self) -> int | None:
        """Return when it makes its next pass if nothing completes before; None: never."""
        loop = self.loop
        if loop is None or not self.is_alive:
            return None
        now_ns = self.ring.clock.monotonic_ns()
        wait_ns = 0 if self.ring.has_news else loop.ns_until_work()
        return None if wait_ns is None else max(now_ns + wait_ns, self.rests_until_ns)

    def run_pass(self, rest_ns: int) -> None:
        """Make a pass of its loop. rest_ns: it gets no CPU for so long after that."""
        assert self.loop is not None
        self.loop.run_pass(None)  # something is due, so it does not wait
        self.ring.submit()
        if rest_ns:
            self.rests_until_ns = self.ring.clock.monotonic_ns() + rest_ns

    # --- as monitors see it ------------------------------------------------------------------------------------------
    @property
    def engine(self) -> Any:
        opened = self.server._backend if self.server is not None else None
        return opened.engine if opened is not None else None

    @property
    def lied(self) -> bool:
        return self._machine.lied

    @property
    def tracing(self) -> bool:
        return self._machine.tracing

    @property
    def counts(self) -> Counter[str]:
        return self._machine.counts

    def say(self, *parts: object) -> None:
        self._machine.say(f"core {self.core}:", *parts)

    def wrong(self, text: str) -> Exception:
        return self._machine.wrong(f"core {self.core}: {text}")


def watch_together(cores: Sequence[Core], living: list[Any]) -> None:
    """Let the monitors of all cores share what clients know, and each look into the others' directories."""
    monitors = [core.monitor for core in cores]
    for monitor in monitors:
        monitor.living = living
        monitor.others = [other for other in monitors if other is not monitor]
