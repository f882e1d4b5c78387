"""Seeds of any kind, one after another or in many processes, and their outcomes."""

from __future__ import annotations

import argparse
import gc
import inspect
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

Run = Callable[[int], Counter[str]]
"""A function that runs a seed, returns counts of events, and raises the fault that it finds."""
_WARMING = range(4)
"""Seeds run once before the forks: code that has run is quicker, and the processes of the chunks
are short.
"""
_TELL_S = 20
"""Seconds between two lines of progress."""


class Chunk(NamedTuple):
    """The outcome of a row of seeds. failures: seeds, and the fault of each."""

    seeds: int
    counts: Counter[str]
    failures: list[tuple[int, str]]
    cpu_s: float


def run_chunk(seeds: range, run: Run, *, collect_every: int = 25) -> Chunk:
    """Run seeds one after another; the collector runs between them, not in them (0: not at all)."""
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    started = time.process_time()
    gc.collect()
    gc.freeze()  # modules and all other objects that outlive the seeds
    gc.disable()
    try:
        for seed in seeds:
            try:
                counts += run(seed)
            except Exception as error:
                counts["failed"] += 1
                failures.append((seed, f"{type(error).__name__}: {error}"))
            if collect_every and seed % collect_every == 0:
                gc.collect()
    finally:
        gc.enable()
    return Chunk(len(seeds), counts, failures, time.process_time() - started)


def _run_last_chunk(seeds: range, run: Run) -> Chunk:
    """Run the seeds of a process that ends with them: a tenth quicker, because nothing is
    collected.
    """
    return run_chunk(seeds, run, collect_every=0)


def run_side_by_side(
    seeds: range, run: Run, replay: Callable[[int], str], *, jobs: int, failures_max: int, process_seeds: int = 25
) -> int:
    """Run seeds in so many processes; stop at failure number `failures_max` (0: at none).

    Return the exit code.

    run and replay are pickled; replay: the command that shows a seed; process_seeds: a process ends
    after so many, which frees its memory.
    """
    started = time.perf_counter()
    total: Counter[str] = Counter()
    failed = done = 0
    cpu_s = 0.0
    told = started
    chunks = [seeds[first : first + process_seeds] for first in range(0, len(seeds), process_seeds)]
    run_chunk(_WARMING, run)
    gc.collect()
    gc.freeze()  # before the forks, which then share it
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for chunk in pool.imap_unordered(partial(_run_last_chunk, run=run), chunks):
            total += chunk.counts
            cpu_s += chunk.cpu_s
            done += chunk.seeds
            for seed, text in chunk.failures:
                failed += 1
                print(f"seed {seed}: {text}\n  replay: {replay(seed)}", flush=True)
            if 0 < failures_max <= failed:
                print(f"stopped after {failed} failures")
                pool.terminate()
                break
            if time.perf_counter() - told > _TELL_S:
                told = time.perf_counter()
                print(
                    f"{done} of {len(seeds)} seeds, {done / cpu_s:.1f} a second and core, {failed} failed", flush=True
                )
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    seconds = time.perf_counter() - started
    print(f"{done} seeds in {seconds:.1f} s: {done / max(cpu_s, 0.001):.1f} a second of CPU time, {failed} failed")
    return 1 if failed else 0


def seeds_parser(description: str) -> argparse.ArgumentParser:
    """Return the parser of a command that runs one seed, or a row of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, help="one run, line by line")
    parser.add_argument("--count", type=int, default=1000, help="so many seeds")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=20, help="stop after so many; 0: never")
    return parser


def tell_unless_dead(unraisable: UnraisableHookArgs) -> None:
    """Report an unraisable error, except one of a killed process, whose coroutines are in the
    middle of an await.
    """
    if not inspect.iscoroutine(unraisable.object):
        sys.__unraisablehook__(unraisable)
