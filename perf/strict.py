"""Measure what `Prefer: handling=strict` costs a lone request, and how long calls of the Python client take.

    python -m perf.strict [--requests 2000] [--rounds 5] [--smoke]

One connection, blocking, in this process; a server of its own. Plain and strict requests are sent by
turns, so that both meet the same machine. A figure is the median of the rounds' medians and their range, in
microseconds from sending the request to the whole answer. The client's calls are strict, and include its own work.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import topics
from perf.figures import PAYLOAD, commit_id, machine, spread
from perf.servers import http_request, topics_server

ROWS = {
    "read of one record": ("/v0/topics/bench/diff", '{"from_seq":0,"limit":1}'),
    "read at the end": ("/v0/topics/bench/diff", '{"from_seq":1}'),
    "write, `disk`": ("/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'),
}


def strict(request: bytes) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\nPrefer: handling=strict\r\n\r\n", 1)


def ask(link: socket.socket, request: bytes) -> None:
    link.sendall(request)
    answer = link.recv(65536)
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), answer


def by_turns(calls: list[Callable[[], object]], options: argparse.Namespace) -> list[list[float]]:
    """Return the median time of each round, by call, in us."""
    rounds = []
    for _ in range(options.rounds):
        times: list[list[int]] = [[] for _ in calls]
        for _ in range(options.requests):
            for call, took in zip(calls, times, strict=True):
                began_ns = time.perf_counter_ns()
                call()
                took.append(time.perf_counter_ns() - began_ns)
        rounds.append([statistics.median(took) / 1000 for took in times])
    return [list(figures) for figures in zip(*rounds, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="of each kind in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.requests, options.rounds = 20, 1
    print(f"{machine()}, commit {commit_id()}, {options.rounds} rounds of {options.requests} requests of each kind")
    print("| one connection | plain, us | strict, us | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=".") as name, topics_server(Path(name) / "data") as server:
        server.request("PUT", "/v0/topics/bench", {"durability": "disk"})
        server.request("POST", "/v0/topics/bench", {"records": [{"data": 1}]})
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            for row, (path, body) in ROWS.items():
                request = http_request("POST", path, body.encode())
                of_strict = strict(request)
                for _ in range(50):
                    ask(link, request)
                plain_us, strict_us = by_turns(
                    [lambda request=request: ask(link, request), lambda request=of_strict: ask(link, request)], options
                )
                ratio = statistics.median(strict_us) / statistics.median(plain_us)
                print(f"| {row} | {spread(plain_us)} | {spread(strict_us)} | {ratio:.2f} |")
        with topics.connect(f"http://127.0.0.1:{server.port}") as log:
            calls: dict[str, Callable[[], object]] = {
                "client: `page`, one record": lambda: log.page("bench", 0, limit=1),
                "client: `append`, `disk`": lambda: log.append("bench", [{"n": 1}]),
            }
            for row, call in calls.items():
                for _ in range(50):
                    call()
                print(f"| {row} | - | {spread(by_turns([call], options)[0])} | - |")


if __name__ == "__main__":
    main()
