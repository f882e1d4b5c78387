"""Measure what an embedded write-ahead log is used for, beside walrus and the bare disk.

    python -m perf.embedded_wal [--rounds 5] [--seconds 2] [--only PARTS] [--smoke]

PARTS, by commas: bytes, flush, nowait, beside, bound, sizes. Rounds alternate between the sides, each on a fresh
directory; shown are medians, the range in brackets, and the ratio of ours to the peer's, round by round. walrus is left
out with a sentence where cargo is not here.

Plain appends beside SQLite, LMDB and walrus are workloads of `topics bench` (embedded-append, embedded-batch), which
have none of these parts; named readers are in perf.named_readers, compressed segments in perf.cold.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import topics
from perf.figures import commit_id
from perf.peers import Table, fresh_log, machine
from topics.bench.peers.walrus_peer import SETTINGS, walrus_figures, walrus_program

BATCH = 1000
PAYLOAD = bytes(range(156, 256))
"""100 bytes that are no text."""
TEXTS = [
    f'{{"id":{1_000_000 + n},"user":"user-{n:05d}","action":"view","text":"{"x" * 38}"}}'.encode() for n in range(BATCH)
]
"""JSON objects of about 100 bytes."""
BATCH_OF_BYTES = [PAYLOAD] * BATCH
HOT_TOPIC = "bench"


def log_without_checkpoints(scratch: Path, durability: str = "disk", **settings: Any) -> topics.Log:
    """A log of a fresh directory, which makes no checkpoint by size while it is measured."""
    return fresh_log(scratch, durability, **{"checkpoint_wal_bytes": 1 << 40, "max_log_bytes": 0, **settings})


def rate(step: Callable[[], int], seconds: float) -> float:
    """Records a second of steps that return how many each has done."""
    step()
    done, begun = 0, time.perf_counter()
    while (lasted := time.perf_counter() - begun) < seconds:
        done += step()
    return done / lasted


def walrus_rate(workload: str, size: int, count: int, seconds: float, scratch: Path) -> float:
    """Records a second of one workload of topics/bench/peers/walrus."""
    records, took = walrus_figures(workload, size, count, seconds, scratch)
    return records / took


def quantiles_us(calls: list[float]) -> tuple[float, float]:
    """The p50 and p99 of durations in seconds, as microseconds."""
    cuts = statistics.quantiles(calls, n=100)
    return cuts[49] * 1e6, cuts[98] * 1e6


def timed(call: Callable[[], object], seconds: float) -> list[float]:
    """Durations of one call after another, in seconds; 100 at least."""
    durations: list[float] = []
    until = time.perf_counter() + seconds
    while len(durations) < 100 or time.perf_counter() < until:
        begun = time.perf_counter()
        call()
        durations.append(time.perf_counter() - begun)
    return durations


# --- bytes -----------------------------------------------------------------------------------------------------------
def append_bytes(seconds: float, scratch: Path, durability: str = "disk") -> float:
    with log_without_checkpoints(scratch, durability) as log:
        return rate(lambda: len(BATCH_OF_BYTES) * bool(log.append(HOT_TOPIC, BATCH_OF_BYTES)), seconds)


def append_texts(seconds: float, scratch: Path) -> float:
    with log_without_checkpoints(scratch) as log:
        return rate(lambda: len(TEXTS) * bool(log.append_many(HOT_TOPIC, TEXTS)), seconds)


def append_large(count: int, size: int, scratch: Path) -> float:
    """Milliseconds of an append of one large record, the median."""
    payload = os.urandom(size)
    with log_without_checkpoints(scratch, max_record_bytes=2 * size) as log:
        log.append(HOT_TOPIC, [payload])
        calls = []
        for _ in range(count):
            begun = time.perf_counter()
            log.append(HOT_TOPIC, [payload])
            calls.append(time.perf_counter() - begun)
        return statistics.median(calls) * 1e3


def write_large(count: int, size: int, scratch: Path) -> float:
    """Milliseconds of a plain write of as much at the end of a file, the median."""
    payload = os.urandom(size)
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        calls = []
        for at in range(count + 1):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), payload, at * size)
            calls.append(time.perf_counter() - begun)
        return statistics.median(calls[1:]) * 1e3


def read_columns(seconds: float, scratch: Path) -> float:
    with log_without_checkpoints(scratch) as log:
        for _ in range(100):
            log.append(HOT_TOPIC, BATCH_OF_BYTES)
        return rate(lambda: len(log.columns(HOT_TOPIC, 0, limit=50_000).seq), seconds)


def append_one(durability: str, seconds: float, scratch: Path) -> float:
    with log_without_checkpoints(scratch, durability) as log:
        one = [PAYLOAD]
        return rate(lambda: bool(log.append(HOT_TOPIC, one)), seconds)


def payload_rows(table: Table, seconds: float) -> None:
    table.row(
        "append of 1000 x 100 B bytes, disk, records/s",
        partial(append_bytes, seconds),
        "append_many of JSON objects of 100 bytes",
        partial(append_texts, seconds),
        ">= 1.5",
    )
    large = (8, 10_000_000) if seconds >= 1 else (1, 100_000)
    table.row(
        "one record of 10 MB, disk, ms",
        partial(append_large, *large),
        "a plain write of 10 MB",
        partial(write_large, *large),
        "<= 2",
        less=True,
    )
    walrus = walrus_program()
    if walrus is None:
        print("walrus is left out: cargo is not here, or the crate walrus-rust does not build")
    rows: tuple[tuple[str, Callable[[Path], float], str, Callable[[Path], float], str], ...] = (
        (
            "append of 1000 x 100 B bytes, disk, records/s",
            partial(append_bytes, seconds),
            "walrus, batches of 1000, each synced by the crate",
            partial(walrus_rate, "batch", 100, BATCH, seconds),
            ">= 6",
        ),
        (
            "append of 1000 x 100 B bytes, fsync, records/s",
            partial(append_bytes, seconds, durability="fsync"),
            "the same",
            partial(walrus_rate, "batch", 100, BATCH, seconds),
            "-",
        ),
        (
            "columns of bytes, 100 B, from memory, records/s",
            partial(read_columns, seconds),
            "walrus, batch read",
            partial(walrus_rate, "read", 100, BATCH, seconds),
            ">= 3",
        ),
        (
            "append of one, fsync, calls/s",
            partial(append_one, "fsync", seconds),
            "walrus, a sync each",
            partial(walrus_rate, "one", 100, 1, seconds),
            ">= 1",
        ),
    )
    for question, ours, peer, theirs, goal in rows:
        table.row(question, ours, peer, theirs if walrus else None, goal)


# --- flush -----------------------------------------------------------------------------------------------------------
def lone_flush(seconds: float, scratch: Path) -> float:
    """Microseconds of a flush after one append, the median."""
    with log_without_checkpoints(scratch, sync_every_ms=None) as log:
        one, calls = [PAYLOAD], []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            log.append(HOT_TOPIC, one)
            begun = time.perf_counter()
            log.flush(HOT_TOPIC)
            calls.append(time.perf_counter() - begun)
        return quantiles_us(calls)[0]


def bare_sync(seconds: float, scratch: Path) -> float:
    """Microseconds of fdatasync after a write of one block of a file that has its blocks, the median."""
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        fd, calls = file.fileno(), []
        os.pwrite(fd, bytes(32 << 20), 0)
        os.fsync(fd)
        until, at = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            os.pwrite(fd, bytes(4096), at % (32 << 20))
            at += 4096
            begun = time.perf_counter()
            os.fdatasync(fd)
            calls.append(time.perf_counter() - begun)
        return quantiles_us(calls)[0]


def flushes_a_sync(threads: int, seconds: float, scratch: Path) -> float:
    with log_without_checkpoints(scratch, sync_every_ms=None) as log:
        counts = [0] * threads
        until = time.perf_counter() + seconds
        syncs = log.stats().syncs

        def flush(thread: int) -> None:
            while time.perf_counter() < until:
                log.append(HOT_TOPIC, [PAYLOAD])
                log.flush(HOT_TOPIC)
                counts[thread] += 1

        workers = [threading.Thread(target=flush, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / max(1, log.stats().syncs - syncs)


def flush_rows(table: Table, seconds: float) -> None:
    table.row(
        "lone flush after one append, us",
        partial(lone_flush, seconds),
        "a bare fdatasync",
        partial(bare_sync, seconds),
        "<= 1.3",
        less=True,
    )
    table.row("flushes a sync, 64 threads", partial(flushes_a_sync, 64, seconds), "-", None, ">= 20")


# --- append_nowait ---------------------------------------------------------------------------------------------------
NOWAIT_CALLS = 100_000
PROGRESS_CALLS = 100_000


def worst_of(call: str, count: int, scratch: Path) -> float:
    """The longest of `count` calls in ms, beside syncs, rotations and checkpoints; a refused one counts, too."""
    busy = {"sync_every_ms": 50, "wal_file_bytes": 8 << 20, "checkpoint_wal_bytes": 32 << 20, "max_log_bytes": 1 << 30}
    with log_without_checkpoints(scratch, **busy) as log:
        one, worst = [PAYLOAD], 0.0
        append = getattr(log, call)
        gc.collect()
        gc.freeze()  # what the program has loaded: Python's collector would walk it in the midst of a call
        for at in range(count):
            if at and at % PROGRESS_CALLS == 0:
                print(f"{call}: {at:,} of {count:,}, the worst so far {worst * 1e3:.1f} ms", file=sys.stderr)
            begun = time.perf_counter()
            try:
                append(HOT_TOPIC, one)
            except topics.WouldBlockError:
                worst = max(worst, time.perf_counter() - begun)
                time.sleep(0.001)
                continue
            worst = max(worst, time.perf_counter() - begun)
        return worst * 1e3


def nowait_rows(table: Table, seconds: float, calls: int = NOWAIT_CALLS) -> None:
    count = calls if seconds >= 1 else 1000
    table.row(
        f"append_nowait, the worst of {count:,}, ms",
        partial(worst_of, "append_nowait", count),
        f"append, the worst of {count // 2:,}",
        partial(worst_of, "append", count // 2),
        "<= 5; <= 0.1",
        less=True,
    )


# --- readers beside the writer ---------------------------------------------------------------------------------------
def append_beside(reading: str, seconds: float, scratch: Path) -> list[float]:
    """Return p50 and p99 (us) of an append beside a thread that reads in a loop, and both in relation to without."""
    with log_without_checkpoints(scratch) as log:
        for _ in range(400):
            log.append(HOT_TOPIC, BATCH_OF_BYTES)
        one = [PAYLOAD]
        alone = quantiles_us(timed(lambda: log.append(HOT_TOPIC, one), seconds))
        ended = threading.Event()

        def read() -> None:
            at = 0
            while not ended.is_set():
                page: Any = (
                    log.page(HOT_TOPIC, at, limit=1000)
                    if reading == "page"
                    else log.columns(HOT_TOPIC, at, limit=50_000)
                )
                at = page.next_from_seq if page.next_from_seq < 350_000 else 0

        reader = threading.Thread(target=read)
        reader.start()
        beside = quantiles_us(timed(lambda: log.append(HOT_TOPIC, one), seconds))
        ended.set()
        reader.join()
        return [*beside, beside[0] / alone[0], beside[1] / alone[1]]


def beside_rows(table: Table, seconds: float) -> None:
    for reading in ("page", "columns"):
        what = f"append of one, disk, beside a reader in a loop by {reading}"
        table.own_rows(
            partial(append_beside, reading, seconds),
            (f"{what}, p50 us", "-", True),
            (f"{what}, p99 us", "-", True),
            (f"{what}: p50, times alone", "<= 2", True),
            (f"{what}: p99, times alone", "<= 4", True),
        )


# --- the bound of the log --------------------------------------------------------------------------------------------
WRITER = """
import sys, time, topics
log = topics.open(sys.argv[1], max_log_bytes=int(sys.argv[2]), checkpoint_wal_bytes=int(sys.argv[2]) // 4)
batch = [bytes(100)] * 1000
print("ready", flush=True)
while True:
    try:
        log.append("t", batch, timeout=10)
    except topics.WouldBlockError:
        time.sleep(0.001)
"""
"""A writer at full speed, until it is killed; arguments: directory, max_log_bytes."""
QUIET_WRITER = """
import os, signal, sys, topics
log = topics.open(sys.argv[1], max_log_bytes=0, checkpoint_wal_bytes=1 << 40)
batch = [bytes(100)] * 1000
for _ in range(int(sys.argv[2]) // len(batch)):
    log.append("t", batch)
log.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Writes a log of so many records without a segment, syncs it, and is killed at rest; arguments: directory, records."""
OPENER = """
import os, sys, time, topics
begun = time.perf_counter()
log = topics.open(sys.argv[1])
print(time.perf_counter() - begun, log.stats().recovery_frames, flush=True)
os._exit(0)
"""
"""Opens a directory, says how long it took and how many frames of the log it read, and ends without closing it: its
log stays as it is.
"""


def log_bytes(path: Path) -> int:
    """Bytes on the disk of the log's files."""
    return sum(file.stat().st_blocks * 512 for file in path.glob("wal/*/wal-*.log") if file.exists())


def opened(directory: str) -> tuple[float, int]:
    """Seconds of an open, and frames of the log that it read."""
    command = [sys.executable, "-c", OPENER, directory]
    seconds, frames = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()
    return float(seconds), int(frames)


def bounded_log(seconds: float, bound: int, scratch: Path) -> list[float]:
    """The log at its largest, as a share of bound and a file; the time of the open after kill -9, in seconds, in
    relation to the open of a log of as many records, and so bytes, whose writer was killed at rest, without segments,
    and in relation to another open of the same log and segments.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as name, tempfile.TemporaryDirectory(dir=scratch) as quiet:
        path = Path(name)
        command = [sys.executable, "-c", WRITER, name, str(bound)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            largest, until = 0, time.perf_counter() + seconds
            while time.perf_counter() < until:
                largest = max(largest, log_bytes(path))
                time.sleep(0.01)
            writer.kill()
        first, frames = opened(name)
        again, _ = opened(name)
        subprocess.run([sys.executable, "-c", QUIET_WRITER, quiet, str(frames)], check=False)
        peer, peer_frames = opened(quiet)
        print(
            f"frames of the log: {frames:,} after kill -9, {peer_frames:,} of the one killed at rest", file=sys.stderr
        )
        return [largest / (bound + (64 << 20)), first, peer, first / peer, first / again]


def bound_rows(table: Table, seconds: float) -> None:
    lasts, bound = (30 * seconds, 256 << 20) if seconds >= 1 else (1.0, 8 << 20)
    table.own_rows(
        partial(bounded_log, lasts, bound),
        (
            f"log at its largest, a writer at full speed for {lasts:.0f} s, as a share of max_log_bytes and a file",
            "<= 1",
            True,
        ),
        ("open after kill -9, s", "-", True),
        ("open of a log of as many bytes, killed at rest, no segments, s", "-", True),
        ("the first, times the second", "<= 1.5", True),
        ("the first, times another open of that log and its segments", "-", True),
    )


# --- sizes and cadences ----------------------------------------------------------------------------------------------
SIZES = (64 << 10, 1 << 20, 16 << 20, 64 << 20, 1 << 30)
CADENCES = (0, 1, 10, 100, 1000, None)


SINGLES = 10
"""Timed appends of one between two batches, which fill the segments."""


def size_rows(table: Table, seconds: float) -> None:
    """Append of one record between batches by segment size and cadence of syncs: p50 and p99 in us, the segments that
    were sealed and the checkpoints made meanwhile, and records/s of the batches. All cells are measured in each round.
    The log looks once a second whether a checkpoint is due: a shorter span has none, and seals nothing.
    """
    cells = list(product(SIZES, CADENCES))
    rows = [
        (f"segments of {size >> 10:,} KiB, sync every {cadence} ms: {what}", "-", less)
        for size, cadence in cells
        for what, less in (
            ("append p50, us", True),
            ("append p99, us", True),
            ("segments sealed while these were timed", False),
            ("checkpoints", False),
            ("batches, records/s", False),
        )
    ]
    table.own_rows(lambda scratch: [figure for cell in cells for figure in _of_size(*cell, seconds, scratch)], *rows)


def _of_size(size: int, cadence: int | None, seconds: float, scratch: Path) -> list[float]:
    settings = {
        "segment_max_bytes": size,
        "segment_max_events": 1_000_000,
        "wal_file_bytes": min(max(size, 1 << 20), 64 << 20),
        "checkpoint_wal_bytes": 8 << 20,
        "max_log_bytes": 1 << 30,
        "sync_every_ms": cadence,
    }
    with log_without_checkpoints(scratch, **settings) as log:
        one: list[bytes] = [PAYLOAD]
        calls: list[float] = []
        batches: list[float] = []
        before, until = log.stats(), time.perf_counter() + seconds
        while len(calls) < 100 or time.perf_counter() < until:
            for records, durations in ((BATCH_OF_BYTES, batches), *[(one, calls)] * SINGLES):
                begun = time.perf_counter()
                log.append(HOT_TOPIC, records)
                durations.append(time.perf_counter() - begun)
        after = log.stats()
        done = [after.seals - before.seals, after.checkpoints - before.checkpoints]
        return [*quantiles_us(calls), *done, BATCH * len(batches) / sum(batches)]


PARTS: dict[str, Callable[[Table, float], None]] = {
    "bytes": payload_rows,
    "flush": flush_rows,
    "nowait": nowait_rows,
    "beside": beside_rows,
    "bound": bound_rows,
    "sizes": size_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--calls", type=int, default=NOWAIT_CALLS, help="of append_nowait in a round")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to measure; default: the current one")
    parser.add_argument("--smoke", action="store_true", help="one short round of everything")
    options = parser.parse_args()
    rounds, seconds = (1, 0.1) if options.smoke else (options.rounds, options.seconds)
    print(f"{machine()}, commit {commit_id()}; {rounds} rounds, median and range. walrus: {SETTINGS}")
    print("\n| workload | topics | peer | peer's | ratio | goal | cores of our client |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.directory or Path.cwd()) as name:
        parts = {**PARTS, "nowait": partial(nowait_rows, calls=options.calls)}
        for part in options.only.split(","):
            parts[part](Table(rounds, Path(name)), seconds)


if __name__ == "__main__":
    main()
