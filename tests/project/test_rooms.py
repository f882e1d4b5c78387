"""Rooms that can be looked through: few entries in each folder, and no file name in two of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

from tests.project.test_tree import tracked

ENTRIES_MAX = 20
TREES = ("topics", "tests")
"""perf/, examples/ and scripts/ are commands, each by itself; docs/ are pages."""
OFTEN = {
    "__init__.py": "Python's name for a package",
    "__main__.py": "Python's name for a command",
    "conftest.py": "pytest's name for what a folder shares",
    "errors.py": "public: `topics.errors`, and those of files, spark and pipelines beside what raises them",
}
"""File names that stand more than once, with the reason: ten at most."""


def paths() -> list[PurePath]:
    return [PurePath(name) for name in tracked() if name.startswith(tuple(f"{tree}/" for tree in TREES))]


def test_no_room_shows_more_than_twenty_entries() -> None:
    entries: dict[PurePath, set[str]] = defaultdict(set)
    for path in paths():
        for folder in path.parents:
            entries[folder].add(path.relative_to(folder).parts[0])
    rooms = {path.parent for path in paths() if path.suffix == ".py"}
    large = {str(room): len(entries[room]) for room in rooms if len(entries[room]) > ENTRIES_MAX}
    assert not large, f"give each a folder or two of its own: {large}"


def test_no_file_name_stands_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        if path.suffix in (".py", ".pyi", ".c", ".h"):
            found[path.name].append(str(path))
    assert len(OFTEN) <= 10
    several = {name for name, places in found.items() if len(places) > 1}
    assert several - set(OFTEN) == set(), {name: found[name] for name in several - set(OFTEN)}
    assert set(OFTEN) <= several, "an exception that is none any more"
