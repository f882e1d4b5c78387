"""No second way to do what a write does: found by what code reads, changes and has, not by its name.

`test_one_write.py` names the one place of each rule; a copy under other names would pass it.
"""

from __future__ import annotations

import ast

import pytest

from tests.project.structure.test_one_write import APPEND, NUMBERS, TOPIC
from tests.project.structure.trees import TOPICS, Question, modules, name_of, nodes, places, tree


def functions(path: str) -> list[ast.FunctionDef]:
    return [node for node in nodes(TOPICS / path) if isinstance(node, ast.FunctionDef)]


def changing(name: str) -> set[str]:
    """Return the functions of NUMBERS that change this number of a topic, except its `__init__`."""
    return {
        function.name
        for function in functions(NUMBERS)
        if function.name != "__init__"
        if any(
            isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
            for node in ast.walk(function)
        )
    }


def names(function: str) -> Question:
    """Ask for any use of a function of NUMBERS, also under another name, or given to other code."""

    def found(node: ast.AST) -> bool:
        return (
            (isinstance(node, ast.Attribute) and node.attr == function)
            or (isinstance(node, ast.Name) and node.id == function and isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.alias) and node.asname is not None and node.name == function)
            or (isinstance(node, ast.Constant) and node.value == function)
        )

    return found


RECOVERY = {
    "engine/recovery/engine_catalog.py",
    "engine/routers/router_recovery.py",
    "engine/shared/dormant.py",
}
"""The files of the engine that a start calls with what it has found."""
SHOWS = {
    "publish_each": {APPEND},
    "publish_new": {APPEND},
    "show_holes": {"engine/routers/forward.py"},
    "found_visible": RECOVERY,
}
"""The functions that make records visible, with their callers."""
GIVES_OUT = {
    "stage_each": {APPEND},
    "take_seqs": {APPEND},
    "skip_holes": {"engine/routers/forward.py"},
    "publish_new": {APPEND},
    "found_taken": RECOVERY - {"engine/shared/dormant.py", "engine/routers/router_recovery.py"},
    "begin_writes": RECOVERY - {"engine/routers/router_recovery.py"},
}
"""The functions that give out seqs, with their callers."""


CHANGES_ELSE = {
    "last_ts": {"take_seqs", "publish_new", "found_visible", "stage_each"},
    "last_write_ms": {"publish_new", "publish_each"},
    "pending_records": {"take_seqs", "unstage", "stage_each", "publish_each"},
    "pending_bytes": {"take_seqs", "unstage", "stage_each", "publish_each"},
    "filling": {"enqueue", "fill", "stop_filling"},
    "reserved": {"reserve"},
}
"""By each other number: the functions that change it."""


def test_every_way_to_publish_or_to_give_out_seqs_is_the_append_or_a_start() -> None:
    for number, known in (("head", SHOWS), ("next_seq", GIVES_OUT)):
        assert changing(number) == set(known), f"functions of {NUMBERS} that change `{number}`"
        for name, callers in known.items():
            assert places("engine", names(name)) - {NUMBERS} == callers, f"{name} changes `{number}` of a topic"
            assert not places(".", names(name)) - places("engine", names(name)), f"{name} is a call of the engine"


def test_every_other_number_of_a_topic_is_changed_by_functions_that_are_known() -> None:
    assert {number: changing(number) for number in CHANGES_ELSE} == CHANGES_ELSE


def test_functions_that_change_a_topic_share_their_names_with_no_others() -> None:
    """Otherwise the callers of one could not be distinguished by the text."""
    known = {*SHOWS, *GIVES_OUT}
    defined = {
        f"{name_of(path)} {node.name}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in known
    }
    assert defined == {f"{NUMBERS} {name}" for name in known}


def loads(node: ast.AST) -> set[str]:
    """Return the attributes that are read under a node."""
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load)}


def plain_asks() -> set[str]:
    """The attributes that decide whether a topic is plain."""
    for node in nodes(TOPICS / TOPIC):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.BoolOp)):
            continue
        if ast.unparse(node.targets[0]) == "self.plain":
            return loads(node.value) - {"index", "usage"} | {"expires"}
    raise AssertionError(f"{TOPIC} sets `plain` in another way")


ASKS_MORE = {
    "engine/write/evictions.py log_evictions": "an eviction that no replay would find",
    "engine/state/topic.py set_config": "where `plain` is decided",
}
"""Functions that ask three or more of the things that `plain` asks, with what they decide."""


def test_no_other_function_works_out_whether_a_topic_is_plain() -> None:
    asked = plain_asks()
    assert {"discard", "has_quota"} < asked
    found = {
        f"{name_of(path)} {node.name}"
        for room in ("engine", "http", "ws", "embedded")
        for path in modules(room)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if len(loads(node) & asked) >= 3
    }
    assert found - set(ASKS_MORE) == set(), "read `plain` or `writable`"
    assert set(ASKS_MORE) <= found, "an exception that is none any more"


def methods_taking(*types: str) -> set[str]:
    """Return the methods of the log, as the engine sees it, that have a parameter of such a type."""
    for node in tree(TOPICS / "engine/values/ports.py").body:
        if isinstance(node, ast.ClassDef) and node.name == "LogPort":
            return {
                method.name
                for method in node.body
                if isinstance(method, ast.FunctionDef)
                if any(arg.annotation is not None and ast.unparse(arg.annotation) in types for arg in method.args.args)
            }
    raise AssertionError("the engine has no LogPort")


def test_all_methods_of_the_log_that_take_records_are_known_above() -> None:
    taking = methods_taking("Rows", "TopicRows", "PrebuiltFrames")
    assert taking == {"stage_records", "stage_prebuilt", "stage_topics", "write_lone"}


def bases_of() -> dict[str, set[str]]:
    """By class of the engine, the names of its bases."""
    return {
        node.name: {ast.unparse(base).partition("[")[0] for base in node.bases}
        for path in modules("engine")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    }


def test_what_is_applied_or_fails_with_a_commit_is_an_operation() -> None:
    """A class of another family would publish, and be undone, by rules of its own."""
    bases = bases_of()
    family = {"Operation"}
    while more := {name for name, of in bases.items() if of & family} - family:
        family |= more
    alike = {
        node.name
        for path in modules("engine")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        if {"apply", "fail"} <= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    }
    assert alike - family == {"Staged"}, "the Protocol of operations"
    ends = {
        node.name
        for path in modules("engine")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        if "on_commit" in {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    }
    assert ends == {"Operation", "Append"}, "a commit ends an operation of one topic, or an append of several"


def fields_of(node: ast.ClassDef) -> set[str]:
    """The attributes that an object of a class is made with, without underscores."""
    found = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) if isinstance(each.target, ast.Name)
    }
    for made in node.body:
        if isinstance(made, ast.FunctionDef) and made.name == "__init__":
            for part in ast.walk(made):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    found |= {part.attr.strip("_")} if ast.unparse(part.value) == "self" else set()
    return found


@pytest.mark.parametrize(("name", "room"), [("Append", "engine"), ("Batch", "store"), ("Commitment", "store")])
def test_no_second_class_has_the_fields_of_a_batch(name: str, room: str) -> None:
    """Not a third of them. What two such classes do, each would do by rules of its own."""
    known = {
        node.name: fields_of(node) for path in modules(room) for node in nodes(path) if isinstance(node, ast.ClassDef)
    }
    shape = known.pop(name)
    assert len(shape) >= 10
    assert {other: fields & shape for other, fields in known.items() if 3 * len(fields & shape) >= len(shape)} == {}
