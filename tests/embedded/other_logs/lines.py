"""The tables of docs/from-other-logs.md, and the tests of their lines."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

import topics
from tests.sim import SimRing
from topics.config import tiny_config

Test = TypeVar("Test", bound=Callable[..., None])
PAGE = Path(__file__).parents[3] / "docs" / "from-other-logs.md"


def lines_of(section: str) -> list[str]:
    """Return the first cells of the table in a section of the page."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    return rows[1:]


class Lines:
    """The lines of one table that tests claim."""

    def __init__(self, section: str) -> None:
        self.section = section
        self.claimed: dict[str, Any] = {}

    def __call__(self, *cells: str) -> Callable[[Test], Test]:
        """Let a test claim lines by their first cells."""

        def claim(test: Test) -> Test:
            for cell in cells:
                assert cell not in self.claimed, f"two tests claim {cell}"
                self.claimed[cell] = test
            return test

        return claim

    def check(self) -> None:
        """Compare the claimed lines with the table's."""
        assert sorted(self.claimed) == sorted(lines_of(self.section))


def append_to_failing_disk(error: int) -> tuple[topics.TopicsError, list[bytes]]:
    """Append a record, and then one whose write fails. Return its error, and what is read then."""
    ring = SimRing(1)
    ring.disk.make_directory("/srv")
    log = topics.Log(tiny_config("/srv/topics"), ring, ring.clock)
    log.append("t", [b"one"])
    ring.faults.fail("write", error, times=100, path_part="wal")
    with pytest.raises(topics.StorageError) as refused:
        log.append("t", [b"two"])
    left = [record.data for record in log.read("t")]
    with contextlib.suppress(topics.StorageError):
        log.close()
    return refused.value, left


def check_usage(program: ModuleType, shown: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run an example's `main` with a directory as its argument, and without one."""
    name = Path(str(program.__file__)).name
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", [name, str(directory)])
        program.main()
        assert shown in capsys.readouterr().out
        patched.setattr("sys.argv", [name])
        with pytest.raises(SystemExit, match=rf"usage: .*{re.escape(name)} DIRECTORY"):
            program.main()
