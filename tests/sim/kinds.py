"""Seeds of one kind, one after another, to the first that fails: a broken server (mutants.py) has
to fail one.

    python -m tests.sim.kinds records|library|queues|forwarding|passing|readers|watchers|cores
|far routers|far queues|routers|again [--seeds 400]
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Callable
from itertools import count, islice

from tests.contract.routers.test_router_crashes import Overtaken, Story
from tests.sim.again import run_lives as again
from tests.sim.whole.cores.course import Bounds
from tests.sim.whole.run_seed import (
    is_of_library,
    make_forwarding,
    make_passing,
    make_reading,
    make_watching,
    make_workers,
    run,
)
from tests.sim.whole.seed_plan import SHORT

_STEPS = 60


def _records(seed: int) -> None:
    run(seed)


def _library(number: int) -> None:
    """Run the seed with this number among those of the library."""
    run(next(islice((seed for seed in count() if is_of_library(seed)), number, None)))


def _queues(seed: int) -> None:
    run(seed, cast=make_workers)


def _forwarding(seed: int) -> None:
    run(seed, cast=make_forwarding)


def _passing(seed: int) -> None:
    run(seed, cast=make_passing)


def _readers(seed: int) -> None:
    run(seed, cast=make_reading)


def _watchers(seed: int) -> None:
    run(seed, cast=make_watching)


def _cores(seed: int) -> None:
    run(seed, length=SHORT, cores=Bounds(2, 4))


def _far_routers(seed: int) -> None:
    run(seed, cast=make_forwarding, length=SHORT, cores=Bounds(2, 4))


def _far_queues(seed: int) -> None:
    run(seed, cast=make_workers, cores=Bounds(2, 4))


def _routers(seed: int) -> None:
    guarantee = ("at_least_once", "exactly_once")[seed % 2]
    kind = (Story, Overtaken)[seed % 4 // 2]
    story = kind(seed, ("fsync", "disk", "mixed")[seed % 3], shards=1 + seed % 3, guarantee=guarantee)
    for _ in range(_STEPS):
        story.step()
    story.check()
    story.world.close()


HUNTS: dict[str, Callable[[int], object]] = {
    "records": _records,
    "library": _library,
    "queues": _queues,
    "forwarding": _forwarding,
    "passing": _passing,
    "readers": _readers,
    "watchers": _watchers,
    "cores": _cores,
    "far routers": _far_routers,
    "far queues": _far_queues,
    "routers": _routers,
    "again": again.run,
}


def hunt(kind: str, seeds: int) -> tuple[int, str] | None:
    """Return (seed, fault) of the first that fails; None: none of them does."""
    gc.disable()
    for seed in range(seeds):
        try:
            HUNTS[kind](seed)
        except Exception as error:
            return seed, f"{type(error).__name__}: {error}".partition("\n")[0]
        if seed % 25 == 0:
            gc.collect()
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*HUNTS])
    parser.add_argument("--seeds", type=int, default=400)
    options = parser.parse_args()
    logging.disable()
    found = hunt(options.kind, options.seeds)
    if found is not None:
        print(f"seed {found[0]}: {found[1]}")
    return 1 if found is not None else 0


if __name__ == "__main__":
    sys.exit(main())
