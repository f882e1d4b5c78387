"""A life changed in a place or two: another end, other faults, another random stream, another second half."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.sim.genome import Genome

_SEEDS = 1 << 30
_CLOCKS_MS = (0, 5, -5, 2_000, -2_000, 70_000, -70_000, 200_000, -200_000)


class Shape(NamedTuple):
    """The shape of a run, so that changes of it have an effect."""

    streams: tuple[str, ...]
    lives: int
    operations: int
    moments: Mapping[str, int]
    """The kinds of operations on kinds of files, and how many of each are in a life
    (tests/sim/whole/genes.py).
    """


def _number(rng: random.Random) -> int:
    return rng.randrange(1, _SEEDS)


def _kill(rng: random.Random) -> int:
    return rng.choice((rng.randint(1, 8), rng.randint(1, 60), rng.randint(1, 250)))


_OF_LIFE: dict[str, tuple[int, Callable[[random.Random], int]]] = {
    "kill": (4, _kill),
    "cut": (3, lambda rng: rng.randrange(2)),
    "tear": (2, _number),
    "faults": (4, lambda rng: _number(rng) if rng.random() < 0.85 else 0),
    "start": (3, lambda rng: _number(rng) if rng.random() < 0.9 else 0),
    "clock": (1, lambda rng: rng.choice(_CLOCKS_MS)),
    "settles": (1, lambda rng: rng.randrange(2)),
    "graceful": (1, lambda rng: int(rng.random() < 0.2)),
}
"""Genes of a life, the weight of each, and its value."""
_AIMS = (("end", 0.5), ("fail", 0.1))
"""Share of the lives of a run that are aimed."""
_NAMES = tuple(_OF_LIFE)
_WEIGHTS = tuple(weight for weight, _ in _OF_LIFE.values())


def changed(genome: Genome, shape: Shape, others: Sequence[Genome], rng: random.Random) -> Genome:
    """Return the genome with one to eight changes; others: the lives that parts may be taken from."""
    for _ in range(rng.choice((1, 2, 4, 8))):
        genome = _changed_once(genome, shape, others, rng)
    return genome


def aimed(genome: Genome, moments: Mapping[str, int], lives: int, rng: random.Random) -> Genome:
    """Return the genome with ends and failures at operations that are rarely chosen at random: all
    kinds weigh the same.
    """
    names = sorted(moments)
    for life in range(lives if names else 0):
        for verb, share in _AIMS:
            if rng.random() < share:
                name = rng.choice(names)
                genome = genome.with_gene(f"{life}.{verb} {name}", rng.randint(1, moments[name]))
    return genome


def _changed_once(genome: Genome, shape: Shape, others: Sequence[Genome], rng: random.Random) -> Genome:
    match rng.choices(("life", "stream", "turn", "splice", "drop"), (10, 3, 4, 2, 1))[0]:
        case "stream" if shape.streams:
            return genome.with_gene(rng.choice(shape.streams), _number(rng))
        case "turn":
            turns = [name for name in genome.genes if name.startswith("@")]
            if len(turns) > 2:
                genome = genome.without(rng.choice(turns))
            return genome.with_gene(f"@{rng.randint(1, max(1, shape.operations))}", _number(rng))
        case "splice" if others:
            other = rng.choice(others)
            if shape.streams and rng.random() < 0.5:
                return genome.with_gene(rng.choice(shape.streams), other.seed)
            for name, value in other.genes.items():
                if name != "cast" and rng.random() < 0.5:
                    genome = genome.with_gene(name, value)
            return genome
        case "drop" if droppable := [name for name in genome.genes if name not in {"cast", "crashes"}]:
            return genome.without(rng.choice(droppable))
    name = rng.choices(_NAMES, _WEIGHTS)[0]
    return genome.with_gene(f"{rng.randrange(shape.lives + 1)}.{name}", _OF_LIFE[name][1](rng))
