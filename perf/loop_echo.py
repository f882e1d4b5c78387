"""How many 64-byte messages a second does a TCP echo on the loop answer, beside uvloop?

    python -m perf.loop_echo [--rounds 5] [--seconds 2] [--connections 64] [--bytes 64] [--io uring] [--smoke]

Rounds go A B A B, the same C client on the same cores; printed are medians, spread, the ratio, and the CPU time a
message costs the server (user and system apart: the system's part is mostly TCP and the same for both).

The peer `echo` of `topics bench` answers what a workload of the server sends, and never runs on this loop.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from perf.servers import Server, free_port
from topics.bench.load.load_client import LoadClient
from topics.bench.load.load_plan import AnswerEnd, LoadGroup, LoadMessage

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Side:
    """One of the two servers, and what was measured of it."""

    name: str
    server: Server
    rates: list[float] = field(default_factory=list)
    user_us: list[float] = field(default_factory=list)
    system_us: list[float] = field(default_factory=list)

    def times(self) -> tuple[float, float]:
        """CPU seconds of the process so far: user, system."""
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / ticks, int(fields[12]) / ticks

    def run(self, connections: int, size: int, seconds: float) -> None:
        user, system = self.times()
        group = LoadGroup("echo", connections, (LoadMessage(b"x" * size),), end=AnswerEnd.BYTES, size=size)
        client = LoadClient([group], "127.0.0.1", self.server.port, seconds, warmup=seconds / 5, numbers_max=1)
        done = client.run()
        user_after, system_after = self.times()
        messages = done.groups[0].all_requests
        self.rates.append(done.groups[0].requests / done.seconds)
        self.user_us.append((user_after - user) / messages * 1e6)
        self.system_us.append((system_after - system) / messages * 1e6)

    def line(self) -> str:
        return (
            f"{self.name:8} {statistics.median(self.rates):10,.0f} messages/s"
            f"   {min(self.rates):,.0f} .. {max(self.rates):,.0f}"
            f"   CPU a message: {statistics.median(self.user_us):.2f} us user,"
            f" {statistics.median(self.system_us):.2f} us system"
        )


def start(name: str, io: str) -> Side:
    """The echo server in a process of its own, once it listens."""
    port = free_port()
    ours = ["examples.loop.tcp_echo", str(port), io]
    module = ours if name == "topics" else ["topics.bench.peers.plain_echo", str(port)]
    process = subprocess.Popen([sys.executable, "-m", *module], cwd=ROOT, stdout=subprocess.DEVNULL)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.01)
    return Side(name, Server(port, process))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--io", default="auto")
    parser.add_argument("--smoke", action="store_true", help="a run that only shows that it works")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds, options.connections = 1, 0.05, 8
    names = ["topics"]
    if importlib.util.find_spec("uvloop"):
        names.append("uvloop")
    else:
        print("uvloop is not installed (pip install '.[perf]'): measuring ours alone")
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{options.connections} connections, one message of {options.bytes} bytes in flight on each")
    sides = [start(name, options.io) for name in names]
    try:
        for _ in range(options.rounds):
            for side in sides:
                side.run(options.connections, options.bytes, options.seconds)
    finally:
        for side in sides:
            side.server.process.terminate()
            side.server.process.wait()
    for side in sides:
        print(side.line())
    if len(sides) == 2:
        ratio = statistics.median(sides[0].rates) / statistics.median(sides[1].rates)
        print(f"ratio {ratio:.2f} (goal >= 1.2)")


if __name__ == "__main__":
    main()
