"""Random byte streams through two simulated servers, lane on and lane off, for as long as you like.

    python -m tests.server.fuzz_lane [--minutes 30] [--seed 0]

Likewise with the frames of a WebSocket, the publishes of which form streaks on one server.
Every few hundred streams the servers are killed and recover, and new ones begin. Prints the seed of a difference.
"""

from __future__ import annotations

import argparse
import random
import time

from tests.server.lane_streams import KEYS
from tests.server.test_lane import Pair
from tests.ws.odd_frames import pieces
from tests.ws.test_lone_publishes import Pair as FramePair
from tests.ws.test_lone_publishes import taken as publishes_taken

LIVES = 3
STREAMS = 200


def run(seed: int) -> int:
    """One pair of servers through a few lives; the requests that the lane took."""
    rng = random.Random(f"fuzz {seed}")
    taken = 0
    keys = {"api_keys": KEYS} if rng.random() < 0.3 else {}
    pair = Pair(rng.choice((0, seed)), single=rng.random() < 0.5, wal_shards=rng.choice((1, 1, 2)), **keys)
    for _ in range(LIVES):
        for _ in range(STREAMS):
            pair.run(rng)
        taken += pair.taken
        pair.compare_state()
        for world in pair.worlds:
            world.advance_ms(3000)
        pair.compare_logs()
        pair.restart()
        pair.compare_state()
        pair.warm_up()
    for world in pair.worlds:
        world.close()
    return taken


def run_frames(seed: int) -> int:
    """One pair through a few lives with frames of WebSockets; the publishes that streaks took."""
    rng = random.Random(f"frames {seed}")
    pair, found = FramePair(wal_shards=rng.choice((1, 1, 2))), 0
    for _ in range(LIVES):
        for _ in range(STREAMS):
            pair.run(rng, pieces)
        found += publishes_taken(pair.worlds[0])
        pair.compare()
        for world in pair.worlds:
            world.crash()
            world.start()
        pair.compare()
    for world in pair.worlds:
        world.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seed, taken, published, stop = options.seed, 0, 0, time.monotonic() + 60 * options.minutes
    while time.monotonic() < stop:
        try:
            taken += run(seed)
            published += run_frames(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        seed += 1
    rounds = (seed - options.seed) * LIVES * STREAMS
    print(f"no difference in {rounds} rounds of either kind; next seed {seed}")
    print(f"the lane took {taken} requests, and streaks of WebSockets {published} publishes")


if __name__ == "__main__":
    main()
