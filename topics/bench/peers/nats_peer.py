"""NATS as a peer: JetStream for what is stored, core NATS for what is only delivered."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from functools import cache
from pathlib import Path
from typing import Any

from topics.bench.load.load_client import LoadFigures
from topics.bench.load.load_plan import AnswerEnd, LoadGroup, LoadMessage, labelled_json
from topics.bench.outcome import BenchCheck
from topics.bench.peers.network_peer import READY_SECONDS, NetworkPeer, stored_check
from topics.bench.processes import BenchProcess, ProcessError, accepts, free_port, last_line, run_to_end, start_process
from topics.bench.sides import HERE
from topics.bench.workload import Case, LoadSpec

MODULE = "github.com/nats-io/nats-server/v2@latest"
CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
_SYNCS_SINCE = (2, 10)
"""The first version with `sync_interval`, which class fsync needs. Others have its default."""


def built_programs() -> Path:
    """Return the directory where peers are built that no package has."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "topics-bench"


def go_program() -> str | None:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def nats_program() -> str | None:
    """Return the path of nats-server, built by Go where it is missing; None without either."""
    return _here() or _built(str(built_programs() / "nats-server"))[0]


def _here() -> str | None:
    """Return the path of a nats-server that is installed, or was built before."""
    built = built_programs() / "nats-server"
    return shutil.which("nats-server") or (str(built) if built.exists() else None)


@cache
def _version_line(program: str) -> str:
    """Return what nats-server prints as its version: nats-server: v2.10.1."""
    return run_to_end([program, "--version"])[1].strip()


@cache
def _built(target: str) -> tuple[str | None, str]:
    """Build nats-server by Go: try that once. Returns its path, or why there is none."""
    go = go_program()
    if go is None:
        return None, "neither nats-server nor Go is here: install one of them"
    folder = Path(target).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return None, f"nats-server cannot be built in {folder}: {error.strerror}: set XDG_CACHE_HOME, or install it"
    code, _, errors = run_to_end([go, "install", MODULE], {"GOBIN": str(folder)})
    if code == 0 and Path(target).exists():
        return target, ""
    return None, f"nats-server is not here, and Go could not build it: {last_line(errors)}: install nats-server"


class NatsJetStream(NetworkPeer):
    """Publications that await their acknowledgement, to a stream on files or in memory."""

    name = "NATS JetStream"
    kinds = frozenset({"write"})
    has_stream = True

    def missing(self) -> str:
        return "" if _here() else _built(str(built_programs() / "nats-server"))[1]

    def at_hand(self) -> str:
        if _here() or go_program() is None:
            return self.missing() or HERE
        return "is not here: Go builds it before its first run, from the network"

    def version(self) -> str:
        program = nats_program()
        line = _version_line(program) if program else ""
        return f"{line or 'nats-server'}; fsync: sync always, disk: sync every 2 minutes, memory: memory storage"

    def refuses(self, case: Case) -> str:
        if any(load.batch > 1 for load in case.workload.loads):
            return "a publication has one message"
        if self.has_stream and case.workload.topic.durability == "fsync" and (program := _here()):
            line = _version_line(program)
            numbers = re.search(r"v(\d+)\.(\d+)", line)
            if numbers and (int(numbers[1]), int(numbers[2])) < _SYNCS_SINCE:
                since = ".".join(map(str, _SYNCS_SINCE))
                return f"{line} cannot sync each write (sync_interval): install {since} or later"
        return super().refuses(case)

    def started(self, case: Case, scratch: Path) -> tuple[BenchProcess, int]:
        program = nats_program()
        if program is None:
            raise ProcessError("nats-server could not be built by Go: install it")
        port = free_port()
        settings = scratch / "nats.conf"
        sync = ", sync_interval: always" if case.workload.topic.durability == "fsync" else ""
        store = f'jetstream {{ store_dir: "{scratch}/store"{sync} }}' if self.has_stream else ""
        settings.write_text(f"host: 127.0.0.1\nport: {port}\n{store}\n")
        process = start_process([program, "-c", str(settings)], scratch / "nats.log", "nats-server")
        try:
            process.wait_until(lambda: accepts(port), READY_SECONDS)
            if self.has_stream:
                stored = case.workload.topic.durability in ("disk", "fsync")
                config = {"name": "bench", "subjects": ["bench"], "storage": "file" if stored else "memory"}
                _requested(port, "$JS.API.STREAM.CREATE.bench", {**config, "retention": "limits", "num_replicas": 1})
        except BaseException:
            process.kill()
            raise
        return process, port

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        payload = labelled_json(spec.bytes)
        inboxes = [b"_INBOX.load.%d" % number for number in range(spec.connections)]
        return LoadGroup(
            spec.name,
            spec.connections,
            tuple(LoadMessage(b"PUB bench %b %d\r\n%b\r\n" % (inbox, len(payload), payload)) for inbox in inboxes),
            rate=spec.rate,
            openings=tuple(CONNECT + b"SUB %b 1\r\nPING\r\n" % inbox for inbox in inboxes),
            ready=b"PONG",
            end=AnswerEnd.PATTERN,
            answer=b'"seq":',
            refused=b'"error"',
            ping=b"PING\r\n",
            pong=b"PONG\r\n",
        )

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        state = _requested(port, "$JS.API.STREAM.INFO.bench", None)["state"]
        return [stored_check(int(state["messages"]), figures)]


class NatsCore(NatsJetStream):
    """Publications to subscribers, each followed by PING so that it has an answer."""

    name = "NATS core"
    kinds = frozenset({"write", "watch"})
    has_stream = False

    def version(self) -> str:
        return f"{super().version().partition(';')[0]}; PUB with PING, SUB"

    def refuses(self, case: Case) -> str:
        if case.workload.topic.durability not in ("memory", "ephemeral"):
            return "core NATS stores nothing"
        return super().refuses(case)

    def group(self, case: Case, spec: LoadSpec) -> LoadGroup:
        if spec.kind == "watch":
            opening = CONNECT + b"SUB bench 1\r\nPING\r\n"
            return LoadGroup(spec.name, spec.connections, openings=(opening,), ready=b"PONG", hears=True)
        payload = labelled_json(spec.bytes)
        return LoadGroup(
            spec.name,
            spec.connections,
            (LoadMessage(b"PUB bench %d\r\n%b\r\nPING\r\n" % (len(payload), payload)),),
            rate=spec.rate,
            openings=(CONNECT + b"PING\r\n",),
            ready=b"PONG",
            end=AnswerEnd.PATTERN,
            answer=b"PONG\r\n",
            refused=b"-ERR",
            ping=b"PING\r\n",
            pong=b"PONG\r\n",
        )

    def checks(self, case: Case, port: int, scratch: Path, figures: LoadFigures) -> list[BenchCheck]:
        return []


def _requested(port: int, subject: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """Send a request to JetStream's API; return its answer. Raises: ProcessError for an error."""
    text = json.dumps(body).encode() if body is not None else b""
    request = CONNECT + b"SUB _INBOX.api 1\r\n"
    request += b"PUB %b _INBOX.api %d\r\n%b\r\n" % (subject.encode(), len(text), text)
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(request)
        received = b""
        while True:
            head, found, rest = received.partition(b"MSG ")
            line, whole, payload = rest.partition(b"\r\n")
            if found and whole and len(payload) >= int(line.rsplit(b" ", 1)[1]) + 2:
                break
            more = link.recv(1 << 16)
            if not more:
                raise ProcessError(f"nats-server closed the connection: {head[-200:].decode(errors='replace')}")
            received += more
    answer: dict[str, Any] = json.loads(payload[: int(line.rsplit(b" ", 1)[1])])
    if "error" in answer:
        raise ProcessError(f"nats-server refused {subject}: {answer['error']}")
    return answer
