"""Compare the table of goals before and after a change: `perf.peers` with servers of two trees, in turns.

    python -m perf.before_after BEFORE [--turns 7] [--seconds 2] [--only writes,latency,reads,topics,embedded,sustained]

`topics bench compare` compares results of workloads that both trees know; this needs none of them in the older tree.

BEFORE is a clone of this repository at an older commit, in which `make serve` has run once. Each turn runs one round of
`perf.peers` for each tree, in alternating order, without the peers' sides; the rows of writes need redis-server all the
same, since that table has them only beside Redis. Servers are of the tree, and the client is this one's for both; the
rows of the library are measured by each tree itself. A ratio is that of the medians, after divided by before; a row is
worse if its ratio is by more than 3 % on the wrong side, and by more than the spread of either side: half the distance
of its quartiles, in relation to its median.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from perf.figures import commit_id
from perf.peers import machine, spread
from perf.servers import TREE

Figures = dict[str, list[float]]
"""The figures of all turns, by the question of their row."""
TOLERANCE = 0.03
OWN_SIDE = """
import sys, tempfile
from pathlib import Path
from perf import peers

class OwnSide(peers.Table):
    def row(self, question, ours, peer, theirs, goal, *, less=False):
        if "NATS" not in question:  # the same figure as the row beside Redis
            super().row(question, ours, "-", None, goal, less=less)

seconds = float(sys.argv[1])
with tempfile.TemporaryDirectory(dir=".") as name:
    for part in sys.argv[2].split(","):
        peers.PARTS[part](OwnSide(1, Path(name)), seconds)
"""
"""A round of the table without the peers, for any commit that has `perf.peers`; arguments: seconds, parts."""
THIS_TREE = Path(__file__).resolve().parents[1]
IN_PROCESS = {"embedded"}
"""Parts that run the library, in the process that measures it."""


def run(tree: Path, seconds: float, only: str) -> dict[str, float]:
    """Run one round of `perf.peers` for a tree; return its own figures by question."""
    parts = only.split(",")
    figures = {}
    for measuring, chosen in (
        (THIS_TREE, [part for part in parts if part not in IN_PROCESS]),
        (tree, [part for part in parts if part in IN_PROCESS]),
    ):
        if chosen:
            figures.update(run_parts(measuring, tree, seconds, chosen))
    return figures


def run_parts(measuring: Path, tree: Path, seconds: float, parts: list[str]) -> dict[str, float]:
    """Run some parts by the script of one tree, with servers of another one, or of the same."""
    python = measuring / ".venv" / "bin" / "python"
    command = [str(python), "-c", OWN_SIDE, str(seconds), ",".join(parts)]
    env = {**os.environ, TREE: str(tree)}
    done = subprocess.run(command, cwd=measuring, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"perf.peers of {tree} failed: {done.stderr[-2000:]}")
    figures = {}
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7:
            # The rate at which the latencies were measured is only of that turn.
            question = re.sub(r"at [\d,]+ single", "at half the peak of single", cells[0]).replace(
                ", half the peak", ""
            )
            figures[question] = float(cells[1].split()[0].replace(",", ""))
    return figures


def noise_of(values: list[float]) -> float:
    """Half the distance of the quartiles, in relation to the median; infinite for one value."""
    if len(values) < 2:
        return float("inf")
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle if middle else 0.0


def verdict(ratio: float, noise: float, *, less: bool) -> str:
    worse = ratio - 1 if less else 1 - ratio
    if worse > max(TOLERANCE, noise):
        return "worse"
    return "better" if -worse > max(TOLERANCE, noise) else "-"


def show(before: Figures, after: Figures) -> None:
    print("| workload | before | after | ratio | |\n|---|---|---|---|---|")
    for question in before:
        if question not in after:
            continue
        old, new = before[question], after[question]
        ratio = statistics.median(new) / statistics.median(old)
        noise = max(noise_of(old), noise_of(new))
        less = "less is better" in question
        digits = 1 if statistics.median(old) < 100 else 0
        shown = f"{spread(old, digits)} | {spread(new, digits)}"
        print(f"| {question} | {shown} | {ratio:.2f} | {verdict(ratio, noise, less=less)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="writes,latency,reads,topics,embedded")
    parser.add_argument("--smoke", action="store_true", help="one short turn")
    options = parser.parse_args()
    turns, seconds = (1, 0.2) if options.smoke else (options.turns, options.seconds)
    trees = {"before": options.before.resolve(), "after": THIS_TREE}
    figures: dict[str, Figures] = {"before": {}, "after": {}}
    for turn in range(turns):
        for side in ("before", "after") if turn % 2 == 0 else ("after", "before"):
            for question, figure in run(trees[side], seconds, options.only).items():
                figures[side].setdefault(question, []).append(figure)
            print(f"turn {turn + 1} of {turns}: {side}", file=sys.stderr, flush=True)
    commits = ", ".join(f"{side} {commit_id(tree)}" for side, tree in trees.items())
    print(f"machine {machine()}; {commits}; {turns} turns of {seconds} s\n")
    show(figures["before"], figures["after"])


if __name__ == "__main__":
    main()
