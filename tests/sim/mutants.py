"""A check of the simulation: the code is broken in one way after another, and each has to be
noticed.

    python -m tests.sim.mutants [--seeds 400] [--only NAME] [--jobs 2]

A mutant is a few replacements of text in a copy of the tree; seeds run against it until one fails.
The table in docs/internals/simulation.md states how many that takes. A defect that random choice
meets too rarely has a test of its own instead, and C is compiled anew. A text that is not found any
more is an error, and a copy that cannot run is one, too, so that no mutant counts by mistake.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.sim.mutations import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


class CannotRun(Exception):
    """A mutant that does not fit the code, or whose copy cannot run: it shows nothing."""


def seeds_until_noticed(mutant: Mutant, seeds: int) -> tuple[int, str]:
    """Return (number of seeds until one failed, 1 for a test; its fault); 0: none of them failed."""
    with broken_tree(mutant) as tree:
        if mutant.hunt.startswith("tests/"):
            done = run_in(tree, "-m", "pytest", "-x", "-p", "no:cacheprovider", mutant.hunt)
            failed = re.search(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
            return (1, failed[1]) if failed is not None else unnoticed(mutant, done)
        done = run_in(tree, "-W", "ignore", "-m", "tests.sim.kinds", mutant.hunt, "--seeds", str(seeds))
    found = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    return (int(found[1]) + 1, found[2]) if found is not None else unnoticed(mutant, done)


def unnoticed(mutant: Mutant, done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """Return (0, ""), or an error if the copy could not run: its outcome shows nothing about the
    mutant then.
    """
    if done.returncode:
        raise CannotRun(f"{mutant.hunt} could not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return 0, ""


@contextmanager
def broken_tree(mutant: Mutant) -> Iterator[Path]:
    """Yield a broken copy of the tree."""
    with tempfile.TemporaryDirectory(prefix="topics-mutant-") as name:
        tree = Path(name)
        for part in ("topics", "tests"):
            shutil.copytree(ROOT / part, tree / part)
        for part in ("pyproject.toml", "build_ffi.py"):
            shutil.copy(ROOT / part, tree / part)
        for path, text, instead in mutant.patches:
            file = tree / "topics" / path
            code = file.read_text()
            if code.count(text) != mutant.places:
                raise CannotRun(f"{path} holds {code.count(text)} times: {text}")
            file.write_text(code.replace(text, instead))
            if file.suffix in (".c", ".h"):
                run_in(tree, "-c", f"import build_ffi; build_ffi.build('topics/{path}')", check=True)
        yield tree


def run_in(tree: Path, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "TOPICS_TEST_TIMES": "1"},
        capture_output=True,
        text=True,
        check=check,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=400, help="at most so many a mutant")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at once (default: one per CPU)")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if not chosen:
        parser.error(f"no mutant's name contains {options.only!r}")
    missed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        # Each mutant runs in processes of its own, which a thread waits for.
        for mutant, found in [(each, pool.submit(seeds_until_noticed, each, options.seeds)) for each in chosen]:
            count, what = 0, ""
            try:
                count, what = found.result()
                seeds = str(count) if count else f"not in {options.seeds}"
            except CannotRun as error:
                seeds = "cannot run"
                print(f"{mutant.name}: {error}", file=sys.stderr)
            missed += not count
            print(f"| {mutant.name} | {seeds} | {what[:110]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
