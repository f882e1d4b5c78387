"""How fast do workers get through a queue, beside single XADDs of Redis Streams on the same machine?

    python -m perf.queues [--rounds 3] [--seconds 4] [--depths 1000,...] [--smoke]

Fifty workers claim 8 jobs and ack them, class `disk`. First they empty a queue, in turns with redis-benchmark (XADD,
everysec, 64 clients): jobs acked a second for each XADD. Then queues of 10^3 to 10^6 jobs are kept at their depth (a
worker writes as many jobs as it acked): the rate must not depend on the depth.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from perf.servers import Server, built, redis_load, redis_server, topics_server
from perf.writes import PAYLOAD, commit_id, spread

WORKERS, MAX = 50, 8
JOB = {"user": 12345678, "action": "resize", "n": 1}


def fill(server: Server, jobs: int) -> None:
    server.request("PUT", "/v0/topics/jobs", {"type": "queue"})
    while jobs > 0:
        part = min(jobs, 10_000)
        server.request("POST", "/v0/topics/jobs?return_seqs=false", {"records": [{"data": JOB}] * part})
        jobs -= part


def work(server: Server, seconds: float, *, refill: bool) -> dict[str, float]:
    """The figures of queue_load.c, and the server's CPU seconds."""
    before = server.cpu_seconds()
    command = [built("load/queue_load.c"), "127.0.0.1", server.port, "jobs", WORKERS, MAX, seconds, int(refill)]
    done = subprocess.run([str(word) for word in command], capture_output=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    figures["server_cpu"] = server.cpu_seconds() - before
    return figures


def drain(scratch: Path, seconds: float, jobs: int) -> dict[str, float]:
    with topics_server(scratch / "topics") as server:
        fill(server, jobs)
        return work(server, seconds, refill=False)


def keep_depth(scratch: Path, seconds: float, jobs: int) -> dict[str, float]:
    with topics_server(scratch / "topics") as server:
        fill(server, jobs)
        work(server, min(0.5, seconds / 4), refill=True)
        return work(server, seconds, refill=True)


def xadds(scratch: Path, seconds: float) -> float:
    with redis_server(scratch / "redis", "everysec") as server:
        probe = redis_load(server, 64, 1, 6400, PAYLOAD)
        return redis_load(server, 64, 1, max(1000, int(probe["rate"] * seconds)), PAYLOAD)["rate"]


def row(name: str, results: list[dict[str, float]], rest: str) -> None:
    cost = statistics.median(r["server_cpu"] / r["jobs"] * 1e6 for r in results)
    shares = statistics.median(r["fewest"] / r["most"] for r in results)
    print(
        f"| {name} | {spread([r['rate'] for r in results])} | {spread([r['claim_p50_ns'] for r in results], 1e-3)} "
        f"| {spread([r['ack_p50_ns'] for r in results], 1e-3)} | {cost:.1f} | {shares:.2f} | {rest} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--depths", default="1000,10000,100000,1000000")
    parser.add_argument("--smoke", action="store_true", help="one short round")
    options = parser.parse_args()
    rounds, seconds, jobs = (1, 0.3, 5000) if options.smoke else (options.rounds, options.seconds, 400_000)
    depths = [1000] if options.smoke else [int(depth) for depth in options.depths.split(",")]
    print(f"machine {platform.machine()} {platform.release()}, commit {commit_id()}, {rounds} rounds of {seconds} s")
    print("| queue | jobs/s | claim p50 us | ack p50 us | server cpu us/job | fewest/most of a worker | beside |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as name:
        scratch = Path(name)
        ours: list[dict[str, float]] = []
        ratios: list[float] = []
        for _ in range(rounds):
            ours.append(drain(scratch, seconds, jobs))
            if shutil.which("redis-server") is not None:
                ratios.append(ours[-1]["rate"] / xadds(scratch, seconds))
        told = f"**{statistics.median(ratios):.2f}** of XADD/s (goal 0.35)" if ratios else "no redis-server here"
        row("emptied by 50 workers", ours, told)
        base = 0.0
        for depth in depths:
            results = [keep_depth(scratch, seconds, depth) for _ in range(rounds)]
            rate = statistics.median(r["rate"] for r in results)
            base = base or rate
            row(f"kept at {depth:,} jobs, writes included", results, f"{rate / base:.2f} of the first depth")


if __name__ == "__main__":
    main()
