"""Programs that read and start the files of packaging/, where they are here. `make packaging` runs them, too."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.forked import without_settings
from tests.project.packaging.served import wait_for
from tests.project.structure.test_tree import ROOT

CONTAINER = ROOT / "packaging" / "container"

pytestmark = pytest.mark.slow


def profiled() -> tuple[set[str], set[str]]:
    """Return the calls that the profile allows, and those that it answers as unknown, so that glibc makes others."""
    rules = json.loads((CONTAINER / "seccomp.json").read_text())["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    return allowed, {name for rule in rules if rule.get("errnoRet") == 38 for name in rule["names"]}


def ask(address: str, method: str, path: str, body: object = None) -> int:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def left_of(directory: Path) -> list[int]:
    """Return the servers on this directory: a killed strace leaves its own running."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(directory / "data").encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: apt-get install strace")
@pytest.mark.parametrize("io", ["auto", "portable"])
def test_a_server_makes_no_call_that_the_profile_does_not_name(tmp_path: Path, io: str) -> None:
    """From its start to its end, with records, a checkpoint, a backup, an access log and a hangup between."""
    backups, calls, port_file = tmp_path / "backups", tmp_path / "calls", tmp_path / "port"
    backups.mkdir(0o700)
    command = ["strace", "-f", "-c", "-o", str(calls), sys.executable, "-m", "topics", "serve", "--io", io]
    command += ["--data-dir", str(tmp_path / "data"), "--port", "0", "--port-file", str(port_file)]
    given = {
        "TOPICS_ACCESS_LOG": str(tmp_path / "log"),
        "TOPICS_BACKUP_DIR": str(backups),
        "TOPICS_DURABILITY": "fsync",
    }
    environment = without_settings() | given
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stderr is not None
        wait_for(server.stderr, "ready after")
        address = port_file.read_text()
        child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])
        for at in range(20):
            assert ask(address, "POST", "/v0/topics/t", {"records": [{"data": at}]}) in {200, 201}
            assert ask(address, "POST", "/v0/topics/t/diff", {"from_seq": 0}) == 200
        assert ask(address, "POST", "/v0/checkpoint", {}) == 200
        assert ask(address, "POST", "/v0/backups", {"to": str(backups / "first")}) == 200
        assert ask(address, "GET", "/v0/metrics") == 200
        os.kill(child, signal.SIGHUP)
        assert ask(address, "DELETE", "/v0/topics/t", {}) == 200
        os.kill(child, signal.SIGTERM)
        assert server.wait(120) == 0
    finally:
        server.kill()
        server.wait()
        for process in left_of(tmp_path):
            os.kill(process, signal.SIGKILL)
    rows = [line.split() for line in calls.read_text().splitlines()]
    made = {row[-1] for row in rows if row and row[0].replace(".", "").isdigit()} - {"total"}
    allowed, unknown = profiled()
    assert len(made) > 30
    print(f"{len(made)} calls, of {len(allowed)} that are allowed")
    assert made - allowed - unknown == set()


def test_compose_understands_its_file() -> None:
    """Its program checks names, types and references by the schema of the format."""
    if shutil.which("docker-compose") is not None:
        program = ["docker-compose"]
    elif shutil.which("docker") is not None and not subprocess.call(
        ["docker", "compose", "version"], stderr=subprocess.DEVNULL
    ):
        program = ["docker", "compose"]
    else:
        pytest.skip("the compose file is checked by docker-compose, which is not here: apt-get install docker-compose")
    done = subprocess.run(
        [*program, "-f", "compose.yaml", "config", "-q"], cwd=CONTAINER, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_builds() -> None:
    """Its base comes from a registry."""
    for program in ("podman", "buildah", "docker"):
        if shutil.which(program) and not subprocess.call(
            [program, "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ):
            break
    else:
        pytest.skip("the image is built by podman, buildah or a running docker, of which none is here")
    command = [program, "build", "-q", "-f", str(CONTAINER / "Dockerfile"), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and any(text in done.stderr for text in ("dial tcp", "unable to pull", "failed to resolve")):
        pytest.skip(f"the base of the image cannot be had here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr[-2000:]
