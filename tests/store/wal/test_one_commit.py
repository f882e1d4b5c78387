"""Code that stands once in the log: one body of a commit, one choice, for every caller."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache

import pytest

from tests.project.structure.trees import TOPICS, modules, name_of, nodes

COMMITMENT, CHOICE, SHARD = "store/wal/commitment.py", "store/commits/commit_choice.py", "store/wal/shard.py"
IN_PLACE = "store/wal/in_place_commits.py"
LOG = ("store/commits", "store/wal")
ONCE = {
    "Commit": (COMMITMENT, "how a batch ended is said where it is judged"),
    "judge": (COMMITMENT, "what the results of a commit mean"),
    "tp_seal_batch": (COMMITMENT, "a batch is sealed"),
    "tp_seal_summed": (COMMITMENT, "a batch is sealed"),
    "Choice": (CHOICE, "whether and how a batch is committed is one question"),
    "Held": (CHOICE, "whether and how a batch is committed is one question"),
    "Commitment": (SHARD, "a shard has one commit at a time"),
    "has_one_sender": (SHARD, "whether a caller has the loop to itself is asked once for a batch"),
    "on_queue_depth": (SHARD, "the peak of the queue counts one thing"),
}
"""Calls and constructions, each with the one file of the log that makes them, and why."""


@cache
def calls(*rooms: str) -> dict[str, list[str]]:
    """By the name called (of a function, method or class), the files that call it: of the log, or of these rooms."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (path for room in rooms or LOG for path in modules(room)):
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name == "make_tuple" and isinstance(node.args[0], ast.Name):
                name = node.args[0].id
            found[name].append(name_of(path))
    return found


@pytest.mark.parametrize("name", ONCE)
def test_it_stands_in_one_file(name: str) -> None:
    file, why = ONCE[name]
    assert set(calls()[name]) == {file}, why


def test_no_other_room_makes_up_how_a_batch_ended() -> None:
    assert set(calls(".")["Commit"]) == {COMMITMENT}


def test_both_drivers_call_the_same_halves_and_each_half_seals_or_judges_once() -> None:
    found = calls()
    assert sorted(found["finish"]) == [COMMITMENT, IN_PLACE, SHARD], "a lone write that is not whole, and both drivers"
    assert found["tp_seal_batch"] == found["judge"] == [COMMITMENT]
    assert found["on_queue_depth"] == [SHARD]
    assert found["has_one_sender"] == [SHARD]
    drivers = {"write_now": IN_PLACE, "write_parts_now": IN_PLACE, "commit_nowait": SHARD, "write_nowait": SHARD}
    begun = {driver: found[driver] for driver in drivers}
    assert begun == {driver: [file] for driver, file in drivers.items()}, "each system call of a commit, in one place"


def test_a_lone_write_asks_the_same_question_as_a_group() -> None:
    found = Counter(calls()["choose"])
    assert found[SHARD] == 2, "flush, and the measured places"
    assert found[IN_PLACE] == 3, "the lone write, also after it planned a sync, and those after it"


COUNTERS = "store/wal/counters.py"


def counted() -> Counter[str]:
    """By counter of the log, the number of statements and calls that change it."""
    (counters,) = [node for node in nodes(TOPICS / COUNTERS) if getattr(node, "name", "") == "LogCounters"]
    assert isinstance(counters, ast.ClassDef)
    names = {ast.unparse(line.target) for line in counters.body if isinstance(line, ast.AnnAssign)}
    found = Counter(dict.fromkeys(names, 0))
    for path in modules():
        own = set(ast.walk(counters)) if name_of(path) == COUNTERS else set[ast.AST]()
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                changed: ast.expr = node
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
                changed = node.target.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add":
                changed = node.func.value
            else:
                continue
            if isinstance(changed, ast.Attribute) and changed.attr in names:
                receiver = ast.unparse(changed.value)
                found[changed.attr] += receiver.endswith("counters") or (receiver == "self" and node in own)
    return found


def test_each_counter_of_the_log_counts_one_thing() -> None:
    """Two places that change one may count different things: callbacks here, records there."""
    assert {name: count for name, count in counted().items() if count != 1} == {}


def test_the_peak_of_the_queue_is_that_of_its_depth() -> None:
    given = [
        ast.unparse(argument)
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "on_queue_depth"
        for argument in node.args
    ]
    assert given == ["self.queue_depth"], "the number that the metric of the depth shows, too"
