"""Measure the longest pass of a server's loop over what a topic keeps besides its records.

    python -m tests.long.limits.large_states [--scale 1] [--only PATTERN]

Each case has a real server on tmpfs: clients fill a topic, and then one of them asks for one thing. Printed is the CPU
time of the loop's thread in the longest pass, ms. The exit code is 1 when a pass is longer than 20 ms
(TOPICS_LIMITS_MS).
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tests.contract.world.world import World
from tests.long.limits.__main__ import LimitsWorld
from tests.long.limits.case_sender import ANSWER_MS

_SETTINGS = {"wal_file_bytes": 64 << 20, "checkpoint_every_ms": 1 << 40, "checkpoint_wal_bytes": 1 << 40}
_A_WRITE = 10_000
_SPREAD_MS = 2000
"""The time within which records expire, in no order."""


class Case(NamedTuple):
    name: str
    most: int
    """How much of it the server keeps."""
    fill: Callable[[World, int], None]
    act: Callable[[World, int], None]


def _ask(world: World, method: str, path: str, body: object = None) -> None:
    assert world.connect().start(method, path, body).answer(method, ANSWER_MS).status in (200, 201)


def _records_that_expire(world: World, count: int) -> None:
    """Write records of which each second one has a ttl of its own, and wait until these have ended."""
    rng = random.Random(0)
    began, until = world.now_ms(), 1000 + count // 10
    for first in range(0, count, _A_WRITE):
        left = max(until - (world.now_ms() - began), 1)
        records = [
            {"data": 0, "ttl_ms": left + rng.randrange(_SPREAD_MS)} if at % 2 else {"data": 0}
            for at in range(min(_A_WRITE, count - first))
        ]
        _ask(world, "POST", "/v0/topics/t", {"records": records})
    end = began + until + _SPREAD_MS
    world.wait_until(lambda: world.now_ms() > end, 2 * until + ANSWER_MS)


def _holes(world: World, count: int) -> None:
    _records_that_expire(world, count)
    _read(world, count)


def _read(world: World, _count: int) -> None:
    _ask(world, "POST", "/v0/topics/t/diff", {"from_seq": 0, "limit": 1})


def _delete(world: World, count: int) -> None:
    _ask(world, "POST", "/v0/topics/t/delete", {"before_seq": count - 3})


def _routers(world: World, count: int) -> None:
    """Make a queue with routers that have forwarded its first job."""
    link = world.connect()
    link.request("PUT", "/v0/topics/q", {"type": "queue"})
    for number in range(count):
        body = {"source": "q", "dest": f"d{number}"}
        assert link.request("PUT", f"/v0/routers/r{number}", body).status == 201
    _write_and_ack(world, count)


def _write_and_ack(world: World, _count: int) -> None:
    link, queue = world.connect(), "/v0/topics/q"
    assert link.request("POST", queue, {"records": [{"data": 0}]}).status == 200
    (job,) = link.request("POST", f"{queue}/claim", {"node": "w", "max": 1}).json["claimed"]
    link.start("POST", f"{queue}/ack", {"node": "w", "seqs": [job["$seq"]]})
    assert link.answer("POST", ANSWER_MS).json["acked"] == 1


CASES = (
    Case("records expire by a ttl of their own, each second one", 400_000, _records_that_expire, _read),
    Case("a delete of as many records and holes", 400_000, _holes, _delete),
    Case("an ack of a new job of a queue with routers", 5000, _routers, _write_and_ack),
)


@contextmanager
def _served() -> Iterator[LimitsWorld]:
    """A server in an empty directory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        (Path(directory) / "longest").write_bytes(bytes(struct.calcsize("=Q")))
        world = LimitsWorld(Path(directory), **_SETTINGS)
        world.start()
        try:
            yield world
        finally:
            world.close()


def longest_ms(case: Case, count: int) -> float:
    with _served() as world:
        case.fill(world, count)
        other = world.connect()
        other.request("GET", "/v0/health")
        world.begin()
        case.act(world, count)
        for _ in range(2):  # the passes before the answer have ended
            assert other.request("GET", "/v0/health").status == 200
        return world.longest_ms


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help="factor of the numbers")
    parser.add_argument("--only", default="*", help="cases whose names match")
    options = parser.parse_args()
    limit_ms = float(os.environ.get("TOPICS_LIMITS_MS", "20"))
    print("| kept | number | longest pass, ms of CPU |\n|---|---|---|")
    over = 0
    for case in CASES:
        if fnmatchcase(case.name, options.only):
            count = int(case.most * options.scale)
            ms = longest_ms(case, count)
            over += ms > limit_ms
            print(f"| {case.name} | {count:,} | {ms:.1f} |", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
