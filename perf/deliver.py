"""How long does a write take to reach 1, 10, 100 and 1000 watchers, and what does a watcher cost?

    python -m perf.deliver [--over sse,ws] [--watchers 1,10,100,1000] [--seconds 3] [--rounds 3] [--smoke]

Load generators in C on the same cores. In each round, in turns: round trip and messages a second of a uvloop echo
(the yardstick of latency and of deliveries a second); a loop of bare sends in C to the same watchers (the yardstick of
CPU per watcher); the server. CPU per extra watcher is a line's slope: between the least and the most watchers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from perf.servers import BUILD, Server, built, free_port, http_request, topics_server

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "room"
RECORD = {"records": [{"data": {"from": "p1", "text": "x" * 64}}]}
WRITE = http_request("POST", f"/v0/topics/{TOPIC}?return_seqs=false", json.dumps(RECORD).encode())
GOALS = {1: 20, 10: 30, 100: 70, 1000: 400}
"""p50 of a delivery in round trips of the echo."""
TIMES_BARE = 1.5
"""CPU of an extra watcher, in bare sends."""

Figures = dict[str, float]


def load(server: Server, watchers: list[bytes], seconds: float, writers: int = 1) -> Figures:
    """Runs the client: each of `watchers` is what one sends first. With the server's CPU seconds."""
    files = [BUILD.parent / "deliver-write.bin", BUILD.parent / "deliver-watchers.bin"]
    program = built("load/deliver_load.c")
    files[0].write_bytes(WRITE)
    files[1].write_bytes(b"".join(struct.pack("<I", len(each)) + each for each in watchers))
    before = server.cpu_seconds()
    command = [str(program), "127.0.0.1", str(server.port), str(seconds), str(writers), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the load generator failed: {done.stderr}")
    figures: Figures = json.loads(done.stdout)
    figures["server_cpu"] = server.cpu_seconds() - before
    return figures


def sse_watchers(server: Server, count: int) -> list[bytes]:
    """A session each, as different people would have."""
    requests = []
    for _ in range(count):
        body = {"topics": {TOPIC: {"tail": True}}, "heartbeat_ms": 60_000}
        path = server.request("POST", "/v0/watch", body)["stream_url"]
        requests.append(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
    return requests


def ws_watchers(_server: Server, count: int) -> list[bytes]:
    """Handshake and subscription in one."""
    handshake = (
        b"GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    text = json.dumps({"op": "subscribe", "topic": TOPIC, "tail": True}).encode()
    frame = struct.pack("!BB", 0x81, 0x80 | len(text)) + bytes(4) + text  # masked with zeros
    return [handshake + frame] * count


def bare_watchers(_server: Server, count: int) -> list[bytes]:
    return [b"GET"] * count


MAKERS: dict[str, Callable[[Server, int], list[bytes]]] = {"sse": sse_watchers, "ws": ws_watchers}


def started(*command: str) -> Server:
    """A server that prints a line when it listens; its port is put in place of PORT."""
    port = free_port()
    arguments = [str(port) if word == "PORT" else word for word in command]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return Server(port, process)


def echo_figures(echo: Server, seconds: float) -> Figures:
    """Round trip of one connection, and messages a second over 64, of 64 bytes."""
    client = str(built("echo_client.c"))
    rates = []
    for connections in ("1", "64"):
        command = [client, "127.0.0.1", str(echo.port), connections, "64", str(seconds)]
        rates.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {"round_trip_ns": 1e9 / rates[0], "rate": rates[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--over", default="sse,ws")
    parser.add_argument("--watchers", default="1,10,100,1000")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="a run that only shows that it works")
    options = parser.parse_args()
    counts = [int(word) for word in options.watchers.split(",")]
    if options.smoke:
        options.rounds, options.seconds, counts = 1, 0.1, [1, 5]
    if not importlib.util.find_spec("uvloop"):
        raise SystemExit("uvloop is missing: pip install '.[perf]'")
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, class memory")
    for protocol in options.over.split(","):
        measure(protocol, counts, options.rounds, options.seconds)


def measure(protocol: str, counts: list[int], rounds: int, seconds: float) -> None:
    """One protocol: prints a table."""
    echoes: list[Figures] = []
    runs: dict[int, list[Figures]] = {count: [] for count in counts}
    bare_runs: dict[int, list[Figures]] = {count: [] for count in counts}
    flat_out: list[Figures] = []
    bytes_each = 300
    for _ in range(rounds):
        echo = started(sys.executable, "-m", "perf.compare.uvloop_echo", "PORT")
        echoes.append(echo_figures(echo, seconds / 2))
        stop(echo)
        with tempfile.TemporaryDirectory() as directory, topics_server(Path(directory) / "data") as server:
            server.request("PUT", f"/v0/topics/{TOPIC}", {"durability": "memory", "cap_records": 1000})
            server.request("POST", f"/v0/topics/{TOPIC}", RECORD)
            for count in counts:
                runs[count].append(load(server, MAKERS[protocol](server, count), seconds))
            flat_out.append(load(server, MAKERS[protocol](server, counts[-1]), seconds, writers=8))
        last = runs[counts[-1]][-1]
        bytes_each = round(last["bytes_read"] / max(1, last["deliveries"]))
        bare = started(str(built("load/bare_sends.c")), "PORT", str(bytes_each))
        for count in counts:
            bare_runs[count].append(load(bare, bare_watchers(bare, count), seconds / 2))
        stop(bare)
    trip = statistics.median(run["round_trip_ns"] for run in echoes)
    echo_rate = statistics.median(run["rate"] for run in echoes)
    print(
        f"\n{protocol}: {bytes_each} bytes a delivery; uvloop echo: {trip / 1000:.1f} us, {echo_rate:,.0f} messages/s"
    )
    print("watchers   p50 us    p99 us   p50/echo  goal   p99/p50   deliveries/s   server us a delivery")
    for count in counts:
        p50, p99, rate = (statistics.median(run[key] for run in runs[count]) for key in ("p50_ns", "p99_ns", "rate"))
        each = statistics.median(run["server_cpu"] / run["deliveries"] * 1e6 for run in runs[count])
        goal = GOALS.get(count)
        print(
            f"{count:8} {p50 / 1000:8.0f} {p99 / 1000:9.0f} {p50 / trip:10.1f} {goal or '-':>5} {p99 / p50:9.1f}"
            f" {rate:14,.0f} {each:12.2f}"
        )
    flat = statistics.median(run["rate"] for run in flat_out)
    print(
        f"{counts[-1]} watchers, 8 writers: {flat:,.0f} deliveries/s, {flat / echo_rate:.2f} of the echo's (goal >= 1)"
    )
    ours, theirs = (statistics.median(slope(runs_of, n) for n in range(rounds)) for runs_of in (runs, bare_runs))
    print(
        f"an extra watcher: {ours:.2f} us of CPU a write; a bare send: {theirs:.2f} us;"
        f" {ours / max(theirs, 0.01):.2f} times (goal <= {TIMES_BARE})"
    )


def slope(runs: dict[int, list[Figures]], number: int) -> float:
    """CPU microseconds a write that each watcher adds, between the least and the most of them."""
    counts = sorted(runs)
    low, high = ((run["server_cpu"] / run["writes"]) for run in (runs[counts[0]][number], runs[counts[-1]][number]))
    return (high - low) / (counts[-1] - counts[0]) * 1e6


def stop(server: Server) -> None:
    server.process.terminate()
    server.process.wait()


if __name__ == "__main__":
    main()
