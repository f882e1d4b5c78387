"""Schemathesis against a live server on loopback: no 5xx, and no answer that its own description does not allow.

    make api-fuzz ARGS="--examples 300 --seed 7"

Two rounds: without keys, and with one (every header then carries it).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
KEY = "fuzz"
_START_S = 30.0
STREAMS = r"/(watch/\{[^}]*\}|work|ws)$"
"""What never ends by itself, or is no HTTP."""


def start(directory: Path, keys: str) -> tuple[subprocess.Popen[bytes], str]:
    """A server over a fresh directory and its address."""
    port_file = directory / "port"
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    env |= {
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_DATA_DIR": str(directory / "data"),
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


def one_round(keys: str, examples: int, seed: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="topics-fuzz-") as name:
        directory = Path(name)
        process, address = start(directory, keys)
        command = [
            str(Path(sys.executable).parent / "schemathesis"), "run", f"http://{address}/openapi.json",
            "--checks", CHECKS, "--max-examples", str(examples), "--seed", str(seed), "--workers", "1",
            "--exclude-path-regex", STREAMS, "--request-timeout", "20", "--no-color",
        ]  # fmt: skip
        if keys:
            command += ["--header", f"Authorization: Bearer {KEY}"]
        try:
            sound = subprocess.run(command, check=False, cwd=directory).returncode == 0
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(30)
        faults = [line for line in (directory / "log").read_text().splitlines() if "bug of ours" in line]
        for line in faults[:20]:
            print(line)
        print(f"server's exit code {code}, {len(faults)} faults in its log")
        return sound and code == 0 and not faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="per operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rounds = [one_round(keys, options.examples, options.seed) for keys in ("", KEY)]
    sys.exit(0 if all(rounds) else 1)


if __name__ == "__main__":
    main()
