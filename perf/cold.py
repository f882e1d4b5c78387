"""Measure the space that compressed segments in the cold directory save, and what reads of them cost.

    python -m perf.cold [--reads 60] [--rounds 5] [--directory DIR] [--smoke]

The flights of examples/flights, by default settings with a cold directory that takes every sealed segment. Two logs
hold the same, one with segment_codec zstd; both were closed and opened again. Reads are pages of 1000 records from
random places, in turns A B A B: with the files in the page cache, and after they were dropped from it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import topics
from examples.flights.data import flights_in_time_order, package_rows
from perf.figures import commit_id, machine

PAGE = 1000
CODECS = ("none", "zstd")


def events(smoke: bool) -> list[tuple[str, dict[str, object]]]:
    if smoke:
        return [("EWR-IAH", {"carrier": "UA", "flight": number, "dest": "IAH"}) for number in range(30_000)]
    return [(flight.route, flight.event) for flight in flights_in_time_order(package_rows())]


def fill(root: Path, codec: str, found: list[tuple[str, dict[str, object]]]) -> None:
    with topics.open(root / "hot", **settings(root, codec)) as log:
        log.put_topic("flights")
        for at in range(0, len(found), PAGE):
            log.append("flights", [topics.NewRecord(event, tag=tag) for tag, event in found[at : at + PAGE]])
        log.checkpoint()


def settings(root: Path, codec: str) -> dict[str, object]:
    return {"cold_dir": str(root / "cold"), "hot_retain_segments": 0, "segment_codec": codec}


def size_of(root: Path) -> tuple[int, int]:
    """Bytes of the data files in the cold directory, and what they take on the disk."""
    files = [path.stat() for path in (root / "cold").rglob("*.data")]
    return sum(file.st_size for file in files), sum(file.st_blocks * 512 for file in files)


def drop(root: Path) -> None:
    for path in (root / "cold").rglob("*.data"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    reads, rounds = (3, 1) if options.smoke else (options.reads, options.rounds)
    print(f"{machine()}, commit {commit_id()}")
    top = Path(tempfile.mkdtemp(prefix="cold-", dir=options.directory))
    try:
        found = events(options.smoke)
        sizes = {}
        for codec in CODECS:
            fill(top / codec, codec, found)
            for _ in range(20):  # the copies follow the answer of a checkpoint
                with topics.open(top / codec / "hot", **settings(top / codec, codec)) as log:
                    log.append("more", [{}])
                    log.checkpoint()
                if not list((top / codec / "hot" / "topics").rglob("*.idx")):
                    break
            sizes[codec] = size_of(top / codec)
        plain, packed = sizes["none"], sizes["zstd"]
        print(f"{len(found)} records; cold files {plain[0]} bytes, zstd {packed[0]}: {packed[0] / plain[0]:.3f}")
        print(f"on the disk {plain[1]} bytes, zstd {packed[1]}: {packed[1] / plain[1]:.3f}")
        last = len(found) - 5 * PAGE
        chance = random.Random(1)
        for where in ("page cache", "disk"):
            took: dict[str, list[float]] = {codec: [] for codec in CODECS}
            logs = {codec: topics.open(top / codec / "hot", **settings(top / codec, codec)) for codec in CODECS}
            for _ in range(rounds):
                cursors = [chance.randrange(last) for _ in range(reads)]
                for codec in CODECS:
                    if where == "disk":
                        drop(top / codec)
                    for cursor in cursors:
                        begun = time.perf_counter()
                        page = logs[codec].page("flights", cursor, limit=PAGE)
                        took[codec].append(time.perf_counter() - begun)
                        assert len(page.records) == PAGE
            for log in logs.values():
                log.close()
            one, two = (statistics.median(took[codec]) * 1e3 for codec in CODECS)
            print(f"page of {PAGE} from the {where}: {one:.2f} ms, zstd {two:.2f} ms: {two / one:.2f}")
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
