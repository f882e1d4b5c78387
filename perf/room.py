"""Measure how large a room may be: participants on WebSockets who send a packet every 20 ms.

    python -m perf.room [--participants 25,50,100] [--interval-ms 20] [--seconds 5] [--smoke]

Open loop: packets leave by the clock, whatever the server does. The load generator (C, one thread) shares the cores
with the server; both are shown, so that the slow one can be seen. "alike": no participant leaves its own packets
out, so that all subscriptions are equal and share each rendering; "filtered": each leaves its own node out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from perf.servers import built, topics_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", default="25,50,100")
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--smoke", action="store_true", help="a run that only shows that it works")
    options = parser.parse_args()
    counts = [int(word) for word in options.participants.split(",")]
    if options.smoke:
        counts, options.seconds = [3], 0.2
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, class memory")
    print(f"a packet every {options.interval_ms:g} ms each")
    print("participants             asked/s   reached/s   p50 ms   p99 ms  worst ms  unsent  server CPU  client CPU")
    for count in counts:
        for filtered in (0, 1):
            run = measure(count, options.interval_ms, options.seconds, filtered)
            print(
                f"{count:12} {'filtered' if filtered else 'alike':8} {run['asked']:11,.0f} {run['reached']:11,.0f}"
                f" {run['p50_ns'] / 1e6:8.1f} {run['p99_ns'] / 1e6:8.1f} {run['worst_ns'] / 1e6:9.1f} {run['unsent']:7}"
                f" {run['server_share']:11.0%} {run['client_share']:11.0%}"
            )


def measure(count: int, interval_ms: float, seconds: float, filtered: int) -> dict[str, Any]:
    """One room on a fresh server; the client counts from its second second on."""
    with tempfile.TemporaryDirectory() as directory, topics_server(Path(directory) / "data") as server:
        server.request("PUT", "/v0/topics/room", {"durability": "memory", "cap_records": 100_000})
        before = server.cpu_seconds()
        command = [str(built("load/room_load.c")), "127.0.0.1", str(server.port), str(seconds), str(count)]
        done = subprocess.run(
            [*command, str(interval_ms), str(filtered)], capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise SystemExit(f"the load generator failed: {done.stderr}")
        run: dict[str, Any] = json.loads(done.stdout)
        run["server_share"] = (server.cpu_seconds() - before) / (seconds + 1)
        run["client_share"] = run["client_cpu"] / (seconds + 1)
        return run


if __name__ == "__main__":
    main()
