"""Nothing by chance: one short life of the server, in which every operation fails, alone or with all after it, and
which ends after every operation in turn, by a kill and by power cuts that tear three different ways.

python -m tests.sim.sweeps [--every 1] [--seed 1]

The life begins on what an earlier one left, so start, recovery and a checkpoint are in it. Afterwards the oracle of the
whole simulation looks at what is there (tests/sim/whole), and a second recovery has to show the same.
"""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.sim.whole.machine import Machine, SimStoppedError
from tests.sim.whole.plan import Faulty, Plan, PlannedFault
from tests.sim.whole.run import first_difference, make_actors, start

FAULTS = {
    "open": (errno.EIO, errno.EMFILE, errno.ENOSPC),
    "close": (errno.EIO,),
    "read": (errno.EIO,),
    "write": (errno.EIO, errno.ENOSPC),
    "sync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC),
    "unlink": (errno.EIO,),
    "allocate": (errno.ENOSPC, errno.EIO),
    "make_directory": (errno.ENOSPC, errno.EIO),
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
_OPERATIONS = 25


class Sweep:
    """Runs of one scenario; they differ in what is done to its second life."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()

    def run(self, harm: Callable[[Machine], None], *, power_cut: int | None, stop_at: int = 0) -> Machine:
        """harm: called before the second life starts; power_cut: None for a kill, or how it tears."""
        plan = Plan(self.seed)
        machine = Machine(plan)
        actors = make_actors(machine, self.seed)
        start(machine)
        machine.audit(actors)
        for actor in actors:
            actor.go()
        machine.run_until(lambda: machine.operations >= _OPERATIONS)
        machine.settle(actors)  # so that the clients know where they are without an audit, which might meet the fault
        for actor in actors:
            actor.crashed()
        machine.crash(power_cut=False)
        machine.ring.faults.seen.clear()
        try:
            harm(machine)
            if stop_at:
                machine.ring.stop_at(stop_at)
            if not machine.start():
                machine.crash(power_cut=False)
                start(machine)
            for actor in actors:
                actor.go()
            machine.run_until(lambda: machine.operations >= _OPERATIONS)
            machine.settle(actors)
            machine.stop()
        except SimStoppedError:
            pass
        self.seen = machine.ring.faults.seen.copy()
        self.effects = machine.ring.effects
        struck = sum(machine.ring.faults.struck.values())
        self.counts["faults met"] += struck
        for actor in actors:
            actor.crashed()
        if power_cut is not None:
            machine.ring.rng.seed(power_cut)
        machine.crash(power_cut=power_cut is not None)
        start(machine)
        machine.audit(actors)
        said = machine.survey(actors)
        machine.crash(power_cut=False)
        start(machine)
        again = machine.survey(actors)
        if said != again:
            raise machine.wrong(f"a second recovery shows something else: {first_difference(said, again)}")
        self.counts["runs"] += 1
        return machine

    # --- crashes -----------------------------------------------------------------------------------------------------
    def crashes(self, every: int) -> Iterator[str]:
        """Ends after every operation (or each so many); yields what failed."""
        self.run(lambda _machine: None, power_cut=None)
        for effects in range(1, self.effects + 1, every):
            for variant in (None, *range(TORN_VARIANTS)):
                how = "a kill" if variant is None else f"a power cut, torn the way {variant}"
                yield from self._try(
                    f"{how} after {effects} operations", lambda _machine: None, variant, stop_at=effects
                )

    # --- faults ------------------------------------------------------------------------------------------------------
    def faults(self, every: int) -> Iterator[str]:
        """Every operation fails in turn, alone and with all that follow."""
        self.run(lambda _machine: None, power_cut=None)
        seen = self.seen
        for kind, errors in FAULTS.items():
            for nth in range(1, seen[kind] + 1, every):
                for error in errors:
                    for times in (1, _FOREVER):
                        yield from self._fail(PlannedFault(kind, error, nth=nth, times=times))
        for nth in range(1, seen["write"] + 1, every):
            for keep in SHORT_BYTES:
                yield from self._fail(PlannedFault("write", keep=keep, nth=nth))

    def _fail(self, fault: PlannedFault) -> Iterator[str]:
        if fault.kind in {"accept", "recv", "send"} and fault.times == _FOREVER:
            return  # nobody could be served

        def harm(machine: Machine) -> None:
            machine.arm(Faulty((fault,)))
            machine.io_failed = True

        yield from self._try(str(fault), harm, 1)

    def _try(self, what: str, harm: Callable[[Machine], None], variant: int | None, stop_at: int = 0) -> Iterator[str]:
        try:
            self.run(harm, power_cut=variant, stop_at=stop_at)
        except Exception as error:
            self.counts["failed"] += 1
            yield f"{what}: {type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each so many")
    parser.add_argument("--seed", type=int, default=1, help="of the scenario")
    options = parser.parse_args()
    failed = 0
    for name in ("crashes", "faults"):
        sweep = Sweep(options.seed)
        started = time.perf_counter()
        for failure in getattr(sweep, name)(options.every):
            failed += 1
            print(failure[:600], flush=True)
        took = time.perf_counter() - started
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in sorted(sweep.counts.items()))} in {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
