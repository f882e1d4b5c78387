"""Measure what a topic costs a start and a clean stop: N topics of 1 to 3 records each.

    python -m perf.start_costs [--topics 100000] [--rounds 3] [--directory DIR] [--smoke]

Printed, in microseconds a topic, what opening and closing take beyond those of an empty directory: of a process that
does nothing else, and of one that lists all topics in between. Each is a process of its own; medians, (lowest-highest).

The workload `recovery` of `topics bench` starts a server after kill -9 with many records in one topic instead.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import topics
from perf.figures import commit_id

_AT_ONCE = 1000


def fill(path: str, count: int) -> None:
    """Topic n gets n % 3 + 1 records of 100 bytes."""
    record = {"id": 1_000_000, "user": "user-00001", "action": "view", "text": "x" * 38}
    with topics.open(path) as log:
        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(count, start + _AT_ONCE))
            futures = [log.append_soon(f"topic.{n:08d}", record) for n in numbers for _ in range(n % 3 + 1)]
            for future in futures:
                future.result()


def visit(path: str, *, lists: bool) -> tuple[float, float]:
    """Seconds that opening and closing take."""
    began = time.perf_counter()
    log = topics.open(path)
    opened = time.perf_counter()
    if lists:
        log.topics()
    closing = time.perf_counter()
    log.close()
    return opened - began, time.perf_counter() - closing


def visited(path: Path, *, lists: bool) -> tuple[float, float]:
    """`visit`, in a process of its own."""
    command = [sys.executable, "-m", "perf.start_costs", "--visit", str(path), *(["--lists"] if lists else [])]
    start, stop = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(start), float(stop)


def shown(seconds: Sequence[float], baseline: float, count: int) -> str:
    each = sorted((value - baseline) * 1e6 / count for value in seconds)
    return f"{statistics.median(each):.2f} ({each[0]:.2f}-{each[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--visit", help=argparse.SUPPRESS)
    parser.add_argument("--lists", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.visit:
        print(*visit(options.visit, lists=options.lists))
        return
    count, rounds = (500, 1) if options.smoke else (options.topics, options.rounds)
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        empty, full = Path(name, "empty"), Path(name, "full")
        fill(str(empty), 0)
        fill(str(full), count)
        alone = [visited(empty, lists=False) for _ in range(rounds)]
        print(f"commit {commit_id()}, {count:,} topics, {rounds} rounds")
        print("| | start us/topic | stop us/topic |")
        print("|---|---|---|")
        for lists in (False, True):
            runs = [visited(full, lists=lists) for _ in range(rounds)]
            cells = [
                shown([run[at] for run in runs], statistics.median(run[at] for run in alone), count) for at in (0, 1)
            ]
            print(f"| {'all topics listed' if lists else 'nothing asked'} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
