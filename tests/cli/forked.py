"""The command `topics` in a fork of the test's process, which has loaded its modules already."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import NamedTuple

from topics.cli import main
from topics.server import composition  # noqa: F401 - loaded here, once for all forks

_SECONDS = 20


class Ended(NamedTuple):
    """code: the exit code; negative for a signal: that of an alarm ends a server that runs on."""

    code: int
    stderr: str


def run(arguments: list[str], environment: Mapping[str, str]) -> Ended:
    """Run the command to its end, with these variables and no others.

    A process of its own takes a second to load the modules; one test of each error that a
    start reports has one.
    """
    with tempfile.TemporaryFile("w+") as file:
        pid = os.fork()
        if pid == 0:
            _run(arguments, environment, file.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        file.seek(0)
        return Ended(status, file.read())


def _run(arguments: list[str], environment: Mapping[str, str], stderr: int) -> None:
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        os.dup2(stderr, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["topics", *arguments]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)
