"""The processes of cores: how each is started, and how its end is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class CoreProgram(NamedTuple):
    """The path of the program that a core's process runs, its arguments, and its environment."""

    path: str
    arguments: Sequence[str]
    environment: Mapping[str, str]


class ChildProcesses:
    """Processes of this one, see `CoreProcesses`. None outlives it.

    Each inherits the read end of a pipe, whose end is its order to stop. This process has the only
    write end, so the order is given however this one ends.
    """

    def __init__(self, program_of: Callable[[int, int], CoreProgram], on_exit: Callable[[int, int], None]) -> None:
        """program_of(core, life): the program of a core, which gets this descriptor of the pipe.

        on_exit(core, code): its process has ended, by itself or by a signal (then negative).
        """
        self._program_of = program_of
        self._on_exit = on_exit
        self._pids: dict[int, int] = {}
        """Processes that have not been waited for, by core."""
        self._life, self._held = os.pipe()
        os.set_inheritable(self._life, True)

    def start(self, core: int) -> None:
        """Raises: OSError, there is no process."""
        assert core not in self._pids, "a core has one process"
        program = self._program_of(core, self._life)
        no_input = os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0
        self._pids[core] = os.posix_spawn(
            program.path, list(program.arguments), dict(program.environment), file_actions=[no_input]
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
