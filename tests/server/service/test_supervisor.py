"""The supervisor of cores, on a simulated loop: what it starts, kills and passes on, and how it ends."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from tests.amount import seeds
from tests.sim import SimRing
from topics.loop.loop import Loop
from topics.server.cores.supervisor import PAUSE_MOST_NS, PAUSE_NS, STEADY_NS, CoreState, Supervisor

NEW, STARTING, READY, PAUSED, ENDED = CoreState
SECOND = 1_000_000_000


class World:
    """A supervisor whose processes do what the test says."""

    def __init__(self, cores: int = 2, watchdog_ns: int = 0, seed: int = 1) -> None:
        self.ring: Any = SimRing(seed)
        self.loop = Loop(self.ring, self.ring.clock)
        self.running: set[int] = set()
        self.starts: list[tuple[int, int]] = []
        """Cores that were started, each with the time since the last start of any (ns)."""
        self.signals: list[tuple[int, int]] = []
        self.refuses: set[int] = set()
        """Cores that cannot be started."""
        self.codes: list[int] = []
        self._last_ns = self.now_ns
        self.supervisor = Supervisor(self.loop, self, cores, watchdog_ns=watchdog_ns, on_end=self.codes.append)

    @property
    def now_ns(self) -> int:
        now: int = self.ring.clock.monotonic_ns()
        return now

    @property
    def state(self) -> str:
        if self.supervisor.is_stopping:
            return "draining"
        return "serving" if self.supervisor.was_ready else "recovering"

    @property
    def states(self) -> list[CoreState]:
        return list(self.supervisor.states)

    def start(self, core: int) -> None:
        assert core not in self.running, "a core has one process"
        self.starts.append((core, self.now_ns - self._last_ns))
        self._last_ns = self.now_ns
        if core in self.refuses:
            raise OSError(12, "no memory")
        self.running.add(core)

    def send(self, core: int, number: int) -> None:
        assert core in self.running
        self.signals.append((core, number))

    def exits(self, core: int, code: int) -> None:
        self.running.remove(core)
        self.supervisor.on_exit(core, code)

    def begin(self) -> World:
        """Start it, with all cores ready."""
        self.supervisor.start()
        for core in sorted(self.running):
            self.supervisor.on_report(core, "READY=1\nSTATUS=serving")
        return self

    def run_ns(self, ns: int) -> None:
        until = self.now_ns + ns
        self.loop.call_later(ns, lambda: None)
        while self.now_ns < until:
            self.loop.run_pass(None)


def test_it_serves_once_all_cores_are_ready_and_says_what_each_does() -> None:
    world = World(cores=2)
    world.supervisor.start()
    assert world.starts == [(0, 0), (1, 0)]
    world.supervisor.on_report(0, "READY=1\nSTATUS=serving on http://127.0.0.1:4000")
    world.supervisor.on_report(1, "STATUS=recovering: 12% done\nEXTEND_TIMEOUT_USEC=30000000")
    assert world.state == "recovering"
    assert world.supervisor.status() == "core 0 serving on http://127.0.0.1:4000; core 1 recovering: 12% done"
    world.supervisor.on_report(1, "READY=1")
    assert world.state == "serving"
    world.exits(1, -9)
    assert world.state == "serving"
    assert world.supervisor.status() == "core 0 serving on http://127.0.0.1:4000; core 1 paused"


def test_a_core_that_ends_is_started_again_after_pauses_that_grow_until_it_stays_ready() -> None:
    world = World(cores=1).begin()
    pauses = []
    for _ in range(9):
        world.exits(0, 1)
        assert world.states == [PAUSED]
        world.run_ns(PAUSE_MOST_NS)
        pauses.append(world.starts[-1][1])
        world._last_ns = world.now_ns
        world.supervisor.on_report(0, "READY=1")
    grown = [min(PAUSE_NS << at, PAUSE_MOST_NS) for at in range(9)]
    assert [world.starts[0][0], len(world.starts)] == [0, 10]
    assert pauses == grown
    world.run_ns(STEADY_NS)
    world._last_ns = world.now_ns
    world.exits(0, 1)
    world.run_ns(SECOND)
    assert world.starts[-1] == (0, PAUSE_NS)
    assert world.codes == []


def test_a_core_that_ends_before_it_was_ever_ready_ends_all_with_its_code() -> None:
    world = World(cores=3)
    world.supervisor.start()
    world.supervisor.on_report(0, "READY=1")
    world.exits(1, 2)
    assert world.signals == [(0, signal.SIGTERM), (2, signal.SIGTERM)]
    assert world.state == "draining"
    world.exits(0, 0)
    assert world.codes == []
    world.exits(2, 0)
    assert world.codes == [2]


def test_one_that_was_ready_before_is_started_again_also_if_it_ends_in_its_recovery() -> None:
    world = World(cores=2).begin()
    world.exits(0, 1)
    world.run_ns(PAUSE_NS)
    assert world.states == [STARTING, READY]
    world.exits(0, 1)
    assert world.states == [PAUSED, READY]
    assert world.signals == []


def test_a_core_that_cannot_be_started_at_first_ends_all_and_later_is_tried_again() -> None:
    world = World(cores=3)
    world.refuses = {1}
    world.supervisor.start()
    assert [core for core, _ in world.starts] == [0, 1]
    world.exits(0, 0)
    assert world.codes == [1]

    world = World(cores=1).begin()
    world.refuses = {0}
    world.exits(0, 0)
    world.run_ns(4 * PAUSE_NS)
    assert world.states == [PAUSED]
    world.refuses = set()
    world.run_ns(8 * PAUSE_NS)
    assert world.states == [STARTING]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_passed_on_and_it_ends_after_the_last_core(number: int) -> None:
    world = World(cores=3).begin()
    world.exits(2, 1)  # its next start is left out
    world.supervisor.on_signal(number)
    assert world.signals == [(0, signal.SIGTERM), (1, signal.SIGTERM)]
    assert world.states == [READY, READY, ENDED]
    world.exits(1, 0)
    world.supervisor.on_signal(number)  # the second one hurries those that are left
    assert world.signals[2:] == [(0, signal.SIGTERM)]
    world.run_ns(20 * SECOND)
    assert world.codes == []
    world.exits(0, -signal.SIGSEGV)
    assert world.codes == [128 + signal.SIGSEGV]
    assert [core for core, _ in world.starts] == [0, 1, 2]


def test_a_core_that_never_started_has_ended_after_a_stop_and_is_not_started() -> None:
    world = World(cores=3)
    assert world.states == [NEW, NEW, NEW]
    world.refuses = {1}
    world.supervisor.start()
    assert world.states == [STARTING, ENDED, ENDED]
    assert [core for core, _ in world.starts] == [0, 1]


def test_a_stop_while_all_cores_pause_ends_at_once() -> None:
    world = World(cores=2).begin()
    world.exits(0, 1)
    world.exits(1, 1)
    world.supervisor.on_signal(signal.SIGTERM)
    assert world.codes == [1]
    world.run_ns(20 * SECOND)
    assert world.running == set()
    assert world.codes == [1]


def test_a_core_that_was_killed_before_a_stop_makes_it_no_failure() -> None:
    world = World(cores=2).begin()
    world.exits(1, -signal.SIGKILL)
    world.supervisor.on_signal(signal.SIGTERM)
    assert world.states == [READY, ENDED]
    world.exits(0, 0)
    assert world.codes == [0]


def test_a_hang_up_is_passed_on_to_the_cores_that_run() -> None:
    world = World(cores=2).begin()
    world.exits(0, 1)
    world.supervisor.on_signal(signal.SIGHUP)
    assert world.signals == [(1, signal.SIGHUP)]
    assert world.states == [PAUSED, READY]


def test_a_core_that_is_silent_is_killed_once_and_started_again() -> None:
    world = World(cores=2, watchdog_ns=4 * SECOND).begin()
    for _ in range(6):
        world.run_ns(SECOND)
        world.supervisor.on_report(1, "WATCHDOG=1")
    assert world.signals == [(0, signal.SIGKILL)]
    world.exits(0, -signal.SIGKILL)
    world.run_ns(PAUSE_NS)
    assert world.states == [STARTING, READY]
    world.supervisor.on_signal(signal.SIGTERM)
    world.exits(0, 0)
    world.exits(1, 0)
    assert world.codes == [0]
    world.run_ns(20 * SECOND)


def test_a_report_of_a_process_that_has_ended_counts_for_nothing() -> None:
    world = World(cores=1).begin()
    world.exits(0, 1)
    world.supervisor.on_report(0, "READY=1")
    assert world.states == [PAUSED]


@pytest.mark.parametrize("seed", seeds(100))
def test_whatever_happens_each_core_has_one_process_at_most_and_all_end_after_a_stop(seed: int) -> None:
    rng = random.Random(seed)
    world = World(cores=rng.randint(1, 4), watchdog_ns=rng.choice((0, 2 * SECOND)), seed=seed)
    world.supervisor.start()
    for _ in range(rng.randrange(60)):
        running = sorted(world.running)
        match rng.randrange(8):
            case 0 | 1 if running:
                world.supervisor.on_report(rng.choice(running), rng.choice(("READY=1", "WATCHDOG=1", "STATUS=x", "")))
            case 2 if running:
                world.exits(rng.choice(running), rng.choice((0, 1, 2, -9)))
            case 3 if not rng.randrange(6):
                world.supervisor.on_signal(rng.choice((signal.SIGTERM, signal.SIGHUP)))
            case 4:
                world.refuses = set(rng.sample(range(4), rng.randrange(2)))
            case _:
                world.run_ns(rng.choice((SECOND // 50, SECOND, 11 * SECOND)))
        assert world.running == {at for at, state in enumerate(world.states) if state in {STARTING, READY}}
        assert len(world.codes) == (world.state == "draining" and not world.running)
    world.supervisor.on_signal(signal.SIGTERM)
    for core in sorted(world.running):
        assert (core, signal.SIGTERM) in world.signals
        world.exits(core, 0)
    assert len(world.codes) == 1
    started = len(world.starts)
    world.run_ns(60 * SECOND)
    assert len(world.starts) == started
