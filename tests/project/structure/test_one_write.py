"""Rules that concern every write stand once: rules of `topics/engine/`, found in the syntax tree of all modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.project.structure.trees import (
    TOPICS,
    Question,
    assigned,
    called,
    counts,
    mentions,
    modules,
    name_of,
    nodes,
    places,
    text,
    tree,
)

NUMBERS = "engine/state/topic_numbers.py"
NOT_TOPICS = {
    ("engine/write/lifecycle.py", "change"): "what a frame says of a topic",
    ("store/segments/segment.py", "segment"): "a segment",
}
"""Receivers that have an attribute of the same name as a topic, with what they are."""

APPEND = "engine/write/append.py"
APPENDER = "engine/write/appender.py"
FILLER = "engine/write/batch_filler.py"
LONE = "engine/write/lone_append.py"
TOPIC = "engine/state/topic.py"


def slots_of(path: str, name: str) -> set[str]:
    """The slots of a class."""
    for node in tree(TOPICS / path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__":
                    return set(ast.literal_eval(line.value))
    raise AssertionError(f"{path} has no {name}, or it has no slots")


def changed(path: Path) -> Iterator[tuple[str, str, int]]:
    """(receiver, attribute, line) of every attribute that is assigned or deleted, or whose items are."""
    for node in nodes(path):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            while isinstance(node, ast.Subscript):
                node = node.value
        elif not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)):
            continue
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node.value), node.attr, node.lineno


def test_the_numbers_of_a_topic_change_in_one_module() -> None:
    numbers = slots_of(NUMBERS, "TopicNumbers")
    assert {"head", "next_seq", "last_ts", "reserved", "pending_records", "pending_bytes", "filling"} <= numbers
    found, excused = [], set()
    for source in modules():
        path = name_of(source)
        for receiver, name, line in changed(source):
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


def test_self_is_a_topic_in_no_other_module() -> None:
    """There its attributes may have the names of a topic's numbers."""
    derived, free = set(), []
    for source in modules():
        for node in nodes(source):
            if isinstance(node, ast.ClassDef):
                if {"TopicNumbers", "Topic"} & {ast.unparse(base) for base in node.bases}:
                    derived.add((name_of(source), node.name))
                continue
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.FunctionDef) and "self" in [each.arg for each in inner.args.args]:
                    free.append(f"{name_of(source)}:{inner.lineno}")
    assert derived == {(TOPIC, "Topic")}
    assert not free, f"functions of no class: {free}"


WITH_ANY_NAME = {
    ("embedded/read_only_log.py", "kind"): "a class of the library, whose calls are refused",
    ("engine/index/chunk.py", "self"): "columns of an index that grows",
    ("pipelines/rollup.py", "report"): "sums of a roll-up",
    ("store/repair/check_cores.py", "report"): "sums of a check",
    ("config.py", "self"): "settings, which are frozen",
}
"""Objects whose attributes are set by names that the text does not have, with what they are."""
SETTERS = ("setattr", "__setattr__", "delattr", "__delattr__", "force_setattr", "__set__", "__delete__")
HIDES = ("exec", "eval", "compile", "__dict__", "methodcaller")
"""Names by which an assignment, or the call of one, would be hidden in a text."""


def set_by_name(path: Path) -> Iterator[tuple[str, str, int]]:
    """(receiver, attribute, line) of every attribute that a call of one of SETTERS sets; "" for what is unknown."""
    known: set[ast.expr] = set()
    for call in filter(called(*SETTERS), nodes(path)):
        assert isinstance(call, ast.Call)
        known.add(call.func)
        given = call.args
        if isinstance(call.func, ast.Attribute) and len(given) == 2:
            given = [call.func.value, *given]  # one.__setattr__(name, value)
        name = given[1].value if len(given) == 3 and isinstance(given[1], ast.Constant) else ""
        yield ast.unparse(given[0]) if given else "", str(name), call.lineno
    for node in nodes(path):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.alias):
            word = node.name
        elif isinstance(node, ast.Constant) and node.value in SETTERS:
            word = str(node.value)
        hides = word in HIDES and not (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "re")
        if hides or (word in SETTERS and node not in known):
            yield "", "", getattr(node, "lineno", 0)  # given to something else that calls it


def test_no_number_of_a_topic_is_set_by_its_name_in_a_text() -> None:
    numbers = slots_of(NUMBERS, "TopicNumbers") | {"life"}
    found, excused = [], set()
    for source in modules():
        path = name_of(source)
        for receiver, name, line in set_by_name(source):
            if not name and (path, receiver) in WITH_ANY_NAME:
                excused.add((path, receiver))
            elif not name or name in numbers:
                found.append(f"{path}:{line}: {receiver}.{name}")
    assert not found, f"assign it, so that readers and tests find it: {found}"
    assert excused == set(WITH_ANY_NAME), "an exception that is none any more"


def test_a_topic_itself_changes_none_of_them_either() -> None:
    """They are slots of a class of their own, whose methods are all that Topic has of them."""
    numbers = slots_of(NUMBERS, "TopicNumbers") - {"has_caps"}
    assert not [name for receiver, name, _line in changed(TOPICS / TOPIC) if receiver == "self" and name in numbers]


def asks(name: str) -> Question:
    """A load of this attribute."""
    return lambda node: isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)


def compares(name: str) -> Question:
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


def keys(name: str) -> Question:
    """An item of this attribute is set."""

    def found(node: ast.AST) -> bool:
        stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        return stored and isinstance(node.value, ast.Attribute) and node.value.attr == name  # type: ignore[attr-defined]

    return found


def test_the_time_of_a_record_follows_from_the_one_before_by_one_rule() -> None:
    """In C it stands once more, because it gives out the times of appends that Python publishes together later.

    `tests/store/commits/test_next_batch.py` checks that both are the same rule.
    """
    assert places("engine", compares("last_ts")) == {NUMBERS}
    compared = re.compile(r"[<>]=? *[\w>.-]*last_ts|last_ts\w* *[<>]")
    found = {name_of(path) for path in TOPICS.rglob("*.[ch]") if path.name[0] != "_" and compared.search(text(path))}
    assert found == {"store/format/codec.c"}


def test_whether_seqs_have_to_be_reserved_is_asked_by_one_rule() -> None:
    others = {
        "engine/shared/topic_snapshot.py": "what a snapshot says of a topic",
        "engine/shared/lease_ids.py": "ids of leases",
    }
    assert places("engine", compares("reserved")) == {NUMBERS, *others}
    staged = places("engine", lambda node: isinstance(node, ast.Attribute) and node.attr == "HEAD_RESERVATION")
    read_back = {"engine/recovery/engine_catalog.py", "engine/recovery/known_seqs.py"}
    assert staged == {"engine/write/reservations.py", *read_back}


def test_whether_a_write_may_take_the_short_way_is_one_flag_of_its_topic() -> None:
    """`plain` is its part that does not change with the topic's life: the lane asks it of a topic being created."""
    assert places("engine", asks("has_quota")) == {"engine/state/topic.py"}
    assert counts("engine/write", asks("plain")) == {APPENDER: 1}
    for source in modules():
        path = name_of(source)
        lives = [line for _receiver, name, line in changed(source) if name == "life"]
        assert path in (TOPIC, "engine/state/router.py") or not lives, f"{path}:{lives}: `enter` does that"


def test_records_are_published_in_one_place() -> None:
    decided = ("publish_each", "topic.unstage")
    assert counts("engine", lambda node: isinstance(node, ast.Call) and ast.unparse(node.func) in decided) == {
        APPEND: 2
    }
    assert counts("engine", called("publish_new")) == {APPEND: 1}, "a lone write, which was never pending"
    assert counts("engine", called("index_rows")) == {APPEND: 1}
    assert places("engine", called("index_some")) == {APPEND}
    assert counts("engine", keys("awake")) == {"engine/state/wakes.py": 1}
    assert counts("engine", keys("forwardable")) == {APPEND: 1}


def test_records_are_put_into_the_log_by_one_kind_of_operation() -> None:
    """Its two kinds are distinguished by how many topics they have; a router's adds to it."""
    kinds = {}
    for path in modules("engine"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                kinds[node.name] = [ast.unparse(base) for base in node.bases]
    appends = {name for name, bases in kinds.items() if "Append" in bases}
    assert kinds["Append"] == ["Operation[AppendCore]"]
    assert appends == {"Forward"}
    stages = places("engine", called("stage_records", "stage_prebuilt", "stage_topics", "write_lone"))
    assert stages == {FILLER, LONE, "engine/write/plain_appends.py", "engine/routers/forward.py"}
    assert places("engine", called("next_place")) == {"engine/write/write_streak.py"}, "a lone write after another"


def test_a_commit_is_sealed_judged_and_counted_by_one_class() -> None:
    """Two drivers have its bytes written, in place and through the ring. Neither knows what a commit is."""
    commitment = "store/wal/commitment.py"
    sealed = ("tp_seal_batch", "tp_seal_summed", "tp_frame_batch", "tp_frame_apart")
    assert places(".", mentions(*sealed)) == {commitment}
    assert counts("store", called("judge")) == {commitment: 1}
    assert counts("store", called("on_written")) == {commitment: 2}, "of the log, and of its bound"
    begun = {"store/wal/log_end.py", "store/wal/wal_files.py"}
    assert places("store/wal", assigned("chain", "position")) == {commitment, *begun}, "the end of the log"


READS_FILES = ("archive", "backup", "checkpoint", "disk", "mirror", "recovery", "repair", "segments", "wal")
"""The rooms of the store that read or write files without a format of their own. So do others."""


def test_the_layouts_of_files_are_declared_by_one_room() -> None:
    """An offset that another room counts would be wrong in the next version of a format."""
    rooms = ("engine/routers", "files", "spark", "embedded", "cli", *(f"store/{room}" for room in READS_FILES))

    def declares(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("struct.")

    found = {file for room in rooms for file in places(room, declares)}
    assert not found, f"{found}: topics/store/format/ has the layouts"
