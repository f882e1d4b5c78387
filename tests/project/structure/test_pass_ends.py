"""The end of a pass has its order in one place, and another pass is asked for in one way."""

from __future__ import annotations

import ast

from tests.project.structure.trees import called, modules, name_of, nodes, tree
from topics.loop.loop import PassEnd

LOOP = "loop/loop.py"
SENDS_ARE_THE_LOOPS_OWN = {PassEnd.SENDS.name}
"""The stage that the loop fills by itself."""


def test_each_hook_names_its_stage_and_each_stage_has_a_hook() -> None:
    """A number of its own would be a second order."""
    adds = called("on_pass_end")
    stages = [ast.unparse(node.args[1]) for path in modules() for node in nodes(path) if adds(node)]  # type: ignore[attr-defined]
    wanted = {f"PassEnd.{stage.name}" for stage in PassEnd if stage.name not in SENDS_ARE_THE_LOOPS_OWN}
    assert set(stages) == wanted


def does_nothing(function: ast.AST) -> bool:
    """Return whether a function or lambda without arguments has no effect."""
    if isinstance(function, ast.Lambda):
        return isinstance(function.body, ast.Constant)
    return isinstance(function, ast.FunctionDef) and all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in function.body
    )


def empty_calls(whole: ast.Module, found: list[ast.AST]) -> list[str]:
    """Return the calls that have the loop, or a queue of it, call a function that does nothing."""
    empty = {node.name for node in whole.body if isinstance(node, ast.FunctionDef) if does_nothing(node)}
    schedules = called("call_soon", "call_later", "wait", "_call_later")
    return [
        ast.unparse(node)
        for node in found
        if schedules(node) and isinstance(node, ast.Call) and node.args
        if does_nothing(node.args[-1]) or (isinstance(node.args[-1], ast.Name) and node.args[-1].id in empty)
    ]


def test_another_pass_is_asked_for_in_one_way() -> None:
    found = {name_of(path): calls for path in modules() if (calls := empty_calls(tree(path), nodes(path)))}
    assert found == {LOOP: ["self.call_later(after_ns, _nothing)"]}, "call `another_pass`"


def test_a_call_of_what_does_nothing_is_found() -> None:
    source = """
def _nothing(): "It is empty."
def work(): done()
loop.call_soon(_nothing)
loop.call_later(0, lambda: None)
loop.call_later(0, work)
"""
    whole = ast.parse(source)
    assert len(empty_calls(whole, [*ast.walk(whole)])) == 2
