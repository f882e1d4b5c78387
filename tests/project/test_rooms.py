"""Rooms that can be looked through: few entries in each folder, and no file name in two of them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import PurePath

from tests.project.structure.test_tree import ROOT, tracked

ENTRIES_MAX = 20
TREES = ("topics", "tests")
COMMANDS = ("perf", "scripts")
"""Folders of commands, each by itself, which perf/README.md and the Makefile list: they are no rooms, but the names of
their files are found nowhere else either. examples/ has the names that a reader's own program would have."""
DATA = {
    "topics/bench/workloads": "a file is a workload's name on the command line, and `topics bench list` orders them",
    "tests/long/fuzz/corpus": "a folder is a target of the fuzzer",
}
"""Folders of data that may show more entries, with what orders them instead."""
OFTEN = {
    "__init__.py": "Python's name for a package",
    "__main__.py": "Python's name for a command",
    "conftest.py": "pytest's name for what a folder shares",
    "errors.py": "public: `topics.errors`, and those of files, spark and pipelines beside what raises them",
}
"""File names that stand more than once, with the reason: ten at most."""


def paths(trees: tuple[str, ...] = TREES) -> list[PurePath]:
    return [PurePath(name) for name in tracked() if name.startswith(tuple(f"{tree}/" for tree in trees))]


def test_no_room_shows_more_than_twenty_entries() -> None:
    entries: dict[PurePath, set[str]] = defaultdict(set)
    for path in paths():
        for folder in path.parents:
            if path.name not in {"py.typed", "__main__.py"}:  # they only say that the package has types, and run cli/
                entries[folder].add(path.relative_to(folder).parts[0])
    large = {str(room): len(names) for room, names in entries.items() if len(names) > ENTRIES_MAX}
    assert large.keys() == DATA.keys(), f"give each a folder or two of its own: {large}"
    assert not [path for path in paths() if str(path.parent) in DATA and path.suffix == ".py"], "a room, not data"


OWN_TESTS = ("checkpointer", "claim", "compaction", "engine_catalog", "guard", "leases", "manifest", "plan")
OWN_TESTS += ("pack", "segment")
"""Modules on which much depends, and that once had no test file of their own."""


def test_the_modules_that_hold_the_house_have_a_test_file_each() -> None:
    names = {path.stem for path in paths() if path.parts[0] == "tests"}
    assert {f"test_{module}" for module in OWN_TESTS} <= names


def test_no_file_name_stands_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths((*TREES, *COMMANDS)):
        if path.suffix in (".py", ".pyi", ".c", ".h", ".sh"):
            found[path.name].append(str(path))
    assert len(OFTEN) <= 10
    several = {name for name, places in found.items() if len(places) > 1}
    assert several - set(OFTEN) == set(), {name: found[name] for name in several - set(OFTEN)}
    assert set(OFTEN) <= several, "an exception that is none any more"


def subjects() -> dict[str, set[str]]:
    """Names of test files, without `test_`, by folder, as tests/README.md lists them."""
    rows = re.findall(r"^\| `(tests/[\w/]+)/` \| [^|]+ \|([^|]*)\|$", (ROOT / "tests" / "README.md").read_text(), re.M)
    return {folder: set(re.findall(r"`(\w+)`", names)) for folder, names in rows}


def test_a_test_file_is_named_after_a_module_of_its_room_or_a_subject_that_the_map_lists() -> None:
    modules: dict[str, set[str]] = defaultdict(set)
    for path in paths():
        if path.parts[0] == "topics" and path.suffix in (".py", ".c"):
            modules[path.parts[1]].add(path.stem)
    found: dict[str, set[str]] = {folder: set() for folder in subjects()}
    for path in paths():
        if path.parts[0] == "tests" and path.name.startswith("test_") and path.suffix == ".py":
            of_room = found.setdefault(str(path.parent), set())
            of_room |= {path.stem[5:]} - modules[path.parts[1]]
    listed = subjects()
    assert listed.keys() == found.keys(), f"rows of tests/README.md: {listed.keys() ^ found.keys()}"
    wrong = {folder: names ^ listed[folder] for folder, names in found.items() if names != listed[folder]}
    assert not wrong, f"named after a module of the room, or in its row of tests/README.md, and not both: {wrong}"
