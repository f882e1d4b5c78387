"""Modules import each other in one direction, also where only a type checker reads the import.

A circle that only types close is a circle of knowledge: none of its modules can be read, tested or
changed without the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.project.structure.test_layers import ROOT, imported_modules
from tests.project.structure.trees import nodes


def modules() -> Iterator[tuple[str, list[ast.AST]]]:
    """Each module under `topics/`, named as in `imported_modules`, with its nodes."""
    for path in sorted((*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi"))):  # .pyi: the modules in C
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        if name:  # `topics` itself re-exports the library for users; no module imports from it
            yield name, nodes(path)


def imports(trees: Mapping[str, Iterable[ast.AST]]) -> dict[str, set[str]]:
    """The modules among `trees` that each of them imports, wherever the import stands."""
    return {
        name: {target for one in imported_modules(tree) if (target := _module_of(one, trees)) and target != name}
        for name, tree in trees.items()
    }


def _module_of(name: str, known: Mapping[str, object]) -> str:
    """`store.wal.shard` for `store.wal.shard.Shard`; "" for what is in no module of `known`."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def in_a_circle(imported: Mapping[str, set[str]]) -> set[str]:
    """The modules that import themselves, through others."""
    return {name for name in imported if name in _reached_from(name, imported)}


def _reached_from(name: str, imported: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    left = [name]
    while left:
        new = imported[left.pop()] - reached
        reached |= new
        left += new
    return reached


def handed_on(tree: Iterable[ast.AST]) -> set[str]:
    """The names in a module's `__all__` that it imports, each with the module that has it."""
    own = [node for node in tree if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    listed = {name for node in own for name in ast.literal_eval(node.value)}
    return {name for name in imported_modules(tree) if name.rpartition(".")[2] in listed}


def test_a_name_is_imported_from_the_module_that_defines_it() -> None:
    """Modules of the engine hand on values of common/, which callers of the library know, beside their own, and a room
    what is public of it. mypy lets no module hand on what its `__all__` does not list."""
    trees = dict(modules())
    rooms = {name.rpartition(".")[0] for name in trees}
    found = {name: names for name, tree in trees.items() if name not in rooms and (names := handed_on(tree))}
    assert len(found) > 4, "modules hand on names in another way"
    wrong = {
        name: others
        for name, names in found.items()
        if (others := {one for one in names if not (name.startswith("engine.") and one.startswith("common."))})
    }
    assert not wrong


def test_no_modules_import_each_other_however_indirectly_and_for_types_alone() -> None:
    circle = in_a_circle(imports(dict(modules())))
    assert not circle, f"let one import a Protocol beside its user instead: {sorted(circle)}"


def test_an_import_for_types_or_inside_a_function_closes_a_circle() -> None:
    sources = {
        "a": "from topics.b import B",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from topics.c.inner import C",
        "c": "",
        "c.inner": "def late():\n    import topics.a",
        "d": "from topics import a",
    }
    assert in_a_circle(imports({name: [*ast.walk(ast.parse(text))] for name, text in sources.items()})) == {
        "a",
        "b",
        "c.inner",
    }
