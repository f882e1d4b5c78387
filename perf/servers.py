"""Starts and stops what is measured: `topics serve` and redis-server; runs the load client of `topics bench`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topics.bench.load.load_client import LoadClient
from topics.bench.load.load_plan import AnswerEnd, LoadGroup, LoadMessage
from topics.bench.results.bench_result import SHOWN

HERE = Path(__file__).resolve().parent
BUILD = HERE / "results" / "bin"
TREE = "TOPICS_PERF_TREE"
"""The variable with the source tree that servers run from, one with a `.venv`; unset: this one."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def built(source: str) -> Path:
    """Compiles a C file of perf/ once per change of it or of a header beside it; returns the program."""
    path = HERE / source
    program = BUILD / path.stem
    changed = max(file.stat().st_mtime for file in (path, *path.parent.glob("*.h")))
    if not program.exists() or program.stat().st_mtime < changed:
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", str(program), str(path)], check=True)
    return program


@dataclass
class Server:
    port: int
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """User plus system time so far of the process, and of its cores."""
        seconds = _cpu_seconds(self.process.pid)
        for pid in core_pids(self.process.pid).values():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                seconds += _cpu_seconds(pid)
        return seconds

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def metrics(self) -> dict[str, float]:
        """The metrics without labels, by name."""
        return {name: value for name, value in self.all_metrics().items() if "{" not in name}

    def all_metrics(self) -> dict[str, float]:
        """The metrics, by their names with labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v0/metrics", timeout=60) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}


def core_pids(supervisor: int) -> dict[int, int]:
    """The processes of the cores that run, by core; none for a server of one core."""
    found = {}
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"topics.cli.serving.core_process" in arguments:  # before its exec it has those of the supervisor
                found[int(arguments[4])] = int(pid)
    return found


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_until_ready(server: Server, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        if server.process.poll() is not None:
            raise RuntimeError(f"the server ended with {server.process.returncode}")
        try:
            server.request("GET", "/readyz")
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError("the server did not become ready") from error
            time.sleep(0.005)


def start_topics(
    directory: Path,
    *options: str,
    env: dict[str, str] | None = None,
    ready_seconds: float = 60,
    module: tuple[str, ...] = ("topics",),
) -> Server:
    """module: what `python -m` runs, a program that continues as `topics` does."""
    port, tree = free_port(), os.environ.get(TREE)
    python = f"{tree}/.venv/bin/python" if tree else sys.executable
    where = ("--data-dir", str(directory.resolve()), "--port", str(port))
    with (directory.parent / f"{directory.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [python, "-m", *module, "serve", *where, *options],
            stdout=log,
            stderr=log,
            cwd=tree,
            env={**os.environ, **(env or {})},
        )
    server = Server(port, process)
    _wait_until_ready(server, ready_seconds)
    return server


@contextlib.contextmanager
def topics_server(
    directory: Path, *options: str, env: dict[str, str] | None = None, module: tuple[str, ...] = ("topics",)
) -> Iterator[Server]:
    """`topics serve` on a fresh port and an empty directory; stopped by SIGTERM."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    server = start_topics(directory, *options, env=env, module=module)
    try:
        yield server
    finally:
        server.process.terminate()
        try:
            server.process.wait(60)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def redis_server(directory: Path, appendfsync: str) -> Iterator[Server]:
    """Debian's redis-server with the append-only file on; `appendfsync` is always or everysec."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is missing: apt-get install redis-server")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_port()
    settings = ("--appendonly", "yes", "--appendfsync", appendfsync, "--save", "", "--bind", "127.0.0.1")
    process = subprocess.Popen(
        [program, "--port", str(port), "--dir", str(directory), *settings],
        stdout=subprocess.DEVNULL,
    )
    server = Server(port, process)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as link:
            link.sendall(b"PING\r\n")
            if link.recv(64).startswith(b"+PONG"):
                break
        time.sleep(0.01)
    try:
        yield server
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


SAMPLES_MAX = 1 << 22
CLIENT_SHARES: list[float] = []
"""The share of a core that the client of each `http_load` so far has used."""


def http_load(
    server: Server,
    connections: int,
    seconds: float,
    *requests: bytes,
    rate: float = 0.0,
    topics: int = 0,
    first_topic: int = 0,
    answer_lines: int = 0,
    samples: Path | None = None,
    may_refuse: bool = False,
) -> dict[str, float]:
    """Runs the load client of `topics bench`; connection i sends request i modulo their number, again and again.

    rate: requests a second, open loop. topics: "########" in a request becomes a number below that, by turns.
    answer_lines: an answer ends at its n-th line feed, as Redis' do. samples: a file that gets rows of three u64, due,
    sent and answered in ns, and 0, from, to for each time that the client had no core for half a millisecond.
    may_refuse: answers that are errors do not count; otherwise one ends the measurement.

    Returns its figures (rate in requests a second, quantiles in ns) plus the server's CPU seconds.
    """
    group = LoadGroup(
        "load",
        connections,
        tuple(LoadMessage(request) for request in requests),
        rate=rate,
        topics=topics,
        first_topic=first_topic,
        end=AnswerEnd.LINES if answer_lines else AnswerEnd.HTTP,
        size=answer_lines,
        refused=b"-" if answer_lines else b"",
        samples=SAMPLES_MAX if samples else 0,
    )
    stalls = SAMPLES_MAX if samples else 0
    client = LoadClient([group], "127.0.0.1", server.port, seconds, numbers_max=1, stall_room=stalls)
    before = server.cpu_seconds()
    done = client.run()
    server_cpu = server.cpu_seconds() - before
    (figures,) = done.groups
    if figures.errors and not may_refuse:
        raise RuntimeError(done.error)
    if samples:
        without_core = np.insert(done.stalls, 0, 0, axis=1)
        np.concatenate([figures.samples, without_core]).tofile(samples)
    CLIENT_SHARES.append(done.client_cpu_seconds / done.seconds)
    took = figures.steps["answer"]
    quantiles = {f"{name}_ns": float(took.quantile(share)) for name, share in SHOWN.items()}
    return {
        "requests": figures.requests,
        "seconds": done.seconds,
        "rate": figures.requests / done.seconds,
        "bytes_read": figures.bytes_received,
        "client_cpu": done.client_cpu_seconds,
        "server_cpu": server_cpu,
        **quantiles,
        "worst_ns": quantiles["max_ns"],
    }


def redis_load(server: Server, connections: int, pipeline: int, count: int, payload: str) -> dict[str, float]:
    """redis-benchmark XADD; rate in commands a second, quantiles in ns."""
    command = ["redis-benchmark", "-p", str(server.port), "-c", str(connections), "-P", str(pipeline), "-n", str(count)]
    done = subprocess.run([*command, "--csv", "XADD", "s", "*", "data", payload], capture_output=True, check=True)
    row = done.stdout.decode().strip().splitlines()[-1]
    # the last columns: rps, avg, min, p50, p95, p99, max, all quoted; latencies in ms
    values = [float(text.strip('"')) for text in row.rsplit(",", 7)[1:]]
    return {"rate": values[0], "p50_ns": values[3] * 1e6, "p99_ns": values[5] * 1e6}


def http_request(method: str, path: str, body: bytes) -> bytes:
    """The exact bytes of one keep-alive request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body
