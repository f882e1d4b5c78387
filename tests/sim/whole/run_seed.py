"""One seed from the first start to the last audit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.sim.genome import Choices, Genome, Seed, stream
from tests.sim.whole.aim import aim, small_numbers
from tests.sim.whole.clients.checkpoints import Checkpoints
from tests.sim.whole.clients.forwarding_clients import Forwarding
from tests.sim.whole.clients.owned import Owner
from tests.sim.whole.clients.passing import Passing
from tests.sim.whole.clients.reader_clients import Reading
from tests.sim.whole.clients.shared import Shared
from tests.sim.whole.clients.waiting import Waiting
from tests.sim.whole.clients.watching import Watching
from tests.sim.whole.clients.workers import Workers
from tests.sim.whole.cores.core_machine import CoreMachine
from tests.sim.whole.cores.course import Bounds
from tests.sim.whole.expiring import Expiring
from tests.sim.whole.genes import alter, length_of
from tests.sim.whole.library_host import LibraryMachine, make_callers
from tests.sim.whole.machine import Actor, Machine, SimStoppedError, Wrong
from tests.sim.whole.monitors.content import content, difference
from tests.sim.whole.monitors.monitor import TEXT
from tests.sim.whole.rebuilt import rebuild_without_snapshots
from tests.sim.whole.seed_plan import WHOLE, Faulty, Length, Life, Plan

Watch = Callable[[Machine, Choices], None]
_LIBRARIES = 0.2
"""Share of the seeds that run the library instead of the server, called by the same clients."""
_WAITING = 0.25
"""Share of the seeds in which a client waits for the topics of all others."""
_WATCHING = 0.25
"""Share of the seeds in which a client watches topics by a prefix."""
_READING = 0.25
"""Share of the seeds in which clients use named readers."""
_ASKING = 0.2
"""Share of the seeds in which a client requests checkpoints."""
_REBUILDS = 0.5
"""Share of the seeds after which a rebuild finds no snapshot."""
_OPERATIONS_MIN = 20
"""The fewest operations of a life, even if earlier lives had more than their share."""
_IDLE_NS = 3_000_000_000
_IDLE_LIBRARY_NS = 30_000_000
"""That of a library, whose reads need no operation of the ring: on a full disk the
planned crash might not come.
"""
_QUIET_NS = 1_100_000_000
"""Longer than any timer of the server that may have an effect."""


def run(
    seed: Seed,
    say: Callable[[str], None] | None = None,
    cast: Callable[[Machine, Seed], list[Actor]] | None = None,
    length: Length = WHOLE,
    cores: Bounds | None = None,
) -> Counter[str]:
    """Run a seed; return counts of events. cast: makes the clients. cores: of a server of several.

    Raises: Wrong, or any error of the server.
    """
    return _run(seed, say, cast, length, cores=cores)


def run_genome(
    genome: Genome, say: Callable[[str], None] | None = None, watch: Watch | None = None, length: Length = WHOLE
) -> Counter[str]:
    """Run a seed with changes; `watch` gets the machine and the random streams before anything
    runs.
    """
    choices = Choices(genome)
    return _run(choices, say, CASTS[genome.genes.get("cast", 0)], length_of(genome, length), watch)


def _run(  # noqa: PLR0917
    seed: Seed,
    say: Callable[[str], None] | None,
    cast: Callable[[Machine, Seed], list[Actor]] | None,
    length: Length,
    watch: Watch | None = None,
    cores: Bounds | None = None,
) -> Counter[str]:
    plan = Plan(seed, length)
    aim(plan)
    if isinstance(seed, Choices):
        alter(plan, seed.genome)
    is_library = plan.is_library = cast is None and cores is None and is_of_library(seed)
    if cores is not None:
        machine: Machine = CoreMachine(plan, say, cores)
    else:
        machine = LibraryMachine(plan, say) if is_library else Machine(plan, say)
    if watch is not None and isinstance(seed, Choices):
        watch(machine, seed)
    actors = (cast or (make_callers if is_library else make_actors))(machine, seed)
    try:
        with small_numbers(plan):
            for life in [*plan.lives, plan.last]:
                begin(machine, life, actors)
                if life is not plan.last:
                    _live(machine, life, actors)
            if stream(seed, "rebuild").random() < _REBUILDS and not machine.lied and machine.return_to_one():
                rebuild_without_snapshots(machine)
        if machine.found:
            raise machine.found  # the code that caught it took it for its own error
    except Exception as problem:
        error = machine.found or problem
        error.add_note(f"seed {seed}: see it with `{replay(seed, length, cores)}`")
        raise error from (None if error is problem else problem)
    machine.counts["runs of the library" if is_library else "runs"] += 1
    for kind, struck in machine.ring.faults.struck.items():
        machine.counts["faults met"] += struck
        machine.counts[f"faults: {kind}"] += struck
    return machine.counts


def is_of_library(seed: Seed) -> bool:
    return stream(seed, "kind").random() < _LIBRARIES


def replay(seed: Seed | Genome, length: Length, cores: Bounds | None = None) -> str:
    """Return the command that shows this run."""
    if not isinstance(seed, int):
        return f"python -m tests.sim.whole --genome '{seed}'"
    options = ["--short"] * (length != WHOLE) + ([] if cores is None else [f"--cores={cores}"])
    arguments = f'"{" ".join(options)}"' if len(options) > 1 else "".join(options)
    return f"make sim SEED={seed}" + (f" ARGS={arguments}" if options else "")


def make_actors(machine: Machine, seed: Seed) -> list[Actor]:
    """Return the clients of a seed: some with exclusive topics, and one or two other kinds beside
    them.
    """
    rng = stream(seed, "clients")
    kinds = rng.choice((("shared",), ("shared",), ("shared", "workers"), ("shared", "passing"), ("forwarding",)))
    actors: list[Actor] = []
    for number in range(rng.choice((1, 2, 3))):
        client_rng = stream(seed, f"client {number}")
        topics, depth = rng.choice((1, 2, 4)), rng.choice((1, 1, 4))
        depth = 1 if machine.plan.has_streaks else depth
        actors.append(Owner(machine, number, client_rng, topics=topics, depth=depth))
    actors += [_CLIENTS[kind](machine, stream(seed, kind)) for kind in kinds]
    if "passing" in kinds:
        actors.append(Expiring(machine, stream(seed, "expiring")))
    reading_rng = stream(seed, "reading")
    if reading_rng.random() < _READING:
        actors.append(Reading(machine, reading_rng))
    waiting_rng = stream(seed, "waiting")
    if waiting_rng.random() < _WAITING:
        actors.append(Waiting(machine, waiting_rng, [path.rpartition("/")[2] for a in actors for path in a.paths()]))
    watching_rng = stream(seed, "watching")
    if watching_rng.random() < _WATCHING:
        actors.append(Watching(machine, watching_rng))
    asking_rng = stream(seed, "checkpoints")
    if asking_rng.random() < _ASKING:
        actors.append(Checkpoints(machine, asking_rng, [actor for actor in actors if isinstance(actor, Owner)]))
    return actors


_CLIENTS: dict[str, Callable[[Machine, random.Random], Actor]] = {
    "shared": Shared,
    "workers": Workers,
    "passing": Passing,
    "forwarding": Forwarding,
}


def make_workers(machine: Machine, seed: Seed) -> list[Actor]:
    """Return workers on queues, and one client with exclusive topics beside them."""
    return _make(Workers, machine, seed, "workers")


def make_forwarding(machine: Machine, seed: Seed) -> list[Actor]:
    """Return the clients around routers, and one with exclusive topics beside them."""
    return _make(Forwarding, machine, seed, "forwarding")


def make_reading(machine: Machine, seed: Seed) -> list[Actor]:
    """Return the clients of named readers, and one with exclusive topics beside them."""
    return _make(Reading, machine, seed, "reading")


def make_watching(machine: Machine, seed: Seed) -> list[Actor]:
    """Return a watcher by prefix and the writer of its topics, and one client with exclusive topics
    beside them.
    """
    return _make(Watching, machine, seed, "watching")


def make_passing(machine: Machine, seed: Seed) -> list[Actor]:
    """Return the clients of topics that lose records by themselves, and one with exclusive topics
    beside them.
    """
    return [*_make(Passing, machine, seed, "passing"), Expiring(machine, stream(seed, "expiring"))]


def _make(kind: Callable[[Machine, random.Random], Actor], machine: Machine, seed: Seed, name: str) -> list[Actor]:
    owner = Owner(machine, 0, stream(seed, "client 0"), topics=1, depth=1)
    return [kind(machine, stream(seed, name)), owner]


CASTS: tuple[Callable[[Machine, Seed], list[Actor]] | None, ...] = (
    None,
    make_workers,
    make_forwarding,
    make_passing,
    make_reading,
)
"""The makers of clients, by the gene `cast`; 0: the mix."""


def begin(machine: Machine, life: Life, actors: list[Actor]) -> None:
    """Start, perhaps after starts that were interrupted, and audit."""
    machine.step_wall(life.clock_step_ms)
    if life.starting.faulty != Faulty() and not machine.lied:
        machine.arm(life.starting.faulty)
        served = machine.start()
        machine.counts["starts with faults outlived" if served else "starts with faults refused"] += 1
        machine.crash(power_cut=life.starting.cut_after)
    for effects, power_cut in life.starting.interrupted:
        if machine.lied and machine.power_failed:
            machine.excuse()
        machine.stop_at(effects)
        try:
            machine.start()
            machine.counts["recoveries finished before their crash"] += 1
        except SimStoppedError:
            machine.counts["recoveries interrupted"] += 1
        machine.crash(power_cut=power_cut)
    if machine.lied and machine.power_failed:
        _begin_after_lies(machine, actors)
        return
    start(machine)
    is_even = (int(machine.plan.seed) + machine.ring.life) % 2 == 0
    compares_bytes = life.starting.twice and is_even and not isinstance(machine, CoreMachine)
    if compares_bytes:
        _recover_again(machine)
    machine.audit(actors)
    if life.starting.twice and not compares_bytes:
        said = machine.survey(actors)
        power_cut = life.power_cut and not machine.lied
        # A cut leaves what was shown, but seqs reserved ahead are skipped; routers that stood still
        # for the length of the log (R-LOG-3) continue after a start.
        is_repeated = not (power_cut or machine.log_is_short)
        machine.crash(power_cut=power_cut)
        start(machine)
        again = machine.survey(actors)
        if is_repeated and said != again:
            raise machine.wrong(f"a second recovery shows something else: {first_difference(said, again)}")
        machine.audit(actors)  # this life may have drawn other incarnations
        machine.counts["recovered twice"] += 1
    machine.forgive()


def _recover_again(machine: Machine) -> None:
    """Kill the process before it has done anything else.

    The next one has to leave the same bytes, unless one of them has begun a checkpoint: that copies
    records, and one that is cut short leaves bytes that the next start clears.
    """
    shards, left = machine.config.wal_shards, content(machine.ring.disk, machine.config)
    copies = _has_begun_a_checkpoint(machine)
    machine.crash(power_cut=False)
    start(machine)
    if shards != machine.config.wal_shards:  # all is copied out of the log, so that any number of shards finds it
        return
    if machine.log_is_short:  # a checkpoint begins at once if the log is found longer than it should be (R-LOG-1)
        return
    may_copy = len(machine.engine._core.routers) > 0
    if found := difference(left, content(machine.ring.disk, machine.config), may_copy=may_copy):
        if copies or _has_begun_a_checkpoint(machine):
            return
        raise machine.wrong(f"a second recovery leaves something else: {found}")
    machine.counts["recovered twice to the same bytes"] += 1


def _has_begun_a_checkpoint(machine: Machine) -> bool:
    checkpointer = machine.opened.store.checkpointer
    counters = checkpointer.counters
    return checkpointer._running is not None or counters.done + counters.failed > 0


def _begin_after_lies(machine: Machine, actors: list[Actor]) -> None:
    """Start after a power cut of a disk that had answered syncs without syncing.

    The server reports the damage, or serves records that are whole, with the same outcome every
    time.
    """
    machine.excuse()
    said: list[list[Any]] = []
    stands_still = False  # routers, for the length of the log (R-LOG-3): they continue after a start
    for _ in range(2):
        if not machine.start():
            machine.counts["lies noticed at the start"] += 1
            return
        said.append(machine.survey(actors))
        stands_still = stands_still or machine.log_is_short
        machine.crash(power_cut=False)
    if said[0] != said[1] and not stands_still:
        raise machine.wrong(f"after lies a second start shows something else: {first_difference(*said)}")
    for _status, answer in said[0]:
        for row in answer.get("records", ()):
            if TEXT.match(f'"{row["data"]}'.encode()) is None:
                raise machine.wrong(f"after lies a record is served that nobody wrote: {row}")
    machine.counts["lies outlived"] += 1


def first_difference(said: list[Any], again: list[Any]) -> str:
    for before, after in zip(said, again, strict=False):
        if before != after:
            return f"{before}, then {after}"
    return f"{len(said)} answers, then {len(again)}"


def start(machine: Machine) -> None:
    machine.ring.faults.clear()
    if not machine.start():
        machine.crash(power_cut=False)
        if not machine.start():
            raise Wrong("the server refuses to start on a disk that works again")


def _rest(machine: Machine, most_ns: int) -> Callable[[], bool]:
    """Return a check, made in each pass, whether nothing more will happen, or the time has passed."""
    clock = machine.ring.clock
    until_ns = clock.monotonic_ns() + most_ns
    effects = effects_ns = 0

    def is_over() -> bool:
        nonlocal effects, effects_ns
        now_ns = clock.monotonic_ns()
        if machine.effects != effects:
            effects, effects_ns = machine.effects, now_ns
        return now_ns > min(until_ns, effects_ns + _QUIET_NS)

    return is_over


def _live(machine: Machine, life: Life, actors: list[Actor]) -> None:
    """Run the clients until the life's end."""
    machine.arm(life.faulty)
    machine.go(actors)
    ring, choices = machine.ring, machine.plan.seed
    try:
        begun_ns = ring.clock.monotonic_ns()

        def is_over() -> bool:
            if isinstance(choices, Choices) and machine.counts["operations"] >= choices.turns_at:
                choices.turn()
            done = machine.counts["operations"] >= life.operations and machine.operations >= _OPERATIONS_MIN
            if machine.ended or (done and not machine.awaits_space):
                return True
            return machine.may_stand_still and ring.clock.monotonic_ns() > begun_ns + machine.standing_still_ns

        machine.run_until(is_over)
        if machine.ended and machine.lacks_nothing:
            raise machine.wrong(f"the server ended by itself, with {machine.ended}")
        if life.settles and not machine.descriptors_are_few:
            machine.settle(actors)
        if life.graceful:
            for actor in actors:
                actor.pause()
            machine.lay(life.ending)
            machine.stop()
        else:
            machine.stop_after(life.effects_left)
            # If all was answered, no work may be left; clocks continue.
            is_library = isinstance(machine, LibraryMachine)
            rests = _rest(machine, _IDLE_LIBRARY_NS if is_library else _IDLE_NS)
            may_rest = life.settles or machine.descriptors_are_few or is_library
            machine.run_until(lambda: may_rest and rests())
    except SimStoppedError:
        pass
    for actor in actors:
        actor.crashed()
    if life.tear:
        ring.rng.seed(life.tear)
    machine.crash(power_cut=life.power_cut)
