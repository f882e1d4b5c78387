"""A comparison: does the hunt find broken code in fewer runs than uniform seeds do?

    python -m tests.sim.hunt.compare_hunts [--half tuning|report|all] [--only NAME] [--repeat 3] [--runs 300]
        [--corpora DIR]

Each mutant of tests/sim/mutations.py that seeds of whole lives have to notice, and each defect of
put_back.py, is searched by uniform seeds and by the hunt, several times with different choices; the
median number of runs counts. A mutant that uniform seeds find at once (median of five runs and
less) is left out. Half of the mutants, by their names, were used for tuning; the others and the
defects are the measurement.

corpora: a directory with a corpus for each cast (`records`, `queues`, ...) that a hunt on sound
code has left; the hunt then begins with that. By default it begins with nothing.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from pathlib import Path
from zlib import crc32

from tests.sim.hunt.__main__ import CASTS
from tests.sim.hunt.put_back import PUT_BACK
from tests.sim.mutants import broken_tree, run_in
from tests.sim.mutations import MUTANTS, Mutant

_AT_ONCE = 5


def is_tuning(mutant: Mutant) -> bool:
    return mutant in MUTANTS and crc32(mutant.name.encode()) % 2 == 0


def runs_to_find(tree: Path, mutant: Mutant, mode: list[str], seed: int, runs_max: int) -> tuple[int, float]:
    """Return (runs, seconds of CPU); runs_max + 1: none of them found it."""
    options = ["--runs", str(runs_max), "--seed", str(seed), "--cast", mutant.hunt, "--jobs", "0", "--first", *mode]
    done = run_in(tree, "-W", "ignore", "-m", "tests.sim.hunt", *options)
    told = re.search(r"^(\d+) lives, (\d+) kinds of failure, ([\d.]+) s", done.stdout, re.MULTILINE)
    if told is None:
        raise SystemExit(f"{mutant.name}: {done.stderr[-2000:]}")
    return (int(told[1]) if int(told[2]) else runs_max + 1), float(told[3])


def _text(found: list[tuple[int, float]], runs_max: int) -> str:
    median = statistics.median(runs for runs, _ in found)
    each = " ".join("-" if runs > runs_max else str(runs) for runs, _ in found)
    return f"{f'> {runs_max}' if median > runs_max else f'{median:g}'} ({each}; {sum(s for _, s in found):.0f} s)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("tuning", "report", "all"), default="report")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--runs", type=int, default=300, help="at most so many a repetition")
    parser.add_argument("--corpora", type=Path, help="a directory with a corpus for each cast")
    options = parser.parse_args()
    for mutant in (*MUTANTS, *PUT_BACK):
        if mutant.hunt not in CASTS or options.only not in mutant.name:
            continue
        if options.half != "all" and is_tuning(mutant) != (options.half == "tuning"):
            continue
        modes: list[list[str]] = [["--uniform"], []]
        if options.corpora is not None:
            modes[1] = ["--corpus", str(options.corpora.resolve() / mutant.hunt), "--read-only"]
        columns: list[str] = []
        with broken_tree(mutant) as tree:
            for mode in modes:
                found = [runs_to_find(tree, mutant, mode, seed, options.runs) for seed in range(options.repeat)]
                columns.append(_text(found, options.runs))
                if mode == ["--uniform"] and statistics.median(runs for runs, _ in found) <= _AT_ONCE:
                    break
        print(f"| {mutant.name} | {' | '.join(columns)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
