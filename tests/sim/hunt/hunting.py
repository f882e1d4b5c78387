"""The hunt: lives run, those that show something new are kept and changed, and what fails is made small."""

from __future__ import annotations

import gc
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.sim.genome import Genome
from tests.sim.hunt.blocks import Blocks
from tests.sim.hunt.corpus import Corpus, Told
from tests.sim.hunt.life_changes import Shape, aimed, changed
from tests.sim.hunt.steps import Steps
from tests.sim.whole.run_seed import run_genome
from tests.sim.whole.seed_plan import WHOLE, Length

_FRESH = 0.75
"""Share of the lives that are a new seed: what is changed in a place or two repeats the coincidences of its parent."""
_TIMES_CRASHES = 3
"""So many times the crashes of a seed, in as many requests: an end costs little, and the next start sees it."""
_SMALLER_RUNS = 60
_AIMED_FIRST = 6
"""So many lives come first because of what they have run; then every other one is a new seed."""
_SEEDS = 1 << 30


class Outcome(NamedTuple):
    """Of one run. failure: what was wrong, "" for nothing."""

    genome: Genome
    shape: Shape
    told: Told
    failure: str
    cpu_s: float


class Failure(NamedTuple):
    genome: Genome
    text: str
    runs: int
    """How many there had been by then."""


def run_once(genome: Genome, blocks: Blocks | None, length: Length = WHOLE) -> Outcome:
    steps = Steps(blocks)
    began = time.process_time()
    failure = ""
    try:
        run_genome(genome, watch=steps.watch, length=length)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}".partition("\n")[0]
    told = Told(steps.features(), steps.frames)
    return Outcome(genome, steps.shape(), told, failure, time.process_time() - began)


def kind_of(failure: str) -> str:
    """The same for all failures of one oracle's sentence."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"|\{.*\}|\[.*\]|\(.*\)", "_", failure))[:120]


class Hunt:
    """Chooses lives, and takes what came of them. Its choices are those of `rng` alone."""

    def __init__(
        self, corpus: Corpus, rng: random.Random, *, cast: int = 0, is_guided: bool = True, length: Length = WHOLE
    ) -> None:
        self.corpus = corpus
        self.length = length
        self.runs = 0
        self.failures: dict[str, Failure] = {}
        self.again: dict[str, int] = {}
        """How often each failure came, by its kind."""
        self._rng = rng
        self._base = {"cast": cast} if cast else {}
        if is_guided:
            self._base["crashes"] = length.crashes * _TIMES_CRASHES
        self._moments: Counter[str] = Counter()
        self._lives: Counter[str] = Counter()
        """How many of each moment runs have told of, a life, and in how many runs."""
        self._is_guided = is_guided
        self._to_run, self._is_aimed = corpus.read() if is_guided else ([], False)
        self._to_run.reverse()

    @property
    def is_replaying(self) -> bool:
        """Not all lives of the corpus have run yet."""
        return bool(self._to_run)

    def next(self) -> Genome:
        """The life that is to run next: those kept by an earlier hunt first.

        Where these were put in an order by what has changed in the code, changes of the first of them are tried, too.
        """
        rng, kept = self._rng, self.corpus.kept
        is_fresh = not self._is_guided or not kept or rng.random() < _FRESH
        if self._to_run:
            turn = self.runs - _AIMED_FIRST
            if not self._is_aimed or turn < 0 or turn % 4 == 3:
                return self._to_run.pop()
            is_fresh = turn % 2 == 0  # what every life runs is not found any better by those that were aimed at it
        if is_fresh:
            fresh = Genome(rng.randrange(_SEEDS), dict(self._base))
            usual = {name: -(-number // self._lives[name]) for name, number in self._moments.items()}
            return aimed(fresh, usual, self._base.get("crashes", 0), rng)
        parent = self.corpus.choose(rng)
        return changed(parent.genome, parent.shape, [other.genome for other in kept], rng)

    def took(self, outcome: Outcome) -> Failure | None:
        """What has failed, if nothing has failed like that before."""
        self.runs += 1
        if outcome.failure:
            kind = kind_of(outcome.failure)
            self.again[kind] = self.again.get(kind, 0) + 1
            if kind not in self.failures:
                self.failures[kind] = Failure(outcome.genome, outcome.failure, self.runs)
                return self.failures[kind]
        elif self._is_guided:
            self.corpus.add(outcome.genome, outcome.shape, outcome.told)
            self._moments.update(outcome.shape.moments)
            self._lives.update(outcome.shape.moments.keys())
        return None


def smaller(failure: Failure, length: Length, run: Callable[[Genome], Outcome]) -> Genome:
    """A genome that fails alike, with fewer genes, requests and crashes."""
    kind = kind_of(failure.text)
    genome, runs = failure.genome, 0

    def candidates() -> Iterator[Genome]:
        for name in list(genome.genes):
            yield genome.without(name)
        operations = genome.genes.get("operations", length.operations)
        if operations > 1:
            yield genome.with_gene("operations", operations // 2)
        crashes = genome.genes.get("crashes", length.crashes)
        if crashes > 2:
            yield genome.with_gene("crashes", crashes // 2)
        if crashes > 1:
            yield genome.with_gene("crashes", crashes - 1)

    found = True
    while found and runs < _SMALLER_RUNS:
        found = False
        for candidate in candidates():
            if "operations" in genome.genes and "operations" not in candidate.genes:
                continue
            if "crashes" in genome.genes and "crashes" not in candidate.genes:
                continue
            runs += 1
            if kind_of(run(candidate).failure) == kind:
                genome, found = candidate, True
                break
    return genome


def collect(runs: int) -> None:
    """The collector runs between lives, not in them."""
    if runs % 25 == 0:
        gc.collect()
