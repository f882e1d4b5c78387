"""Measure what ten destinations cost their source: its ack's p50 with and without routers, in turns.

    python -m perf.routers [--destinations 10] [--seconds 3] [--rounds 5] [--smoke]

Goal: p50 of a write's answer within 10 % of no routers, for one connection and for 64, on `disk` and `fsync`.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from perf.servers import Server, http_load, http_request, topics_server

RECORD = b'{"records":[{"data":{"user":"u1","action":"click","at":1700000000000,"page":"/a/b/c"},"tag":"t"}]}'
GOAL = 1.1
SETTLE_SECONDS = 30.0


def measure(server: Server, topic: str, connections: int, seconds: float) -> dict[str, float]:
    request = http_request("POST", f"/v0/topics/{topic}?return_seqs=false", RECORD)
    return http_load(server, connections, seconds, request)


def all_forwarded(server: Server, destinations: int) -> float:
    """Waits until every destination has what the source has; returns the seconds that took."""
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_SECONDS:
        heads = {row["topic"]: row["head_seq"] for row in server.request("GET", "/v0/topics?page_size=1000")["topics"]}
        if all(heads[f"dest{number}"] == heads["source"] for number in range(destinations)):
            return time.monotonic() - began
        time.sleep(0.01)
    raise SystemExit(f"copies are missing after {SETTLE_SECONDS} s: {heads}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destinations", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="a run that only shows that it works")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds = 1, 0.1
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, {options.destinations} destinations, {options.rounds} rounds"
    )
    print(
        "| class | connections | alone p50 us | routed p50 us | ratio | rate ratio | CPU a write | behind by | goal |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for durability in ("disk", "fsync"):
        for connections in (1, 64):
            compare(durability, connections, options)


def compare(durability: str, connections: int, options: argparse.Namespace) -> None:
    alone: list[dict[str, float]] = []
    routed: list[dict[str, float]] = []
    behind = 0.0
    with tempfile.TemporaryDirectory() as scratch, topics_server(Path(scratch) / "data") as server:
        for topic in ("alone", "source", *(f"dest{number}" for number in range(options.destinations))):
            server.request("PUT", f"/v0/topics/{topic}", {"durability": durability})
        for number in range(options.destinations):
            body = {"source": "source", "dest": f"dest{number}"}
            server.request("PUT", f"/v0/routers/r{number}", body)
        for topic in ("alone", "source"):
            measure(server, topic, connections, min(0.5, options.seconds))
        for _ in range(options.rounds):
            alone.append(measure(server, "alone", connections, options.seconds))
            routed.append(measure(server, "source", connections, options.seconds))
            behind = max(behind, all_forwarded(server, options.destinations))
    before, after = (statistics.median(run["p50_ns"] for run in runs) / 1000 for runs in (alone, routed))
    rates = statistics.median(run["rate"] for run in routed) / statistics.median(run["rate"] for run in alone)
    cpu = [sum(run["server_cpu"] for run in runs) / sum(run["requests"] for run in runs) for runs in (alone, routed)]
    # A short run may cost less CPU than the clock of processes can show.
    ratio = f"{cpu[1] / cpu[0]:.2f}" if cpu[0] else "-"
    print(
        f"| `{durability}` | {connections} | {before:.0f} | {after:.0f} | {after / before:.2f} | {rates:.2f} "
        f"| {ratio} | {behind:.2f} s | <= {GOAL} |"
    )


if __name__ == "__main__":
    main()
