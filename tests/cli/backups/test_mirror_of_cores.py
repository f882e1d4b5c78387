"""`topics mirror` and `topics promote` as processes, of a server of several cores (R-CORE-19)."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.backups.mirror_processes import Running
from tests.cli.commands.command_runs import run
from tests.server.service.cores_process import CoresProcesses, running
from topics.cli.backups.mirror_command import _follow
from topics.cli.backups.mirror_lock import MirrorPlace
from topics.cli.backups.mirror_status import read_status
from topics.config import Config
from topics.errors import StorageError, UsageError
from topics.loop.choose import open_loop
from topics.store.mirror.mirror import MirrorEnd

NAMES = [f"t{number}" for number in range(6)]


def follow(home: Path, server: CoresProcesses, *options: str, until: str = "follows http") -> Running:
    """Start the mirror; return it once a line that it writes has a text."""
    arguments = ["mirror", f"http://{server.address}", "--to", str(home / "mirror"), "--every-ms", "20", *options]
    return Running(arguments, {"HOME": str(home)}, until)


def status_of(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "mirror" / "status.json").read_bytes())
    return found


def caught_up(home: Path) -> None:
    """Wait until the mirror has all that was acknowledged by now."""
    now_ms = time.time_ns() // 1_000_000
    while status_of(home)["upto_ms"] < now_ms:
        time.sleep(0.005)


def append_to_all(server: CoresProcesses, number: int) -> None:
    for name in NAMES:
        server.append(name, number)


def test_a_mirror_is_promoted_to_as_many_cores_after_all_were_killed(tmp_path: Path) -> None:
    for place in ("first", "new"):
        (tmp_path / place).mkdir()
    settings = {"archive_dir": str(tmp_path / "archive"), "archive_every_ms": 10}
    with running(tmp_path / "first", 3, **settings) as server:
        append_to_all(server, 1)
        mirror = follow(tmp_path, server)
        caught_up(tmp_path)
        mirror.end()
        os.kill(server.pids()[1], signal.SIGKILL)
        mirror = follow(tmp_path, server, until="topics: ")
        server.wait_for("core 1 topics.server: ready")
        append_to_all(server, 2)
        caught_up(tmp_path)
        shown = run(["mirror", "--status", "--to", str(tmp_path / "mirror")], tmp_path)
        assert (shown.code, "ms late" in shown.out) == (0, True), shown
        mirror.end(signal.SIGTERM)
    to = tmp_path / "new" / "data"
    made = run(["promote", "--from", str(tmp_path / "mirror"), "--to", str(to), "--skip", "100"], tmp_path)
    assert (made.code, f"{len(NAMES)} topics, {2 * len(NAMES)} records" in made.out) == (0, True), made
    assert "was not there as a whole" not in made.out
    with running(tmp_path / "new", 3) as server:
        assert [server.records(name) for name in NAMES] == [[1, 2]] * len(NAMES)
        assert min(server.append(name, 3) for name in NAMES) > 102
    again = run(["promote", "--from", str(tmp_path / "mirror"), "--to", str(tmp_path / "other")], tmp_path)
    assert (again.code != 0, "was promoted to" in again.err) == (True, True), again


def test_another_number_of_cores_is_followed_once_its_timeline_is_named(tmp_path: Path) -> None:
    """From one core to two and to three: a promotion has what was there last."""
    for place in ("first", "new"):
        (tmp_path / place).mkdir()
    settings = {"archive_dir": str(tmp_path / "archive"), "archive_every_ms": 10}
    named: list[str] = []
    for cores in (1, 2, 3):
        with running(tmp_path / "first", cores, **settings) as server:
            append_to_all(server, cores)
            if cores > 1:
                refused = follow(tmp_path, server, until="another log now")
                assert refused.ended() == 1, refused.text
                named = ["--timeline", refused.text.partition("give --timeline ")[2].partition(",")[0]]
            mirror = follow(tmp_path, server, *named)
            caught_up(tmp_path)
            mirror.end(signal.SIGTERM)
            assert server.stop() == 0
    to = tmp_path / "new" / "data"
    made = run(["promote", "--from", str(tmp_path / "mirror"), "--to", str(to)], tmp_path)
    assert made.code == 0, made
    with running(tmp_path / "new", 3) as server:
        assert [server.records(name) for name in NAMES] == [[1, 2, 3]] * len(NAMES)


class Follower:
    """A mirror of two cores that fail, after whose first step the server refuses for good."""

    def __init__(self, upto_ms: int) -> None:
        failures = tuple((core, StorageError(f"disk {core} fails")) for core in range(2))
        self.end = MirrorEnd("", upto_ms, (), "a time", 0, 0, again_ms=3_600_000, failures=failures)
        self.steps = 0

    async def step(self, ms: int) -> bool:
        self.steps += 1
        if self.steps > 1:
            raise UsageError("it is another log")
        return True


def test_the_status_counts_times_that_came_twice_and_names_the_cores_that_fail(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    now_ms = time.time_ns() // 1_000_000
    server: Any = SimpleNamespace(server_ms=now_ms, answered_ms=now_ms, has_key=False)
    follower: Any = Follower(now_ms - 5)
    with open_loop(Config()) as loop, pytest.raises(StorageError, match="^it is another log$"):
        _follow(loop, follower, server, MirrorPlace(str(tmp_path)), url="http://a", every_ms=10)
    assert "topics: core 0: disk 0 fails; core 1: disk 1 fails\n" in capfd.readouterr().err
    assert read_status(str(tmp_path)).lag_ms(now_ms) == 3_600_005
