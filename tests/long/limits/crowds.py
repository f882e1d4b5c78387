"""Many clients of one server that want the same, or that end at the same time.

    python -m tests.long.limits.crowds [--part 1.0] [--only PATTERN]

Printed: by the case, the CPU time of the loop's thread in the longest pass of a real server, and by how much its memory
grew. part: of the clients of each case. The exit code is 1 when a pass is longer than 20 ms (TOPICS_LIMITS_MS), or the
memory grew by more than the case allows.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.contract.world import websocket_client
from tests.contract.world.world import Connection, request_bytes
from tests.http.http2.h2_peer import H2Client
from tests.long.limits.__main__ import LimitsWorld
from tests.long.limits.case_sender import ANSWER_MS
from tests.ws.frame_client import TEXT, frame

_RUNS = 2
_RECORDS, _RECORD_BYTES = 8, 900_000
_ANSWER_BYTES = 8 << 20
_SUBSCRIPTIONS, _JOBS, _MADE = 6000, 1000, 24
_AT_ONCE = 200
"""Topics that one command, or some requests in a row, name."""


class CrowdWorld(LimitsWorld):
    """A server whose memory is measured, too."""

    def begin(self) -> None:
        super().begin()
        self._before = self._memory("VmRSS")
        self._file("clear_refs").write_text("5")  # the highest so far is the present one

    @property
    def grown_mb(self) -> float:
        """By how much its memory has grown since `begin`, at most."""
        return (self._memory("VmHWM") - self._before) / 1024

    def _memory(self, field: str) -> int:
        """Return a count of KiB."""
        (line,) = (line for line in self._file("status").read_text().splitlines() if line.startswith(field))
        return int(line.split()[1])

    def _file(self, name: str) -> Path:
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/{name}")

    def wait_until(self, done: Callable[[], bool], within_ms: int) -> None:
        """Wait as its base does, also where there are more connections than `select` takes."""
        poll = select.poll()
        for stream in self._streams:
            if not stream.ended:
                poll.register(stream.socket, select.POLLIN)
        until = time.monotonic() + within_ms / 1000
        while not done() and time.monotonic() < until:
            poll.poll(10)

    def take_all(self, links: list[Connection], least: int) -> None:
        """Wait until each of the clients has got so many bytes."""
        left = dict.fromkeys(links, 0)

        def arrived() -> bool:
            for link in list(left):
                left[link] += len(link.take_bytes())
                if left[link] >= least:
                    del left[link]
            return not left

        self.wait_until(arrived, ANSWER_MS)
        assert not left, f"{len(left)} clients wait in vain"


class Crowd(NamedTuple):
    name: str
    clients: int
    run: Callable[[CrowdWorld, int], None]
    """It calls `begin` of the world once the clients are there."""
    most_mb: int = 64
    settings: Mapping[str, Any] = MappingProxyType({})


def _equal_long_polls(world: CrowdWorld, clients: int) -> None:
    """One write of 7 MB wakes them all."""
    world.put("awaited")
    body = {"from_seq": 0, "limit": 500, "max_batch_bytes": _ANSWER_BYTES, "wait_ms": ANSWER_MS}
    links = [world.ask("POST", "/v0/topics/awaited/diff", body) for _ in range(clients)]
    world.settle()
    world.begin()
    world.write("awaited", *["x" * _RECORD_BYTES] * _RECORDS)
    world.take_all(links, _RECORDS * _RECORD_BYTES)


def _put_many(world: CrowdWorld, names: list[str]) -> None:
    link = world.connect()
    for at in range(0, len(names), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        link.send(b"".join(request_bytes("PUT", f"/v0/topics/{name}", {}) for name in some))
        for _ in some:
            assert link.answer("PUT", ANSWER_MS).status in (200, 201)


def _reset(world: CrowdWorld, links: list[Connection]) -> None:
    """End all connections at the same time, as the client's process does that is killed."""
    world.settle()
    world.begin()
    for link in links:
        link._stream.reset()  # `Connection.reset` waits, too
    for _ in range(10):
        world.settle()


def _websockets_end(world: CrowdWorld, clients: int) -> None:
    """Each has 6,000 subscriptions."""
    names = [f"t{number:04}" for number in range(_SUBSCRIPTIONS)]
    _put_many(world, names)
    links = [world.connect().start("GET", "/v0/ws", headers=websocket_client.HEADERS) for _ in range(clients)]
    for link in links:
        assert link.head(ANSWER_MS).status == 101
        for at in range(0, len(names), _AT_ONCE):
            topics: dict[str, Any] = {name: {} for name in names[at : at + _AT_ONCE]}
            link.send(frame(TEXT, json.dumps({"op": "subscribe", "topics": topics}).encode(), mask=bytes(4)))
            # each topic has a reply of its own, and then the news that the reader is at its head
            world.take_all([link], 40 * len(topics))
    _reset(world, links)


def _streams_of_jobs_end(world: CrowdWorld, clients: int) -> None:
    """Each holds 1,000 leased jobs."""
    world.put("q", type="queue")
    for _ in range(clients):
        world.write("q", *[0] * _JOBS)
    path = f"/v0/topics/q/work?node=n&max={_JOBS}&lease_ms=600000"
    links = [world.connect().start("GET", path) for _ in range(clients)]
    world.take_all(links, 100 * _JOBS)
    _reset(world, links)
    world.wait_until(lambda: world.state("q")["queue"]["in_flight"] == 0, ANSWER_MS)


def _streams(world: CrowdWorld, clients: int, watched: dict[str, Any]) -> list[Connection]:
    links = []
    for _ in range(clients):
        link = world.connect()
        wid = link.request("POST", "/v0/watch", watched).json["wid"]
        links.append(link.start("GET", f"/v0/watch/{wid}", headers={"Accept": "text/event-stream"}))
        assert link.head(ANSWER_MS).status == 200
    world.settle()
    for link in links:
        link.take_bytes()
    world.begin()
    return links


def _streams_of_one_topic(world: CrowdWorld, clients: int) -> None:
    world.put("watched")
    links = _streams(world, clients, {"topics": {"watched": {}}})
    world.write("watched", "news")
    world.take_all(links, len("news"))


def _streams_of_two_topics(world: CrowdWorld, clients: int) -> None:
    """No two share what they are sent, because its ids have the cursors of both topics."""
    for name in ("watched", "other"):
        world.put(name)
    links = _streams(world, clients, {"topics": {"watched": {}, "other": {}}})
    world.write("watched", "news")
    world.take_all(links, len("news"))


def _creations_beside_streams(world: CrowdWorld, clients: int) -> None:
    """Each follows all topics, so each creation is news to each."""
    links = _streams(world, clients, {"prefixes": {"": {}}})
    _put_many(world, [f"new{number:03}" for number in range(_MADE)])
    world.take_all(links, _MADE * len("caught-up"))
    world.settle()


def _streams_of_a_window_of_jobs(world: CrowdWorld, clients: int) -> None:
    """Claims are collected, so each stream gets many jobs at once."""
    world.put("q", type="queue", claim_jitter_ms=100)
    path = f"/v0/topics/q/work?node=n&max={_JOBS}&lease_ms=600000"
    links = [world.connect().start("GET", path) for _ in range(clients)]
    for link in links:
        assert link.head(ANSWER_MS).status == 200
    world.settle()
    world.begin()
    for _ in range(clients):
        world.write("q", *[0] * _JOBS)
    world.take_all(links, 100 * _JOBS)


def _streams_of_one_connection_end(world: CrowdWorld, clients: int) -> None:
    """They are streams of HTTP/2, so one socket ends them all."""
    world.put("watched")
    wid = world.connect().request("POST", "/v0/watch", {"topics": {"watched": {}}}).json["wid"]
    client, link = H2Client(), world.connect()
    for _ in range(clients):
        client.begin("GET", f"/v0/watch/{wid}", headers={"accept": "text/event-stream"})
    link.send(client.take())
    received = bytearray()

    def are_open() -> bool:
        if data := link.take_bytes():
            client.feed(data)
            link.send(client.take())
            received.extend(data)
        return received.count(b"caught-up") >= clients

    world.wait_until(are_open, ANSWER_MS)
    assert are_open(), "not all streams are open"
    _reset(world, [link])
    world.wait_until(lambda: b"\ntopics_sse_connections 0.0" in world.request("GET", "/v0/metrics").body, ANSWER_MS)


_WITHOUT_LIMITS = {"max_watch_sessions": 0, "max_watch_sessions_per_key": 0, "max_sse_connections_per_key": 0}
CROWDS = (
    Crowd("streams of one topic, and a write", 5000, _streams_of_one_topic, settings=_WITHOUT_LIMITS),
    Crowd("streams of two topics, and a write", 5000, _streams_of_two_topics, 128, settings=_WITHOUT_LIMITS),
    Crowd("streams of all topics, and creations", 2000, _creations_beside_streams, 256, settings=_WITHOUT_LIMITS),
    Crowd("streams of one HTTP/2 connection that ends", 1000, _streams_of_one_connection_end, settings=_WITHOUT_LIMITS),
    Crowd("streams of jobs with a window, and 1,000 jobs each", 200, _streams_of_a_window_of_jobs, 256),
    Crowd("equal long polls, and a write of 7 MB", 100, _equal_long_polls),
    Crowd("WebSockets of 6,000 subscriptions that end", 40, _websockets_end),
    Crowd("streams of 1,000 jobs that end", 200, _streams_of_jobs_end),
)


def measure(crowd: Crowd, part: float) -> tuple[float, float]:
    """Return the CPU time of the longest pass, in ms, and the growth of the memory, in MiB."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        (Path(directory) / "longest").write_bytes(bytes(8))
        world = CrowdWorld(Path(directory), **crowd.settings)
        world.start()
        try:
            crowd.run(world, max(int(crowd.clients * part), 1))
            assert world.request("GET", "/v0/health").status == 200
            return world.longest_ms, world.grown_mb
        finally:
            world.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--only", default="*", help="cases whose names match")
    options = parser.parse_args()
    limit_ms, over = float(os.environ.get("TOPICS_LIMITS_MS", "20")), 0
    print("| crowd | clients | longest pass, ms of CPU | growth of the memory, MiB |\n|---|---|---|---|")
    for crowd in CROWDS:
        if fnmatchcase(crowd.name, options.only):
            ms, mb = map(min, zip(*(measure(crowd, options.part) for _ in range(_RUNS)), strict=True))
            over += ms > limit_ms or mb > crowd.most_mb
            print(f"| {crowd.name} | {int(crowd.clients * options.part)} | {ms:.1f} | {mb:.0f} |", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
