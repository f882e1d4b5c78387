"""What concerns every write stands once: rules of `topics/engine/`, found in the syntax tree of all modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = "topics/engine/state/topic_numbers.py"
NOT_TOPICS = {
    ("topics/engine/write/lifecycle.py", "change"): "what a frame says of a topic",
    ("topics/store/segments/segment.py", "segment"): "a segment",
    ("topics/files/stored_topic.py", "into"): "a topic as files have it",
}
"""Receivers that have an attribute of the same name as a topic, with what they are."""

ADDS_UP = {"topics/engine/write/append.py", "topics/engine/write/plain_appends.py"}
"""Modules that keep the sum of what is pending, over all topics."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "topics").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def slots_of(path: str, name: str) -> set[str]:
    """The slots of a class."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__":
                    return set(ast.literal_eval(line.value))
    raise AssertionError(f"{path} has no {name}, or it has no slots")


def changed(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """(receiver, attribute, line) of every attribute that is assigned or deleted, or whose items are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            node = node.value
        elif not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)):
            continue
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node.value), node.attr, node.lineno


def test_the_numbers_of_a_topic_change_in_one_module() -> None:
    numbers = slots_of(NUMBERS, "TopicNumbers")
    assert {"head", "next_seq", "last_ts", "reserved", "pending_records", "pending_bytes", "filling"} <= numbers
    found, excused = [], set()
    for path, tree in modules():
        for receiver, name, line in changed(tree):
            if path == NUMBERS or name not in numbers or receiver == "self":
                continue
            if receiver.endswith("usage") and path in ADDS_UP:
                continue
            if (path, receiver) in NOT_TOPICS:
                excused.add((path, receiver))
                continue
            found.append(f"{path}:{line}: {receiver}.{name}")
    assert not found, f"{NUMBERS} says what may happen to them: {found}"
    assert excused == set(NOT_TOPICS), "an exception that is none any more"


def test_a_topic_itself_changes_none_of_them_either() -> None:
    """They are slots of a class of their own, whose methods are all that Topic has of them."""
    tree = ast.parse((ROOT / "topics/engine/state/topic.py").read_text())
    numbers = slots_of(NUMBERS, "TopicNumbers")
    assert not [name for receiver, name, _line in changed(tree) if receiver == "self" and name in numbers]
