"""The catalog: what the store asks of the engine at a start and at a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType as PythonFrame
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.harness import Answer, Harness, records
from topics.common.bounded_steps import result_of
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.engine.shared.stored_state import StoredState
from topics.engine.state.producer_part import Part
from topics.engine.values.results import TopicState
from topics.engine.values.topic_config import make_config
from topics.store.format.catalog import NO_TAG, RowColumns
from topics.store.format.file_table import FileKind
from topics.store.format.log_format import FrameType
from topics.store.format.row_columns import select


@pytest.fixture
def h() -> Harness:
    return Harness()


def log_of(h: Harness) -> NDArray[np.uint32]:
    """Ids of the files of the log."""
    return np.array([h.store.log.file.file_id], np.uint32)


def seqs_of(parts: list[RowColumns]) -> list[int]:
    return [seq for part in parts for seq in part.seqs.tolist()]


def id_of(h: Harness, name: str = "t") -> int:
    return h.engine._core.registry.by_name[name].id


def control(catalog: EngineCatalog, kind: FrameType, topic_id: int, seq: int, body: object) -> None:
    catalog.apply_control(kind, topic_id, seq, 0, msgspec.json.encode(body))


# --- where records are ------------------------------------------------------------------------------------------------
def test_live_rows_are_found_by_file_and_by_a_window_of_seqs(h: Harness) -> None:
    h.append(*range(1, 9), tag="a")
    h.append(9, tag="b")
    h.delete(before_seq=3)
    catalog, topic_id, log = h.catalog, id_of(h), log_of(h)
    rows = catalog.checkpoints.rows_in_files
    assert seqs_of(rows(topic_id, log)) == [3, 4, 5, 6, 7, 8, 9]
    assert seqs_of(rows(topic_id, log, first_seq=5, last_seq=7)) == [5, 6, 7]
    assert seqs_of(rows(topic_id, log + 1)) == []
    assert rows(99, log) == []
    (part,) = rows(topic_id, log)
    assert [part.tag_table[number] for number in part.tags.tolist()] == [*[b"a"] * 6, b"b"]


def test_the_bytes_of_rows_are_those_of_their_frames(h: Harness) -> None:
    h.append(1, 2, 3)
    h.append("x" * 100, tag="gone")
    h.append("y" * 100)
    h.delete(match="gone")
    catalog, topic_id, log = h.catalog, id_of(h), log_of(h)
    (part,) = catalog.checkpoints.rows_in_files(topic_id, log)
    assert catalog.checkpoints.bytes_in_files(topic_id, log) == (1, 5, 4, int(part.lengths.sum()))
    assert catalog.checkpoints.bytes_in_files(topic_id, log, last_seq=2) == (1, 2, 2, int(part.lengths[:2].sum()))
    assert catalog.checkpoints.bytes_in_files(topic_id, log + 1) == (0, 0, 0, 0)
    assert catalog.checkpoints.last_in_files(topic_id, log) == 5


def test_a_topic_is_asked_for_while_something_of_it_is_in_the_log(h: Harness) -> None:
    h.append(1, name="a")
    h.append(1, name="b")
    h.put("c", durability="ephemeral")
    h.append(1, name="c")
    catalog, a, b = h.catalog, id_of(h, "a"), id_of(h, "b")
    assert list(catalog.checkpoints.topics_in_log()) == [a, b]
    h.delete(before_seq=2, name="a")
    assert catalog.checkpoints.last_in_files(a, log_of(h)) == 0
    assert catalog.checkpoints.last_in_files(b, log_of(h)) == 1
    assert list(catalog.checkpoints.topics_in_log()) == [b]
    h.append(2, name="a")
    assert list(catalog.checkpoints.topics_in_log()) == [a, b]


def test_rows_move_with_their_places_and_those_that_died_are_named(h: Harness) -> None:
    h.append(1, 2, 3)
    catalog, topic_id = h.catalog, id_of(h)
    (part,) = catalog.checkpoints.rows_in_files(topic_id, log_of(h))
    h.delete(before_seq=2)
    segment = h.store.new_file(FileKind.SEGMENT)
    segment.memory, segment.size = bytearray(h.store.log.file.memory or b""), h.store.log.file.size
    assert catalog.checkpoints.moved(topic_id, part.seqs, segment.file_id, part.offsets, part.lengths).tolist() == [1]
    assert (h.store.log.file.live_rows, segment.live_rows) == (0, 2)
    assert seqs_of(catalog.checkpoints.rows_in_files(topic_id, np.array([segment.file_id], np.uint32))) == [2, 3]
    assert h.seqs() == [2, 3]


def test_a_replay_moves_no_row_that_a_checkpoint_has_copied_already(h: Harness) -> None:
    """A kill kept the checkpoint from recycling the log."""
    h.append(1, 2)
    catalog, topic_id = h.catalog, id_of(h)
    (part,) = catalog.checkpoints.rows_in_files(topic_id, log_of(h))
    first, second = (h.store.new_file(FileKind.SEGMENT) for _ in range(2))
    assert not len(catalog.checkpoints.moved(topic_id, part.seqs[:1], first.file_id, part.offsets[:1]))
    assert not len(catalog.checkpoints.moved(topic_id, part.seqs, second.file_id, part.offsets))
    assert (first.live_rows, second.live_rows) == (1, 1)


# --- what was deleted -------------------------------------------------------------------------------------------------
def test_deletions_are_those_in_segments_of_topics_that_are_there(h: Harness) -> None:
    for name in ("kept", "dropped"):
        h.append(1, 2, 3, name=name, tag="old")
    h.checkpoint()
    h.append(4, name="kept", tag="old")
    for name in ("kept", "dropped"):
        h.delete(match="old", name=name)
    h.delete_topic("dropped")
    for _ in h.catalog.checkpoints.prepare_deletions():
        pass
    found = h.catalog.checkpoints.take_deletions()
    assert [(part.topic_id, part.seqs.tolist()) for part in found] == [(id_of(h, "kept"), [1, 2, 3])]
    assert h.catalog.checkpoints.take_deletions() == []


def test_the_lowest_live_seq_is_above_the_head_of_an_empty_topic(h: Harness) -> None:
    h.append(1, 2, 3)
    catalog, topic_id = h.catalog, id_of(h)
    assert catalog.checkpoints.lowest_live_seq(topic_id) == 1
    h.delete(before_seq=3)
    assert catalog.checkpoints.lowest_live_seq(topic_id) == 3
    h.delete(before_seq=10)
    assert catalog.checkpoints.lowest_live_seq(topic_id) == 4
    assert (catalog.checkpoints.exists(topic_id), catalog.checkpoints.exists(topic_id + 1)) == (True, False)


# --- what the log tells at a start ------------------------------------------------------------------------------------
def created(name: str = "a") -> dict[str, object]:
    return {"name": name, "config": {"durability": "fsync"}}


def test_of_two_creations_of_a_name_the_later_one_counts_in_whatever_order_they_are_read() -> None:
    """Shards are read one after the other."""
    for first, second in ((1, 2), (2, 1)):
        catalog = Harness().catalog
        for topic_id in (first, second):
            control(catalog, FrameType.TOPIC_CREATE, topic_id, 10 * topic_id, created())
        assert (catalog.checkpoints.exists(1), catalog.checkpoints.exists(2)) == (False, True)


def _rows(file_id: int, first: int, *ts: int) -> RowColumns:
    """Rows of a file with consecutive seqs from `first`."""
    count, one = len(ts), np.ones(len(ts), np.uint32)
    seqs = np.arange(first, first + count, dtype=np.uint64)
    flags = np.zeros(count, np.uint8)
    return RowColumns(file_id, seqs, one * 64, one * 48, one, np.array(ts, np.uint64), flags, one * NO_TAG, ())


@pytest.mark.parametrize("first", [3, 4], ids=["adjacent", "with a hole"])
def test_the_times_of_a_topic_never_decrease_whatever_its_segments_say(first: int) -> None:
    h = Harness()
    catalog, file_id = h.catalog, h.store.log.file.file_id
    control(catalog, FrameType.TOPIC_CREATE, 5, 0, created())
    catalog.add_rows(5, _rows(file_id, 1, 100, 200))
    catalog.add_rows(5, _rows(file_id, first, 150, 300))
    topic = h.engine._core.registry.by_name["a"]
    (chunk,) = topic.index.chunks
    assert chunk.ts[: chunk.count].tolist() == [100, 200, *[200] * (first - 2), 300]
    assert topic.index.live == 4


def test_an_older_config_does_not_replace_a_newer_one() -> None:
    h = Harness()
    catalog = h.catalog
    control(catalog, FrameType.TOPIC_CREATE, 1, 10, created())
    for order, cap in ((12, 7), (11, 5)):
        config = {"durability": "fsync", "cap_records": cap}
        control(catalog, FrameType.TOPIC_CONFIG, 1, order, {"config": config})
    result_of(catalog.recovered(power_lost=False))
    assert h.state("a").config.cap_records == 7


def test_what_is_told_of_a_topic_that_is_gone_is_passed_over() -> None:
    h = Harness()
    h.append(1, name="other")
    (rows,) = h.catalog.checkpoints.rows_in_files(id_of(h, "other"), log_of(h))
    catalog = Harness().catalog
    control(catalog, FrameType.TOPIC_CREATE, 1, 10, created())
    control(catalog, FrameType.TOPIC_DELETE, 1, 11, {})
    control(catalog, FrameType.TOPIC_CONFIG, 1, 12, {"config": {}})
    control(catalog, FrameType.HEAD_RESERVATION, 1, 500, {"generation": 1})
    catalog.add_rows(1, rows)
    catalog.add_idempotency(1, b"k", 1, 1, 0)
    assert not result_of(catalog.recovered(power_lost=True))
    assert not catalog.checkpoints.exists(1)


@pytest.mark.parametrize("power_lost", [False, True])
def test_reserved_seqs_become_a_gap_only_where_the_power_failed(power_lost: bool) -> None:
    """R-DUR-6."""
    h = Harness()
    catalog = h.catalog
    control(catalog, FrameType.TOPIC_CREATE, 1, 10, {"name": "a", "config": {"durability": "disk"}})
    control(catalog, FrameType.HEAD_RESERVATION, 1, 500, {"generation": 1})
    assert result_of(catalog.recovered(power_lost=power_lost)) is power_lost
    assert h.state("a").head_seq == (500 if power_lost else 0)
    tombstone = h.diff(name="a").tombstone
    assert (tombstone.gap_to if tombstone else 0) == (500 if power_lost else 0)


def test_a_snapshot_has_what_it_takes_to_begin_without_the_log(h: Harness) -> None:
    h.put("a", cap_records=3, ttl_ms=1000)
    h.append(1, 2, 3, 4, name="a", key=b"k")
    h.put("q", type="queue", leases_durable=True)
    h.delete(before_seq=4, name="a")
    other = Harness()
    result_of(other.catalog.restore(b"".join(h.catalog.checkpoints.snapshot())))
    result_of(other.catalog.recovered(power_lost=False))
    before, after = h.state("a"), other.state("a")
    assert (after.head_seq, after.config, after.incarnation) == (4, before.config, before.incarnation)
    assert other.diff(name="a").tombstone == h.diff(name="a").tombstone
    assert other.append(9, name="a", key=b"k").deduped
    assert other.append(9, name="a").first_seq == 5
    assert other.put("new").created
    assert id_of(other, "new") == id_of(h, "q") + 1


# --- over checkpoints and restarts ------------------------------------------------------------------------------------
def test_topic_ids_and_order_numbers_go_on(h: Harness) -> None:
    h.put("a")
    h.put("b")
    h.delete_topic("b")
    h.checkpoint()
    registry = h.engine._core.registry
    before = (registry.last_id, registry.last_order)
    h.restart()
    registry = h.engine._core.registry
    assert (registry.last_id, registry.last_order) == before


def test_a_checkpoint_moves_rows_and_counts_them_where_they_are(h: Harness) -> None:
    h.append(1, 2, 3, tag="a")
    h.delete(before_seq=2)
    h.checkpoint()
    log = h.store.log.file
    segment = next(file for file in h.store.files if file.kind is FileKind.SEGMENT)
    assert (log.live_rows, segment.live_rows) == (0, 2)
    assert h.catalog.checkpoints.last_in_files(1, np.array([log.file_id], np.uint32)) == 0
    assert list(h.catalog.checkpoints.topics_in_log()) == []
    assert [record["$tag"] for record in h.read(include_tags=True)] == ["a", "a"]
    h.delete(match="a")
    assert segment.live_rows == 0
    deletions = h.catalog.checkpoints.take_deletions()
    assert [part.seqs.tolist() for part in deletions] == [[2, 3]]
    assert h.catalog.checkpoints.take_deletions() == []


def test_records_deleted_while_a_checkpoint_copies_them_are_named(h: Harness) -> None:
    h.append(1, 2, 3, tag="a")
    h.append(4, tag="b")
    catalog = h.catalog
    rows = catalog.checkpoints.rows_in_files(1, np.array([h.store.log.file.file_id], np.uint32))[0]
    h.delete(match="b")
    segment = h.store.new_file(FileKind.SEGMENT)
    died = catalog.checkpoints.moved(1, rows.seqs, segment.file_id, rows.offsets)
    assert died.tolist() == [4]
    assert segment.live_rows == 3
    assert catalog.checkpoints.moved(99, rows.seqs, segment.file_id, rows.offsets).tolist() == [1, 2, 3, 4]
    assert rows.tag_table == [b"a", b"b"]


def test_what_a_topic_says_about_itself_is_enough_to_adopt_it(h: Harness) -> None:
    h.put(cap_records=2)
    h.append(1, 2, 3)
    description = b"".join(h.catalog.checkpoints.describe(1))
    other = Harness()
    other.catalog.adopt(1, description, 0)
    result_of(other.catalog.recovered(power_lost=False))
    state = other.state()
    assert (state.head_seq, state.config.cap_records, state.count) == (3, 2, 0)
    assert other.diff(0).tombstone is not None
    assert other.catalog.checkpoints.exists(1)
    assert other.catalog.checkpoints.lowest_live_seq(1) == 4


def test_topics_of_one_config_share_it_after_a_restart() -> None:
    world = Harness()
    for name in ("a", "b"):
        world.put(name, cap_records=7)
    world.checkpoint()
    world.restart()
    a, b = world.state("a").config, world.state("b").config
    assert a.cap_records == 7
    assert a is b


# --- a snapshot in steps ---
def states(h: Harness) -> list[TopicState]:
    return h.list(page_size=1000).rows


def test_topics_are_told_of_some_at_a_time_and_what_happens_meanwhile_is_in_the_log() -> None:
    h = Harness()
    for number in range(10):
        h.put(f"t{number}", cap_records=3 if number % 2 else 0)
        h.append(1, 2, name=f"t{number}")
    h.checkpoint()  # the rows are in a segment, and the log is cut
    steps = h.catalog.checkpoints.prepare_snapshot(3)
    next(steps)
    h.append(3, 4, name="t0")  # described already
    h.append(3, 4, name="t9")  # not yet
    h.append(3, 4, name="t1")  # its cap takes one
    h.delete_topic("t2")
    h.delete_topic("t8")
    h.put("t2", durability="fsync")
    h.put("new")
    assert sum(1 for _ in steps) == 3
    h.append(5, name="t3")
    h.delete(2, name="t0")
    before = states(h)
    h.snapshot = b"".join(h.catalog.checkpoints.snapshot())
    h.restart()
    assert [(each.name, each.head_seq, each.earliest_seq, each.count, each.incarnation) for each in states(h)] == [
        (each.name, each.head_seq, each.earliest_seq, each.count, each.incarnation) for each in before
    ]


@pytest.mark.usefixtures("no_old_garbage")
def test_no_step_of_a_snapshot_looks_at_all_topics() -> None:
    h = Harness()
    for number in range(2000):
        answer = Answer()
        h.engine.put_topic(f"t{number}", make_config(), answer)
    h.settle()
    h.append(1, name="t7", key=b"k")
    h.append(1, name="t1999", identity=Part(b"p", 0, 0))
    steps = h.catalog.checkpoints.prepare_snapshot(10)
    counts, lines = [], [0]

    def count(_frame: PythonFrame, _event: str, _argument: Any) -> Any:
        lines[0] += 1
        return count

    def lines_of(step: Callable[[], Any]) -> Any:
        lines[0] = 0
        sys.settrace(count)
        try:
            return step()
        finally:
            sys.settrace(before)
            counts.append(lines[0])

    before = sys.gettrace()
    while lines_of(lambda: next(steps, "done")) != "done":
        pass
    h.snapshot = b"".join(lines_of(h.catalog.checkpoints.snapshot))
    assert len(counts) > 200
    assert max(counts) < 1000
    h.restart()
    assert h.append(1, name="t7", key=b"k").deduped
    assert h.append(1, name="t1999", identity=Part(b"p", 0, 0)).deduped


def test_idempotency_keys_are_told_of_a_thousand_at_a_time() -> None:
    """R-IDEM-3: those stored meanwhile are in the log."""
    h = Harness()
    h.put()
    for number in range(2100):
        h.start_append(records(number), key=b"k%d" % number)
    h.settle()
    h.checkpoint()
    steps = h.catalog.checkpoints.prepare_snapshot(64)
    next(steps)
    next(steps)
    h.append(1, key=b"late")
    assert sum(1 for _ in steps) == 2
    h.snapshot = b"".join(h.catalog.checkpoints.snapshot())
    h.restart()
    for key in (b"k0", b"k999", b"k1000", b"k2099", b"late"):
        assert h.append(9, key=key).deduped
    assert not h.append(9, key=b"other").deduped


@pytest.mark.parametrize(("skipped_seqs", "left"), [(10, [4]), (0, [])])
def test_a_restored_delete_leaves_a_record_that_got_the_seq_of_a_failed_write_after_it(
    h: Harness, skipped_seqs: int, left: list[int]
) -> None:
    """Deletes of a router's destination are applied at the end. Only an archive has the log of several starts."""
    h.append(1, 2, 3, 4)
    (rows,) = h.catalog.checkpoints.rows_in_files(id_of(h), log_of(h))
    stored = StoredState(h.loop, h.config)
    catalog = EngineCatalog(h.loop, stored, skipped_seqs=skipped_seqs)
    file_id = stored.files.add(FileKind.WAL, "wal").file_id
    result_of(catalog.restore(None))
    control(catalog, FrameType.TOPIC_CREATE, 1, 10, created())
    catalog.log_begins({})
    catalog._log_rows.note_router(2, 1)
    for chosen in (rows.seqs < 4, rows.seqs == 4):
        part = select(rows._replace(file_id=file_id), chosen)
        catalog.see_rows(1, part)
        catalog.add_rows(1, part)
        if chosen[0]:
            control(catalog, FrameType.DELETE_RECORDS, 1, 4, {"upto": 4, "before": 5})
    result_of(catalog.recovered(power_lost=False))
    assert stored.registry.by_id[1].index.live_seqs(0, 9, 9) == left
