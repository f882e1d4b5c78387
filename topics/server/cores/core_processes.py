"""The processes of cores: how each is started, and how its end is noticed."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_BLOCKED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that wait in a new process until it handles them: before, they would end it."""


class CoreProgram(NamedTuple):
    """The path of the program that a core's process runs, its arguments, and its environment."""

    path: str
    arguments: Sequence[str]
    environment: Mapping[str, str]


class ChildProcesses:
    """Processes of this one, see `CoreProcesses`. None outlives it.

    Each inherits one end of a pair of sockets, and the end of the other one is its order to stop.
    This process has the only other end, so the order is given however this one ends. Each has a
    group of its own: signals of the terminal go to this process, which passes them on.
    """

    def __init__(self, program_of: Callable[[int, int], CoreProgram], on_exit: Callable[[int, int], None]) -> None:
        """program_of(core, life): the program of a core, which gets this descriptor of the pair.

        on_exit(core, code): its process has ended, by itself or by a signal (then negative).
        """
        self._program_of = program_of
        self._on_exit = on_exit
        self._pids: dict[int, int] = {}
        """Processes that have not been waited for, by core."""
        life, held = socket.socketpair()
        self._life, self._held = life.detach(), held.detach()
        os.set_inheritable(self._life, True)

    def start(self, core: int) -> None:
        """Raises: OSError, there is no process."""
        assert core not in self._pids, "a core has one process"
        program = self._program_of(core, self._life)
        no_input = os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0
        self._pids[core] = os.posix_spawn(
            program.path,
            list(program.arguments),
            dict(program.environment),
            file_actions=[no_input],
            setpgroup=0,
            setsigmask=_BLOCKED,
        )

    def send(self, core: int, number: int) -> None:
        """Send a signal to the process of a core, if it was not waited for."""
        pid = self._pids.get(core)
        if pid is not None:
            os.kill(pid, number)

    def look(self) -> None:
        """Wait for the processes that have ended. Called after SIGCHLD, and at any time."""
        for core, pid in list(self._pids.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self._pids[core]
                self._on_exit(core, os.waitstatus_to_exitcode(status))

    def close(self) -> None:
        """Order those that still run to stop."""
        os.close(self._held)
        os.close(self._life)


def has_ended(life: int) -> bool:
    """Return whether the process that holds the other end of `life` has ended."""
    os.set_blocking(life, False)
    try:
        return os.read(life, 1) == b""
    except BlockingIOError:
        return False
