"""See the package's docstring."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from tests.sim.genome import Genome
from tests.sim.seeds import Run, run_chunk, run_side_by_side, seeds_parser, tell_unless_dead
from tests.sim.whole.cores.course import Bounds
from tests.sim.whole.run_seed import replay, run, run_genome
from tests.sim.whole.seed_plan import SHORT, WHOLE


def until_failure(seeds: range, run: Run) -> int:
    for seed in seeds:
        for _seed, text in run_chunk(range(seed, seed + 1), run).failures:
            print(f"seed {seed}: {text}")
            return 1
    return 0


def main() -> int:
    parser = seeds_parser("The whole server from a seed.")
    parser.add_argument("--trace", type=Path, help="where the trace of --seed goes; by default standard output")
    parser.add_argument("--until-failure", action="store_true", help="one seed after another, to the first that fails")
    parser.add_argument("--genome", type=Genome.parse, help="a seed with changes (tests/sim/genome.py), line by line")
    parser.add_argument("--short", action="store_true", help="one crash each, and a fifth of the requests")
    parser.add_argument(
        "--cores", type=Bounds.parse, nargs="?", const=Bounds(2, 4), help="servers of so many cores, as 2..4"
    )
    options = parser.parse_args()
    length = SHORT if options.short else WHOLE
    sys.unraisablehook = tell_unless_dead
    if options.seed is not None or options.genome is not None:
        out = options.trace.open("w") if options.trace else sys.stdout

        def say(line: str) -> None:
            print(line, file=out)

        if options.genome is not None:
            run_genome(options.genome, say, length=length)
        else:
            run(options.seed, say, length=length, cores=options.cores)
        return 0
    seeds = range(options.first, options.first + options.count)
    if options.until_failure:
        return until_failure(seeds, partial(run, length=length, cores=options.cores))
    return run_side_by_side(
        seeds,
        partial(run, length=length, cores=options.cores),
        partial(replay, length=length, cores=options.cores),
        jobs=options.jobs,
        failures_max=options.failures,
    )


if __name__ == "__main__":
    sys.exit(main())
