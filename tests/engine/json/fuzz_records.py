"""Random JSON and its damaged forms through records.c, compared with the model, for as long as you like.

    python -m tests.engine.json.fuzz_records [--seconds 60] [--seed 0]

Prints the seed of a difference. The sanitized twin is test_records_sanitized.py.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from tests.engine.json import json_model, test_records, test_write_body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    seed, stop = options.seed, time.monotonic() + options.seconds
    while time.monotonic() < stop:
        rng = random.Random(seed)
        text, body = json_model.random_json(rng, 3).encode(), json_model.random_write(rng)
        for damage in range(10):
            one = json_model.damaged(text, rng) if damage else text
            other = json_model.damaged(body, rng) if damage else body
            try:
                test_records.agrees_with_the_model(one)
                test_write_body.agrees_with_the_model(other)
            except BaseException:
                print(f"seed {seed}, damage {damage}: {one!r}\n{other!r}")
                raise
            for kind, case, parse in (("json", one, json_model.parse), ("write", other, json_model.parse_write)):
                try:
                    parse(case)
                    seen[f"{kind} accepted"] += 1
                except json_model.RefusedError:
                    seen[f"{kind} refused"] += 1
        seed += 1
    print(f"seeds {options.seed} to {seed - 1}: no difference; {dict(seen)}")


if __name__ == "__main__":
    main()
