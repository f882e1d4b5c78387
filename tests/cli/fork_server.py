"""A small process whose forks run the command `topics`; `tests/cli/forked.py` asks it.

It loads the modules of all commands once and nothing of a test. A fork of the test's process, with
the modules of all tests in hundreds of MiB, takes longer to begin, to run and to end.

Protocol, over the socket that is standard input: a request is 4 bytes of length and JSON, with the
descriptors of its streams beside it; an answer is a number of 8 bytes. The end of the requests ends
the process, and leaves what it has started.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

LENGTH = struct.Struct("<I")
ANSWER = struct.Struct("<q")
RUNS = 1 << 32
"""The answer about a process that runs; of one that has ended, the status that `waitpid` gives."""
_DESCRIPTORS = 1 << 20
VERIFY = {"TOPICS_VERIFY": "1"}
"""Variables of every process that a test starts: its engines compare their counters."""
_ENVIRONMENTS = {"subprocess.Popen": 3, "os.exec": 2, "os.posix_spawn": 2}
"""Events before a process starts, and which of their arguments is its environment."""
_OTHER_PROGRAMS = re.compile(r".*/ldconfig|(.*/)?(redis|nats)-server|topics\.bench\.peers\..+")
"""Programs and modules without an engine that get another environment: from Python's library, which
looks for libraries, and from the bench, whose peers get no variable of topics.
"""


def hold_verified(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to start a process without VERIFY: a hook for audit events, which see all of them.

    Raises: AssertionError.
    """
    if event in _ENVIRONMENTS and not any(map(_OTHER_PROGRAMS.fullmatch, map(os.fsdecode, arguments[1][:3]))):
        environment = arguments[_ENVIRONMENTS[event]]
        if environment is None:
            environment = os.environ
        value = environment.get("TOPICS_VERIFY")
        assert value in ("1", "true", b"1"), f"a test starts a process without TOPICS_VERIFY: {arguments[:2]}"


def serve(requests: socket.socket) -> None:
    """Answer requests until the last one."""
    while True:
        data, streams, _flags, _address = socket.recv_fds(requests, LENGTH.size, 3)
        if not data:
            return
        (length,) = LENGTH.unpack(data)
        request = json.loads(requests.recv(length, socket.MSG_WAITALL))
        if "pid" in request:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            answer = status if pid else RUNS
        else:
            answer = os.fork()
            if answer == 0:
                _run(request, streams)
        for stream in streams:
            os.close(stream)
        requests.sendall(ANSWER.pack(answer))


def _run(request: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    """Run a command like a process that has executed it."""
    from topics.cli import main  # noqa: PLC0415 - loaded by `_load`

    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, _DESCRIPTORS)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(request["seconds"])
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update({**request["environment"], **VERIFY})
        sys.addaudithook(hold_verified)
        sys.argv = ["topics", *request["arguments"]]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _load() -> None:
    """Load every command, and what typer loads when it runs one, once for all forks."""
    import tomllib  # noqa: F401, PLC0415

    from typer.testing import CliRunner  # noqa: PLC0415

    import topics.embedded.opening  # noqa: PLC0415
    import topics.server.processes.composition  # noqa: PLC0415
    import topics.uring.uring_ring  # noqa: F401, PLC0415
    from topics.cli import fsck  # noqa: F401, PLC0415
    from topics.cli.known_commands import COMMANDS  # noqa: PLC0415
    from topics.cli.lazy_group import load  # noqa: PLC0415
    from topics.cli.root_command import app  # noqa: PLC0415

    for known in COMMANDS:
        load(known)
    CliRunner().invoke(app, ["ls", "--data-dir", "/nowhere"])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to all processes of the tests
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _load()
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=os.dup(0)))
