"""How fast are records read over HTTP, 1000 a request, by one client process that only reads bytes?

    python -m perf.diff [--rounds 5] [--seconds 3] [--records 200000] [--smoke]

`hot` reads from the newest records in memory; `cold` with a hot tail of 1 MiB, so that nearly all comes from files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from perf.servers import Server, http_load, http_request, topics_server
from perf.writes import PAYLOAD, commit_id, spread


def fill(server: Server, topic: str, records: int) -> None:
    record = {"data": json.loads(PAYLOAD)}
    for _ in range(records // 1000):
        server.request("POST", f"/v0/topics/{topic}?return_seqs=false", {"records": [record] * 1000})


def measure(records: int, seconds: float, scratch: Path, env: dict[str, str]) -> dict[str, float]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rounds, seconds, records = options.rounds, options.seconds, options.records
    if options.smoke:
        rounds, seconds, records = 1, 0.3, 5000
    print(f"commit {commit_id()}, {rounds} rounds of {seconds} s, {records} records of {len(PAYLOAD)} bytes")
    print("| read | records/s | MB/s | p50 us a request | server cpu | client cpu |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as name:
        for label, env in (("hot", {}), ("cold", {"TOPICS_HOT_TAIL_BYTES": str(1 << 20)})):
            runs = [measure(records, seconds, Path(name), env) for _ in range(rounds)]
            megabytes = statistics.median(run["bytes_read"] / run["seconds"] / 1e6 for run in runs)
            cpu = [statistics.median(run[key] / run["seconds"] for run in runs) for key in ("server_cpu", "client_cpu")]
            print(
                f"| {label} | {spread([run['records'] for run in runs])} | {megabytes:,.0f} "
                f"| {spread([run['p50_ns'] for run in runs], 1e-3)} | {cpu[0]:.2f} | {cpu[1]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
