"""One word, one thing: names of classes and files against docs/internals/glossary.md."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.project.structure.trees import modules, tree

ROOT = Path(__file__).resolve().parents[2]
OFTEN = {
    "Options": "public: each pipeline is a module with `Options` and `run`",
    "Location": "public: what `Log.locate` returns, and the directories that `topics.files` reads",
    "DataLossError": "public: what a query of Spark and what a pipeline raise",
}
"""Class names that stand more than once, with the reason: ten at most."""
RETIRED = {
    "ahead": "preallocation",
    "alone": "lone, exclusive",
    "copying": "copy context, evacuation",
    "flagging": "delete flags",
    "gathered": "prebuilt, pending",
    "gathering": "live frames",
    "pause": "delay",
    "projection": "renderer",
    "relocate": "evacuation",
    "relocation": "evacuation",
    "scarcity": "low space",
}
"""Words that names used to have, each with what the glossary says instead."""


def classes() -> dict[str, list[str]]:
    """By name, the files in which a class of that name is defined at the top level."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def files() -> set[str]:
    return {path.name for path in (ROOT / "topics").rglob("*.*") if path.suffix in (".py", ".c", ".h")}


def glossary() -> list[tuple[str, str, str]]:
    """(words, meaning, names in the code)"""
    page = (ROOT / "docs" / "internals" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (.+) \| ([^|]*) \|$", page, re.M)
    return [row for row in rows if row[0] not in ("word", "---")]


def words_of(name: str) -> set[str]:
    """{"log", "end"} for `LogEnd` and for `log_end.py`."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name.partition(".")[0])}


IN_ATTRIBUTES = ("alone", "copying", "gathering", "projection", "relocate", "relocation", "scarcity")
"""Retired words that no name in the code has any more. Others still name a time or a step."""


def test_no_name_in_the_code_is_a_word_that_the_glossary_replaced() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in modules()
        for node in ast.walk(tree(path))
        for name in names_in(node)
        if words_of(name) & set(IN_ATTRIBUTES)
    }
    assert not found


def names_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    return [node.arg] if isinstance(node, ast.arg) else []


def test_a_class_name_stands_once() -> None:
    assert len(OFTEN) <= 10
    several = {name: places for name, places in classes().items() if len(places) > 1}
    assert set(several) - set(OFTEN) == set(), {name: several[name] for name in set(several) - set(OFTEN)}
    assert set(OFTEN) <= set(several), "an exception that is none any more"


def test_a_word_of_the_glossary_stands_once() -> None:
    words = [word.strip() for row in glossary() for word in row[0].split(",")]
    assert len(words) > 40
    assert len(words) == len(set(words))


def test_every_name_in_the_glossary_is_one_of_the_code() -> None:
    known = set(classes()) | files()
    for words, _, names in glossary():
        for name in re.findall(r"`([^`]+)`", names):
            assert name in known, f"the glossary names {name} for {words}"


def test_no_private_class_has_the_name_of_a_class_of_the_glossary() -> None:
    named = {name for *_, names in glossary() for name in re.findall(r"`([A-Z]\w+)`", names)}
    twins = {name: places for name, places in classes().items() if name.startswith("_") and name[1:] in named}
    assert not twins


def test_no_class_and_no_file_has_a_word_that_the_glossary_replaced() -> None:
    for name in {*classes(), *files()}:
        for word in words_of(name) & set(RETIRED):
            raise AssertionError(f"{name}: {word!r} is called {RETIRED[word]} (docs/internals/glossary.md)")
