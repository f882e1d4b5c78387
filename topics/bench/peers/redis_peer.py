"""Redis as a peer: Streams for what is stored, Pub/Sub for what is only delivered."""

from __future__ import annotations

import shutil
import socket
from dataclasses import replace
from pathlib import Path

from topics.bench.load.load_client import LoadFigures
from topics.bench.load.load_plan import AnswerEnd, LoadGroup, LoadMessage, labelled_json, numbered_json
from topics.bench.outcome import BenchCheck
from topics.bench.peers.network_peer import READY_SECONDS, NetworkPeer, stored_check
from topics.bench.processes import BenchProcess, ProcessError, free_port, run_to_end, start_process
from topics.bench.topics_server.topics_loads import read_places
from topics.bench.workload import Case, LoadSpec

KEY = b"bench"
LINES_OF_RECORD = 8
"""Lines of one record in the answer to XRANGE."""
_PERSISTENCE = {"fsync": ("yes", "always"), "disk": ("yes", "everysec")}
"""Class: append-only file, and its sync. Other classes are in memory."""
_FILL_BATCH = 500


def command(*parts: bytes) -> bytes:
    """Return one command as RESP has it."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def persistence_of(case: Case) -> tuple[str, str]:
    return _PERSISTENCE.get(case.workload.topic.durability, ("no", "no"))


class RedisStreams(NetworkPeer):
    """XADD, XRANGE and XREAD of one stream."""

    name = "Redis Streams"
    kinds = frozenset({"write", "read", "poll"})

    def missing(self) -> str:
        if shutil.which("redis-server") is None:
            return "redis-server is not here: apt-get install redis-server"
        return ""

    def version(self) -> str:
        _, out, _ = run_to_end(["redis-server", "--version"])
        version = next((word[2:] for word in out.split() if word.startswith("v=")), "")
        return f"Redis {version}; fsync: appendfsync always, disk: everysec, memory: no file"

    def started(self, case: Case, scratch: Path) -> tuple[BenchProcess, int]:
        port = free_port()
        file, sync = persistence_of(case)
        words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(scratch), "--save", ""]
        words += ["--appendonly", file, "--appendfsync", sync, "--client-output-buffer-limit", "pubsub", "0", "0", "0"]
        process = start_process(words, scratch / "redis.log", "redis-server")
        try:
            process.wait_until(lambda: _is_ready(port), READY_SECONDS)
            self._fill(port, case)
        except BaseException:
            process.kill()
            raise
        return process, port

    def _fill(self, port: int, case: Case) -> None:
        """Record n has the id `n-0`, so that reads know where it is."""
        fill = case.workload.fill
        for start in range(0, fill.records, _FILL_BATCH):
            numbers = range(start, min(start + _FILL_BATCH, fill.records))
            rows = [
                command(b"XADD", KEY, b"%d-0" % (number + 1), b"data", numbered_json(fill.bytes, number))
                for number in numbers
            ]
            asked(port, b"".join(rows), 2 * len(numbers))

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        if spec.kind == "write":
            one = command(b"XADD", KEY, b"*", b"data", labelled_json(spec.bytes))
            return self._group(spec, [one * spec.batch], 2 * spec.batch)
        if spec.kind == "poll":
            last = b"%d-0" % case.workload.fill.records
            return self._group(spec, [command(b"XREAD", b"COUNT", b"1", b"STREAMS", KEY, last)], 1)
        places = read_places(case.workload.fill.records, spec.limit)
        reads = [command(b"XRANGE", KEY, b"%d-0" % (place + 1), b"+", b"COUNT", b"%d" % spec.limit) for place in places]
        group = self._group(spec, reads, 1 + LINES_OF_RECORD * spec.limit, hears=True, shares=True)
        asked_for = [
            replace(one, asks_from=place, asks=spec.limit) for one, place in zip(group.messages, places, strict=True)
        ]
        return replace(group, messages=tuple(asked_for))

    def _group(
        self, spec: LoadSpec, messages: list[bytes], lines: int, *, hears: bool = False, shares: bool = False
    ) -> LoadGroup:
        return LoadGroup(
            spec.name,
            spec.connections,
            tuple(LoadMessage(one) for one in messages),
            rate=spec.rate,
            end=AnswerEnd.LINES,
            size=lines,
            refused=b"-",
            hears=hears,
            shares=shares,
        )

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        return [stored_check(int(asked(port, command(b"XLEN", KEY), 1)[1:]), figures)]


class RedisPubSub(RedisStreams):
    """PUBLISH to subscribers: nothing is stored."""

    name = "Redis Pub/Sub"
    kinds = frozenset({"write", "watch"})

    def version(self) -> str:
        return f"{super().version()}, PUBLISH and SUBSCRIBE"

    def refuses(self, case: Case) -> str:
        if case.workload.topic.durability not in ("memory", "ephemeral"):
            return "Pub/Sub stores nothing"
        if any(load.batch > 1 for load in case.workload.loads):
            return "PUBLISH takes one message"
        return super().refuses(case)

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        if spec.kind == "write":
            return self._group(spec, [command(b"PUBLISH", KEY, labelled_json(spec.bytes))], 1)
        opening = command(b"SUBSCRIBE", KEY)
        return LoadGroup(spec.name, spec.connections, openings=(opening,), ready=b":1\r\n", hears=True)

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        return []


def _is_ready(port: int) -> bool:
    try:
        return asked(port, b"PING\r\n", 1).startswith(b"+PONG")
    except (OSError, ProcessError):
        return False


def asked(port: int, request: bytes, lines: int) -> bytes:
    """Send a request by itself and return its answer of so many lines.

    Raises: ProcessError for an answer that is an error.
    """
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(request)
        answer = b""
        while answer.count(b"\n") < lines:
            more = link.recv(1 << 16)
            if not more:
                break
            answer += more
    if answer.startswith(b"-"):
        raise ProcessError(f"Redis answered {answer.decode(errors='replace').strip()}")
    return answer
