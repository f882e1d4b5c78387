"""A genome: a seed, and changes of what the seed has chosen. It decides a life.

A genome is a line of text, `42;1.kill=17;client 0=7;@120=5`: the seed 42, except

- `NAME=S`: the random stream of this name (`plan`, `client 0`, `2:ring`) is that of seed S;
- `@N=S`: once N requests were answered, all streams continue as those of seed S, and so do later ones;
- `L.NAME=V`: the plan of life L, changed after all streams were used (tests/sim/whole/genes.py lists
  the names);
- `L.end KIND FILE=N`, `L.fail KIND FILE=N`: life L ends with the N-th such operation on such a file,
  or that fails;
- `operations=V`, `crashes=V`, `cast=V`: the length of the run, and the kinds of its clients.

Without a gene it is the run of the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Genome:
    """A seed and its genes, by name."""

    seed: int
    genes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Genome:
        """Return the genome of a line. Raises: ValueError, the text is no genome."""
        seed, *genes = text.split(";")
        pairs = [gene.rpartition("=") for gene in genes]
        return cls(int(seed), {name: int(value) for name, _, value in pairs})

    def __str__(self) -> str:
        return ";".join([str(self.seed), *(f"{name}={value}" for name, value in self.genes.items())])

    def with_gene(self, name: str, value: int) -> Genome:
        return Genome(self.seed, {**self.genes, name: value})

    def without(self, name: str) -> Genome:
        return Genome(self.seed, {gene: value for gene, value in self.genes.items() if gene != name})


class Choices:
    """The random streams of one run of a genome."""

    def __init__(self, genome: Genome) -> None:
        self.genome = genome
        self._given: list[tuple[str, random.Random]] = []
        self._turns = sorted((int(name[1:]), value) for name, value in genome.genes.items() if name.startswith("@"))
        self._seed = genome.seed
        self.turns_at = self._turns[0][0] if self._turns else 1 << 60
        """Number of answers after which other streams follow."""

    def __int__(self) -> int:
        return self.genome.seed

    def __str__(self) -> str:
        return str(self.genome)

    def stream(self, name: str) -> random.Random:
        rng = random.Random(f"{self.genome.genes.get(name, self._seed)}:{name}")
        self._given.append((name, rng))
        return rng

    def turn(self) -> None:
        """Change the streams: `turns_at` answers were given."""
        at, self._seed = self._turns.pop(0)
        for name, rng in self._given:
            rng.seed(f"{self._seed}:{name}:{at}")
        self.turns_at = self._turns[0][0] if self._turns else 1 << 60

    @property
    def names(self) -> list[str]:
        """Return the names of the streams that were used."""
        return [name for name, _ in self._given]


Seed = int | Choices
"""The origin of streams: a number, or one with changes."""


def stream(seed: Seed, name: str) -> random.Random:
    """Return the random numbers that decide one kind of choice."""
    return random.Random(f"{seed}:{name}") if isinstance(seed, int) else seed.stream(name)
