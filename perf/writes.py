"""How fast are writes over HTTP beside Redis Streams on the same machine?

    python -m perf.writes [--rounds 5] [--seconds 4] [--only disk64,fsync64,lone,batch] [--smoke]

Rounds go A B A B: topics, then Redis, again and again, each on a fresh directory; printed are the medians, the
spread and the ratio. Both load generators are C programs on the same cores as the server.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perf.servers import http_load, http_request, redis_load, redis_server, topics_server

PAYLOAD = '{"user":12345678,"action":"page_view","path":"/products/shoes/42","ms":1748450000123,"x":1}'
"""One JSON object of 91 bytes."""


@dataclass(frozen=True)
class Workload:
    name: str
    question: str
    durability: str
    connections: int
    records_per_request: int
    appendfsync: str
    goal: str
    by_latency: bool = False


WORKLOADS = (
    Workload("disk64", "single writes, `disk` against everysec, 64 connections", "disk", 64, 1, "everysec", ">= 0.6"),
    Workload("fsync64", "single writes, `fsync` against always, 64 connections", "fsync", 64, 1, "always", ">= 0.6"),
    Workload("fsync256", "single writes, `fsync` against always, 256 connections", "fsync", 256, 1, "always", "-"),
    Workload("lone", "one connection, `fsync` against always, p50", "fsync", 1, 1, "always", "<= 1.3", True),
    Workload("batch", "batches of 100, 16 writers, `disk` against everysec", "disk", 16, 100, "everysec", ">= 2"),
)


def measure_topics(work: Workload, seconds: float, scratch: Path) -> dict[str, float]:
    records = ",".join([f'{{"data":{PAYLOAD}}}'] * work.records_per_request)
    request = http_request("POST", "/v0/topics/bench", f'{{"records":[{records}]}}'.encode())
    with topics_server(scratch / "topics") as server:
        server.request("PUT", "/v0/topics/bench", {"durability": work.durability})
        http_load(server, work.connections, min(1.0, seconds / 2), request)
        figures = http_load(server, work.connections, seconds, request)
    figures["records"] = figures["rate"] * work.records_per_request
    return figures


def measure_redis(work: Workload, seconds: float, scratch: Path) -> dict[str, float]:
    with redis_server(scratch / "redis", work.appendfsync) as server:
        probe_count = max(2000, 100 * work.connections * work.records_per_request)
        probe = redis_load(server, work.connections, work.records_per_request, probe_count, PAYLOAD)
        count = max(1000, int(probe["rate"] * seconds))
        figures = redis_load(server, work.connections, work.records_per_request, count, PAYLOAD)
    figures["records"] = figures["rate"]
    return figures


def ratio_of(work: Workload, ours: dict[str, float], theirs: dict[str, float]) -> float:
    return ours["p50_ns"] / theirs["p50_ns"] if work.by_latency else ours["records"] / theirs["records"]


def spread(values: list[float], scale: float = 1.0) -> str:
    return f"{statistics.median(values) * scale:,.0f} ({min(values) * scale:,.0f}-{max(values) * scale:,.0f})"


def commit_id(tree: Path | None = None) -> str:
    """The commit of a source tree, by default of the one that this runs in."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=tree, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--smoke", action="store_true", help="one short round of everything")
    options = parser.parse_args()
    rounds, seconds = (1, 0.3) if options.smoke else (options.rounds, options.seconds)
    wanted = set(filter(None, options.only.split(",")))
    print(f"machine {platform.machine()} {platform.release()}, commit {commit_id()}, {rounds} rounds of {seconds} s")
    print("| workload | topics: records/s | p50 us | p99 us | server cpu | Redis: records/s | p50 us | ratio | goal |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as name:
        for work in WORKLOADS:
            if wanted and work.name not in wanted:
                continue
            ours: list[dict[str, float]] = []
            theirs: list[dict[str, float]] = []
            sides: list[tuple[list[dict[str, float]], Callable[..., dict[str, float]]]] = [
                (ours, measure_topics),
                (theirs, measure_redis),
            ]
            for _ in range(rounds):
                for results, measure in sides:
                    results.append(measure(work, seconds, Path(name)))
            ratios = [ratio_of(work, a, b) for a, b in zip(ours, theirs, strict=True)]
            cpu = statistics.median(r["server_cpu"] / r["seconds"] for r in ours)
            print(
                f"| {work.question} | {spread([r['records'] for r in ours])} "
                f"| {spread([r['p50_ns'] for r in ours], 1e-3)} | {spread([r['p99_ns'] for r in ours], 1e-3)} "
                f"| {cpu:.2f} | {spread([r['records'] for r in theirs])} "
                f"| {spread([r['p50_ns'] for r in theirs], 1e-3)} "
                f"| **{statistics.median(ratios):.2f}** ({min(ratios):.2f}-{max(ratios):.2f}) | {work.goal} |",
                flush=True,
            )
            (Path("perf/results")).mkdir(exist_ok=True)
            Path(f"perf/results/writes-{work.name}.json").write_text(json.dumps({"topics": ours, "redis": theirs}))


if __name__ == "__main__":
    main()
