"""See the package's docstring."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.sim.whole.run import run, run_chunk

_CHUNK = 50


def until_failure(seeds: range) -> int:
    for seed in seeds:
        _counts, failures = run_chunk(range(seed, seed + 1))
        for _seed, text in failures:
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
    parser.add_argument("--until-failure", action="store_true", help="one seed after another, to the first that fails")
    options = parser.parse_args()
    if options.seed is not None:
        out = options.trace.open("w") if options.trace else sys.stdout
        run(options.seed, lambda line: print(line, file=out))
        return 0
    if options.until_failure:
        return until_failure(range(options.first, options.first + options.count))
    started = time.perf_counter()
    total: Counter[str] = Counter()
    failed = 0
    last = options.first + options.count
    chunks = [range(first, min(first + _CHUNK, last)) for first in range(options.first, last, _CHUNK)]
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for counts, failures in pool.imap_unordered(run_chunk, chunks):
            total += counts
            for seed, text in failures:
                failed += 1
                print(f"seed {seed}: {text}\n  replay: make sim SEED={seed}", flush=True)
    seconds = time.perf_counter() - started
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    print(
        f"{options.count} seeds in {seconds:.1f} s: {options.count / seconds / options.jobs:.1f} a second and process"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
