"""Many clients that one write wakes, each of which leaves out names of its own: no two share a read.

Those of a queue get jobs of their own instead, ten each where others have more names.

    python -m tests.long.limits.waiting_clients [--clients 800] [--names 999] [--only KIND]

Printed: the CPU time of the loop's thread in the longest pass of a real server, by the kind of the clients. The exit
code is 1 when a pass is longer than 20 ms (TOPICS_LIMITS_MS).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.contract.world import websocket_client
from tests.contract.world.world import Connection, World
from tests.long.limits.__main__ import LimitsWorld
from tests.long.limits.case_sender import ANSWER_MS
from tests.ws.frame_client import TEXT, frame

TOPIC = "awaited"
_RUNS = 2
_JOBS = 10
"""Most jobs of a client of a queue: one write has those of all."""
SETTINGS = {
    "max_watch_sessions": 0,
    "max_watch_sessions_per_key": 0,
    "max_sse_connections_per_key": 0,
    "max_batch_records": 10_000,
    "max_body_bytes": 1 << 20,
}


def _event_stream(world: World, nodes: list[str]) -> Connection:
    link = world.connect()
    wid = link.request("POST", "/v0/watch", {"topics": {TOPIC: {"tail": True}}, "node": nodes}).json["wid"]
    link.start("GET", f"/v0/watch/{wid}", headers={"Accept": "text/event-stream"})
    assert link.head(ANSWER_MS).status == 200
    return link


def _websocket(world: World, nodes: list[str]) -> Connection:
    link = world.connect().start("GET", "/v0/ws", headers=websocket_client.HEADERS)
    assert link.head(ANSWER_MS).status == 101
    command = {"op": "subscribe", "topic": TOPIC, "tail": True, "node": nodes}
    return link.send(frame(TEXT, json.dumps(command).encode(), mask=bytes(4)))


def _long_poll(world: World, nodes: list[str]) -> Connection:
    body = {"cursor": 0, "wait_ms": 30_000, "node": nodes}
    return world.connect().start("POST", f"/v0/topics/{TOPIC}/diff", body)


def _jobs_stream(world: World, nodes: list[str]) -> Connection:
    link = world.connect()
    path = f"/v0/topics/{TOPIC}/work?node={nodes[0]}&max={len(nodes[:_JOBS])}"
    link.start("GET", path, headers={"Accept": "text/event-stream"})
    assert link.head(ANSWER_MS).status == 200
    return link


def _claim(world: World, nodes: list[str]) -> Connection:
    body = {"node": nodes[0], "max": len(nodes[:_JOBS]), "wait_ms": 30_000}
    return world.connect().start("POST", f"/v0/topics/{TOPIC}/claim", body)


KINDS: dict[str, Callable[[World, list[str]], Connection]] = {
    "event streams": _event_stream,
    "WebSockets": _websocket,
    "long polls": _long_poll,
    "streams of jobs": _jobs_stream,
    "claims": _claim,
}
OF_QUEUES = frozenset({"streams of jobs", "claims"})


class Waiting:
    """Clients at the head of a topic without records, all of which have been answered so far."""

    def __init__(self, world: World, kind: str, clients: int, names: int) -> None:
        self._world = world
        is_queue = kind in OF_QUEUES
        self._written = clients * min(names, _JOBS) if is_queue else 1
        world.put(TOPIC, **({"type": "queue"} if is_queue else {}))
        self._links = [KINDS[kind](world, [f"{at}-{name:0100d}" for name in range(names)]) for at in range(clients)]
        world.settle()
        for link in self._links:
            link.take_bytes()

    def wake(self) -> None:
        """Make one write, and wait until each client has got a record of it."""
        self._world.write(TOPIC, *["news"] * self._written)
        left = dict.fromkeys(self._links, b"")

        def arrived() -> bool:
            for link in list(left):
                left[link] += link.take_bytes()
                if b"news" in left[link]:
                    del left[link]
            return not left

        self._world.wait_until(arrived, ANSWER_MS)
        assert not left, f"{len(left)} clients wait in vain"

    def close(self) -> None:
        for link in self._links:
            link._stream.reset()  # `Connection.reset` waits, too


def measure(kind: str, clients: int, names: int) -> float:
    """Return the CPU time of the longest pass of a server's loop that one write causes, in ms."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        (Path(directory) / "longest").write_bytes(bytes(8))
        world = LimitsWorld(Path(directory), **SETTINGS)
        world.start()
        try:
            waiting = Waiting(world, kind, clients, names)
            world.begin()
            waiting.wake()
            return world.longest_ms
        finally:
            world.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=800)
    parser.add_argument("--names", default="1,999")
    parser.add_argument("--only", choices=list(KINDS))
    options = parser.parse_args()
    limit_ms, over = float(os.environ.get("TOPICS_LIMITS_MS", "20")), 0
    print("| clients | names, or jobs, of each | longest pass, ms of CPU |\n|---|---|---|")
    for kind in [options.only] if options.only else KINDS:
        for names in map(int, options.names.split(",")):
            longest_ms = min(measure(kind, options.clients, names) for _ in range(_RUNS))
            over += longest_ms > limit_ms
            print(f"| {options.clients} {kind} | {names} | {longest_ms:.1f} |", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
