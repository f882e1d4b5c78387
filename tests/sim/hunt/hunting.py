"""The hunt: lives run, those that show a new feature are stored and changed, and failures are made
small.
"""

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
"""Share of the lives that are a new seed: a life changed in a place or two repeats the coincidences
of its parent.
"""
_TIMES_CRASHES = 3
"""Factor of the crashes of a seed, in as many requests: an end costs little, and the next start
sees it.
"""
_SMALLER_RUNS = 60
_AIMED_FIRST = 6
"""Number of lives that come first because of what they have run; then every other one is a new
seed.
"""
_SEEDS = 1 << 30


class Outcome(NamedTuple):
    """The outcome of one run. failure: its fault, "" for none."""

    genome: Genome
    shape: Shape
    told: Told
    failure: str
    cpu_s: float


class Failure(NamedTuple):
    genome: Genome
    text: str
    runs: int
    """Number of runs by then."""


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
    """Return a text that is equal for all failures of one sentence of an oracle."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"|\{.*\}|\[.*\]|\(.*\)", "_", failure))[:120]


class Hunt:
    """Chooses lives, and takes their outcomes. Its choices only depend on `rng`."""

    def __init__(
        self, corpus: Corpus, rng: random.Random, *, cast: int = 0, is_guided: bool = True, length: Length = WHOLE
    ) -> None:
        self.corpus = corpus
        self.length = length
        self.runs = 0
        self.failures: dict[str, Failure] = {}
        self.again: dict[str, int] = {}
        """Number of times that each failure came, by its kind."""
        self._rng = rng
        self._base = {"cast": cast} if cast else {}
        if is_guided:
            self._base["crashes"] = length.crashes * _TIMES_CRASHES
        self._moments: Counter[str] = Counter()
        self._lives: Counter[str] = Counter()
        """The most moments of each kind in a life, and the number of runs that had any."""
        self._is_guided = is_guided
        self._to_run, self._is_aimed = corpus.read() if is_guided else ([], False)
        self._to_run.reverse()

    @property
    def is_replaying(self) -> bool:
        """Return whether some lives of the corpus have not run yet."""
        return bool(self._to_run)

    def next(self) -> Genome:
        """Return the life to run next: those of an earlier hunt first.

        If changes of the code have put these in an order, changes of the first of them are tried,
        too.
        """
        rng, kept = self._rng, self.corpus.kept
        is_fresh = not self._is_guided or not kept or rng.random() < _FRESH
        if self._to_run:
            turn = self.runs - _AIMED_FIRST
            if not self._is_aimed or turn < 0 or turn % 4 == 3:
                return self._to_run.pop()
            is_fresh = turn % 2 == 0  # blocks that every life runs are found no better by aimed lives
        if is_fresh:
            fresh = Genome(rng.randrange(_SEEDS), dict(self._base))
            usual = {name: -(-number // self._lives[name]) for name, number in self._moments.items()}
            return aimed(fresh, usual, self._base.get("crashes", 0), rng)
        parent = self.corpus.choose(rng)
        return changed(parent.genome, parent.shape, [other.genome for other in kept], rng)

    def took(self, outcome: Outcome) -> Failure | None:
        """Note an outcome. Return its failure, if none like that came before."""
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
    """Return a genome that fails alike, with fewer genes, requests and crashes."""
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
    """Run the collector between lives, not in them."""
    if runs % 25 == 0:
        gc.collect()
