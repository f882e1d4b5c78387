"""docs/upgrade.md states the formats that this version reads, and those of what it writes."""

from __future__ import annotations

import re
from pathlib import Path

import topics
from topics.store.layouts.directory_names import DIRECTORY_FORMAT, FIRST_DIRECTORY_FORMAT, KNOWN_FORMATS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "upgrade.md").read_text(encoding="utf-8")


def test_the_table_of_formats_has_a_row_for_this_version() -> None:
    rows = re.findall(r"^\| (\d[\d.]*)[^|]* \| ([^|]+) \| (\d+) \| (\d+),[^|]* \|$", PAGE, re.M)
    known = f"{KNOWN_FORMATS[0]} to {KNOWN_FORMATS[-1]}"
    assert (topics.__version__, known, str(FIRST_DIRECTORY_FORMAT), str(DIRECTORY_FORMAT)) in rows
