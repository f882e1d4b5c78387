"""Ctrl-C while the modules of the command line load."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

_INTERRUPTED_AT = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell's background jobs are

class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.argv = ["topics", "ls"]
{start}
"""
_SCRIPT = "from topics_command import main\nsys.exit(main())"
MODULES = (
    "topics",
    "logging",
    "topics.errors",
    "topics.cli",
    "topics.cli.output.standard_streams",
    "topics.cli.main",
    "topics.cli.exit_codes",
    "typer",
    "topics.cli.commands.topic_commands",
    "topics.client",
)


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_while_modules_load_ends_the_command_with_130_and_without_a_word(module: str) -> None:
    code = _INTERRUPTED_AT.format(module=module, start=_SCRIPT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_that_the_caller_ignores_stays_ignored() -> None:
    start = f"signal.signal(signal.SIGINT, signal.SIG_IGN)\nsys.argv[1:] = ['--help']\n{_SCRIPT}"
    code = _INTERRUPTED_AT.format(module="topics.cli", start=start)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "topics" in done.stdout


def test_the_installed_command_is_the_script_that_waits_for_ctrl_c() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"topics": "topics_command:main"}
    assert "topics_command" in project["tool"]["setuptools"]["py-modules"]
