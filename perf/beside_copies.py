"""Measure how long writers wait beside a backup or an archive.

    python -m perf.beside_copies [--rounds 4] [--seconds 4] [--megabytes 150] [--smoke]

A lone writer of class `fsync` (one write, a pause of 1 ms), and one of batches of 1000, on three servers with the same
records: one by itself, one with backups that follow each other, each of all files, and one with an archive. All are on
one disk.
The ways take turns in each round. Printed are medians over the rounds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perf.servers import Server, topics_server

BATCH = json.dumps({"records": [{"data": {"x": "y" * 150}}] * 1000}).encode()
ONE = b'{"records":[{"data":{"x":"0123456789"}}]}'
HEADERS = {"Content-Type": "application/json"}


class Writer:
    """One connection that writes."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def write(self, topic: str, body: bytes) -> float:
        """Seconds of one write."""
        begun = time.perf_counter()
        self._connection.request("POST", f"/v0/topics/{topic}", body, HEADERS)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status in (200, 201), answer.status
        return time.perf_counter() - begun


def lone(server: Server, seconds: float) -> tuple[float, float]:
    """p50 and p99 in ms."""
    writer, times = Writer(server), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        times.append(writer.write("lone", ONE) * 1000)
        time.sleep(0.001)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


def bulk(server: Server, seconds: float) -> float:
    """Records a second."""
    writer, count, begun = Writer(server), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        writer.write("bulk", BATCH)
        count += 1000
    return count / (time.perf_counter() - begun)


@contextmanager
def backups(server: Server, directory: Path) -> Iterator[list[float]]:
    """Backups without a pause while this lasts; the seconds of each."""
    took: list[float] = []
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            shutil.rmtree(directory, ignore_errors=True)
            begun = time.perf_counter()
            server.request("POST", "/v0/backups", {})
            while server.request("GET", "/v0/backups")["backup"]["state"] == "running":
                time.sleep(0.02)
            took.append(time.perf_counter() - begun)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield took
    finally:
        stopped.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds, options.megabytes = 1, 0.2, 1
    root = Path(tempfile.mkdtemp(prefix="copies-", dir="."))
    figures: dict[str, list[tuple[float, float, float]]] = {"by itself": [], "backups": [], "archive": []}
    lags: list[float] = []
    try:
        with ExitStack() as stack:
            settings = {
                "by itself": {},
                "backups": {"TOPICS_BACKUP_DIR": str(root / "backups")},
                "archive": {"TOPICS_ARCHIVE_DIR": str(root / "archive")},
            }
            servers = {
                name: stack.enter_context(topics_server(root / f"data-{name}", env=env))
                for name, env in settings.items()
            }
            for server in servers.values():
                writer = Writer(server)
                for number in range(options.megabytes * 6):
                    writer.write(f"filled-{number % 20}", BATCH)
                server.request("PUT", "/v0/topics/lone", {"durability": "fsync"})
                server.request("POST", "/v0/checkpoint", {})
            took: list[float] = []
            for _ in range(options.rounds):
                for name, server in servers.items():
                    with ExitStack() as beside:
                        if name == "backups":
                            took = beside.enter_context(backups(server, root / "backups"))
                        figures[name].append((*lone(server, options.seconds), bulk(server, options.seconds)))
                    if name == "archive":
                        lags.append(server.metrics()["topics_archive_lag_ms"])
            for name, rows in figures.items():
                p50, p99, rate = (statistics.median(column) for column in zip(*rows, strict=True))
                print(f"{name:9} lone p50 {p50:6.2f} ms  p99 {p99:6.2f} ms   batches {rate:10,.0f} records/s")
            print(
                f"a backup took {statistics.median(took or [0]):.2f} s; the archive lagged {max(lags):.0f} ms at most"
            )
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
