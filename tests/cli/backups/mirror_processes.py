"""A server with an archive and a mirror of it, as processes that tests kill."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.commands.command_runs import SMALL, Ran, run
from tests.cli.forked import Forked
from tests.contract.world.live_world import lasting_port, wait_until_free

_SECONDS = 120
_LIFE_SECONDS = 900
"""A round of kills beside other load may take minutes, with processes that are not killed in it."""
_EVERY_MS = "20"


class Running:
    """A process that was started, and the lines that it writes."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], until: str) -> None:
        """until: it has begun once it has written a line with this text."""
        log, log_end = os.pipe()
        self._process = Forked(arguments, environment, log_end, seconds=_LIFE_SECONDS)
        os.close(log_end)
        self._lines = os.fdopen(log)
        self.text = ""
        self.read_to(until)

    def read_to(self, text: str) -> None:
        """Read what it writes up to a line with a text."""
        for line in self._lines:
            self.text += line
            if text in line:
                return
        raise AssertionError(f"the process ended with {self._process.wait()}: {self.text}")

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it by a signal; return its exit code. What it has written is in `text` then."""
        self._process.send_signal(number)
        rest: list[str] = []
        reads = threading.Thread(target=lambda: rest.extend(self._lines))
        reads.start()
        code = self._process.wait()
        reads.join()
        self.text += "".join(rest)
        return code

    def ended(self) -> int:
        """Return the exit code once it has ended by itself."""
        self.text += self._lines.read()
        return self._process.wait()


class MirroredServer:
    """A server below a directory, and the mirror that follows it."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.to = home / "mirror"
        self.archive = home / "archive"
        self._settings = {"TOPICS_ARCHIVE_EVERY_MS": _EVERY_MS, "TOPICS_ARCHIVE_DIR": str(self.archive), **settings}
        self._port = lasting_port()
        self.serve()

    def serve(self, data: str = "served", **settings: str) -> None:
        """Start the server, on the port that it had before.

        It is none that the kernel gives to connections, which could have it while no server does.
        """
        wait_until_free(self._port)
        arguments = ["serve", "--data-dir", str(self.home / data), "--port", str(self._port)]
        environment = {"HOME": str(self.home), **SMALL, **self._settings, **settings}
        self.server = Running(arguments, environment, "ready after")
        self.url = f"http://127.0.0.1:{self._port}"

    def follow(self, *options: str, until: str = "follows http", **environment: str) -> Running:
        """Start the mirror; return it once a line that it writes has a text."""
        arguments = ["mirror", self.url, "--to", str(self.to), "--every-ms", _EVERY_MS, *options]
        return Running(arguments, {"HOME": str(self.home), **environment}, until)

    def status(self) -> dict[str, Any]:
        """Return the contents of the status file."""
        found: dict[str, Any] = json.loads((self.to / "status.json").read_bytes())
        return found

    def caught_up(self) -> dict[str, Any]:
        """Return the mirror's status once it has all that was acknowledged by now."""
        now_ms = time.time_ns() // 1_000_000
        until = time.monotonic() + _SECONDS
        while (status := self.status())["upto_ms"] < now_ms:
            assert time.monotonic() < until, status
            time.sleep(0.005)
        return status

    def promote(self, to: str, *options: str) -> Ran:
        """Promote the mirror to a directory of this name."""
        return run(["promote", "--from", str(self.to), "--to", str(self.home / to), *options], self.home)
