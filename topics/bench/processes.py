"""Processes that a run starts, ends and measures: the server, and peers.

This is the only module of the package that starts programs: none of them by a shell.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from topics.bench.load._load import lib
from topics.errors import TopicsError

LOG_SHOWN = 800
_STOP_SECONDS = 60
_PARENT = Path(__file__).resolve().parents[2]


class ProcessError(TopicsError):
    """A program that did not start, or ended by itself; has the end of its log."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """CPU seconds of a process so far, its resident bytes, and how long its threads had no core."""

    cpu_seconds: float
    rss_bytes: int
    without_core_seconds: float


@dataclass
class BenchProcess:
    """A running program. log: the file that has its output."""

    popen: subprocess.Popen[bytes]
    log: Path
    name: str

    def usage(self) -> ProcessUsage:
        """Raises: ProcessError if it is gone."""
        try:
            return usage_of(self.popen.pid)
        except (OSError, ValueError):
            raise ProcessError(f"{self.name} ended with {self.popen.poll()}: {self.log_end()}") from None

    def log_end(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_SHOWN:] or "its log is empty"

    def wait_until(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Wait for a program to be ready; one that will not be is killed.

        Raises: ProcessError if it ends, or takes longer.
        """
        deadline = time.monotonic() + seconds
        try:
            while not is_ready():
                if self.popen.poll() is not None:
                    raise ProcessError(f"{self.name} ended with {self.popen.returncode}: {self.log_end()}")
                if time.monotonic() > deadline:
                    raise ProcessError(f"{self.name} was not ready after {seconds:g} s: {self.log_end()}")
                time.sleep(0.002)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        """End it by SIGTERM, and by SIGKILL where that takes too long."""
        self.popen.terminate()
        try:
            self.popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def start_process(command: list[str], log: Path, name: str, env: Mapping[str, str] | None = None) -> BenchProcess:
    """Start a program that writes its output into a log.

    It gets the environment without TOPICS_* variables, so that a run depends on what it records. It
    ends with the thread that starts it, so that nothing is left of a command that was killed.
    Raises: ProcessError if there is none of that name.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    with log.open("ab") as out:
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**inherited, **(env or {})},
                preexec_fn=lib.tp_end_with_parent,  # noqa: PLW1509 - a system call, which takes no lock
            )
        except OSError as error:
            raise ProcessError(f"{command[0]}: {error.strerror}") from None
    return BenchProcess(popen, log, name)


def start_own_module(words: list[str], log: Path, name: str, env: Mapping[str, str] | None = None) -> BenchProcess:
    """Start a module of this very package, also where the current directory has one of its name.

    words: the module's name, and its arguments. Raises: ProcessError as `start_process`.
    """
    path = os.pathsep.join(filter(None, (str(_PARENT), os.environ.get("PYTHONPATH"))))
    return start_process([sys.executable, "-Pm", *words], log, name, {"PYTHONPATH": path, **(env or {})})


def run_to_end(command: list[str], env: Mapping[str, str] | None = None, seconds: float = 600) -> tuple[int, str, str]:
    """Run a program to its end; return exit code, output and errors. 127: it could not be run."""
    try:
        done = subprocess.run(
            command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def last_line(errors: str) -> str:
    """Return the last line of what a program printed, as the reason why it failed."""
    return (errors.strip().splitlines() or ["it says nothing"])[-1]


def usage_of(pid: int) -> ProcessUsage:
    """Return what a process has used so far. Raises: OSError if there is none."""
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return ProcessUsage(cpu, pages * os.sysconf("SC_PAGE_SIZE"), _without_core_ns(pid) / 1e9)


def stolen_seconds() -> float:
    """Return for how long so far a host had cores that this machine wanted, of all cores in sum."""
    cores = Path("/proc/stat").read_text().partition("\n")[0].split()
    return int(cores[8]) / os.sysconf("SC_CLK_TCK")


def _without_core_ns(pid: int) -> int:
    """Return how long the threads of a process were ready so far and had no core."""
    waited = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has ended
            waited += int(thread.read_text().split()[1])
    return waited


def accepts(port: int) -> bool:
    """Return whether a server on loopback takes connections."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
