"""The effect of genes on a plan (tests/sim/genome.py), once the seed has chosen all of it.

Of the life L, counted from 0, of which the last is only audited: `L.kill` is the number of
operations of the ring after its requests, `L.cut` whether the power is cut, `L.tear` what that
leaves, `L.graceful`, `L.settles`, `L.clock` in ms, `L.faults` and `L.start` the numbers that choose
its faults and its starts anew; 0: it has none.

`L.end sync /srv/topics/wal=3` ends it with the third sync of the file, `L.fail sync
/srv/topics/wal=3` makes that fail; a number in the name of a file is `#`, and all files of a kind
count as one.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

from tests.sim.genome import Genome
from tests.sim.whole.aim import choose_killed, choose_trouble
from tests.sim.whole.seed_plan import Faulty, Length, Life, Plan, PlannedFault, Starting, choose_faults


def _faults(value: int) -> dict[str, Any]:
    return {"faulty": choose_faults(random.Random(f"{value}:faults")) if value else Faulty()}


def _start(value: int) -> dict[str, Any]:
    rng = random.Random(f"{value}:start")
    starting = Starting(twice=rng.random() < 0.3) if not value or rng.random() < 0.3 else choose_killed(rng)
    if value and rng.random() < 0.3:
        starting = starting._replace(faulty=choose_trouble(rng), cut_after=rng.random() < 0.4)
    return {"starting": starting if value else Starting()}


LIFE_GENES: dict[str, Callable[[int], dict[str, Any]]] = {
    "kill": lambda value: {"effects_left": max(1, value)},
    "cut": lambda value: {"power_cut": bool(value)},
    "tear": lambda value: {"tear": value},
    "graceful": lambda value: {"graceful": bool(value)},
    "settles": lambda value: {"settles": bool(value)},
    "clock": lambda value: {"clock_step_ms": value},
    "faults": _faults,
    "start": _start,
}


AIMS = ("end", "fail")
MOMENTS = ("read", "write", "sync", "open", "close", "rename", "unlink")
"""Kinds of operations that a life can be made to end with, or that can be made to fail."""


def _aimed(life: Life, aim: str, nth: int) -> Life:
    """Return the life with an end or a failure at an operation on a file of some kind."""
    verb, kind, file = aim.split(" ", 2)
    ends = verb == "end"
    if life.faulty.lies is not None and not ends:
        return life  # a failure would remove from the cache what a false sync left there
    fault = PlannedFault(kind, 0 if ends else errno.EIO, nth=max(1, nth), file=file, ends=ends)
    return life._replace(faulty=life.faulty._replace(plans=(*life.faulty.plans, fault)))


def length_of(genome: Genome, length: Length) -> Length:
    genes = genome.genes
    return Length(max(1, genes.get("crashes", length.crashes)), max(1, genes.get("operations", length.operations)))


def alter(plan: Plan, genome: Genome) -> None:
    """Change the plan as the genome says; genes of lives that do not exist change nothing."""
    lives: list[Life] = [*plan.lives, plan.last]
    for is_aim in (False, True):  # aimed faults are added to those that are chosen anew
        for name, value in genome.genes.items():
            number, _, field = name.partition(".")
            if not number.isdecimal() or int(number) >= len(lives):
                continue
            if is_aim and field.startswith(AIMS):
                lives[int(number)] = _aimed(lives[int(number)], field, value)
            elif not is_aim and field in LIFE_GENES:
                lives[int(number)] = lives[int(number)]._replace(**LIFE_GENES[field](value))
    *plan.lives, plan.last = lives
