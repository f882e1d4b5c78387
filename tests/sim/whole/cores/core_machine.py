"""A machine whose server has several cores: each a process, on one clock, network and disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from tests.sim import SimRing
from tests.sim.genome import stream
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.cores.course import Bounds, Course, Turns
from tests.sim.whole.cores.lone_kills import CoreKills
from tests.sim.whole.cores.refused_moves import is_right
from tests.sim.whole.cores.sim_core import Core, watch_together
from tests.sim.whole.machine import (
    FDS_MAX,
    LOOK_EVERY_PASSES,
    PASSES_MAX,
    Actor,
    Audit,
    Conversation,
    Machine,
    SimStoppedError,
)
from tests.sim.whole.monitors.monitor import Monitor
from tests.sim.whole.monitors.numbers import Numbers
from tests.sim.whole.monitors.watched_process import Served
from tests.sim.whole.seed_plan import PORT, Plan
from tests.sim.world.sim_disk import Node
from tests.sim.world.sim_file import SimFile
from topics.engine.stored_engine import StoredEngine
from topics.errors import TopicsError, UsageError
from topics.loop.loop import Loop
from topics.server.cores.core_shares import share_of
from topics.server.processes import serve_cores
from topics.store.cores.core_directories import CoreDirectories, core_config
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import read_slot_map
from topics.store.disk.data_directory import lock_directory
from topics.store.disk.directory_format import CORES


class CoreMachine(Machine):
    """Lives of a server of several cores.

    Its ring is that of the supervisor, which moves slots and then only waits: its life is that of
    all cores.
    """

    has_cores = True
    standing_still_ns = 1_000_000_000
    """Each request for a core that stays away is refused at once, so a second has very many."""
    last_words = ("server_shutting_down", "not_ready")
    """R-CORE-8: a WebSocket that has lost a core ends with `not_ready`."""

    def __init__(self, plan: Plan, say: Callable[[str], None] | None, bounds: Bounds) -> None:
        self.cores: list[Core] = []
        self.slots = SlotMap.balanced(CORES)
        self._layout: CoreDirectories | None = None
        self._course = Course(plan.seed, bounds)
        self._turns: Turns = self._course.turns(0, CORES)
        self._started = 0
        """The number of cores of the last start."""
        self._stop_at = 0
        """The number of operations after which the start is cut short; 0: it is not."""
        self._kills: CoreKills | None = None
        """The kills of single cores; None: clients have not begun."""
        self._numbers: dict[int, Numbers] = {}
        """By the number of a core directory: what its ids and order numbers were, over all lives."""
        self._limits: list[tuple[SimRing, int]] = []
        """The processes of which nothing fails for now, and the descriptors that each has otherwise."""
        super().__init__(plan, say)
        self.monitor = _AllDirectories(self)

    # --- life --------------------------------------------------------------------------------------------------------
    def _open(self) -> bool:
        self.cores = []
        wanted = self._course.cores(self.ring.life, self._started)
        try:
            layout = self._prepared(wanted)
            self._start_cores(layout)
        except (TopicsError, OSError) as error:
            return self._refused(str(error))
        self.run_until(lambda: bool(self.ended) or self.serves)
        return True if self.serves else self._refused("recovery failed")

    def _prepared(self, wanted: int) -> CoreDirectories | None:
        """Have the supervisor lock the directory and move slots. Return the layout; None: of one core."""
        loop = self.loop = Loop(self.ring, self.ring.clock, one_sender_passes=self.plan.one_sender_passes)
        self._locked = lock_directory(self.ring, self.config)
        try:
            layout = loop.run_task(serve_cores._with_cores(loop, self.config, self._locked, wanted))
        except UsageError as error:
            found = loop.run_task(read_slot_map(loop.files, self.config.data_dir))
            before = SlotMap.balanced(CORES) if found is None else found.stored.slots
            self._note_refusal(before, wanted, error)
            self._locked.release()
            self.ring = self.ring.next_life(power_cut=False)
            self.monitor.next_life()
            return self._prepared(before.cores)
        if self._started and wanted != self._started:
            self.counts["moves of slots"] += 1
        self._started = wanted
        return layout

    def _note_refusal(self, before: SlotMap, wanted: int, error: UsageError) -> None:
        """Note a move that is refused. Raises: Wrong, it need not be."""
        if not is_right(str(error), before, wanted):
            raise self.wrong(f"a move from {before.cores} cores to {wanted} is refused: {error}") from error
        self.say("REFUSED to move:", error)
        self.counts["moves refused"] += 1

    def return_to_one(self) -> bool:
        self.crash(power_cut=False)
        loop = Loop(self.ring, self.ring.clock)
        directory = lock_directory(self.ring, self.config)
        try:
            loop.run_task(serve_cores._with_cores(loop, self.config, directory, CORES))
        except UsageError as error:
            self._note_refusal(self.slots, CORES, error)
            return False
        self.slots = SlotMap.balanced(CORES)
        self.counts["directories of several cores made one"] += 1
        return True

    def _start_cores(self, layout: CoreDirectories | None) -> None:
        """Start the processes of all cores."""
        self._layout = layout
        if layout is None:
            self.slots = SlotMap.balanced(CORES)
            self.cores = [Core(self, 0, 0, self.config, self.ring)]
        else:
            self.slots = layout.slots
            cores = self.slots.cores
            for at in range(cores):
                config = share_of(core_config(self.config, at), cores)
                ring = self.ring.beside(f".{at}")
                self.cores.append(Core(self, at, layout.number_of(at), config, ring))
        watch_together(self.cores, self.monitor.living)
        self._keep_numbers()
        self.ring.disk.watch = self._watch
        self._turns = self._course.turns(self.ring.life, len(self.cores))
        self.say(f"CORES: {len(self.cores)}")
        self.counts[f"lives of {len(self.cores)} cores"] += 1
        if self._stop_at:
            self.stop_at(self._stop_at)
        for core in self.cores:
            if layout is None:
                assert self.loop is not None
                core.start_alone(self.loop, partial(StoredEngine.open, directory=self._locked))
            else:
                core.start(layout)

    def go(self, actors: list[Actor]) -> None:
        super().go(actors)
        self._kills = CoreKills(self, self._course.kills(self.ring.life, len(self.cores)), actors)

    def kill_core(self, core: Core) -> None:
        """Kill one process; the others run on."""
        self._look_at(core)
        self._check_noted(core, power_cut=False)
        self.say(f"KILL of core {core.core} after {core.ring.effects} operations of it")
        self.counts["cores killed"] += 1
        core.kill()

    def _check_noted(self, process: Served, *, power_cut: bool) -> None:
        if any(core is process and core.server is None for core in self.cores):
            return  # it was killed before, and checked at that time
        super()._check_noted(process, power_cut=power_cut)

    def start_core(self, core: Core) -> None:
        """Start a core again, as the supervisor does."""
        assert self._layout is not None
        self.may_skip |= self.is_noted(core.config.data_dir)  # that a sync of its log has failed
        core.starts += 1
        core.ring = self.ring.beside(f".{core.core}.{core.starts}")
        self.arm_ring(core.ring)
        self.say(f"START of core {core.core}")
        try:
            core.start(self._layout)
        except (TopicsError, OSError) as error:
            if super().lacks_nothing:
                raise self.wrong(f"core {core.core} refused to start again: {error}") from error
            core.ended.append(1)

    def note_return(self, core: Core) -> None:
        self.say(f"SERVES again: core {core.core}")
        self.counts["cores that came back"] += 1
        self._note_start(core)

    @property
    def lacks_nothing(self) -> bool:
        """R-CORE-1, 5, 7 to 13: while a core is not there, requests for its topics may be refused, and be
        late.
        """
        return super().lacks_nothing and self._is_quiet

    @property
    def may_stand_still(self) -> bool:
        """Return whether, besides, a core stays away: all topics of the clients may be on it."""
        return super().may_stand_still or (self._kills is not None and self._kills.has_given_up)

    @property
    def _is_quiet(self) -> bool:
        """Return whether no core is away, or has just come back."""
        return self._kills is None or not self._kills.disturbs

    def settle(self, actors: list[Actor]) -> None:
        for actor in actors:  # else topics grow for as long as a core is away
            actor.pause()
        self._rest_from_kills()
        super().settle(actors)

    def _rest_from_kills(self) -> None:
        """Kill no single core any more, and wait until all are there."""
        kills = self._kills
        if kills is not None:
            kills.end()
            self.run_until(lambda: kills.is_idle)

    def talk_at(self, core: Core, scripts: list[Audit]) -> Conversation:
        """Begin scripts side by side on one connection, which this core accepts."""
        return Conversation(self, scripts, partial(Wire, self.ring.network, PORT, among=core.ring.listeners))

    def hold_faults(self, cores: Iterable[Served]) -> None:
        """Let no operation of these cores fail, and none lack descriptors, until `release_faults`."""
        rings = {id(core.ring): core.ring for core in cores}.values()
        self._limits = [(ring, ring.fd_limit) for ring in rings]
        for ring in rings:
            ring.holds_faults, ring.fd_limit = True, FDS_MAX

    def release_faults(self) -> None:
        for ring, limit in self._limits:
            ring.holds_faults, ring.fd_limit = False, limit
        self._limits = []

    def life_of(self, topic: str) -> int:
        return self.ring.life * 100 + self.cores[self.slots.core_of(topic)].starts

    def _keep_numbers(self) -> None:
        """Give each core what is known of the numbers of its directory, and the highest order of all."""
        last_order = max((numbers._last_order for numbers in self._numbers.values()), default=0)
        moved = {core.number for core in self.cores} != set(self._numbers)
        for core in self.cores:
            known = self._numbers.get(core.number)
            if known is not None:
                core.numbers.follow(known, last_order if moved else known._last_order)
        self._numbers = {core.number: core.numbers for core in self.cores}

    @property
    def processes(self) -> Sequence[Served]:
        return self.cores

    @property
    def rings(self) -> Sequence[SimRing]:
        return (self.ring, *(core.ring for core in self.cores if core.ring is not self.ring))

    @property
    def data_dirs(self) -> Sequence[str]:
        """Return those of all cores, also of a life that ended while slots moved."""
        cores = (core_config(self.config, core).data_dir for core in range(self._course.bounds.most))
        return (self.config.data_dir, *cores)

    def home(self, topic: str) -> Served:
        return self.cores[self.slots.core_of(topic)]

    def name_of(self, topic: str) -> str:
        """Return another name in each run, so that other topics are on one core."""
        return f"{topic}-{stream(self.plan.seed, topic).randrange(100)}"

    def dead_letters_of(self, queue: str) -> str:
        return self._course.dead_letters_of(queue)

    def is_elsewhere(self, status: int, answer: Any) -> bool:
        """R-CORE-7: after a start, what adds to a limit is refused until all cores have said what they use."""
        return status == 503 and ("core" in answer["error"].get("detail", {}) or not self._is_quiet)

    @property
    def serves(self) -> bool:
        return bool(self.cores) and all(core.serves for core in self.cores)

    @property
    def opened(self) -> Any:
        raise AssertionError("a server of several cores has several engines")

    @property
    def effects(self) -> int:
        return sum(ring.effects for ring in self.rings)

    def stop_at(self, effect: int) -> None:
        self._stop_at = effect
        self.ring.stop_at(effect)
        for core in self.cores:
            if core.ring is not self.ring:
                core.ring.stop_at(core.ring.effects + max(1, effect - self.effects))

    def stop_after(self, effects: int) -> None:
        """End the life once one of the cores has had so many more operations take effect."""
        if self._kills is not None:
            self._kills.end()
        for core in self.cores:
            core.ring.stop_at(core.ring.effects + effects)

    def _end_processes(self, *, power_cut: bool) -> None:
        self._stop_at = 0
        if self._kills is not None:
            self._kills.forget()
            self._kills = None
        for core in self.cores:
            if core.ring is not self.ring:
                core.kill()
        super()._end_processes(power_cut=power_cut)
        self.cores = []

    def stop(self) -> None:
        self._rest_from_kills()
        self.stopping = True
        stopping = [core for core in self.cores if core.is_alive]
        for core in stopping:
            assert core.server is not None
            core.server.stop()
        self.run_until(lambda: not any(core.is_alive for core in stopping))
        self.stopped = True
        self.stopped_well = self.lacks_nothing and not self.lied
        codes = [core.ended for core in stopping]
        if any(code != [0] for code in codes) and self.lacks_nothing:
            raise self.wrong(f"a graceful stop ended with {codes}")
        self.say("STOPPED", codes)
        self.counts["graceful stops"] += 1

    # --- time --------------------------------------------------------------------------------------------------------
    def run_until(self, done: Callable[[], bool]) -> None:
        for number in range(1, PASSES_MAX * len(self.cores)):
            if done():
                self._check_complaints()
                return
            try:
                self._make_pass()
            except SimStoppedError:
                if self._kills is None or not self._kills.strike():
                    raise
            if self._kills is not None:
                self._kills.look()
            if not number % LOOK_EVERY_PASSES:
                self.look()
        raise self.wrong("the server is busy without end")

    def _make_pass(self) -> None:
        """Let one core make a pass; if none has a reason for it, let time pass to the next event."""
        events, now_ns = self.ring.events, self.ring.clock.monotonic_ns()
        due = [(core.core, due_ns) for core in self.cores if (due_ns := core.due_ns()) is not None]
        able = [core for core, due_ns in due if due_ns <= now_ns]
        if not able:
            next_ns = events.next_due_ns()
            times = [due_ns for _core, due_ns in due] + ([] if next_ns is None else [next_ns])
            if not times:
                raise self.wrong("nothing will ever happen")
            events.advance_to(min(times))
            return
        core = self.cores[self._turns.choose(able)]
        rest_ns = self._turns.rest_ns()
        core.run_pass(rest_ns)
        self.meanwhile_ns += rest_ns + (self.ring.clock.monotonic_ns() - now_ns if len(able) > 1 else 0)
        if not core.is_alive:
            self._note_exit(core)

    def _note_exit(self, core: Core) -> None:
        """Note that a process has ended by itself."""
        if core.ring is not self.ring:
            core.ring.kill()
        if not self.stopping and super().lacks_nothing:
            raise self.wrong(f"core {core.core} ended by itself, with {core.ended}")
        if not self.stopping and not (self._kills is not None and self._kills.returns_later(core)):
            self.ended += core.ended

    # --- what is watched ---------------------------------------------------------------------------------------------
    def _watch(self, old: str, new: str, node: Node) -> None:
        for core in self.cores:
            if any(old.startswith(f"{path}/") for path in (core.config.data_dir, core.config.cold_dir) if path):
                core.monitor.watch(old, new, node)

    def _has_reserves(self) -> bool:
        return False


class _AllDirectories(Monitor):
    """The monitor that clients ask, which looks into the directories of all cores."""

    _machine: CoreMachine

    def next_life(self) -> None:
        """Watch nothing: while slots move, files of the old place are given up, and each start is audited."""
        super().next_life()
        self._machine.ring.disk.watch = _nobody

    def durable_files(self) -> Iterator[tuple[str, SimFile]]:
        return chain.from_iterable(core.monitor.durable_files() for core in self._machine.cores)

    def log_files(self) -> Iterator[tuple[str, SimFile]]:
        return chain.from_iterable(core.monitor.log_files() for core in self._machine.cores)


def _nobody(_old: str, _new: str, _node: Node) -> None:
    pass
