"""Which writes of a paced load take long, and what the loop was doing meanwhile?

    python -m perf.spikes [--rows 10000000] [--rates half,10000] [--classes disk,fsync] [--seconds 15] [--smoke]

Single writes of 91 bytes come open loop over 64 connections, at half of what a closed loop reaches and at 10,000 a
second: each is due at its time, whatever the answers do, and its latency counts from then. `--rows` records are in the
topic before. `--lone`: instead, one connection writes 200 a second beside a paced ingest of batches. Checkpoints come
every five seconds.

Every figure stands beside that of a C program without a server, which writes what is due into one file at the same
pace, and beside Redis where it is installed. Below come the causes: the server runs in perf/noted_server.py, whose
notes of passes, commits and waits are laid over each slow write; what covers the most of a write's time is its cause.
What the passes cost in CPU of the loop's thread comes last: that holds on a busy machine, too.

The workloads write-open-disk and write-open-fsync of `topics bench` have the latencies, but not their causes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perf.figures import PAYLOAD, commit_id
from perf.servers import BUILD, Server, built, http_load, http_request, redis_server, topics_server

CONNECTIONS = 64
SINGLE = http_request("POST", "/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode())
FRAME_BYTES = 160
"""About what a record of PAYLOAD takes in the log."""
REDIS_WRITE = "".join(f"${len(part)}\r\n{part}\r\n" for part in ("XADD", "bench", "*", "data", PAYLOAD))
PASS_NS = 500_000
"""Shorter passes are no cause."""
CPU_NS = 1_000_000
CHECKPOINT_EVERY_MS = 5000
LONE_RATE = 200
INGEST_RATE, INGEST_RECORDS = 300, 100
"""Batches a second beside a lone writer, and records in each."""


def batch_of(records: int) -> bytes:
    rows = ",".join([f'{{"data":{PAYLOAD}}}'] * records)
    return http_request("POST", "/v0/topics/bench", f'{{"records":[{rows}]}}'.encode())


class Causes(NamedTuple):
    """The events that may have held up writes: [begins, ends) in ns, shape (n,), and a text for each."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    labels: list[str]


def causes_of(notes: Any, stalls: NDArray[np.int64]) -> Causes:
    """All that the server's notes and the client's stalls have to say."""
    rows: list[tuple[int, int, str]] = [(int(a), int(b), "the load generator had no core") for _, a, b in stalls]
    for name in ("commits", "holds"):
        rows += [
            (int(a), int(b), str(label)) for (a, b, _), label in zip(notes[name], notes[f"{name}_labels"], strict=True)
        ]
    rows += list(long_passes(notes))
    rows.sort()
    return Causes(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        [row[2] for row in rows],
    )


def long_passes(notes: Any) -> Iterator[tuple[int, int, str]]:
    """Passes, and waits in which the thread was without a core, with what took the most of them."""
    passes: NDArray[np.int64] = notes["passes"]
    spans: NDArray[np.int64] = notes["spans"]
    labels = notes["spans_labels"]
    order = np.argsort(spans[:, 0], kind="stable")
    spans, labels = spans[order], labels[order]
    wait_begin, wait_end, cpu_begin, cpu_end, delay_begin, delay_end = passes.T
    for row in np.flatnonzero(delay_end - delay_begin > PASS_NS):
        yield int(wait_begin[row]), int(wait_end[row]), "the loop had no core when it was to go on"
    for row in np.flatnonzero(cpu_end - cpu_begin > PASS_NS):
        yield int(wait_begin[row]), int(wait_end[row]), "submitting"
    work = wait_begin[1:] - wait_end[:-1]
    for row in np.flatnonzero(work > PASS_NS):
        begin, end = int(wait_end[row]), int(wait_begin[row + 1])
        cpu = int(cpu_begin[row + 1] - cpu_end[row])
        delayed = int(delay_begin[row + 1] - delay_end[row])
        blocked = max(0, end - begin - cpu - delayed)
        of = {"": cpu, ", most of it without a core": delayed, ", most of it blocked": blocked}
        how = max(of, key=lambda name: of[name])
        at = np.searchsorted(spans[:, 0], [begin, end])
        inside = [
            (int(spans[i, 1] - spans[i, 0]) - nested(spans, i, int(at[1])), str(labels[i]))
            for i in range(int(at[0]), int(at[1]))
        ]
        label = max(inside)[1] if inside else "many small calls"
        yield begin, end, f"pass: {label}{how}"


def by_cpu(notes: Any, since: int, until: int, most: int = 12) -> list[str]:
    """A table of what took the loop's thread a millisecond of CPU or more within a pass, whatever else ran beside."""
    spans = notes["spans"]
    order = np.argsort(spans[:, 0], kind="stable")
    spans, labels = spans[order], notes["spans_labels"][order]
    counts: dict[str, list[int]] = {}
    for i in range(*np.searchsorted(spans[:, 0], [since, until])):
        own = int(spans[i, 2]) - nested(spans, i, len(spans), column=2)
        if own >= CPU_NS:
            count = counts.setdefault(str(labels[i]), [0, 0, 0])
            count[0] += 1
            count[1] += own
            count[2] = max(count[2], own)
    lines = ["| in a pass, CPU >= 1 ms | times | mean, ms | worst, ms |", "|---|---|---|---|"]
    for label, (times, total, worst) in sorted(counts.items(), key=lambda item: -item[1][2])[:most]:
        lines.append(f"| {label} | {times} | {total / times / 1e6:.1f} | {worst / 1e6:.1f} |")
    passes = notes["passes"]
    within = (passes[:-1, 1] > since) & (passes[1:, 0] < until)
    work = (passes[1:, 2] - passes[:-1, 3])[within]
    shown = ", ".join(f"{np.quantile(work, q) / 1e6:.2f}" for q in (0.5, 0.99, 0.999, 1)) if len(work) else "-"
    return [*lines, "", f"{len(work):,} passes; their CPU, ms: p50, p99, p99.9, worst {shown}"]


def nested(spans: NDArray[np.int64], outer: int, stop: int, column: int = 0) -> int:
    """ns of a span that are those of spans directly within it; column 2: of its CPU time."""
    total, upto = 0, 0
    for i in range(outer + 1, stop):
        if spans[i, 0] >= spans[outer, 1]:
            break
        if spans[i, 1] <= spans[outer, 1] and spans[i, 0] >= upto:
            total += int(spans[i, 2] if column else spans[i, 1] - spans[i, 0])
            upto = int(spans[i, 1])
    return total


def explain(samples: NDArray[np.int64], causes: Causes, most: int = 12) -> list[str]:
    """A table of causes: how many of the writes above p99 and above p99.9 they are that of, and the worst of those."""
    took = samples[:, 2] - samples[:, 0]
    p99, p999 = np.quantile(took, [0.99, 0.999])
    counts: dict[str, list[float]] = {}
    running = np.maximum.accumulate(causes.ends) if len(causes.ends) else causes.ends
    for row in np.flatnonzero(took > p99):
        due, _, done = (int(number) for number in samples[row])
        first = int(np.searchsorted(running, due))
        last = int(np.searchsorted(causes.begins, done))
        by_label: dict[str, int] = {}
        for i in range(first, last):
            overlap = min(done, int(causes.ends[i])) - max(due, int(causes.begins[i]))
            if overlap > 0:
                by_label[causes.labels[i]] = by_label.get(causes.labels[i], 0) + overlap
        label = max(by_label, key=lambda name: by_label[name]) if by_label else "nothing noted"
        count = counts.setdefault(label, [0, 0, 0])
        count[0] += 1
        count[1] += bool(took[row] > p999)
        count[2] = max(count[2], float(took[row]))
    above = max(1, int((took > p99).sum())), max(1, int((took > p999).sum()))
    lines = ["| cause | of those above p99 | above p99.9 | worst, ms |", "|---|---|---|---|"]
    for label, (slow, slowest, worst) in sorted(counts.items(), key=lambda item: (-item[1][1], -item[1][0]))[:most]:
        lines.append(f"| {label} | {slow / above[0]:.0%} | {slowest / above[1]:.0%} | {worst / 1e6:.1f} |")
    return lines


def figures(name: str, took: dict[str, float]) -> str:
    cells = [f"{took[key] / 1e6:.2f}" for key in ("p50_ns", "p99_ns", "p999_ns", "worst_ns")]
    cells.append(f"{took['server_cpu'] / took['seconds']:.2f}" if "server_cpu" in took else "-")
    return f"| {name} | {took['rate']:,.0f} | {' | '.join(cells)} |"


# --- the sides -------------------------------------------------------------------------------------------------------
@contextmanager
def noted_server(directory: Path, notes: Path) -> Iterator[Server]:
    """Checkpoints come every few seconds, so that a short load meets some."""
    env = {"TOPICS_CHECKPOINT_EVERY_MS": str(CHECKPOINT_EVERY_MS)}
    with topics_server(directory, env=env, module=("perf.noted_server", str(notes))) as server:
        yield server


def fill(server: Server, rows: int) -> None:
    """Write so many records, and then take a checkpoint, so that no later one is due for them."""
    server.request("PUT", "/v0/topics/bench", {"durability": "disk"})
    request = batch_of(1000)
    while rows > 0:
        done = http_load(server, 4, min(2.0, max(0.2, rows / 200_000)), request)
        rows -= int(done["requests"]) * 1000
    server.request("POST", "/v0/checkpoint")


def paced(server: Server, rate: float, seconds: float, samples: Path) -> dict[str, float]:
    return http_load(server, CONNECTIONS, seconds, SINGLE, rate=int(rate), samples=samples)


def lone(server: Server, seconds: float, samples: Path) -> dict[str, float]:
    """One connection beside a paced ingest."""
    ingest = threading.Thread(
        target=http_load, args=(server, 16, seconds + 1, batch_of(INGEST_RECORDS)), kwargs={"rate": INGEST_RATE}
    )
    ingest.start()
    time.sleep(0.5)  # the ingest has read its request
    took = http_load(server, 1, seconds, SINGLE, rate=LONE_RATE, samples=samples)
    ingest.join()
    return took


def bare(scratch: Path, rate: float, seconds: float, *, fsync: bool) -> dict[str, float]:
    file = scratch / "bare"
    arguments = [str(file), str(seconds), str(rate), str(FRAME_BYTES), "0" if fsync else "1000"]
    done = subprocess.run([str(built("load/paced_commits.c")), *arguments], capture_output=True, check=True)
    file.unlink()
    took: dict[str, float] = json.loads(done.stdout)
    return took


def redis(scratch: Path, rate: float, seconds: float, *, fsync: bool) -> dict[str, float]:
    with redis_server(scratch / "redis", "always" if fsync else "everysec") as server:
        request = f"*5\r\n{REDIS_WRITE}".encode()
        return http_load(server, CONNECTIONS, seconds, request, rate=int(rate), answer_lines=2)


def measure(options: argparse.Namespace, durability: str, rates: list[str], rows: int, scratch: Path) -> None:
    """One class: the table of figures, then the causes at each rate."""
    notes = scratch / "notes.npz"
    ours: dict[float, dict[str, float]] = {}
    fsync = durability == "fsync"
    with noted_server(scratch / "topics", notes) as server:
        server.request("PUT", "/v0/topics/bench", {"durability": durability})
        if rows:
            fill(server, rows)
            server.request("PUT", "/v0/topics/bench", {"durability": durability})
        peak = http_load(server, CONNECTIONS, options.seconds / 4, SINGLE)["rate"]
        if options.lone:
            rates = []
            time.sleep(options.rest)
            ours[LONE_RATE] = lone(server, options.seconds, scratch / "samples-0")
        for name in rates:
            rate = peak / 2 if name == "half" else float(name)
            time.sleep(options.rest)
            ours[rate] = paced(server, rate, options.seconds, scratch / f"samples-{len(ours)}")
    print(f"\n{durability}, {rows:,} records before, peak {peak:,.0f}/s, latencies in ms\n")
    print("| writer | writes/s | p50 | p99 | p99.9 | worst | cores of the server |\n|---|---|---|---|---|---|---|")
    for rate, took in ours.items():
        print(figures("topics", took))
        print(figures("a file and no server", bare(scratch, rate, options.seconds / 2, fsync=fsync)))
        if shutil.which("redis-server"):
            print(figures("Redis", redis(scratch, rate, options.seconds / 2, fsync=fsync)), flush=True)
    with np.load(notes) as found:
        for number, rate in enumerate(ours):
            rows_of = np.fromfile(scratch / f"samples-{number}", np.int64).reshape(-1, 3)
            samples, stalls = rows_of[rows_of[:, 0] > 0], rows_of[rows_of[:, 0] == 0]
            print(f"\nat {rate:,.0f}/s\n")
            print("\n".join(explain(samples, causes_of(found, stalls))), "\n")
            print("\n".join(by_cpu(found, int(samples[0, 0]), int(samples[-1, 2]))), flush=True)
    if options.keep:
        shutil.copy(notes, options.keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=0, help="records in the topic before")
    parser.add_argument("--rates", default="half,10000")
    parser.add_argument("--classes", default="disk,fsync")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rest", type=float, default=2, help="seconds between two loads")
    parser.add_argument("--keep", help="a path for the notes of the last server")
    parser.add_argument("--lone", action="store_true", help="one connection beside a paced ingest of batches")
    parser.add_argument("--smoke", action="store_true", help="a moment of each, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.rest, options.rates, options.rows = 0.5, 0.0, "200", 2000
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, commit {commit_id()}")
    BUILD.parent.mkdir(parents=True, exist_ok=True)
    for durability in options.classes.split(","):
        with tempfile.TemporaryDirectory(dir=".") as scratch:
            measure(options, durability, options.rates.split(","), options.rows, Path(scratch).resolve())


if __name__ == "__main__":
    main()
