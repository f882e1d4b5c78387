"""`topics serve` over a directory of its own, for tests that need the real one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class OwnServer:
    """On a free port; may be killed and started again. settings: of the environment, without TOPICS_."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.path = str(directory / "data")
        self._port_file = directory / "port"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_TEST_")}
        self._environment |= {f"TOPICS_{name}": value for name, value in settings.items()}
        self._token = settings.get("API_KEYS", "").partition(":")[0]
        self._port = "0"
        self.start()

    def start(self) -> None:
        self._port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "topics", "serve", "--port", self._port]
        command += ["--port-file", str(self._port_file), "--data-dir", self.path, "--log-level", "warning"]
        self.process = subprocess.Popen(command, env=self._environment)
        while not self._port_file.exists():
            assert self.process.poll() is None, "the server ended at once"
            time.sleep(0.01)
        self.url = f"http://{self._port_file.read_text()}"
        self._port = self.url.rpartition(":")[2]  # the same one after a restart
        while True:
            try:
                self.call("GET", "/readyz")
                return
            except OSError:
                time.sleep(0.01)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def put(self, topic: str, values: Sequence[Any], tag: str | None = None) -> None:
        for at in range(0, len(values), 10_000):
            records = [{"data": value, "tag": tag} for value in values[at : at + 10_000]]
            self.call("POST", f"/v0/topics/{topic}", {"records": records})

    def records(self, topic: str) -> list[dict[str, Any]]:
        """All of them, by diff."""
        found: list[dict[str, Any]] = []
        cursor, at_end = 0, False
        while not at_end:
            body = {"from_seq": cursor, "limit": 1000, "include_tags": True}
            page = self.call("POST", f"/v0/topics/{topic}/diff", body)
            found += page["records"]
            cursor, at_end = page["next_from_seq"], page["caught_up"]
        return found


@contextlib.contextmanager
def own_server(directory: Path, **settings: str) -> Iterator[OwnServer]:
    server = OwnServer(directory, **settings)
    try:
        yield server
    finally:
        server.kill()
