"""Every constant, function and class of `topics/` is used: what nothing uses only misleads its readers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.project.structure.trees import modules, name_of, nodes, tree

FOR_TESTS = {
    "bench/workload.py field_names": "compares the page of workloads with the classes",
    "clock.py ManualClock": "the clock of rings without time",
    "config.py tiny_config": "settings that reach every limit",
    "http/pages/guide_pages.py NAMES": "the guides that links may name",
}
NOT_YET: dict[str, str] = {}
NAMED_IN_TEXTS = {
    "cli/backups/promote_command.py promote": "a command that is imported when it is called",
    "cli/commands/completion_command.py completion": "likewise",
    "engine/state/known_producers.py SummedPart": "the type that a cast names",
}


@cache
def used_in(path: Path) -> set[str]:
    """Every name that a module reads, and those that a package exports."""
    found = set[str]()
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias) and path.name == "__init__.py":
            found.add(node.asname or node.name)
    return found


@cache
def used() -> set[str]:
    return set[str]().union(*map(used_in, modules()))


def defined(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module defines, without functions that a decorator takes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.decorator_list or isinstance(node, ast.ClassDef):
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def test_what_a_module_defines_is_used() -> None:
    unused = {
        f"{name_of(path)} {name}"
        for path in modules()
        for name in defined(tree(path).body)
        if name not in (used_in(path) if name.startswith("_") else used())
        if not re.fullmatch(r"__\w+__", name)
    }
    excused = {**FOR_TESTS, **NOT_YET, **NAMED_IN_TEXTS}
    assert unused - set(excused) == set()
    assert set(excused) <= unused, "an exception that is none any more"
