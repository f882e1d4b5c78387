"""Processes of cores, which are real here: their ends are noticed, and they do not outlive their supervisor."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from topics.server.cores.core_processes import ChildProcesses, CoreProgram

UNTIL_ITS_LIFE_ENDS = "import os, sys; os.read(int(sys.argv[1]), 1)"


class Children:
    def __init__(self) -> None:
        self.path = sys.executable
        self.program = UNTIL_ITS_LIFE_ENDS
        self.ended: list[tuple[int, int]] = []
        self.processes = ChildProcesses(self.program_of, lambda core, code: self.ended.append((core, code)))

    def program_of(self, core: int, life: int) -> CoreProgram:
        arguments = [sys.executable, "-S", "-c", self.program, str(life), str(core)]
        return CoreProgram(self.path, arguments, os.environ)

    def wait_for(self, count: int) -> list[tuple[int, int]]:
        while len(self.ended) < count:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # as SIGCHLD would
            self.processes.look()
        return self.ended


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.processes.close()
    children.wait_for(len(children.ended) + len(children.processes._pids))


def test_the_end_of_each_is_noticed_once_with_its_code(children: Children) -> None:
    children.program = "import sys; sys.exit(3 + int(sys.argv[2]))"
    children.processes.start(0)
    children.processes.start(1)
    assert sorted(children.wait_for(2)) == [(0, 3), (1, 4)]
    children.processes.look()
    assert len(children.ended) == 2
    children.processes.send(0, signal.SIGTERM)  # it has ended
    children.processes.start(0)
    assert children.wait_for(3)[2] == (0, 3)


def test_a_signal_ends_one_and_not_the_others(children: Children) -> None:
    children.processes.start(0)
    children.processes.start(1)
    children.processes.look()
    assert children.ended == []
    children.processes.send(1, signal.SIGKILL)
    assert children.wait_for(1) == [(1, -signal.SIGKILL)]


def test_a_program_that_is_not_there_is_an_error_and_no_process(children: Children) -> None:
    children.path = "/no/such/program"
    with pytest.raises(FileNotFoundError):
        children.processes.start(0)
    children.path = sys.executable
    children.processes.start(0)


def test_they_end_with_their_supervisor_however_it_ends() -> None:
    program = (
        "import os, signal, sys\n"
        "from topics.server.cores.core_processes import ChildProcesses, CoreProgram\n"
        "child = 'import os, sys; os.read(int(sys.argv[1]), 1)'\n"
        "def program(core, life):\n"
        "    return CoreProgram(sys.executable, [sys.executable, '-S', '-c', child, str(life)], os.environ)\n"
        "processes = ChildProcesses(program, print)\n"
        "processes.start(0); processes.start(1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # Its children have the write end of this pipe, too, so that its end is that of the last of
    # them.
    ends, held = os.pipe()
    os.set_inheritable(held, True)
    supervisor = subprocess.Popen([sys.executable, "-c", program], stdout=held, stderr=held)
    os.close(held)
    assert supervisor.wait() == -signal.SIGKILL
    waiting = select.poll()  # the descriptor may be a large one
    waiting.register(ends, select.POLLIN)
    assert waiting.poll(60_000)
    assert os.read(ends, 1000) == b""
    os.close(ends)
