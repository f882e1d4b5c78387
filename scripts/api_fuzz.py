"""Schemathesis against a live server on loopback: no 5xx, and no answer that its own description does not allow.

    make api-fuzz ARGS="--examples 300 --seed 7"
    make api-fuzz ARGS="--cores 2"       # of a server whose topics are on several cores

Two rounds: without keys, and with one (every request then carries it). A few topics, a queue and a router exist, and
their names are put among those that are tried, or nearly every answer would be a 404.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
KEY = "fuzz"
_START_S = 30.0
STREAMS = r"/(watch/\{[^}]*\}|work|ws)$"
"""Operations that never end by themselves, or are no HTTP."""


def start(directory: Path, keys: str, cores: int) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server over a fresh directory; return its process and its address."""
    port_file = directory / "port"
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    env |= {
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_DATA_DIR": str(directory / "data"),
        "TOPICS_CORES": str(cores),
        "TOPICS_WAL_FILE_BYTES": str(4 << 20),
        "TOPICS_API_KEYS": keys,
        "TOPICS_MAX_WAIT_MS": "20",
    }
    with open(directory / "log", "ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "topics", "serve"], env=env, stderr=log)
    until = time.monotonic() + _START_S
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit((directory / "log").read_text())
        time.sleep(0.05)
    return process, port_file.read_text()


def ask(address: str, keys: str, method: str, path: str, body: Any = None) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {KEY}"} if keys else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def fill(address: str, keys: str) -> None:
    """Wait until the server is ready, and make what `with_names` names."""
    until = time.monotonic() + _START_S
    while True:
        try:
            ask(address, keys, "GET", "/readyz")
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    ask(address, keys, "PUT", "/v0/topics/full", {"cap_records": 2, "discard": "reject"})
    ask(address, keys, "PUT", "/v0/topics/jobs", {"type": "queue", "lease_ms": 100, "max_deliveries": 3})
    ask(address, keys, "PUT", "/v0/routers/copy", {"source": "log", "dest": "copied"})
    for topic in ("log", "jobs", "full"):
        records = [{"data": {"n": n}, "tag": f"tag-{n % 3}", "node": "n", "meta": {"m": n}} for n in range(2)]
        ask(address, keys, "POST", f"/v0/topics/{topic}", {"records": records})


def with_names(document: Any) -> Any:
    """Return the description with names that exist among the values of a name, and of a node."""
    known = {"topic": ["log", "jobs", "full", "copied"], "router": ["copy"], "source": ["log"], "dest": ["copied", "x"]}
    known["node"] = ["n"]
    if isinstance(document, list):
        return [with_names(part) for part in document]
    if not isinstance(document, dict):
        return document
    shown = {key: with_names(part) for key, part in document.items()}
    if shown.get("in") == "path" and shown["name"] in known:
        shown["schema"] = {"anyOf": [{"enum": known[shown["name"]]}, {"type": "string"}]}
    for name in ("source", "dest", "node"):
        held = shown.get("properties", {}).get(name)
        if held is not None:
            shown["properties"][name] = {"anyOf": [{"enum": known[name]}, held]}
    return shown


def one_round(keys: str, options: argparse.Namespace) -> bool:
    """Run schemathesis against a fresh server; return whether neither found a fault."""
    with tempfile.TemporaryDirectory(prefix="topics-fuzz-") as name:
        directory = Path(name)
        process, address = start(directory, keys, options.cores)
        try:
            fill(address, keys)
            described = directory / "openapi.json"
            described.write_text(json.dumps(with_names(ask(address, keys, "GET", "/openapi.json"))))
            command = [
                str(Path(sys.executable).parent / "schemathesis"), "run", str(described), "--url", f"http://{address}",
                "--checks", CHECKS, "--max-examples", str(options.examples), "--seed", str(options.seed),
                "--workers", "1", "--exclude-path-regex", STREAMS, "--request-timeout", "20", "--no-color",
            ]  # fmt: skip
            if keys:
                command += ["--header", f"Authorization: Bearer {KEY}"]
            sound = subprocess.run(command, check=False, cwd=directory).returncode == 0
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        told = (directory / "log").read_text()
        faults = told.count("bug of ours") + told.count("unhandled exception")
        if faults:
            print(told[-10_000:])
        print(f"server's exit code {code}, {faults} faults in its log")
        return sound and code == 0 and not faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="per operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cores", type=int, default=1, help="of the server")
    options = parser.parse_args()
    rounds = [one_round(keys, options) for keys in ("", KEY)]
    sys.exit(0 if all(rounds) else 1)


if __name__ == "__main__":
    main()
