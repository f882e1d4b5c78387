"""The command `topics` in a fork of a small process that has loaded its modules already.

A process that executes the command takes most of a second of CPU to load them. Tests of the command
itself (tests/server/test_command.py, tests/cli/) and of its memory execute it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.fork_server import ANSWER, LENGTH, RUNS, VERIFY

_ROOT = Path(__file__).parents[2]
_SECONDS = 20


def without_settings() -> dict[str, str]:
    """Return the variables of this process without those of topics, except VERIFY."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")} | VERIFY


class Ended(NamedTuple):
    """code: the exit code; negative for a signal: that of an alarm ends a server that runs on.

    stderr: what it wrote, also to standard output.
    """

    code: int
    stderr: str


class _ForkServer:
    """The process that forks, which ends with this one."""

    def __init__(self) -> None:
        self._of = os.getpid()
        self._lock = threading.Lock()
        self._socket, given = socket.socketpair()
        with given:
            command = [sys.executable, "-m", "tests.cli.fork_server"]
            self._process: subprocess.Popen[bytes] = subprocess.Popen(command, stdin=given.fileno(), cwd=_ROOT)
        atexit.register(self._end)

    def ask(self, request: dict[str, Any], streams: Sequence[int] = ()) -> int:
        data = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._socket, [LENGTH.pack(len(data))], streams)
            self._socket.sendall(data)
            answer: int = ANSWER.unpack(self._socket.recv(ANSWER.size, socket.MSG_WAITALL))[0]
            return answer

    def _end(self) -> None:
        if os.getpid() == self._of:  # and not in a fork, which shares the socket
            self._socket.shutdown(socket.SHUT_RDWR)
            self._process.wait()


_fork_server = cache(_ForkServer)


class Forked:
    """A running command, with the methods of `subprocess.Popen` that tests use.

    environment: its variables, beside VERIFY.
    stderr: the descriptor that it writes to, also what it prints if `stdout` is not given.
    stdin: None for one without bytes.
    seconds: it is ended by an alarm after this time; 0: it is not.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stderr: int,
        *,
        seconds: int = 0,
        stdout: int | None = None,
        stdin: int | None = None,
    ) -> None:
        self.arguments = list(arguments)
        self.returncode: int | None = None
        request = {
            "arguments": self.arguments,
            "environment": dict(environment),
            "directory": os.getcwd(),
            "seconds": seconds,
        }
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            streams = (nothing if stdin is None else stdin, stderr if stdout is None else stdout, stderr)
            self.pid = _fork_server().ask(request, streams)
        finally:
            os.close(nothing)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            status = _fork_server().ask({"pid": self.pid})
            if status != RUNS:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended. Raises: subprocess.TimeoutExpired."""
        while self.poll() is None:
            ended = os.pidfd_open(self.pid)  # whose number no other process has until its end is asked for
            try:
                poll = select.poll()  # a test process may have more descriptors than select takes
                poll.register(ended, select.POLLIN)
                if not poll.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired(self.arguments, timeout or 0)
            finally:
                os.close(ended)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(arguments: Sequence[str], environment: Mapping[str, str], *, seconds: int = _SECONDS) -> Ended:
    """Run the command to its end, with these variables and VERIFY."""
    with tempfile.TemporaryFile("w+") as file:
        code = Forked(arguments, environment, file.fileno(), seconds=seconds).wait()
        file.seek(0)
        return Ended(code, file.read())
