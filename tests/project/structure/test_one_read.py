"""The read side has one place for each of its rules; docs/internals/read.md says which."""

from __future__ import annotations

import ast

from tests.project.structure.trees import assigned, called, places, read


def test_records_are_planned_and_fetched_in_one_place() -> None:
    assert places("engine", called("fetch")) == {"engine/read/frame_read.py"}
    assert places("engine", called("plan_pieces")) == {"engine/read/frame_read.py"}


def test_frames_that_copies_share_are_made_anew_in_one_place() -> None:
    assert places(".", called("reframe")) == {"store/read/own_frames.py"}
    assert places("engine", called("own_frames")) == {"engine/read/frame_read.py"}


def test_a_frame_is_held_against_its_row_in_one_place() -> None:
    """Renderers do it in C; the control frames of a recovery are another matter."""
    unpacks = places("engine/read", called("unpack")) | places("engine/queue", called("unpack"))
    assert unpacks == {"engine/read/frame_read.py"}


def test_what_became_of_rows_while_they_were_read_is_asked_in_one_place() -> None:
    kept = {"engine/index/index.py", "engine/read/frame_read.py"}
    others = {
        "engine/read/shared_reads.py",  # a result is shared while nothing has changed
        "engine/state/topic.py",  # where a prefix is deleted
        "engine/verify.py",  # which topics have changed
    }
    assert places("engine", read("removals", "deaths")) - others == kept


def test_a_topic_is_marked_read_in_one_place() -> None:
    """Beside the objects that have the numbers: a topic, and the columns of dormant ones."""
    state = {"engine/state/topic.py", "engine/shared/dormant.py"}
    assert places(".", assigned("last_read_ms", "consumed_ms")) - state == {"engine/read/consumption.py"}


def test_the_bounds_of_a_read_come_from_one_place() -> None:
    bounds = ("default_limit", "default_batch_bytes", "max_batch_bytes")

    def of_config(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in bounds and ast.unparse(node.value).endswith("config")

    assert places(".", of_config) == {"engine/values/read_bounds.py"}


def test_a_reader_that_stays_takes_a_pass_in_one_place() -> None:
    """Feeds and cohorts differ in whom they deliver to, and in what they do next."""
    assert places("engine", called("derive")) == {"engine/delivery/reader_pass.py", "engine/read/shared_reads.py"}
    assert places("engine", called("take_pass")) == {"engine/delivery/cohort.py", "engine/delivery/feed.py"}


def test_read_and_tail_are_worked_out_once_for_the_library_and_the_clients() -> None:
    rooms = ("embedded", "client", "common")
    for told in ("caught_up", "has_begun"):
        found = {place for room in rooms for place in places(room, read(told))}
        assert found - {"common/values/delivered.py"} == {"common/record_steps.py"}
    assert {place for room in rooms for place in places(room, called("next_step"))} == {"common/record_steps.py"}
    seeks = {place for room in rooms for place in places(room, called("pass_gap"))}
    assert seeks == {"common/reader_tail.py", "common/record_steps.py"}, "a tail of a named reader is one generator"


def test_an_engine_and_its_store_are_put_together_in_one_place() -> None:
    def opens_a_store(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and ast.unparse(node) == "Store.open"

    assert places(".", opens_a_store) == {"engine/stored_engine.py"}
    assert places(".", called("end_routers")) == {"engine/stored_engine.py"}
    assert places(".", lambda node: isinstance(node, ast.Name) and node.id == "StoredEngine") == {
        "embedded/restore_call.py",  # a restored directory is opened once
        "embedded/log.py",
        "engine/stored_engine.py",
        "server/processes/composition.py",
    }
