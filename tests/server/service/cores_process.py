"""A server of several cores as processes of this machine, and a client of its one port."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perf.servers import core_pids
from tests.cli.forked import without_settings

_PROGRAM = """
import json, sys
from topics.cli.output.log_lines import log_to_stderr
from topics.config import Config
from topics.server.processes.serve_cores import serve_cores

log_to_stderr("info", "text")
sys.exit(serve_cores(Config(**json.loads(sys.argv[1])), int(sys.argv[2]), "topics.cli.serving.core_process"))
"""
_TRIES = 10_000


@contextlib.contextmanager
def begun(directory: Path, cores: int) -> Iterator[subprocess.Popen[str]]:
    """A supervisor as a process, whose log is in `stderr`."""
    given = {"data_dir": f"{directory}/data", "port": 0}
    arguments = [sys.executable, "-c", _PROGRAM, json.dumps(given), str(cores)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=without_settings()) as process:
        try:
            yield process
        finally:
            process.kill()


class CoresProcesses:
    """A supervisor and its cores, which are ready once it is made.

    options: run the command `topics serve` with these, beside those of the directory; None: call its function.
    """

    def __init__(
        self, directory: Path, cores: int, key: str = "", options: Sequence[str] | None = None, **settings: Any
    ) -> None:
        self.cores = cores
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        given = {"data_dir": f"{directory}/data", "port": 0, "port_file": f"{directory}/port", **settings}
        arguments = [sys.executable, "-c", _PROGRAM, json.dumps(given), str(cores)]
        if options is not None:
            places = [f"--data-dir={given['data_dir']}", "--port=0", f"--port-file={given['port_file']}"]
            arguments = [sys.executable, "-m", "topics", "serve", *places, *options]
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=without_settings())
        try:
            ready = [f"core {core} topics.server: ready after" for core in range(cores)]
            self.log = self.wait_for(*ready, "all cores are ready") if cores > 1 else self.wait_for("ready after")
        except BaseException:
            self.process.kill()
            raise
        self.address = (directory / "port").read_text()

    def wait_for(self, *texts: str) -> str:
        """Wait until each of the texts was in a line of the log, from here on. Return these lines."""
        assert self.process.stderr is not None
        log, missing = "", set(texts)
        for line in self.process.stderr:
            log += line
            missing -= {text for text in missing if text in line}
            if not missing:
                return log
        raise AssertionError(f"it ended without {missing}: {log}")

    def pids(self) -> dict[int, int]:
        """The processes of cores that run, by core."""
        return core_pids(self.process.pid)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask on a new connection, again where there is no answer: it may have come to a core that was just killed."""
        for _ in range(_TRIES):
            connection = http.client.HTTPConnection(self.address, timeout=60)
            try:
                connection.request(method, path, None if body is None else json.dumps(body), self._headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (ConnectionError, http.client.HTTPException):
                continue
            finally:
                connection.close()
        raise AssertionError("no connection had an answer")

    def append(self, topic: str, number: int) -> int:
        """Append a record. Return its seq."""
        status, answer = self.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": number}]})
        assert status in (200, 201), answer
        (seq,) = answer["seqs"]
        return int(seq)

    def records(self, topic: str) -> list[int]:
        """All records: an answer ends before a gap, which a restore leaves after what it has."""
        found: list[int] = []
        answer: dict[str, Any] = {"caught_up": False, "next_from_seq": 0}
        while not answer["caught_up"]:
            status, answer = self.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": answer["next_from_seq"]})
            assert status == 200, answer
            found += [record["data"] for record in answer["records"]]
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def running(directory: Path, cores: int, **settings: Any) -> Iterator[CoresProcesses]:
    """Yield a server, whose supervisor is killed in the end if it was not stopped."""
    server = CoresProcesses(directory, cores, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            os.kill(server.process.pid, signal.SIGCONT)
            server.process.kill()
            server.process.wait()
        if server.process.stderr is not None:
            server.process.stderr.close()


def end_of(pid: int) -> Callable[[], None]:
    """Return a call that waits for the end of a process."""
    fd = os.pidfd_open(pid)

    def wait() -> None:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        ended = waiting.poll(60_000)
        os.close(fd)
        assert ended, f"process {pid} is still there"

    return wait
