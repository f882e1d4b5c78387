"""Measure the longest passes of a server's loop with very many topics, by what is asked of it.

    python -m perf.many_topics [--topics 1000000] [--directory DIR] [--smoke]

The server runs in perf/noted_server.py. Each topic is made by a write of one record, one at a time over 512
connections. Then it stops, starts, stops, starts again, is killed after a fifth more, starts and stops. Printed for
each phase: how long it took, the memory of the process at its end, the CPU time of the loop's thread, of its longest
pass and of the tenth longest, the number of passes above 10 and above 20 ms, and what the longest did; at the end
the same of every pass above 20 ms.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perf.figures import commit_id
from perf.servers import Server, start_topics

CONNECTIONS = 512
PAGES = 200
FOLLOWED = 256
LONG_MS = 20
"""CPU time from which a pass is named, with what it did."""


class Phase(NamedTuple):
    name: str
    begin_ns: int
    end_ns: int
    resident_mib: float


def create(server: Server, first: int, count: int) -> None:
    """Write one record to each of so many topics, which makes them."""
    body = b'{"records":[{"data":1}]}'
    head = b"POST /v0/topics/t.%09d HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    tail = b"%d\r\n\r\n%b" % (len(body), body)
    left = iter(range(first, first + count))
    selector = selectors.DefaultSelector()

    def send(link: socket.socket) -> None:
        number = next(left, None)
        if number is None:
            selector.unregister(link)
            link.close()
        else:
            link.sendall(head % number + tail)

    for _ in range(CONNECTIONS):
        link = socket.create_connection(("127.0.0.1", server.port))
        selector.register(link, selectors.EVENT_READ)
        send(link)
    while selector.get_map():
        for key, _events in selector.select():
            link = key.fileobj
            assert isinstance(link, socket.socket)
            if b'"created":true' in link.recv(1 << 20):
                send(link)


def pages(server: Server, query: str, most: int) -> int:
    """Read pages of a list; return the topics that they had."""
    found, cursor = 0, ""
    for _ in range(most):
        answer = server.request("GET", f"/v0/topics?page_size=1000&{query}{cursor}")
        found += len(answer["topics"])
        if "next_cursor" not in answer:
            break
        cursor = f"&cursor={answer['next_cursor']}"
    return found


def watch(server: Server, first: int) -> None:
    """Open a stream of a prefix that many topics have, and make another one in it."""
    prefix = f"t.{first:09d}"[:8]
    wid = server.request("POST", "/v0/watch", {"prefixes": {prefix: {"from_seq": 0}}})["wid"]
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        link.sendall(b"GET /v0/watch/%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % wid.encode())
        link.settimeout(5)
        seen = 0
        while seen < FOLLOWED // 2:
            seen += link.recv(1 << 20).count(b"event: ")
    server.request("POST", "/v0/wait", {"prefixes": ["absent."], "topics": {}, "wait_ms": 200})


def scrape(server: Server) -> None:
    for _ in range(3):
        server.metrics()


class Passes:
    """The passes of a phase by the CPU time that they took, and what they did."""

    def __init__(self, phase: Phase, notes: dict[str, np.ndarray]) -> None:
        passes = notes["passes"]
        begins, ends = passes[:-1, 1], passes[1:, 0]
        within = (ends >= phase.begin_ns) & (begins <= phase.end_ns)
        ms = ((passes[1:, 2] - passes[:-1, 3]) / 1e6)[within]
        order = np.argsort(-ms)
        self.phase = phase
        self.ms = ms[order]
        self._begins, self._ends = begins[within][order], ends[within][order]
        self._spans, self._labels = notes["spans"], notes["spans_labels"]

    def what(self, number: int, most: int) -> str:
        """Return the longest spans of a pass, and the time that no span has; those within others are spans, too."""
        spans = self._spans
        inside = np.flatnonzero((spans[:, 0] >= self._begins[number]) & (spans[:, 1] <= self._ends[number]))
        upto, rest = 0, self.ms[number]
        for row in inside[np.lexsort((-spans[inside, 1], spans[inside, 0]))]:
            if spans[row, 0] >= upto:
                upto, rest = spans[row, 1], rest - spans[row, 2] / 1e6
        longest = inside[np.argsort(-spans[inside, 2])][:most]
        named = [f"{self._labels[row]} {spans[row, 2] / 1e6:.1f}" for row in longest]
        return "; ".join([*named, f"in no span {rest:.1f}"]).replace("|", "/")

    def row(self) -> str:
        phase, ms = self.phase, self.ms
        if not len(ms):
            return f"| {phase.name} | - | - | - | - | - | - | - | no pass |"
        seconds = (phase.end_ns - phase.begin_ns) / 1e9
        tenth = ms[min(9, len(ms) - 1)]
        return (
            f"| {phase.name} | {seconds:.1f} | {phase.resident_mib:.0f} | {ms.sum() / 1e3:.1f} | {ms[0]:.1f} "
            f"| {tenth:.1f} | {(ms > 10).sum()} | {(ms > LONG_MS).sum()} | {self.what(0, 4)} |"
        )

    def long(self) -> list[str]:
        """Return a line for each pass that is too long, with when it was and what it did."""
        at = (self._begins - self.phase.begin_ns) / 1e9
        numbers = range(int((self.ms > LONG_MS).sum()))
        return [f"{self.phase.name}, {self.ms[n]:.1f} ms after {at[n]:.2f} s: {self.what(n, 8)}" for n in numbers]


def serve(directory: Path, notes: Path, count: int, life: str) -> list[Phase]:
    """Run a server once; return its phases.

    life: "first", "again", "killed" (of which there are no notes) or "after a kill".
    """
    phases = []
    began = time.monotonic_ns()

    def end(name: str) -> None:
        nonlocal began
        now = time.monotonic_ns()
        resident = server.rss_bytes() if server.process.returncode is None else 0
        phases.append(Phase(name, began, now, resident / (1 << 20)))
        began = now

    env = {"TOPICS_MAX_TOPICS": "0", "TOPICS_CHECKPOINT_EVERY_MS": str(1 << 40), "TOPICS_MAX_LOG_BYTES": "0"}
    server = start_topics(directory, env=env, ready_seconds=600, module=("perf.noted_server", str(notes)))
    end({"first": "start, empty", "after a kill": "start after a kill"}.get(life, "start"))
    if life == "killed":
        create(server, 2 * count, count // 5)
        server.process.kill()
        server.process.wait()
        return []
    if life == "first":
        create(server, 0, count)
        end("create, one record each")
    if life != "after a kill":
        pages(server, "", PAGES)
        end(f"list, {PAGES} pages by next_cursor")
        pages(server, f"prefix=t.{count // 2:09d}"[:14], 2)
        end("list by prefix")
        watch(server, count // 2)
        end("watch and wait by prefix")
        scrape(server)
        end("metrics, three scrapes")
    if life == "first":
        while server.request("POST", "/v0/checkpoint", {"wait_ms": 55_000})["done"] is not True:
            pass
        end("checkpoint")
        create(server, count, count // 10)
        end("create a tenth more")
    found = server.metrics()
    for name in ("topics_checkpoints_total", "topics_checkpoint_failures_total"):
        print(f"{life}: {name} {found[name]:.0f}", flush=True)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait()
    end("stop")
    return phases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    count = 2000 if options.smoke else options.topics
    print(f"commit {commit_id()}, {count:,} topics, pid {os.getpid()}")
    print("| phase | s | MiB | CPU, s | longest, ms | tenth | above 10 | above 20 | what the longest did, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        found_long: list[str] = []
        for life in ("first", "again", "killed", "after a kill"):
            notes = Path(name, "notes.npz")
            phases = serve(Path(name, "topics"), notes, count, life)
            if phases:
                with np.load(notes) as found:
                    arrays = dict(found)
                each = [Passes(phase, arrays) for phase in phases]
                for one in each:
                    print(one.row(), flush=True)
                found_long += [line for one in each for line in one.long()]
        print(f"passes above {LONG_MS} ms: {len(found_long)}", *found_long, sep="\n")
        for line in Path(name, "topics.log").read_text().splitlines():
            if " INFO " not in line:
                print(line)


if __name__ == "__main__":
    main()
