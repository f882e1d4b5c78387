"""See the package's docstring."""

from __future__ import annotations

import logging
import sys

from tests.sim.again.run_lives import replay, run
from tests.sim.seeds import run_side_by_side, seeds_parser, tell_unless_dead

_PROCESS_SEEDS = 8
"""The number of seeds of a process: each leaves some 40 MB."""


def main() -> int:
    options = seeds_parser("What is seen before a kill and after it, from a seed.").parse_args()
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
