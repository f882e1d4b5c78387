"""Two plain servers in Python as peers: an echo, and HTTP that appends to a file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from topics.bench.load.load_client import LoadFigures, count_labels
from topics.bench.load.load_plan import AnswerEnd, LoadGroup, LoadMessage, http_request, write_body
from topics.bench.outcome import BenchCheck
from topics.bench.peers.network_peer import READY_SECONDS, NetworkPeer
from topics.bench.processes import BenchProcess, accepts, free_port, start_own_module
from topics.bench.workload import Case, LoadSpec

FILE = "bodies"
_HOW = {"fsync": "sync", "disk": "write"}
"""Class: what the server does with a body before it answers. Others stay in memory."""


def write_request(spec: LoadSpec) -> bytes:
    """Return the request that a topics server gets for the same load."""
    return http_request("POST", "/v0/topics/bench?return_seqs=false", write_body(spec.bytes, spec.batch))


class AsyncioServer(NetworkPeer):
    """A server as one would write it in an afternoon."""

    name = "asyncio + h11 + fdatasync in threads"
    kinds = frozenset({"write"})

    def started(self, case: Case, scratch: Path) -> tuple[BenchProcess, int]:
        port = free_port()
        how = _HOW.get(case.workload.topic.durability, "memory")
        module = ["topics.bench.peers.plain_server", str(port), str(scratch / FILE), how]
        process = start_own_module(module, scratch / "asyncio.log", "the asyncio server")
        process.wait_until(lambda: accepts(port), READY_SECONDS)
        return process, port

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        return LoadGroup(spec.name, spec.connections, (LoadMessage(write_request(spec)),), rate=spec.rate)

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        if not (scratch / FILE).exists():
            return []
        seen = np.zeros(max(1, len(figures.acked)), np.uint8)
        altered = count_labels((scratch / FILE).read_bytes(), seen, case.workload.record_sizes).altered
        lost = int(np.count_nonzero((figures.acked == 1) & (seen[: len(figures.acked)] != 1)))
        detail = f"{lost:,} are not, {altered:,} altered"
        return [BenchCheck("every acknowledged record is in the file once", not lost and not altered, detail)]


class EchoServer(NetworkPeer):
    """A request that is sent back: what a socket, two processes and an event loop cost."""

    name = "echo of the same request"
    kinds = frozenset({"write"})

    def version(self) -> str:
        return (
            "an echo on uvloop" if find_spec("uvloop") else "an echo on asyncio (pip install uvloop for a faster one)"
        )

    def started(self, case: Case, scratch: Path) -> tuple[BenchProcess, int]:
        port = free_port()
        module = ["topics.bench.peers.plain_echo", str(port)]
        process = start_own_module(module, scratch / "echo.log", "the echo server")
        process.wait_until(lambda: accepts(port), READY_SECONDS)
        return process, port

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        request = write_request(spec)
        return LoadGroup(
            spec.name,
            spec.connections,
            (LoadMessage(request),),
            rate=spec.rate,
            end=AnswerEnd.BYTES,
            size=len(request),
        )

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        return []
