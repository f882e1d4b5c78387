"""The modules of `topics/` as syntax trees, parsed once in a process, and questions about their nodes."""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

TOPICS = Path(__file__).resolve().parents[3] / "topics"
Question = Callable[[ast.AST], bool]


@cache
def text(path: Path) -> str:
    return path.read_text()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file; to walk through a tree takes as long as to parse it."""
    found = list(ast.walk(tree(path)))
    gc.freeze()  # They live to the end, and tests to come collect garbage.
    return found


@cache
def modules(room: str = ".") -> list[Path]:
    """Return the modules of a folder of `topics/`."""
    return sorted((TOPICS / room).rglob("*.py"))


def name_of(path: Path) -> str:
    """Return the path below `topics/`."""
    return path.relative_to(TOPICS).as_posix()


def counts(room: str, is_one: Question) -> Counter[str]:
    """Count the nodes of a room for which `is_one` holds, by file."""
    return +Counter({name_of(path): sum(map(is_one, nodes(path))) for path in modules(room)})


def places(room: str, is_one: Question) -> set[str]:
    """Return the files of a room that have such a node."""
    return set(counts(room, is_one))


def called(*names: str) -> Question:
    """Ask for a call of a function or method of one of these names."""

    def is_one(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        function = node.func
        return (isinstance(function, ast.Attribute) and function.attr in names) or (
            isinstance(function, ast.Name) and function.id in names
        )

    return is_one


def mentions(*names: str) -> Question:
    """Ask for any use of a function or method of one of these names: also an import, or one without a call."""

    def is_one(node: ast.AST) -> bool:
        word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return (node.name if isinstance(node, ast.alias) else word) in names

    return is_one


def assigned(*names: str) -> Question:
    """Ask for an assignment to an attribute of one of these names."""

    def targets(node: ast.AST) -> Iterator[ast.expr]:
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target

    return lambda node: any(isinstance(target, ast.Attribute) and target.attr in names for target in targets(node))


def read(*names: str) -> Question:
    """Ask for a use of an attribute of one of these names."""
    return lambda node: isinstance(node, ast.Attribute) and node.attr in names
