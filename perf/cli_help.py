"""CPU of `topics --help` beside `python -c pass`.

    python -m perf.cli_help [--rounds 30] [--smoke]

Each is a process of its own, by turns. A figure is the least CPU of all rounds, user plus system, as other programs
only add to it. The same interpreter starts both, and the command as its console script starts it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from perf.figures import commit_id, machine

GOAL = 4.0
SIDES = {
    "python -c pass": ("pass",),
    "topics --help": ("from topics.cli.main import main; main()", "--help"),
}


def cpu_ms(arguments: tuple[str, ...]) -> float:
    """Return the CPU of one process in ms."""
    process = subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"it ended with {process.returncode}"
    return (used.ru_utime + used.ru_stime) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="tiny, to see that it runs")
    options = parser.parse_args()
    rounds = 2 if options.smoke else options.rounds
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name, arguments in SIDES.items():
            found[name].append(cpu_ms(arguments))
    print(f"{machine()}, commit {commit_id()}; {rounds} rounds; CPU in ms")
    print("| command | least | median and range | by `python -c pass` | goal |\n|---|---|---|---|---|")
    base = min(found["python -c pass"])
    for name, times in found.items():
        least = min(times)
        goal = f"<= {GOAL:g}" + (": **missed**" if least / base > GOAL else "")
        last = f"{least / base:.2f} | {goal}" if name != "python -c pass" else "- | -"
        spread = f"{statistics.median(times):.1f} ({least:.1f}-{max(times):.1f})"
        print(f"| {name} | {least:.1f} | {spread} | {last} |")


if __name__ == "__main__":
    main()
