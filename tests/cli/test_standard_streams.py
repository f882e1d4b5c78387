"""Commands whose standard streams are closed or full, or have no reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fork_server import VERIFY

COMMANDS = (
    ["completion", "bash"],
    ["context", "set", "here", "http://h"],
    ["--version"],
    ["--help"],
    ["get", "--help"],
)


def ran(arguments: list[str], redirected: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with what a shell does to its streams."""
    shell = f'exec "$0" -m topics "$@" {redirected}'
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], **VERIFY}
    return subprocess.run(
        ["bash", "-c", shell, sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_output_that_cannot_be_written_is_a_sentence_and_an_exit_code(arguments: list[str], tmp_path: Path) -> None:
    full = ran(arguments, ">/dev/full", tmp_path)
    assert (full.returncode, full.stderr) == (1, "topics: stdout: No space left on device\n")
    closed = ran(arguments, ">&-", tmp_path)
    assert (closed.returncode, closed.stderr) == (1, "topics: stdout: Bad file descriptor\n")


def test_a_command_whose_reader_has_left_ends_as_by_that_signal(tmp_path: Path) -> None:
    for arguments in COMMANDS:
        reader, writer = os.pipe()
        os.close(reader)
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **VERIFY}
        command = [sys.executable, "-m", "topics", *arguments]
        done = subprocess.run(command, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, ""), arguments


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_a_command_without_stderr_has_its_output_and_exit_code(redirected: str, tmp_path: Path) -> None:
    fine = ran(["context", "ls", "-o", "table"], redirected, tmp_path)
    assert (fine.returncode, fine.stdout) == (0, "no contexts\n")
    refused = ran(["context", "use", "absent"], redirected, tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_a_command_without_stdin_finds_its_end(tmp_path: Path) -> None:
    """Records go into no file that the command has opened in the place of a closed stream."""
    put = ran(["put", "t", "--data-dir", str(tmp_path / "data")], "<&- 2>&-", tmp_path)
    assert put.returncode == 2  # the directory is not there
    (tmp_path / "data").mkdir()
    put = ran(["put", "t", "--data-dir", str(tmp_path / "data"), "-o", "table"], "<&-", tmp_path)
    assert (put.returncode, put.stdout) == (0, "t: 0 records\n"), put.stderr
