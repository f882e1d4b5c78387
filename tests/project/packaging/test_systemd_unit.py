"""The units of systemd, and the file of settings beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands.command_runs import run
from tests.project.structure.test_tree import ROOT
from topics.cli.config_file import read_config_file
from topics.cli.exit_codes import USAGE

PACKAGING = ROOT / "packaging"
EXPOSURE_MAX = 15
"""Tenths of the exposure level: a unit without a sandbox has 96."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: apt-get install systemd"
)


@pytest.fixture(params=["topics.service", "topics-mirror.service"])
def unit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A unit, with a program that is here."""
    text = (PACKAGING / request.param).read_text()
    path = tmp_path / request.param
    path.write_text(text.replace("/opt/topics/.venv/bin/topics", f"{sys.executable} -m topics"))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@needs_systemd
def test_systemd_understands_the_unit(unit: Path) -> None:
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_sandbox_leaves_little_exposed(unit: Path) -> None:
    done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(unit))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze has no --offline: systemd 250 has it")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_the_unit_waits_for_ready_and_watches_longer_than_the_slowest_write() -> None:
    unit = dict(re.findall(r"^(\w+)=(.*)$", (PACKAGING / "topics.service").read_text(), re.M))
    assert unit["Type"] == "notify"
    assert int(unit["WatchdogSec"]) > 120
    assert unit["KillMode"] == "mixed", "else processes of cores get SIGTERM twice, which hurries them"
    assert unit["LoadCredential"] == "keys:/etc/topics/keys"


def test_the_sandbox_of_a_mirror_is_that_of_a_server() -> None:
    sandboxes = []
    for name in ("topics.service", "topics-mirror.service"):
        _, _, sandbox = (PACKAGING / name).read_text().partition("CapabilityBoundingSet=")
        sandboxes.append(sandbox)
    assert sandboxes[0] == sandboxes[1] != ""


def test_the_unit_of_a_mirror_gives_a_command_that_there_is(tmp_path: Path) -> None:
    """It ends with what it says of the server, not of its options, and a promotion does not start it again."""
    unit = dict(re.findall(r"^(\w+)=(.*)$", (PACKAGING / "topics-mirror.service").read_text(), re.M))
    (tmp_path / "key").write_text("k" * 20)
    places = {"${MIRROR_URL}": "http://127.0.0.1:0", "%S/topics-mirror": str(tmp_path / "m"), "%d": str(tmp_path)}
    words = unit["ExecStart"].split()[1:]
    for name, value in places.items():
        words = [word.replace(name, value) for word in words]
    ran = run(words, tmp_path)
    assert (ran.code, "URL is 'http://127.0.0.1:0'" in ran.err) == (USAGE, True), ran
    assert unit["RestartPreventExitStatus"] == str(USAGE)
    assert unit["LoadCredential"] == "key:/etc/topics/mirror.key"


def test_each_setting_of_the_example_is_one(tmp_path: Path) -> None:
    text = (PACKAGING / "topics.toml").read_text()
    examples = re.findall(r"^# (\w+ = .*)$", text, re.M)
    assert examples
    path = tmp_path / "topics.toml"
    path.write_text("\n".join(examples))
    assert len(read_config_file(str(path))) == len(examples)
    assert read_config_file(str(PACKAGING / "topics.toml")) == {}, "the example changes nothing by itself"
