"""Golden output of each command, on a terminal and in a pipe: `golden/*.txt`.

A command that changes on purpose: `TOPICS_TEST_GOLDEN=write` runs the commands and writes the files.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.cli.commands.command_runs import serving, transcript

GOLDEN = Path(__file__).parent / "golden"
SUBJECTS = sorted(path.name.removesuffix(".tty.txt") for path in GOLDEN.glob("*.tty.txt"))


@pytest.mark.parametrize("where", ["tty", "pipe"])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_commands_print_tables_on_a_terminal_and_json_lines_in_a_pipe(subject: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    golden = GOLDEN / f"{subject}.{where}.txt"
    script = (GOLDEN / f"{subject}.tty.txt").read_text("utf-8")
    with serving(tmp_path) if subject.startswith("served") else nullcontext("") as url:
        found = transcript(script, tmp_path, tty=where == "tty", env={"TOPICS_URL": url} if url else {})
    if os.environ.get("TOPICS_TEST_GOLDEN") == "write":
        golden.write_text(found, "utf-8")
    assert found == golden.read_text("utf-8")
