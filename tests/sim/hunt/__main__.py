"""See the package's docstring."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import random
import sys
import time
from functools import partial
from multiprocessing.pool import AsyncResult
from pathlib import Path

from tests.sim.genome import Genome
from tests.sim.hunt.blocks import Blocks
from tests.sim.hunt.corpus import Corpus
from tests.sim.hunt.hunting import Failure, Hunt, Outcome, collect, run_once, smaller
from tests.sim.seeds import tell_unless_dead
from tests.sim.whole.run_seed import replay
from tests.sim.whole.seed_plan import SHORT, WHOLE

CASTS = ("records", "queues", "forwarding", "passing")
_TELL_S = 60
_RUNS_OF_PROCESS = 50
"""The number of runs after which a process ends, which frees its memory."""
_blocks: Blocks | None = None


def _run(genome: Genome, short: bool) -> Outcome:
    return run_once(genome, _blocks, SHORT if short else WHOLE)


class _Told:
    """The report that is printed during the hunt."""

    def __init__(self, hunt: Hunt, options: argparse.Namespace) -> None:
        self._hunt = hunt
        self._options = options
        self._began = self._told = time.monotonic()

    def progress(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if not last and now - self._told < _TELL_S:
            return
        self._told = now
        hunt = self._hunt
        kinds = f"{len(hunt.failures)} failures of a kind, {sum(hunt.again.values())} in all"
        print(
            f"{(now - self._began) / 60:.0f} min: {hunt.runs} lives, {len(hunt.corpus.kept)} kept, "
            f"{len(hunt.corpus.hits)} features, {kinds}",
            flush=True,
        )
        if not hunt.is_replaying:
            hunt.corpus.write()

    def failure(self, failure: Failure) -> None:
        print(f"life {failure.runs}: {failure.text[:400]}\n  found as: {failure.genome}", flush=True)
        run = partial(_run, short=self._options.short)
        genome = smaller(failure, self._hunt.length, run)
        print(f"  replay: {replay(genome, self._hunt.length)}", flush=True)


def _hunt(hunt: Hunt, options: argparse.Namespace) -> None:
    told = _Told(hunt, options)
    until = time.monotonic() + options.minutes * 60 if options.minutes else 0.0

    def is_over(started: int) -> bool:
        late = bool(until) and time.monotonic() > until
        return late or 0 < options.runs <= started or (options.first and bool(hunt.failures))

    def take(outcome: Outcome) -> None:
        failure = hunt.took(outcome)
        if failure is not None and not (options.first or options.count_only):
            told.failure(failure)
        told.progress()

    if not options.jobs:
        gc.disable()
        while not is_over(hunt.runs):
            take(_run(hunt.next(), options.short))
            collect(hunt.runs)
        told.progress(last=True)
        return
    started = 0
    waiting: list[AsyncResult[Outcome]] = []
    with multiprocessing.get_context("fork").Pool(options.jobs, _quiet, maxtasksperchild=_RUNS_OF_PROCESS) as pool:
        while True:
            while len(waiting) < options.jobs and not is_over(started):
                waiting.append(pool.apply_async(_run, (hunt.next(), options.short)))
                started += 1
            if not waiting:
                break
            take(waiting.pop(0).get())
    told.progress(last=True)


def _cpu_s() -> float:
    """The CPU time of this process and of those of the pool that have ended."""
    times = os.times()
    return sum(times[:4])


def _quiet() -> None:
    """Set up a process of the pool: it is short, so nothing is collected."""
    gc.disable()
    sys.unraisablehook = tell_unless_dead


def main() -> int:
    global _blocks  # noqa: PLW0603 (inherited by the processes of the pool)
    parser = argparse.ArgumentParser(description="Coverage-guided simulation of the whole server.")
    parser.add_argument("--minutes", type=float, default=0, help="0: until --runs")
    parser.add_argument("--runs", type=int, default=0, help="at most so many lives; 0: no limit but the time")
    parser.add_argument("--corpus", type=Path, help="a directory where the lives that were kept stay for the next hunt")
    parser.add_argument("--read-only", action="store_true", help="leaves the corpus as it is")
    parser.add_argument("--seed", type=int, help="of the hunt's own choices; by default another one every time")
    parser.add_argument("--cast", choices=CASTS, default="records", help="whose clients there are; records: the mix")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: this one alone")
    parser.add_argument("--first", action="store_true", help="ends at the first failure, as it was found")
    parser.add_argument("--count-only", action="store_true", help="counts failures, and makes none of them small")
    parser.add_argument("--uniform", action="store_true", help="without guidance: one seed after another, by chance")
    parser.add_argument("--short", action="store_true", help="one crash each, and a fifth of the requests")
    options = parser.parse_args()
    if not options.minutes and not options.runs:
        parser.error("--minutes or --runs")
    sys.unraisablehook = tell_unless_dead
    logging.disable(logging.NOTSET)
    if not options.uniform:
        _blocks = Blocks()
        _blocks.install()
    gc.collect()
    gc.freeze()
    seed = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    hunt = Hunt(
        Corpus(options.corpus, _blocks, read_only=options.read_only),
        random.Random(f"{seed}:hunt"),
        cast=CASTS.index(options.cast),
        is_guided=not options.uniform,
        length=SHORT if options.short else WHOLE,
    )
    cpu_s = _cpu_s()
    _hunt(hunt, options)
    print(f"{hunt.runs} lives, {len(hunt.failures)} kinds of failure, {_cpu_s() - cpu_s:.1f} s of CPU")
    for kind, failure in hunt.failures.items():
        print(f"{hunt.again[kind]} times, first in life {failure.runs}: {failure.text[:200]}")
    return 1 if hunt.failures else 0


if __name__ == "__main__":
    sys.exit(main())
