"""A server process and a blocking HTTP client: what the soak tools share."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.forked import Forked, run, without_settings

_START_S_MAX = 300.0
_STOP_S_MAX = 300.0  # of a loaded machine
_ANSWER_S_MAX = 30.0


class Gone(Exception):
    """The server went away in the middle of a request: it is unknown whether it was carried out."""


class Client:
    """One kept-alive connection."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=_ANSWER_S_MAX)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, JSON). Raises Gone."""
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = self._connection.getresponse()
            text = answer.read()
        except TimeoutError as error:
            raise AssertionError(f"{method} {path}: no answer in {_ANSWER_S_MAX} s") from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Gone(repr(error)) from None
        return answer.status, json.loads(text)

    def close(self) -> None:
        self._connection.close()


def run_until_gone(address: str, do: Callable[[Client], None]) -> BaseException | None:
    """Call `do` again and again until the server is away. Return an error other than that."""
    client = Client(address)
    try:
        while True:
            do(client)
    except Gone:
        return None
    except BaseException as error:
        return error
    finally:
        client.close()


class Server:
    """`topics serve` on a directory; its standard error is written to a file beside it.

    executes: a new process of Python instead of a fork (tests/cli/forked.py).
    """

    def __init__(self, directory: Path, settings: dict[str, Any], *, executes: bool = False) -> None:
        self._port_file = directory / "port"
        self._port_file.unlink(missing_ok=True)
        self.log = directory / "stderr"
        environment = without_settings()
        values = {"port": 0, "port_file": self._port_file, "data_dir": directory / "data", **settings}
        environment |= {f"TOPICS_{name.upper()}": str(value) for name, value in values.items()}
        with open(self.log, "ab") as stderr:
            self.process: Forked | subprocess.Popen[bytes]
            if executes:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "topics", "serve"], env=environment, stderr=stderr
                )
            else:
                self.process = Forked(["serve"], environment, stderr.fileno())

    def wait_ready(self) -> str:
        """The address, once it serves."""
        until = time.monotonic() + _START_S_MAX
        address = ""
        while True:
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.tail()}"
            assert time.monotonic() < until, f"not ready in {_START_S_MAX} s: {self.tail()}"
            if not address and self._port_file.exists():
                address = self._port_file.read_text()
            if address:
                client = Client(address)
                try:
                    if client.ask("GET", "/v0/ready")[0] == 200:
                        return address
                finally:
                    client.close()
            time.sleep(0.01)

    def kill(self) -> None:
        """It must have been alive until then, and have had no fault of its own."""
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.tail()}"
        assert "Traceback" not in self.tail(), self.tail()
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Graceful; must end well."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(_STOP_S_MAX)
        assert code == 0, f"a graceful stop ended with {code}: {self.tail()}"

    def tail(self) -> str:
        return self.log.read_text()[-3000:]


def fsck(directory: Path) -> None:
    """`topics fsck` must find nothing."""
    done = run(["fsck", "--data-dir", str(directory / "data")], os.environ, seconds=120)
    assert done.code == 0, f"fsck found damage: {done.stderr}"
