"""See the package's docstring."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from tests.sim.again.run import replay, run
from tests.sim.seeds import run_side_by_side, tell_unless_dead

_PROCESS_SEEDS = 8
"""Each leaves some 40 MB."""


def main() -> int:
    parser = argparse.ArgumentParser(description="What is seen before a kill and after it, from a seed.")
    parser.add_argument("--seed", type=int, help="one run, line by line")
    parser.add_argument("--count", type=int, default=1000, help="so many seeds")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=20, help="stop after so many; 0: never")
    options = parser.parse_args()
    sys.unraisablehook = tell_unless_dead
    logging.disable()
    if options.seed is not None:
        run(options.seed, print)
        return 0
    seeds = range(options.first, options.first + options.count)
    return run_side_by_side(
        seeds, run, replay, jobs=options.jobs, failures_max=options.failures, process_seeds=_PROCESS_SEEDS
    )


if __name__ == "__main__":
    sys.exit(main())
