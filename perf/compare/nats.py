"""nats-server with JetStream, found or built, started, and published to by perf/load/nats_load.c."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from perf.servers import BUILD, Server, built, free_port

MODULE = "github.com/nats-io/nats-server/v2@latest"


def nats_program() -> str | None:
    """The newest one, built with Go where that is here; else the system's; None without either."""
    program = BUILD / "nats-server"
    if program.exists():
        return str(program)
    go = shutil.which("go") or ("/usr/local/go/bin/go" if Path("/usr/local/go/bin/go").exists() else None)
    if go is not None:
        BUILD.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([go, "install", MODULE], env={**os.environ, "GOBIN": str(BUILD)}, check=False)
        if done.returncode == 0 and program.exists():
            return str(program)
    return shutil.which("nats-server")


@contextlib.contextmanager
def nats_server(program: str, directory: Path, sync: str) -> Iterator[Server]:
    """One stream `bench` on file storage. sync: `always`, or the interval of its syncs (`2m` is the default)."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = free_port()
    settings = directory / "nats.conf"
    store = f'jetstream {{ store_dir: "{directory}/store", sync_interval: {sync} }}'
    settings.write_text(f"host: 127.0.0.1\nport: {port}\n{store}\n")
    process = subprocess.Popen([program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _create_stream(port)
        yield Server(port, process)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _create_stream(port: int) -> None:
    config = {"name": "bench", "subjects": ["bench"], "storage": "file", "retention": "limits", "num_replicas": 1}
    body = json.dumps(config).encode()
    lines = b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _INBOX.setup 1\r\n'
    request = lines + b"PUB $JS.API.STREAM.CREATE.bench _INBOX.setup %d\r\n%b\r\n" % (len(body), body)
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as link:
                link.settimeout(10)
                link.sendall(request)
                answer = b""
                while b"MSG " not in answer or b"}" not in answer.partition(b"MSG ")[2]:
                    more = link.recv(65_536)
                    if not more:
                        raise OSError("nats-server closed the connection")
                    answer += more
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        if b'"error"' in answer:
            raise RuntimeError(f"nats-server made no stream: {answer.decode(errors='replace')}")
        return


def nats_load(server: Server, connections: int, seconds: float, payload: str) -> dict[str, float]:
    """One message at a time on each connection, its acknowledgement awaited."""
    command = [str(built("load/nats_load.c")), "127.0.0.1", str(server.port), str(connections), str(seconds)]
    done = subprocess.run([*command, "bench", payload], capture_output=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
