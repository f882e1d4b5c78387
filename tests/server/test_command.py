"""`topics serve` as a process on this machine's kernel: the port file, requests, signals, exit codes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.forked import run, without_settings
from tests.server.service.cores_process import running
from topics.config import Config
from topics.server import startup
from topics.server.processes import composition

COMMAND = [sys.executable, "-m", "topics", "serve"]


class Process:
    """A running server and how to talk to it."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port_file = directory / "port"
        self.data_dir = directory / "data"
        arguments = ["--data-dir", str(self.data_dir), "--port", "0", "--port-file", str(self.port_file), *options]
        environment = without_settings()
        self.process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment)
        self.log = self.wait_for("ready after")
        self.address = self.port_file.read_text()

    def wait_for(self, text: str) -> str:
        assert self.process.stderr is not None
        log = ""
        for line in self.process.stderr:
            log += line
            if text in line:
                return log
        raise AssertionError(f"the server ended: {log}")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(self.address, timeout=10)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(10)


@pytest.fixture(params=["uring", "portable"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Process]:
    if request.param == "uring":
        from topics.uring.probe import probe  # noqa: PLC0415

        if not probe().ok:
            pytest.skip(f"no io_uring here: {probe().reason}")
    process = Process(tmp_path, "--io", request.param)
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


def test_serve_says_where_it_listens_and_sigterm_ends_it_with_0(process: Process, tmp_path: Path) -> None:
    """R-LIFE-2."""
    assert process.ask("GET", "/readyz")["status"] == "ready"
    assert process.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})["seqs"] == [1]
    assert process.address in process.log
    assert "auth: off, 0 keys" in process.log
    idle = http.client.HTTPConnection(process.address, timeout=10)
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    assert process.stop() == 0
    again = Process(tmp_path)
    assert again.ask("GET", "/v0/topics/t")["head_seq"] == 1
    assert again.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("allowed", [False, True])
def test_a_server_leaves_no_core_dump_unless_it_may(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(startup.resource, "setrlimit", lambda _which, limits: set_to.append(limits))
    monkeypatch.setattr(composition, "connection_limit", lambda _config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        composition.serve(Config(core_dumps=allowed))
    assert [soft for soft, _hard in set_to] == ([] if allowed else [0])


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """R-LIFE-1."""
    process = Process(tmp_path)
    done = run(["serve", "--data-dir", str(process.data_dir), "--port", "0"], os.environ)
    assert process.stop() == 0
    assert done.code == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "environment", "told"),
    [
        (["--host", "0.0.0.0"], {}, "TOPICS_ALLOW_INSECURE_NO_AUTH"),
        ([], {"TOPICS_API_KEYS": "secret:reed"}, "entry 1 of TOPICS_API_KEYS"),
        ([], {"TOPICS_PORT": "x"}, "TOPICS_PORT"),
        (["--io", "magic"], {}, "--io is 'magic': use one of"),
        (["--log-level", "loud"], {}, "--log-level is 'loud': use one of debug, info, warning, error"),
        ([], {"TOPICS_LOG_FORMAT": "xml"}, "TOPICS_LOG_FORMAT is 'xml': use one of text, json"),
        (["--port-file", "/no/such/directory/port"], {}, "/no/such/directory"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, options: list[str], environment: dict[str, str], told: str
) -> None:
    """R-LIFE-1."""
    port = [] if "TOPICS_PORT" in environment else ["--port", "0"]
    done = run(["serve", "--data-dir", str(tmp_path / "data"), *options, *port], {**os.environ, **environment})
    assert done.code == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_said_with_its_remedy(tmp_path: Path) -> None:
    """R-LIFE-1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(["serve", "--data-dir", str(tmp_path / "data"), "--port", str(port)], os.environ)
    assert done.code == 1
    assert f"topics: 127.0.0.1:{port}: Address already in use: choose another port with --port" in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is left of the start"


def test_a_directory_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """R-LIFE-9: also one that others may write to, without advice to change that."""
    (tmp_path / "passwd").write_text("")
    for mode in (0o700, 0o777):
        tmp_path.chmod(mode)
        done = run(["serve", "--data-dir", str(tmp_path), "--port", "0"], os.environ)
        assert (done.code, "chmod" in done.stderr) == (1, False)
        assert f"{tmp_path}/topics" in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["passwd"]


def test_a_hangup_ends_no_server(process: Process) -> None:
    """R-LIFE-10: with and without a file of keys to read again."""
    process.process.send_signal(signal.SIGHUP)
    process.wait_for("no keys are read again")
    assert process.ask("GET", "/readyz")["status"] == "ready"
    assert process.stop() == 0


def test_several_cores_are_one_server_and_become_one_core_again(tmp_path: Path) -> None:
    """13.6: by the option --cores; without it their directory is refused."""
    names = [f"t{number}" for number in range(8)]
    with running(tmp_path, 2, options=["--cores", "2"]) as server:
        assert {server.append(name, number) for number, name in enumerate(names)} == {1}
        for _ in range(4):  # new connections come to both cores
            assert [row["topic"] for row in server.ask("GET", "/v0/topics")[1]["topics"]] == names
            assert server.ask("GET", "/readyz") == (200, {"status": "ready", "wal_replay_complete": True, "topics": 8})
        assert server.ask("GET", "/v0/ws")[0] == 400
        assert server.stop() == 0
    without = [*COMMAND, f"--data-dir={tmp_path}/data", "--port=0"]
    refused = subprocess.run(without, capture_output=True, text=True, env=without_settings(), check=False)
    assert refused.returncode == 1
    assert "made for 2 cores" in refused.stderr
    assert "--cores 2" in refused.stderr
    with running(tmp_path, 1, options=["--cores", "1"]) as server:
        assert [server.records(name) for name in names] == [[number] for number in range(8)]
        assert server.stop() == 0
