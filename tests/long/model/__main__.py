"""Long runs: `make model`. Prints how often each rule was tried; a failure is printed as the steps that lead to it."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.long.model.rule_machine import Machine
from tests.long.model.run_examples import run_live, run_simulated


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.long.model", description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=50, help="rules an example")
    parser.add_argument("--seed", type=int, default=None, help="of the choices; another one each time")
    parser.add_argument("--live", action="store_true", help="a real server on loopback")
    parser.add_argument("--restarts", type=int, default=3, help="of an example, with --live")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.examples} examples of up to {options.steps} steps", flush=True)
    began = time.monotonic()
    try:
        if options.live:
            with tempfile.TemporaryDirectory(prefix="topics-model-") as directory:
                run_live(Path(directory), options.examples, options.steps, options.restarts, seed)
        else:
            run_simulated(options.examples, options.steps, seed)
    finally:
        for name, count in sorted(Machine.counts.items()):
            print(f"{count:9,} {name}")
        print(f"{time.monotonic() - began:9.0f} s")


if __name__ == "__main__":
    main()
