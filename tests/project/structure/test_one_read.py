"""The read side has one place for each of its rules; docs/internals/read.md says which."""

from __future__ import annotations

import ast

from tests.project.structure.trees import Question, assigned, called, mentions, places, read

SERVING = ("embedded", "engine", "http", "server", "ws")
"""The rooms that read records for clients. Below them checkpoints, recovery and checks read whole files."""
LENT = {"engine/read/chosen_read.py", "store/read/lent_pieces.py"}
"""Where files are lent to a thread of the library, which reads, and then verifies as every read does."""
RENDERERS = {
    "engine/read/render_bulk.py",
    "store/read/render_columns.py",
    "store/read/render_json.py",
    "store/read/text_columns.py",
}
"""The makers of answers out of frames, which C verifies meanwhile."""
FRAMES_IN_C = ("tp_project", "tp_project_jobs", "tp_project_columns", "tp_project_reads", "tp_fill_texts")


def serving(question: Question) -> set[str]:
    """Return the files of rooms that serve for which a question holds."""
    return {file for room in SERVING for file in places(room, question)}


def test_records_are_planned_and_fetched_in_one_place() -> None:
    """Also without a call: a method may be handed on, and a function imported by another name."""
    of_copies = {"embedded/bucket/fetch_copy.py", "embedded/bucket/restore_bucket.py"}
    assert serving(mentions("fetch", "fetch_once")) - of_copies == {"engine/read/frame_read.py"}
    assert places(".", mentions("plan_pieces")) == {"engine/read/frame_read.py"}
    assert places(".", mentions("LentPieces")) | places("store", called("lend")) == LENT
    other_files = {"embedded/bucket/fetch_copy.py", "server/cores/settings_file.py"}
    assert serving(mentions("preadv", "pread", "read_into")) == other_files


def test_frames_that_copies_share_are_made_anew_in_one_place() -> None:
    assert places(".", mentions("reframe")) == {"store/read/own_frames.py"}
    checkpoints = {"store/checkpoint/copy_context.py"}
    assert places(".", mentions("own_frames")) - checkpoints == {"engine/read/frame_read.py"}


def test_a_frame_is_held_against_its_row_in_one_place() -> None:
    """Renderers do it in C; the control frames of a recovery are another matter."""

    def unpacks(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and ast.unparse(node) == "Frame.unpack"

    kept = {"engine/routers/forward_steps.py"}  # frames that a router keeps in memory, which are whole
    assert serving(unpacks) - kept == {"engine/read/frame_read.py"}
    assert places(".", mentions(*FRAMES_IN_C)) == RENDERERS


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
