"""States of objects have tables of transitions: found by what is assigned to attributes, not by names."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.project.structure.trees import modules, name_of, nodes, tree

WITHOUT_A_TABLE = {
    "Primitive": "the system call of the next commit, which is chosen anew for each",
    "engine/delivery/cohort.py": "an estimated number of bytes",
    "store/checkpoint/tiering.py": "in which of two directories a segment is; it may be moved back",
}
"""Enums, and modules with numbers, between whose members an attribute changes, with the reason."""


def is_enum(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] in ("Enum", "IntEnum") for base in node.bases)


def members(node: ast.ClassDef) -> set[str]:
    return {
        line.targets[0].id
        for line in node.body
        if isinstance(line, ast.Assign)
        if isinstance(line.targets[0], ast.Name)
    }


@cache
def enums() -> dict[str, set[str]]:
    """The members of each enum of the package; a test says that no name of a class stands twice."""
    return {
        node.name: members(node)
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and is_enum(node)
    }


def pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value


@cache
def constants(path: Path) -> dict[str, str]:
    """By name of a constant of a module: the enum that it is a member of, or "" for a number."""
    found = {}
    for node in tree(path).body:
        for target, value in pairs(node):
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Name) and value.id in enums():
                found.update({name.id: value.id for name in target.elts if isinstance(name, ast.Name)})
            elif isinstance(target, ast.Name) and target.id.isupper():
                if isinstance(value, ast.Constant) and type(value.value) is int:
                    found[target.id] = ""
                elif isinstance(value, ast.Attribute) and ast.unparse(value.value) in enums():
                    found[target.id] = ast.unparse(value.value)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("topics."):
            source = Path(__file__).resolve().parents[3] / (node.module or "").replace(".", "/")
            if source.with_suffix(".py").exists():
                known = constants(source.with_suffix(".py"))
                found.update(
                    {alias.asname or alias.name: known[alias.name] for alias in node.names if alias.name in known}
                )
    return found


def states_in(value: ast.expr, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(enum, member) of each state that an expression may be; the enum of a number is ""."""
    if isinstance(value, ast.IfExp):
        yield from states_in(value.body, names)
        yield from states_in(value.orelse, names)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "check":
        yield from states_in(value.args[-1], names)
    elif isinstance(value, ast.Attribute) and ast.unparse(value.value) in enums():
        yield ast.unparse(value.value), value.attr
    elif isinstance(value, ast.Name) and value.id in names:
        yield names[value.id], value.id


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            yield node


def assigned() -> dict[tuple[str, str], set[str]]:
    """By enum, or by module for numbers, and attribute: the functions that give it a state."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in modules():
        names = constants(path)
        for function in functions(path):
            arguments = {each.arg: ast.unparse(each.annotation) for each in function.args.args if each.annotation}
            known = names | {name: kind for name, kind in arguments.items() if kind in enums()}
            for node in ast.walk(function):
                for target, value in pairs(node):
                    if isinstance(target, ast.Attribute):
                        for kind, state in states_in(value, known):
                            found[kind or name_of(path), target.attr].add(f"{function.name} {state}")
    return found


def changing() -> dict[str, set[str]]:
    """The enums, and the modules with numbers, between whose members an attribute changes, and its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for (kind, attribute), places in assigned().items():
        is_state = kind in enums() or len({place.split()[1] for place in places}) > 1
        if is_state and any(not place.startswith("__init__ ") for place in places):
            found[kind].add(attribute)
    return found


@cache
def tables() -> dict[str, set[str]]:
    """The states that each table of transitions has, by their enum."""
    found = {}
    for path in modules():
        names = constants(path)
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Transitions" and node.args:
                table = node.args[0]
                assert isinstance(table, ast.Dict), f"{name_of(path)}: a table is written out"
                states = [state for key in table.keys if key is not None for state in states_in(key, names)]
                assert len(states) == len(table.keys)
                (kind,) = {kind for kind, _state in states}
                found[kind] = {state for _kind, state in states}
    return found


def test_an_attribute_that_changes_between_states_has_a_table_of_them() -> None:
    found = {kind: attributes for kind, attributes in changing().items() if kind not in tables()}
    assert set(found) - set(WITHOUT_A_TABLE) == set(), f"write a table (common/transitions.py): {found}"
    assert set(WITHOUT_A_TABLE) <= set(found), "an exception that is none any more"


def test_a_table_has_a_row_for_each_state() -> None:
    assert len(tables()) >= 7, "the tables are written in another way"
    for kind, states in tables().items():
        assert states == enums()[kind], kind


LOOKED_BEFORE = {"http/http1/http1_connection.py _next"}
"""Functions that assign a state after their callers have looked into its table."""


def test_a_change_of_state_looks_into_its_table() -> None:
    found, with_tables = set(), set(tables())
    for path in modules():
        names = constants(path)
        for function in functions(path):
            inside = list(ast.walk(function))
            looks = any(isinstance(node, ast.Attribute) and node.attr in ("check", "error") for node in inside)
            if function.name == "__init__" or looks:
                continue
            for target, value in (pair for node in inside for pair in pairs(node)):
                kinds = {kind for kind, _state in states_in(value, names)}
                if isinstance(target, ast.Attribute) and kinds & with_tables:
                    found.add(f"{name_of(path)} {function.name}")
    assert found == LOOKED_BEFORE
