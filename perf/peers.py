"""One table of everything we compare ourselves with: Redis Streams, NATS JetStream, SQLite, the bare disk, ourselves.

    python -m perf.peers [--rounds 5] [--seconds 3] [--only writes,latency,reads,topics,embedded,sustained] [--smoke]

Rounds alternate between the sides, each on a fresh directory; shown are medians, the range in brackets. A peer that is
not here is left out with a sentence. `sustained` lasts 40 times `--seconds`, and then as long as a stop takes.

Many of its rows are workloads of `topics bench` by now (write-lone, write-64, write-batch, many-topics, read-pages,
embedded-append, embedded-batch). It stays for what they lack: one table that perf.before_after can make of two source
trees, Redis under redis-benchmark, `append_soon`, columns and dicts of the library, and `sustained`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import topics
from perf.figures import PAYLOAD, commit_id, machine
from perf.servers import (
    CLIENT_SHARES,
    Server,
    http_load,
    http_request,
    redis_load,
    redis_server,
    start_topics,
    topics_server,
)
from topics.bench.peers.nats_peer import NatsJetStream
from topics.bench.workload import LoadSpec, RunSpec, TopicSpec, Workload

Figure = Callable[[Path], float]
"""Measures once in a scratch directory."""
BODY = f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode()
SINGLE = http_request("POST", "/v0/topics/bench", BODY)
TEXT = json.dumps({"id": 12345678, "text": "x" * 70}, separators=(",", ":")).encode()
VALUE = json.loads(TEXT)


class Table:
    """Rows printed as they are measured."""

    def __init__(self, rounds: int, scratch: Path) -> None:
        self.rounds = rounds
        self.scratch = scratch

    def row(
        self, question: str, ours: Figure, peer: str, theirs: Figure | None, goal: str, *, less: bool = False
    ) -> None:
        """Ours against one peer, in turns; `less` is better for latencies. theirs None: only our figure."""
        del CLIENT_SHARES[:]
        mine: list[float] = []
        other: list[float] = []
        for _ in range(self.rounds):
            mine.append(ours(self.scratch))
            if theirs is not None:
                other.append(theirs(self.scratch))
        self._print(question, mine, peer, other, goal, less=less)

    def own_rows(self, measure: Callable[[Path], list[float]], *rows: tuple[str, str, bool]) -> None:
        """Several figures of the same runs: of each its question, goal, and whether less is better."""
        del CLIENT_SHARES[:]
        runs = [measure(self.scratch) for _ in range(self.rounds)]
        for (question, goal, less), figures in zip(rows, zip(*runs, strict=True), strict=True):
            self._print(question, list(figures), "-", [], goal, less=less)

    def _print(self, question: str, mine: list[float], peer: str, other: list[float], goal: str, *, less: bool) -> None:
        digits = 1 if statistics.median(mine) < 100 else 0
        ratio = "-"
        if other:
            ratios = sorted(a / b if b else float("nan") for a, b in zip(mine, other, strict=True))
            ratio = f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        shown = [spread(mine, digits), spread(other, digits) if other else "-"]
        better = " (less is better)" if less else ""
        client = f"{statistics.median(CLIENT_SHARES):.2f}" if CLIENT_SHARES else "-"
        print(f"| {question}{better} | {shown[0]} | {peer} | {shown[1]} | {ratio} | {goal} | {client} |", flush=True)


def spread(values: list[float], digits: int) -> str:
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


# --- writes over the network -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WriteRow:
    name: str
    question: str
    durability: str
    connections: int
    records_per_request: int
    appendfsync: str
    goal: str
    by_latency: bool = False


WORKLOADS = (
    WriteRow("disk64", "single writes, `disk` against everysec, 64 connections", "disk", 64, 1, "everysec", ">= 0.6"),
    WriteRow("fsync64", "single writes, `fsync` against always, 64 connections", "fsync", 64, 1, "always", ">= 0.6"),
    WriteRow("fsync256", "single writes, `fsync` against always, 256 connections", "fsync", 256, 1, "always", "-"),
    WriteRow("lone", "one connection, `fsync` against always, p50", "fsync", 1, 1, "always", "<= 1.3", True),
    WriteRow("batch", "batches of 100, 16 writers, `disk` against everysec", "disk", 16, 100, "everysec", ">= 2"),
)


def measure_topics(work: WriteRow, seconds: float, scratch: Path) -> dict[str, float]:
    records = ",".join([f'{{"data":{PAYLOAD}}}'] * work.records_per_request)
    request = http_request("POST", "/v0/topics/bench", f'{{"records":[{records}]}}'.encode())
    with topics_server(scratch / "topics") as server:
        server.request("PUT", "/v0/topics/bench", {"durability": work.durability})
        http_load(server, work.connections, min(1.0, seconds / 2), request)
        figures = http_load(server, work.connections, seconds, request)
    figures["records"] = figures["rate"] * work.records_per_request
    return figures


def measure_redis(work: WriteRow, seconds: float, scratch: Path) -> dict[str, float]:
    with redis_server(scratch / "redis", work.appendfsync) as server:
        probe_count = max(2000, 100 * work.connections * work.records_per_request)
        probe = redis_load(server, work.connections, work.records_per_request, probe_count, PAYLOAD)
        count = max(1000, int(probe["rate"] * seconds))
        figures = redis_load(server, work.connections, work.records_per_request, count, PAYLOAD)
    figures["records"] = figures["rate"]
    return figures


def nats_rate(durability: str, connections: int, seconds: float, scratch: Path) -> float:
    """Publications a second of JetStream, as `topics bench` measures them."""
    workload = Workload(
        "nats",
        "JetStream",
        loads=(LoadSpec("write", connections=connections, bytes=len(PAYLOAD)),),
        topic=TopicSpec(durability=durability),
        run=RunSpec(seconds, min(1.0, seconds / 2), 1),
    )
    directory = scratch / "nats"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    outcome = NatsJetStream().measure(workload.cases()[0], directory, lambda phase, count: None)
    shutil.rmtree(directory)
    if outcome.failed:
        raise RuntimeError(f"NATS: {[check for check in outcome.checks if not check.ok]}")
    return outcome.loads[0].rate


def writes(table: Table, seconds: float) -> None:
    goals = {"disk64": ">= 1.3", "fsync64": ">= 1.2", "fsync256": ">= 1.3", "lone": "<= 1.0", "batch": ">= 4"}
    nats = not NatsJetStream().missing()
    if not nats:
        print(f"NATS is left out: {NatsJetStream().missing()}", flush=True)
    redis = shutil.which("redis-server") is not None and shutil.which("redis-benchmark") is not None
    if not redis:
        print("Redis is left out: apt-get install redis-server", flush=True)
    for work in WORKLOADS:
        key, scale = ("p50_ns", 1e-3) if work.by_latency else ("records", 1.0)
        ours = lambda scratch, work=work, key=key, scale=scale: measure_topics(work, seconds, scratch)[key] * scale  # noqa: E731
        if redis:
            theirs = lambda scratch, work=work, key=key, scale=scale: measure_redis(work, seconds, scratch)[key] * scale  # noqa: E731
            unit = "p50 us" if work.by_latency else "records/s"
            name = f"Redis Streams {work.appendfsync}"
            table.row(
                f"{work.name}: {work.question}, {unit}", ours, name, theirs, goals[work.name], less=work.by_latency
            )
        if nats and not work.by_latency and work.records_per_request == 1:
            sync, goal = ("always", ">= 6") if work.durability == "fsync" else ("2m", "-")
            table.row(
                f"{work.name} beside NATS, records/s",
                ours,
                f"NATS JetStream, sync {sync}",
                partial(nats_rate, work.durability, work.connections, seconds),
                goal,
            )


# --- latency ---------------------------------------------------------------------------------------------------------
def lone_p50(seconds: float, scratch: Path) -> float:
    with topics_server(scratch / "topics") as server:
        server.request("PUT", "/v0/topics/bench", {"durability": "fsync"})
        http_load(server, 1, seconds / 2, SINGLE)
        return http_load(server, 1, seconds, SINGLE)["p50_ns"] / 1000


def raw_commit_p50(seconds: float, scratch: Path) -> float:
    """pwrite and fdatasync of 4 KiB into a file that is there, and an echo of the same request by the same loop."""
    path = scratch / "raw"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    size = 16 << 20
    os.pwrite(fd, bytes(size), 0)
    os.fsync(fd)
    took = []
    stop = time.monotonic() + seconds
    at = 0
    while time.monotonic() < stop:
        started = time.perf_counter_ns()
        os.pwrite(fd, b"q" * 4096, at)
        os.fdatasync(fd)
        took.append(time.perf_counter_ns() - started)
        at = (at + 4096) % size
    os.close(fd)
    path.unlink()
    with topics_server(scratch / "topics") as server:
        request = http_request("GET", "/v0/health", b"")
        echo = http_load(server, 1, seconds, request)["p50_ns"]
    return (statistics.median(took) + echo) / 1000


def tail(durability: str, peak: float, seconds: float, scratch: Path) -> float:
    """p99 / p50 at half the peak rate, latencies counted from when a request was due."""
    with topics_server(scratch / "topics") as server:
        server.request("PUT", "/v0/topics/bench", {"durability": durability})
        http_load(server, 64, seconds / 2, SINGLE)
        figures = http_load(server, 64, seconds, SINGLE, rate=int(peak / 2))
    return figures["p99_ns"] / figures["p50_ns"]


def latency(table: Table, seconds: float) -> None:
    table.row(
        "lone fsync write, p50 us",
        partial(lone_p50, seconds),
        "pwrite + fdatasync, and a request that writes nothing",
        partial(raw_commit_p50, seconds),
        "<= 1.5",
        less=True,
    )
    for work in WORKLOADS[:2]:
        peak = measure_topics(work, seconds, table.scratch)["rate"]
        question = f"p99 / p50 at {peak / 2:,.0f} single writes/s ({work.durability}), half the peak, open loop"
        table.row(question, partial(tail, work.durability, peak, seconds), "-", None, "<= 4", less=True)


# --- reads, topics ---------------------------------------------------------------------------------------------------
def fill(server: Server, topic: str, records: int) -> None:
    record = {"data": json.loads(PAYLOAD)}
    for _ in range(records // 1000):
        server.request("POST", f"/v0/topics/{topic}?return_seqs=false", {"records": [record] * 1000})


def measure_diff(records: int, seconds: float, scratch: Path, env: dict[str, str]) -> dict[str, float]:
    with topics_server(scratch / "topics", env=env) as server:
        fill(server, "bench", records)
        starts = range(0, records - 1000, max(1000, records // 8))
        requests = [
            http_request("POST", "/v0/topics/bench/diff", f'{{"from_seq":{start},"limit":1000}}'.encode())
            for start in starts
        ]
        http_load(server, 4, seconds / 4, *requests)
        figures = http_load(server, 4, seconds, *requests)
    figures["records"] = figures["rate"] * 1000
    return figures


def reads(table: Table, seconds: float) -> None:
    def ours(scratch: Path) -> float:
        return measure_diff(200_000 if seconds >= 1 else 5000, seconds, scratch, {})["records"]

    table.row("diff, 1000 records a request, records/s", ours, "-", None, ">= 3,000,000")


def many_topics(count: int, seconds: float, scratch: Path) -> float:
    """Single writes of class disk by 256 connections to `count` topics by turns."""
    request = http_request("POST", "/v0/topics/t########", BODY)
    with topics_server(scratch / "topics", env={"TOPICS_MAX_TOPICS": str(count + 1)}) as server:
        # once round, so that all are there
        made = 0.0
        while made < count + 256:
            made += http_load(server, 256, seconds, request, topics=count, first_topic=int(made))["requests"]
        return http_load(server, 256, seconds, request, topics=count)["rate"]


def topic_counts(table: Table, seconds: float) -> None:
    most = 100_000 if seconds >= 1 else 2000
    for count, goal in ((1000, ">= 0.67"), (most, ">= 0.5")):
        ours, base = partial(many_topics, count, seconds), partial(many_topics, 10, seconds)
        table.row(f"{count:,} topics by turns, 256 connections, writes/s", ours, "10 topics", base, goal)


# --- embedded --------------------------------------------------------------------------------------------------------
def embedded_many(what: str, count: int, scratch: Path) -> float:
    """Records a second of `append_many(1000)` (JSON texts) or `append` of 1000 values."""
    with fresh_log(scratch, "disk") as log:
        texts, values = [TEXT] * 1000, [VALUE] * 1000
        started = time.perf_counter()
        for _ in range(count):
            if what == "texts":
                log.append_many("bench", texts)
            else:
                log.append("bench", values)
        return 1000 * count / (time.perf_counter() - started)


def fresh_log(scratch: Path, durability: str, **settings: Any) -> topics.Log:
    shutil.rmtree(scratch / "log", ignore_errors=True)
    log = topics.open(str(scratch / "log"), **settings)
    log.put_topic("bench", durability=durability)
    return log


def embedded_singles(durability: str, count: int, scratch: Path) -> float:
    with fresh_log(scratch, durability) as log:
        started = time.perf_counter()
        for _ in range(count):
            log.append("bench", [VALUE])
        return count / (time.perf_counter() - started)


def embedded_futures(count: int, scratch: Path) -> float:
    """One append a call, results asked for by the 10,000: no caller waits for a single one."""
    with fresh_log(scratch, "disk") as log:
        started = time.perf_counter()
        for start in range(0, count, 10_000):
            results = [log.append_soon("bench", VALUE) for _ in range(min(10_000, count - start))]
            for soon in results:
                soon.result()
        return count / (time.perf_counter() - started)


def embedded_columns(seconds: float, scratch: Path) -> float:
    """Records a second of `columns`, 50,000 at a time, from memory."""
    with fresh_log(scratch, "disk") as log:
        for _ in range(50):
            log.append_many("bench", [TEXT] * 1000)
        records, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds / 2:
            records += len(log.columns("bench", 0, limit=50_000).seq)
        return records / (time.perf_counter() - started)


def sqlite(synchronous: str, scratch: Path) -> sqlite3.Connection:
    path = scratch / "peer.db"
    for name in scratch.glob("peer.db*"):
        name.unlink()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={synchronous}")
    db.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, data BLOB)")
    return db


def sqlite_many(count: int, scratch: Path) -> float:
    db = sqlite("OFF", scratch)
    rows = [(TEXT,)] * 1000
    started = time.perf_counter()
    for _ in range(count):
        db.execute("BEGIN")
        db.executemany("INSERT INTO log (data) VALUES (?)", rows)
        db.execute("COMMIT")
    rate = 1000 * count / (time.perf_counter() - started)
    db.close()
    return rate


def sqlite_singles(synchronous: str, count: int, scratch: Path) -> float:
    db = sqlite(synchronous, scratch)
    started = time.perf_counter()
    for _ in range(count):
        db.execute("INSERT INTO log (data) VALUES (?)", (TEXT,))
    rate = count / (time.perf_counter() - started)
    db.close()
    return rate


def embedded(table: Table, seconds: float) -> None:
    many, singles = (500, 10_000) if seconds >= 1 else (5, 100)
    off = "SQLite WAL, OFF"
    table.row(
        "append_many(1000) of 100 bytes, disk, JSON texts, records/s",
        partial(embedded_many, "texts", many),
        f"{off}, executemany",
        partial(sqlite_many, many),
        ">= 4; >= 4,000,000",
    )
    table.row(
        "append of 1000 dicts, disk, records/s",
        partial(embedded_many, "values", many // 2),
        f"{off}, executemany",
        partial(sqlite_many, many),
        ">= 1,000,000",
    )
    table.row(
        "append, one thread, disk, calls/s",
        partial(embedded_singles, "disk", singles),
        off,
        partial(sqlite_singles, "OFF", singles),
        ">= 0.5",
    )
    table.row(
        "append, one thread, fsync, calls/s",
        partial(embedded_singles, "fsync", singles // 2),
        "SQLite WAL, FULL",
        partial(sqlite_singles, "FULL", singles // 2),
        ">= 1.0",
    )
    table.row(
        "append_soon, results by the 10,000, disk, records/s",
        partial(embedded_futures, 20 * singles),
        "-",
        None,
        ">= 400,000",
    )
    table.row(
        "columns, 50,000 at a time, from memory, records/s",
        partial(embedded_columns, seconds),
        "-",
        None,
        ">= 5,000,000",
    )


# --- sustained -------------------------------------------------------------------------------------------------------
def sustain(seconds: float, env: dict[str, str], scratch: Path) -> list[float]:
    """Batches of 100 by 16 writers without a pause, and then a clean stop.

    Returns records/s and MB/s of segments over the last half of the time, the log's largest size in MB, and the
    seconds of the stop.
    """
    records = ",".join([f'{{"data":{PAYLOAD}}}'] * 100)
    request = http_request("POST", "/v0/topics/bench?return_seqs=false", f'{{"records":[{records}]}}'.encode())
    directory = scratch / "topics"
    directory.mkdir()
    server = start_topics(directory, env=env)
    samples: list[tuple[float, dict[str, float]]] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(seconds / 240):
            samples.append((time.monotonic(), server.metrics()))

    try:
        server.request("PUT", "/v0/topics/bench", {"durability": "disk"})
        sampler = threading.Thread(target=sample)
        sampler.start()
        http_load(server, 16, seconds / 2, request, may_refuse=True)
        figures = http_load(server, 16, seconds / 2, request, may_refuse=True)
        ended.set()
        sampler.join()
        began = time.monotonic()
        server.process.terminate()
        server.process.wait(600)
        stop = time.monotonic() - began
    finally:
        ended.set()
        server.process.kill()
        server.process.wait()
        shutil.rmtree(directory)
    held = max(values["topics_wal_held_bytes"] for _, values in samples)
    # Refusals by the bound of the log do not count.
    return [
        figures["requests"] / figures["seconds"] * 100,
        _copied_a_second(samples[len(samples) // 2 :]) / 1e6,
        held / 1e6,
        stop,
    ]


def _copied_a_second(samples: list[tuple[float, dict[str, float]]]) -> float:
    """Bytes into segments, from the end of a checkpoint to that of the last one; 0: fewer than two ended."""
    copied = [(when, values["topics_checkpoint_copied_bytes_total"]) for when, values in samples]
    ends = [after for before, after in pairwise(copied) if after[1] != before[1]]
    if len(ends) < 2:
        return 0.0
    return (ends[-1][1] - ends[0][1]) / (ends[-1][0] - ends[0][0])


def sustained(table: Table, seconds: float) -> None:
    smallest = {"TOPICS_MAX_LOG_BYTES": str(8 << 20), "TOPICS_CHECKPOINT_WAL_BYTES": str(1 << 20)}
    lasts, env = (40 * seconds, {}) if seconds >= 1 else (4.0, smallest)
    what = f"batches of 100, 16 writers, `disk`, {lasts:.0f} s"
    table.own_rows(
        partial(sustain, lasts, env),
        (f"sustained: {what}, records/s of the last half", "-", False),
        ("sustained: into segments, MB/s of the last half", ">= 66", False),
        ("sustained: the log at its largest, MB", "<= 1,100", True),
        ("sustained: the stop behind it, s", "<= 5", True),
    )


PARTS: dict[str, Callable[[Table, float], None]] = {
    "writes": writes,
    "latency": latency,
    "reads": reads,
    "topics": topic_counts,
    "embedded": embedded,
    "sustained": sustained,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--smoke", action="store_true", help="one short round of everything")
    options = parser.parse_args()
    rounds, seconds = (1, 0.2) if options.smoke else (options.rounds, options.seconds)
    wanted = set(filter(None, options.only.split(","))) or set(PARTS)
    print(f"machine {machine()}, commit {commit_id()}, {rounds} rounds of {seconds} s\n")
    print("| workload | topics | peer | peer's | ratio | goal | our client's cores |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as name:
        table = Table(rounds, Path(name))
        for part, run in PARTS.items():
            if part in wanted:
                run(table, seconds)


if __name__ == "__main__":
    main()
