"""The table of commands: true, and all that `topics --help` loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from topics.cli.known_commands import COMMANDS
from topics.cli.lazy_group import load
from topics.cli.root_command import app
from topics.common.settings import TopicSettings
from topics.common.values.configs import FIELDS

HEAVY = ("typer", "rich", "msgspec", "numpy", "asyncio", "socket", "topics.config", "topics.embedded", "topics.engine")
"""Modules that take a while to load."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_the_table_is_there_and_has_help(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert f"topics {name}" in done.output or f"{name} [OPTIONS]" in done.output
    assert load(name).get_short_help_str(200)


def test_help_loads_no_command_and_nothing_that_takes_a_while() -> None:
    script = (
        "import sys; from topics.cli import main; sys.argv = ['topics', '--help']\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "topics.cli.root_help" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not [each for each in loaded if each.startswith("topics.cli.commands")]


def test_help_is_the_same_whether_the_parser_was_asked_for_it_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    done = subprocess.run([sys.executable, "-m", "topics", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == CliRunner().invoke(app, ["--help"]).output
    assert max(map(len, done.stdout.splitlines())) <= 58
    assert all(name in done.stdout for name in (*COMMANDS, "--version"))


def test_all_settings_of_a_topic_can_be_set() -> None:
    assert set(FIELDS) == set(TopicSettings.__annotations__)


def completed(shell: str, line: str) -> list[str]:
    """Return what the command answers a shell that asks for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    environment = {
        **os.environ,
        **words,
        "_TOPICS_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    command = [sys.executable, "-m", "topics"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_commands_of_groups(shell: str) -> None:
    assert all(any(name in line for line in completed(shell, "topics qu")) for name in ("queue",))
    assert any("redrive" in line or "work" in line for line in completed(shell, "topics queue w"))
    assert any("--skip-gaps" in line for line in completed(shell, "topics tail --sk"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_one_that_the_shell_accepts(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing: apt-get install {shell}")
    script = subprocess.run(
        [sys.executable, "-m", "topics", "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    subprocess.run([shell, "-n"], input=script, text=True, check=True)
