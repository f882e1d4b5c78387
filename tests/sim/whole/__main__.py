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


def main() -> int:
    parser = argparse.ArgumentParser(description="The whole server from a seed.")
    parser.add_argument("--seed", type=int, help="one run, with its trace")
    parser.add_argument("--count", type=int, default=1000, help="so many seeds")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", type=Path, help="where the trace of --seed goes; by default standard output")
    parser.add_argument("--stop", action="store_true", help="end at the first failure")
    options = parser.parse_args()
    if options.seed is not None:
        out = options.trace.open("w") if options.trace else sys.stdout
        run(options.seed, lambda line: print(line, file=out))
        return 0
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
            if failed and options.stop:
                pool.terminate()
                break
    seconds = time.perf_counter() - started
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    print(
        f"{options.count} seeds in {seconds:.1f} s: {options.count / seconds / options.jobs:.1f} a second and process"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
