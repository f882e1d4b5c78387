"""What concerns every write stands once: rules of `topics/engine/`, found in the syntax tree of all modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NUMBERS = "topics/engine/state/topic_numbers.py"
NOT_TOPICS = {
    ("topics/engine/write/lifecycle.py", "change"): "what a frame says of a topic",
    ("topics/store/segments/segment.py", "segment"): "a segment",
    ("topics/files/stored_topic.py", "into"): "a topic as files have it",
}
"""Receivers that have an attribute of the same name as a topic, with what they are."""

APPEND = "topics/engine/write/append.py"
APPENDER = "topics/engine/write/appender.py"
TOPIC = "topics/engine/state/topic.py"
NOT_TOPICS = {
    ("topics/engine/write/lifecycle.py", "change"): "what a frame says of a topic",
    ("topics/store/segments/segment.py", "segment"): "a segment",
    ("topics/files/stored_topic.py", "into"): "a topic as files have it",
}
"""Receivers that have an attribute of the same name as a topic, with what they are."""

APPEND = "topics/engine/write/append.py"
APPENDER = "topics/engine/write/appender.py"
TOPIC = "topics/engine/state/topic.py"
ENTERS = {
    "topics/engine/recovery/engine_catalog.py",
    "topics/engine/shared/dormant.py",
    "topics/engine/shared/topic_registry.py",
    "topics/engine/write/lifecycle.py",
}
"""Modules in which topics come, change and go."""


@cache
def modules() -> list[tuple[str, ast.Module]]:
    paths = sorted((ROOT / "topics").rglob("*.py"))
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in paths]


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
            if path == APPEND and receiver.endswith("usage"):
                continue  # the sum over all topics
            if (path, receiver) in NOT_TOPICS:
                excused.add((path, receiver))
                continue
            found.append(f"{path}:{line}: {receiver}.{name}")
    assert not found, f"{NUMBERS} says what may happen to them: {found}"
    assert excused == set(NOT_TOPICS), "an exception that is none any more"


def test_a_topic_itself_changes_none_of_them_either() -> None:
    """They are slots of a class of their own, whose methods are all that Topic has of them."""
    tree = ast.parse((ROOT / "topics/engine/state/topic.py").read_text())
    numbers = slots_of(NUMBERS, "TopicNumbers") - {"has_caps"}
    assert not [name for receiver, name, _line in changed(tree) if receiver == "self" and name in numbers]


def places(wanted: Callable[[ast.AST], bool], room: str = "topics/engine/") -> dict[str, int]:
    """How often a rule stands in each module of a room."""
    found: dict[str, int] = {}
    for path, tree in modules():
        if path.startswith(room) and (count := sum(1 for node in ast.walk(tree) if wanted(node))):
            found[path] = count
    return found


def asks(name: str) -> Callable[[ast.AST], bool]:
    """A load of this attribute."""
    return lambda node: isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)


def compares(name: str) -> Callable[[ast.AST], bool]:
    """A comparison with this attribute of a topic, or its maximum with something."""

    def found(node: ast.AST) -> bool:
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("max", "min"):
            parts = node.args
        else:
            return False
        return any(isinstance(part, ast.Attribute) and part.attr == name for part in parts)

    return found


def calls(*names: str) -> Callable[[ast.AST], bool]:
    """A call of a function or method of one of these names."""

    def found(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names

    return found


def keys(name: str) -> Callable[[ast.AST], bool]:
    """An item of this attribute is set."""

    def found(node: ast.AST) -> bool:
        stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        return stored and isinstance(node.value, ast.Attribute) and node.value.attr == name  # type: ignore[attr-defined]

    return found


def test_the_time_of_a_record_follows_from_the_one_before_by_one_rule() -> None:
    assert set(places(compares("last_ts"))) == {NUMBERS}


def test_whether_seqs_have_to_be_reserved_is_asked_by_one_rule() -> None:
    others = {
        "topics/engine/shared/topic_snapshot.py": "what a snapshot says of a topic",
        "topics/engine/shared/lease_ids.py": "ids of leases",
    }
    assert set(places(compares("reserved"))) == {NUMBERS, *others}
    staged = places(lambda node: isinstance(node, ast.Attribute) and node.attr == "HEAD_RESERVATION")
    recovery = "topics/engine/recovery/engine_catalog.py"
    assert set(staged) == {"topics/engine/write/reservations.py", recovery}


def test_whether_a_write_may_take_the_short_way_is_one_flag_of_its_topic() -> None:
    """`plain` is its part that does not change with the topic's life: the lane asks it of a topic being created."""
    assert set(places(asks("has_quota"))) == {"topics/engine/state/topic.py"}
    assert places(asks("plain"), "topics/engine/write/") == {APPENDER: 1}
    for path, tree in modules():
        lives = [line for receiver, name, line in changed(tree) if name == "life" and not receiver.startswith("router")]
        assert path in (TOPIC, "topics/engine/state/router.py") or not lives, f"{path}:{lives}: Topic.enter does that"


def test_records_are_published_in_one_place() -> None:
    decided = ("topic.publish", "topic.unstage")
    assert places(lambda node: isinstance(node, ast.Call) and ast.unparse(node.func) in decided) == {APPEND: 2}
    assert places(calls("publish_new")) == {APPENDER: 1}, "a lone write, which was never pending"
    assert places(calls("index_rows")) == {APPEND: 1, APPENDER: 1}
    assert places(keys("awake")) == {"topics/engine/shared/core.py": 1}
    assert places(keys("forwardable")) == {APPEND: 1}


def test_records_are_put_into_the_log_by_one_kind_of_operation() -> None:
    """Its two kinds are told apart by how many topics they have; a router's adds to it."""
    kinds = {}
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and path.startswith("topics/engine/"):
                kinds[node.name] = [ast.unparse(base) for base in node.bases]
    appends = {name for name, bases in kinds.items() if "Append" in bases}
    assert kinds["Append"] == ["Operation"]
    assert appends == {"Forward"}
    stages = set(places(calls("stage_records", "stage_prebuilt", "stage_topics", "write_lone")))
    assert stages == {APPENDER, "topics/engine/write/plain_appends.py", "topics/engine/routers/forward.py"}


def test_the_layout_of_a_frame_is_declared_by_the_store_alone() -> None:
    imports = places(
        lambda node: isinstance(node, ast.Import) and node.names[0].name == "struct", "topics/engine/routers/"
    )
    assert not imports, f"{imports}: topics/store/format/ knows what lies on the disk"
