"""docs/internals/io_uring.md names the test of each rule; the names must not rot."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_named_in_the_table_exists() -> None:
    named = set(re.findall(r"`(test_\w+|Test\w+)`", (ROOT / "docs/internals/io_uring.md").read_text()))
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    defined = set(re.findall(r"(?:def|class) (\w+)", code))
    assert len(named) > 30
    assert named <= defined
