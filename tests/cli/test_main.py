"""The command line as a user types it, without a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from topics import __version__, cli
from topics.cli import doctor as report
from topics.cli.exit_codes import INTERRUPTED
from topics.cli.root_command import app
from topics.cli.root_help import root_help


def test_the_version_is_told_by_the_module_too() -> None:
    done = subprocess.run([sys.executable, "-m", "topics", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"topics {__version__}\n"


@pytest.mark.parametrize(("name", "shown"), [("file", "file"), ("\x1b[31mfile\r", "\\x1b[31mfile\\r")])
def test_an_error_is_one_sentence_whose_names_cannot_write_on_the_terminal(
    tmp_path: Path, name: str, shown: str
) -> None:
    (tmp_path / name).touch()
    command = [sys.executable, "-m", "topics", "doctor", "--data-dir", str(tmp_path / name / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"topics: {tmp_path}/{shown}/data: Not a directory\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((b"backup", b"--url", b"http://127.0.0.1:9", b"--to", b"/tmp/\xff"), "--to is '/tmp/\\udcff'"),
        ((b"put", b"\xff", b"--url", b"http://127.0.0.1:9"), "argument 2 is '\\udcff'"),
    ],
)
def test_a_word_that_is_no_utf8_is_refused_with_its_name(words: tuple[bytes, ...], told: str) -> None:
    command = [sys.executable.encode(), b"-m", b"topics", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"topics: {told}, which is no UTF-8: write it in UTF-8\n")


def test_doctor_tells_the_engine_the_disk_and_the_cost_of_a_commit_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "COMMITS", 3)
    monkeypatch.setattr(report, "FILE_BYTES", 65_536)
    data = tmp_path / "data"
    done = CliRunner().invoke(app, ["doctor", "--data-dir", str(data), "--io", "portable", "--commit", "link"])
    assert done.exit_code == 0, done.output
    for told in ("kernel: ", "engine: portable (--io portable): asked for", "free space: ", "commit: link", "p99"):
        assert told in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["serve", "fsck", "doctor"])
def test_an_option_that_is_empty_is_an_error_and_not_the_default(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--data-dir", ""])
    assert done.exit_code != 0
    assert "--data-dir is empty: give it a value, or leave it out" in done.output


def test_the_exit_code_of_an_interrupted_command_stands_in_one_place() -> None:
    places = [path.name for path in Path(cli.__file__).parent.rglob("*.py") if re.search(r"\b130\b", path.read_text())]
    assert places == ["exit_codes.py"]
    assert f"{INTERRUPTED} interrupted" in root_help()
