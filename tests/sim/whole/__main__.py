"""See the package's docstring."""

from __future__ import annotations

import argparse
import gc
import inspect
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.whole.plan import SHORT, WHOLE, Length
from tests.sim.whole.run import replay, run, run_chunk, run_last_chunk

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_CHUNK = 25
_WARMING = range(4)
"""Seeds run once before the forks: code that has run is quicker, and the processes of the chunks are short."""
_TELL_S = 20
"""Between two lines of progress."""


def tell_unless_dead(unraisable: UnraisableHookArgs) -> None:
    """A killed process leaves coroutines in the middle of an await, and the collector complains of them."""
    if not inspect.iscoroutine(unraisable.object):
        sys.__unraisablehook__(unraisable)


def until_failure(seeds: range, length: Length) -> int:
    for seed in seeds:
        for _seed, text in run_chunk(range(seed, seed + 1), length=length).failures:
            print(f"seed {seed}: {text}")
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="The whole server from a seed.")
    parser.add_argument("--seed", type=int, help="one run, with its trace")
    parser.add_argument("--count", type=int, default=1000, help="so many seeds")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", type=Path, help="where the trace of --seed goes; by default standard output")
    parser.add_argument("--failures", type=int, default=20, help="stop after so many; 0: never")
    parser.add_argument("--until-failure", action="store_true", help="one seed after another, to the first that fails")
    parser.add_argument("--short", action="store_true", help="one crash each, and a fifth of the requests")
    options = parser.parse_args()
    length = SHORT if options.short else WHOLE
    sys.unraisablehook = tell_unless_dead
    if options.seed is not None:
        out = options.trace.open("w") if options.trace else sys.stdout
        run(options.seed, lambda line: print(line, file=out), length=length)
        return 0
    seeds = range(options.first, options.first + options.count)
    if options.until_failure:
        return until_failure(seeds, length)
    return many(seeds, options.jobs, options.failures, length)


def many(seeds: range, jobs: int, failures_max: int, length: Length) -> int:
    """Runs them on so many processes; stops at the failure number `failures_max` (0: at none)."""
    started = time.perf_counter()
    total: Counter[str] = Counter()
    failed = done = 0
    cpu_s = 0.0
    told = started
    chunks = [seeds[first : first + _CHUNK] for first in range(0, len(seeds), _CHUNK)]
    run_chunk(_WARMING)
    gc.collect()
    gc.freeze()  # before the forks, which then share it
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for chunk in pool.imap_unordered(partial(run_last_chunk, length=length), chunks):
            total += chunk.counts
            cpu_s += chunk.cpu_s
            done += chunk.seeds
            for seed, text in chunk.failures:
                failed += 1
                print(f"seed {seed}: {text}\n  replay: {replay(seed, length)}", flush=True)
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


if __name__ == "__main__":
    sys.exit(main())
