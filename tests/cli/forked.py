"""The command `topics` in a fork of the test's process, which has loaded its modules already.

A process that executes the command takes most of a second of CPU to load them. Tests of the command
itself (tests/server/test_command.py, tests/cli/) and of its memory execute it.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from topics.cli import fsck, main  # noqa: F401 - loaded here, once for all forks
from topics.server import composition  # noqa: F401

_SECONDS = 20
_DESCRIPTORS = 1 << 20


class Ended(NamedTuple):
    """code: the exit code; negative for a signal: that of an alarm ends a server that runs on.

    stderr: what it wrote, also to standard output.
    """

    code: int
    stderr: str


class Forked:
    """A running command, with the methods of `subprocess.Popen` that tests use.

    environment: its variables, and no others.
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
        self.pid = os.fork()
        if self.pid == 0:
            _run(self.arguments, environment, stdin, stderr if stdout is None else stdout, stderr, seconds)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._end(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None and timeout is not None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.arguments, timeout)
            finally:
                os.close(ended)
        code = self._end(0)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def run(arguments: Sequence[str], environment: Mapping[str, str], *, seconds: int = _SECONDS) -> Ended:
    """Run the command to its end, with these variables and no others."""
    with tempfile.TemporaryFile("w+") as file:
        code = Forked(arguments, environment, file.fileno(), seconds=seconds).wait()
        file.seek(0)
        return Ended(code, file.read())


def _run(  # noqa: PLR0917 - the three streams of a process
    arguments: list[str],
    environment: Mapping[str, str],
    stdin: int | None,
    stdout: int,
    stderr: int,
    seconds: int,
) -> NoReturn:
    code = 70
    try:
        gc.freeze()  # what the test's process has left over would close descriptors of this one
        _forget_the_test(seconds)
        streams = (os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, stdout, stderr)
        copies = [os.dup(stream) for stream in streams]  # one of them may be 0, 1 or 2
        for number, copy in enumerate(copies):
            os.dup2(copy, number)
        os.closerange(3, _DESCRIPTORS)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.environ.clear()
        os.environ.update({"TOPICS_VERIFY": "", **environment})  # off, as in a process that executes the command
        sys.argv = ["topics", *arguments]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forget_the_test(seconds: int) -> None:
    """Undo what pytest and earlier tests have set in the process: the log, signals, a dump of stacks."""
    faulthandler.disable()
    logging.disable(logging.NOTSET)
    logging.getLogger().handlers.clear()
    for name in logging.Logger.manager.loggerDict:
        logger = logging.getLogger(name)
        logger.handlers.clear()  # pytest's, whose descriptor may be a file of the server's by now
        logger.setLevel(logging.NOTSET)
        logger.disabled, logger.propagate = False, True
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.alarm(seconds)
