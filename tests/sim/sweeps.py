"""Exhaustive runs: one short life of the server, in which every operation fails, once or with all
after it.

It also ends after every operation in turn, by a kill and by power cuts that tear in three ways.

    python -m tests.sim.sweeps [--every 1] [--part 1/1] [--story NAME] [--jobs 2]

The life begins on the disk of an earlier one, so start, recovery and a checkpoint are in it.
Afterwards the oracle of the whole simulation checks the content (tests/sim/whole), and a second
recovery has to show the same. The earlier life runs once: every run is a fork of the process from
there on.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tests.sim.whole.machine import Actor, Machine, SimStoppedError
from tests.sim.whole.run_seed import first_difference, make_actors, make_reading, make_workers, start
from tests.sim.whole.seed_plan import COLD, Faulty, Plan, PlannedFault
from tests.sim.world.faults import AGAIN

T = TypeVar("T")

FAULTS = {
    "open": (errno.EIO, errno.EMFILE, errno.ENOSPC, errno.EDQUOT, *AGAIN),
    "close": (errno.EIO,),
    "read": (errno.EIO, *AGAIN),
    "write": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *AGAIN),
    "sync": (errno.EIO, errno.ENOSPC, errno.EDQUOT, *AGAIN),
    "rename": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "unlink": (errno.EIO,),
    "allocate": (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG),
    "make_directory": (errno.ENOSPC, errno.EIO, errno.EDQUOT),
    "list_directory": (errno.EIO,),
    "file_size": (errno.EIO,),
    "lock": (errno.EIO,),
    "accept": (errno.EMFILE, errno.ECONNABORTED),
    "recv": (errno.ECONNRESET, errno.ENOBUFS),
    "send": (errno.ECONNRESET,),
    "more": (1,),
}
SHORT_BYTES = (0, 1, 512, 4096)
TORN_VARIANTS = 3
_FOREVER = 1 << 30


class Story(NamedTuple):
    """A seed whose second life is short, and contains a little of everything that is stored."""

    seed: int
    cast: Callable[[Machine, int], list[Actor]]
    operations: int
    """The fewest requests answered in each of its lives."""
    audited: bool = False
    """Whether a life between the two audits the content: leases may have been lost."""
    settings: Mapping[str, Any] = {}
    """Settings of all its lives, instead of those of the seed."""


COMPRESSED = {
    "segment_codec": "zstd",
    "hot_retain_segments": 0,
    "hot_retain_bytes": 0,
    "pack_run_bytes": 256,
    "segment_max_events": 3,
    "checkpoint_wal_bytes": 8 << 10,
}
"""With a seed that has a cold directory, each sealed segment moves there, compressed."""

STORIES = {
    "records-9": Story(9, make_actors, 14),
    "records-3": Story(3, make_actors, 14),
    "records-11": Story(11, make_actors, 14),
    "queues-6": Story(6, make_workers, 20, audited=True),
    "queues-3": Story(3, make_workers, 20, audited=True),
    "records-1": Story(1, make_actors, 14),
    "readers-6": Story(6, make_reading, 20),
    "compressed-182": Story(182, make_actors, 14, settings=COMPRESSED),
}


class Run(NamedTuple):
    """The change of the second life. variant: None for a kill at its end, or how a power cut tears."""

    fault: PlannedFault | None = None
    stop_at: int = 0
    """Its last operation; 0: a graceful stop."""
    variant: int | None = None

    def __str__(self) -> str:
        how = "a kill" if self.variant is None else f"a power cut, torn the way {self.variant}"
        return f"{how} after {self.stop_at} operations" if self.stop_at else str(self.fault)


class Sweep:
    """Runs of one story, which differ in the change of its second life."""

    def __init__(self, story: str) -> None:
        self.story = STORIES[story]
        self.counts: Counter[str] = Counter()
        self._machine, self._actors = self._first_life()
        self.seen: Counter[str] = Counter()
        self.effects = 0
        self.cold: list[int] = []
        """The operations on files of the cold directory, by number."""
        self._look()

    def _first_life(self) -> tuple[Machine, list[Actor]]:
        story = self.story
        plan = Plan(story.seed)
        plan.forced |= story.settings
        machine = Machine(plan)
        actors = story.cast(machine, story.seed)
        start(machine)
        machine.audit(actors)
        for actor in actors:
            actor.go()
        machine.run_until(lambda: machine.operations >= story.operations)
        machine.settle(actors)  # so that the clients know their state without an audit, which might meet the fault
        for actor in actors:
            actor.crashed()
        machine.crash(power_cut=False)
        if story.audited:
            start(machine)
            machine.audit(actors)
            machine.crash(power_cut=False)
        machine.ring.faults.seen.clear()
        return machine, actors

    def _second_life(self, run: Run) -> None:
        """Run to the planned end, or to a graceful stop."""
        machine, actors = self._machine, self._actors
        if run.fault is not None:
            machine.arm(Faulty((run.fault,)))
        try:
            if run.stop_at:
                machine.ring.stop_at(run.stop_at)
            if not machine.start():
                machine.crash(power_cut=False)
                start(machine)
                machine.audit(actors)  # seqs may be skipped
            for actor in actors:
                actor.go()
            machine.run_until(lambda: machine.operations >= self.story.operations)
            machine.settle(actors)
            machine.stop()
        except SimStoppedError:
            pass

    def _look(self) -> None:
        """Count the operations of the second life without a change."""

        def count() -> dict[str, Any]:
            ring, cold = self._machine.ring, list[int]()

            def note(_kind: str, path: str) -> None:
                if path.startswith(f"{COLD}/"):
                    cold.append(ring.effects + 1)

            ring.faults.on_seen = note
            self._second_life(Run())
            return {"seen": ring.faults.seen, "effects": ring.effects, "cold": cold}

        said = _in_a_fork(count)
        self.effects, self.cold = said["effects"], said["cold"]
        self.seen = Counter(said["seen"])

    def _run(self, run: Run) -> dict[str, Any]:
        """Run the second life and what follows it. Raises: the fault."""
        machine, actors = self._machine, self._actors
        self._second_life(run)
        struck = sum(machine.ring.faults.struck.values())
        for actor in actors:
            actor.crashed()
        if run.variant is not None:
            machine.ring.rng.seed(run.variant)
        machine.crash(power_cut=run.variant is not None)
        start(machine)
        machine.audit(actors)
        said = machine.survey(actors)
        is_repeated = (
            not machine.log_is_short
        )  # routers that stood still for its length (R-LOG-3) continue after a start
        machine.crash(power_cut=False)
        start(machine)
        again = machine.survey(actors)
        if is_repeated and said != again:
            raise machine.wrong(f"a second recovery shows something else: {first_difference(said, again)}")
        return {"faults met": struck}

    def crashes(self) -> list[Run]:
        """Return runs that end after every operation, by a kill and by each way of tearing."""
        return [
            Run(stop_at=effects, variant=variant)
            for effects in range(1, self.effects + 1)
            for variant in (None, *range(TORN_VARIANTS))
        ]

    def moves(self) -> list[Run]:
        """Return the crashes after an operation on a file of the cold directory, or after the last
        of these.
        """
        of_moves = {*self.cold, *range(self.cold[-1], self.effects + 1)}
        return [run for run in self.crashes() if run.stop_at in of_moves]

    def faults(self) -> list[Run]:
        """Return runs in which every operation fails in turn, once and with all that follow; then a
        power cut or a kill.
        """
        faults = [
            PlannedFault(kind, error, nth=nth, times=times)
            for kind, errors in FAULTS.items()
            for nth in range(1, self.seen[kind] + 1)
            for error in errors
            for times in (1, _FOREVER)
            # With all that follow, no request could be served, or it is tried again and again.
            if times == 1 or (kind not in {"accept", "recv", "send"} and (error not in AGAIN or kind == "sync"))
        ]
        faults += [
            PlannedFault(kind, keep=keep, nth=nth)
            for kind in ("write", "read")
            for nth in range(1, self.seen[kind] + 1)
            for keep in SHORT_BYTES
            if kind == "write" or keep  # a read of zero bytes is the end of the file
        ]
        return [Run(fault, variant=None if number % 2 else 1) for number, fault in enumerate(faults)]

    def try_all(self, runs: Sequence[Run]) -> Iterator[str]:
        """Yield the faults."""
        for run in runs:
            self.counts["runs"] += 1
            try:
                self.counts.update(_in_a_fork(lambda run=run: self._run(run)))  # type: ignore[misc]
            except ForkFailedError as error:
                self.counts["failed"] += 1
                yield f"{run}: {error}"


class ForkFailedError(Exception):
    """The error of the forked process, as text."""


def _in_a_fork(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `work` in a copy of this process, whose state stays as it is.

    Raises: ForkFailedError.
    """
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()  # the process ends without collecting dead objects
        os.close(reading)
        try:
            said = {"result": work()}
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {error}"}  # type: ignore[dict-item]
        with os.fdopen(writing, "w") as pipe:
            json.dump(said, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    answer = json.loads(text) if text else {"error": f"the process ended with {os.waitstatus_to_exitcode(status)}"}
    if "error" in answer:
        raise ForkFailedError(answer["error"])
    found: dict[str, Any] = answer["result"]
    return found


def part_of(all_of_them: Sequence[T], part: str) -> Sequence[T]:
    """Return a part such as "2/5", the second of five, which together are all of them.

    Raises: ValueError.
    """
    number, _, parts = part.partition("/")
    if not 1 <= int(number) <= int(parts):
        raise ValueError(f"{part} is no part: give 1/5 to 5/5")
    return all_of_them[int(number) - 1 :: int(parts)]


def _share(story: str, name: str, every: int, part: str, share: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    """Run the share of one process in a part of a sweep: each share[1]th run from share[0] on."""
    sweep = Sweep(story)
    gc.collect()
    gc.freeze()
    failures = []
    for failure in sweep.try_all(part_of(getattr(sweep, name)()[::every], part)[share[0] :: share[1]]):
        print(failure[:600], flush=True)
        failures.append(failure)
    return sweep.counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each so many")
    parser.add_argument("--part", default="1/1", help="2/5: the second of five parts, for a sweep in several runs")
    parser.add_argument("--story", choices=[*STORIES, "all"], default="all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    failed = 0
    for story in STORIES if options.story == "all" else (options.story,):
        for name in ("crashes", "faults"):
            started = time.perf_counter()
            with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
                shares = [(story, name, options.every, options.part, (at, options.jobs)) for at in range(options.jobs)]
                total: Counter[str] = Counter()
                for counts, failures in pool.starmap(_share, shares):
                    total += counts
                    failed += len(failures)
            took = time.perf_counter() - started
            print(
                f"{story}, {name}: {', '.join(f'{key} {value}' for key, value in sorted(total.items()))}; {took:.0f} s"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
