"""The server as a process of its own: `topics serve` on loopback, real files, real time."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cli.forked import Forked, without_settings
from tests.contract.several_cores import why_refused
from tests.contract.world.answer import Answer
from tests.contract.world.world import Connection, World

_QUIET_S = 0.05
_START_S = 60.0
_PATIENCE_S = 20.0
"""Least time for which an answer is waited for, whatever a test allows in simulated time: a process
may have no core for seconds. A request that is parked is answered by itself after 30 s.
"""


class SocketStream:
    """A real socket as a `Stream`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self._poll = select.poll()  # a test process may have more descriptors than select takes
        self._poll.register(self.socket, select.POLLIN)
        self.reset_by_server = False
        self._ended = False

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._ended = True

    def receive(self) -> bytes:
        data = b""
        while not self._ended and self._poll.poll(0):
            try:
                piece = self.socket.recv(1 << 20)
            except ConnectionResetError:
                piece = b""
            self._ended = not piece
            data += piece
        return data

    @property
    def ended(self) -> bool:
        return self._ended

    def finish_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
        self._ended = True

    def wait(self, seconds: float) -> None:
        """Wait until something arrives, or the time has passed."""
        if not self._ended:
            self._poll.poll(seconds * 1000)

    def close(self) -> None:
        self.socket.close()
        self._ended = True


def lasting_port() -> int:
    """A free port for a server that is started again there: below those that the kernel gives to connections."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = secrets.choice(range(first - 4096, first))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_until_free(port: int) -> None:
    """Wait until a server can listen on a port. Of a process that was killed while it had a ring, the kernel closes
    the listening socket a while after it has ended."""
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < until, f"port {port} is in use"
            select.select([], [], [], 0.005)


class LiveWorld(World):
    """A data directory and the processes that serve it, one after the other.

    command: it is executed, for tests of its memory; None: `topics serve` is a fork (tests/cli/forked.py).
    """

    command: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings: dict[str, Any] = {"max_body_bytes": 64 << 20, **settings}
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.port_file = directory / "port"
        self.address = ("", 0)
        self.first_pid = 0
        self.stopping = False
        self._streams: list[SocketStream] = []

    @property
    def cores(self) -> int:
        """How many cores its server has."""
        return int(self.settings.get("cores", 1))

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self, *, ready: bool = True, **settings: Any) -> None:
        self.settings.update(settings)
        self.port_file.unlink(missing_ok=True)
        if port := self.settings.get("port"):
            wait_until_free(port)
        self.process = self.spawn()
        self.first_pid = self.first_pid or self.process.pid
        self._until(self.port_file.exists, _START_S)
        host, _, port = self.port_file.read_text().rpartition(":")
        self.address = (host.strip("[]"), int(port))
        if ready:
            # with its first key, which a server may want for that, too
            key = str(self.settings.get("api_keys", "")).partition(",")[0].partition(":")[0]
            keyed = {"Authorization": f"Bearer {key}"} if self.settings.get("probe_auth") and key else None
            self._until(lambda: self.request("GET", "/readyz", headers=keyed).status == 200, _START_S)

    def spawn(self, **extra: Any) -> subprocess.Popen[bytes] | Forked:
        """A server process with the settings, not waited for."""
        values = {
            "port": 0,
            "port_file": self.port_file,
            "data_dir": self.directory / "data",
            "wal_file_bytes": 4 << 20,
            **self.settings,
            **extra,
        }
        env = without_settings()
        env |= {f"TOPICS_{name.upper()}": _env_text(value) for name, value in values.items()}
        # Standard error is written to a file: a pipe without a reader would stop a talkative
        # server.
        with open(self.directory / "stderr", "ab") as stderr:
            if self.command is None:
                return Forked(["serve"], env, stderr.fileno())
            return subprocess.Popen(self.command, env=env, stderr=stderr)

    def descriptors(self) -> int:
        """How many the process has open."""
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def sockets(self) -> int:
        """How many of the open descriptors are sockets."""
        assert self.process is not None
        count = 0
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                count += os.readlink(link).startswith("socket:")
        return count

    def rss_bytes(self) -> int:
        """Memory the process holds."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stderr(self) -> str:
        return (self.directory / "stderr").read_text()

    def begin_stop(self) -> None:
        assert self.process is not None
        self.stopping = True
        self.process.send_signal(signal.SIGTERM)
        # A signal takes its time; from the first refused connection on, the stop has begun.
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            try:
                socket.create_connection(self.address, timeout=1).close()
            except OSError:
                return

    def finish_stop(self, within_ms: int = 15_000) -> int:
        assert self.process is not None
        code = self.process.wait(within_ms / 1000)
        self.process = None
        return code

    def crash(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def close(self) -> None:
        self._hang_up()
        if self.process is not None:
            self.crash()

    def clear(self) -> bool:
        """Makes it as good as new for another test; False when that takes another process."""
        self._hang_up()
        if self.process is None or self.process.pid != self.first_pid or self.stopping:
            return False
        while rows := self.request("GET", "/v0/topics?page_size=1000").json["topics"]:
            connection = self.connect()
            for row in rows:
                assert connection.request("DELETE", f"/v0/topics/{row['topic']}").status == 200
        self._hang_up()
        return True

    def _hang_up(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    # --- time --------------------------------------------------------------------------------------------------------
    def wait_until(self, done: Callable[[], bool], within_ms: int) -> None:
        until = time.monotonic() + within_ms / 1000
        while not done() and time.monotonic() < until:
            self._streams[-1].wait(0.01)

    def wait_for(self, done: Callable[[], bool], within_ms: int) -> None:
        self.wait_until(done, max(within_ms, round(_PATIENCE_S * 1000)))

    def settle(self) -> None:
        """Until the newest connection has got something, or was silent for a while, and a moment for the others.

        Both are longer if other processes have to answer. Then until the whole server sleeps: one
        that is silent may have had no core to answer on.
        """
        quiet_s = _QUIET_S if self.cores == 1 else 5 * _QUIET_S
        if self._streams:
            self._streams[-1].wait(quiet_s)
            select.select([], [], [], quiet_s / 5)
        until = time.monotonic() + _PATIENCE_S
        while not self._sleeps() and time.monotonic() < until:
            select.select([], [], [], 0.001)

    def _sleeps(self) -> bool:
        """Whether no thread of the server has work, nor had any between two looks at all."""
        seen = self._threads()
        return not any(state in ("R", "D") for state, _ in seen.values()) and self._threads() == seen

    def _threads(self) -> dict[str, tuple[str, str]]:
        """The state of each thread of all processes, and how often it has gone to sleep."""
        found: dict[str, tuple[str, str]] = {}
        pids = [] if self.process is None else [str(self.process.pid)]
        for pid in pids:
            # A thread or a process may end between the list and a look at it.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    lines = dict(line.partition(":\t")[::2] for line in (thread / "status").read_text().splitlines())
                    found[thread.name] = lines["State"][:1], lines.get("voluntary_ctxt_switches", "")
                    pids += (thread / "children").read_text().split()
        return found

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def _until(self, done: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done():
            assert self.process is not None
            if (code := self.process.poll()) is not None:
                pytest.fail(f"the server ended with {code}: {self.stderr()}")
            assert time.monotonic() < until, "not in time"
            select.select([], [], [], 0.005)

    def _simulated_only(self, *_arguments: Any, **_options: Any) -> Any:
        pytest.skip("only simulated time, disks and power can do this")

    advance_ms = advance_to_ms = step_clock_ms = power_cut = _simulated_only
    fail_storage = heal_storage = fill_disk = free_disk = _simulated_only

    def look_at(self, answer: Answer) -> None:
        if self.cores > 1 and (reason := why_refused(answer)):
            pytest.skip(reason)

    # --- network -----------------------------------------------------------------------------------------------------
    def connect(self) -> Connection:
        stream = SocketStream(self.address)
        self._streams.append(stream)
        return self.connection_type(self, stream)


class ExecutedWorld(LiveWorld):
    """Processes that execute the command, so that they hold no memory but their own."""

    command = (sys.executable, "-m", "topics", "serve")


def _env_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
