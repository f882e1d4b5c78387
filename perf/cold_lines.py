"""Measure what a pause costs a program whose memory fits the caches: one in C that does nothing else.

    python -m perf.cold_lines [--lines 2000] [--rounds 100] [--smoke]

It follows pointers through so many cache lines, side by side or one a page, after pauses in which it sleeps, or stays
awake and asks for the time. A lone request uses some 2,000 lines, those of the interpreter and the kernel left out. If
a row is slow after a pause without sleep, others have taken the caches meanwhile, and no server of this machine
keeps its own. Times are medians, in microseconds.
"""

from __future__ import annotations

import argparse
import subprocess

from perf.servers import built

PAUSES_US = 0, 200, 1_000, 3_000, 5_000, 20_000
ROWS = {"64": "side by side", "4096": "one a page"}
WAYS = {"0": "awake", "1": "asleep"}


def took_us(*options: str) -> float:
    """Run the C program once; see load/cold_lines.c for the options."""
    done = subprocess.run([str(built("load/cold_lines.c")), *options], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rounds = 3 if options.smoke else options.rounds
    print(
        f"| {options.lines:,} lines, after a pause of | {' | '.join(f'{pause / 1000:g} ms' for pause in PAUSES_US)} |"
    )
    print("|---|" + "---|" * len(PAUSES_US))
    for spread, row in ROWS.items():
        for sleeps, way in WAYS.items():
            cells = [took_us(str(options.lines), spread, str(rounds), str(pause), sleeps) for pause in PAUSES_US]
            print(f"| {row}, {way} | {' | '.join(f'{cell:.1f}' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
