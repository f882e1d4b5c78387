"""Named readers beside pages of the same records, and beside appends of one.

    python -m perf.named_readers [--rounds 9] [--directory DIR] [--smoke]

Records of 100 bytes of JSON, read by the library from one topic, each kind of read from the same place. The kinds take
turns within a round; the figures are medians over rounds of the wall-clock time of a call, and ratios of them.
`commit_every` is 100 for at-least-once. A page of 1000 of class `fsync` therefore has a sync of its own each time;
`by 10,000` is the same with a commit every ten pages. No workload of `topics bench` has named readers: its clients are
connections without a lease, and no peer has what would be compared.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import topics
from perf.figures import commit_id, machine
from topics import LogReader

RECORDS = 60_000
TEXT = b'"%b"' % (b"x" * 98)
VALUE = "x" * 98


def timed(call: Callable[[], object], count: int) -> float:
    """Return the time of one call in us."""
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count * 1e6


class Paging:
    """Pages of a topic one after another."""

    def __init__(self, log: topics.Log, topic: str) -> None:
        self.log = log
        self.topic = topic
        self.at = 0

    def read(self, limit: int) -> None:
        page = self.log.page(self.topic, self.at, limit=limit)
        self.at = page.next_from_seq


def measure(log: topics.Log, durability: str, rounds: int, calls: int) -> dict[str, float]:
    """Return the medians in us, by kind."""
    log.put_topic(durability, durability=durability)
    log.put_topic("appends", durability=durability)
    while log.state(durability).head_seq < RECORDS:
        log.append_many(durability, [TEXT] * 10_000)
    paging = Paging(log, durability)
    readers: dict[str, LogReader] = {
        "at-least-once": log.reader(durability, "least", commit_every=100),
        "by 10,000": log.reader(durability, "seldom", commit_every=10_000),
        "at-most-once": log.reader(durability, "most", delivery="at-most-once"),
    }
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for limit, count in ((1, calls), (1000, max(2, calls // 10))):
            start = number * calls % 1000
            paging.at = start
            found.setdefault(f"page({limit})", []).append(timed(lambda limit=limit: paging.read(limit), count))
            for name, reader in readers.items():
                reader.seek(start)
                took = timed(lambda reader=reader, limit=limit: reader.read(limit=limit), count)
                found.setdefault(f"{name}({limit})", []).append(took)
        found.setdefault("append", []).append(timed(lambda: log.append("appends", [VALUE]), calls))
    for reader in readers.values():
        reader.close()
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rounds, calls = (1, 20) if options.smoke else (options.rounds, options.calls)
    print(f"{machine()}, commit {commit_id()}; us a call, and ratios")
    for durability in ("disk", "fsync"):
        path = Path(tempfile.mkdtemp(dir=options.directory))
        try:
            with topics.open(path, checkpoint_wal_bytes=1 << 40) as log:
                took = measure(log, durability, rounds, calls)
        finally:
            shutil.rmtree(path)
        one, thousand, append = took["page(1)"], took["page(1000)"], took["append"]
        print(f"\n{durability}: page(1) {one:.0f}, page(1000) {thousand:.0f}, append of one {append:.0f}")
        for name in ("at-least-once", "by 10,000", "at-most-once"):
            first, second = took[f"{name}(1)"], took[f"{name}(1000)"]
            beside = f", {first / (1.2 * one + 1.2 * append):.2f} of 1.2 page + 1.2 append"
            print(
                f"  {name}: read(1) {first:.0f} = {first / one:.2f} page"
                f"{beside if name == 'at-most-once' else ''}; "
                f"read(1000) {second:.0f}: {thousand / second:.2f} of the pages a second"
            )


if __name__ == "__main__":
    main()
