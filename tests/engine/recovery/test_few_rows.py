"""Topics with few rows, which a checkpoint copies together: which they are, and what becomes of their rows."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.harness import Harness
from topics.engine.shared.topic_snapshot import TopicImage
from topics.store.format.catalog import FewRows
from topics.store.format.file_table import FileKind
from topics.store.format.log_format import FLAG_COPY


@pytest.fixture
def h() -> Harness:
    return Harness()


def log_of(h: Harness) -> NDArray[np.uint32]:
    return np.array([h.store.log.file.file_id], np.uint32)


def ids_of(h: Harness, *names: str) -> list[int]:
    return [h.engine._core.registry.by_name[name].id for name in names]


def few_of(h: Harness, *names: str, bytes_max: int = 4096) -> FewRows:
    return h.catalog.checkpoints.few_rows(ids_of(h, *names), log_of(h), bytes_max)


def names_of(h: Harness, few: FewRows) -> list[str]:
    registry = h.engine._core.registry
    return [registry.by_id[topic_id].name for topic_id in few.topic_ids.tolist()]


def assert_as_one_by_one(h: Harness, few: FewRows) -> None:
    """Assert that they are the rows and descriptions that each topic has by itself."""
    columns: list[list[int]] = [[], [], [], []]
    counts: list[int] = []
    for topic_id in few.topic_ids.tolist():
        parts = h.catalog.checkpoints.rows_in_files(topic_id, log_of(h))
        counts.append(sum(len(part.seqs) for part in parts))
        for part in parts:
            columns[0] += [part.file_id] * len(part.seqs)
            for column, found in zip(columns[1:], (part.seqs, part.offsets, part.lengths), strict=True):
                column += found.tolist()
    assert few.counts.tolist() == counts
    assert [column.tolist() for column in (few.file_ids, few.seqs, few.offsets, few.lengths)] == columns
    for topic_id, text in zip(few.topic_ids.tolist(), few.descriptions, strict=True):
        one = b"".join(h.catalog.checkpoints.describe(topic_id))
        image, other = (msgspec.json.decode(each, type=TopicImage) for each in (text, one))
        assert image == other


def test_they_have_the_same_rows_and_descriptions_as_one_by_one(h: Harness) -> None:
    h.append(1, 2, name="a", tag="red")
    h.append(3, name="b")
    h.append(4, name="a")
    h.put("c", cap_records=7)
    h.append(5, name="c")
    few = few_of(h, "a", "b", "c")
    assert names_of(h, few) == ["a", "b", "c"]
    assert few.seqs.tolist() == [1, 2, 3, 1, 1]
    assert_as_one_by_one(h, few)


def test_topics_with_dead_rows_queues_expiry_and_readers_are_among_them(h: Harness) -> None:
    h.append(1, name="deleted", tag="x")
    h.append(2, name="deleted", tag="y")
    h.append(3, name="deleted", tag="x")
    h.delete(match="y", name="deleted")
    h.append(1, 2, 3, name="trimmed")
    h.delete(before_seq=3, name="trimmed")
    h.put("capped", cap_records=2)
    h.append(1, 2, 3, 4, name="capped")
    h.put("jobs", type="queue")
    h.append(1, 2, name="jobs")
    h.put("expires", ttl_ms=60_000)
    h.append(1, name="expires")
    h.put("memory", durability="memory")
    h.append(1, name="memory")
    h.append(*range(100), name="many")
    everything = ("deleted", "trimmed", "capped", "jobs", "expires", "memory", "many")
    few = few_of(h, *everything, bytes_max=1 << 16)
    assert names_of(h, few) == list(everything)
    assert few.seqs.tolist()[:5] == [1, 3, 3, 3, 4]
    assert_as_one_by_one(h, few)


def test_the_last_rows_of_a_long_topic_are_taken_if_those_before_them_are_in_files(h: Harness) -> None:
    pack = h.store.new_file(FileKind.SEGMENT)
    for _ in range(2):
        h.append(*range(100), name="a")
        few = few_of(h, "a", bytes_max=1 << 16)
        assert few.counts.tolist() == [100]
        assert h.catalog.checkpoints.moved_few(few, pack.file_id, few.offsets) == []
    h.append(1, 2, 3, name="a")
    few = few_of(h, "a")
    assert few.seqs.tolist() == [201, 202, 203]
    assert_as_one_by_one(h, few)
    h.append(*range(130), name="b")
    assert names_of(h, few_of(h, "a", "b", bytes_max=1 << 16)) == ["a"], "more in the log than is looked at"


def test_those_that_need_a_look_at_each_are_left_out(h: Harness) -> None:
    h.append(1, 2, 3, name="plain")
    h.append("x" * 2000, "y" * 2000, name="large")
    h.put("ephemeral", durability="ephemeral")
    h.append(1, name="ephemeral")
    h.put("was-ephemeral", durability="ephemeral")
    h.append(1, name="was-ephemeral")
    h.put("was-ephemeral", durability="disk")
    h.append(1, name="was-ephemeral")
    everything = ("plain", "large", "ephemeral", "was-ephemeral")
    assert names_of(h, few_of(h, *everything)) == ["plain"]
    assert names_of(h, few_of(h, "large", bytes_max=1 << 20)) == ["large"]
    assert not len(h.catalog.checkpoints.few_rows([], log_of(h), 4096).topic_ids)
    assert not len(h.catalog.checkpoints.few_rows([99], log_of(h), 4096).topic_ids)


def test_rows_in_a_file_that_is_not_emptied_leave_their_topic_out(h: Harness) -> None:
    h.append(1, name="a")
    h.append(1, name="b")
    first = log_of(h)
    h.store.log.file = h.store.new_file(FileKind.WAL)
    h.append(2, name="b")
    few = h.catalog.checkpoints.few_rows(ids_of(h, "a", "b"), first, 4096)
    assert names_of(h, few) == ["a"]
    assert names_of(h, h.catalog.checkpoints.few_rows(ids_of(h, "a", "b"), log_of(h), 4096)) == []
    both = np.array([*first.tolist(), *log_of(h).tolist()], np.uint32)
    few = h.catalog.checkpoints.few_rows(ids_of(h, "a", "b"), both, 4096)
    assert names_of(h, few) == ["a", "b"]
    assert few.file_ids.tolist() == [first[0], first[0], log_of(h)[0]]


def test_rows_move_and_topics_that_have_changed_are_named(h: Harness) -> None:
    for name in ("a", "b", "c", "d"):
        h.append(1, 2, name=name)
    log = h.store.log.file
    few = few_of(h, "a", "b", "c", "d")
    h.delete(before_seq=2, name="b")
    h.append(3, name="c")
    h.delete_topic("d")
    pack = h.store.new_file(FileKind.SEGMENT)
    pack.memory, pack.size = bytearray(log.memory or b""), log.size
    assert h.catalog.checkpoints.moved_few(few, pack.file_id, few.offsets) == [1, 2, 3]
    assert (log.live_rows, pack.live_rows) == (4, 2)
    assert h.seqs(name="a") == [1, 2]
    assert list(h.catalog.checkpoints.topics_in_log()) == ids_of(h, "b", "c")
    # Its next records are in the log, after those in the pack.
    h.append(3, name="a")
    few = few_of(h, "a")
    assert (few.seqs.tolist(), few.counts.tolist()) == ([3], [1])
    assert h.catalog.checkpoints.moved_few(few, pack.file_id, few.offsets) == []
    pack.memory, pack.size = bytearray(log.memory or b""), log.size
    assert (log.live_rows, pack.live_rows) == (4, 3)
    assert h.seqs(name="a") == [1, 2, 3]


def test_a_copy_by_position_or_a_row_below_one_that_was_copied_leaves_its_topic_out(h: Harness) -> None:
    pack = h.store.new_file(FileKind.SEGMENT)
    for name in ("a", "b", "c"):
        h.append(1, 2, name=name)
    by_name = h.engine._core.registry.by_name
    by_name["b"].index.chunks[0].flags[0] |= FLAG_COPY
    last, place = np.array([2], np.uint64), np.array([64], np.uint32)
    assert not len(h.catalog.checkpoints.moved(by_name["c"].id, last, pack.file_id, place, place))
    assert names_of(h, few_of(h, "a", "b", "c")) == ["a"]


def test_rows_with_holes_between_them_move_and_one_that_has_died_is_named(h: Harness) -> None:
    for name in ("a", "b"):
        h.append(1, name=name, tag="x")
        h.append(2, name=name, tag="y")
        h.append(3, name=name, tag="z")
        h.append(4, name=name, tag="z")
        h.delete(match="y", name=name)
    few = few_of(h, "a", "b")
    assert few.seqs.tolist() == [1, 3, 4] * 2
    h.delete(match="x", name="b")
    pack = h.store.new_file(FileKind.SEGMENT)
    pack.memory, pack.size = bytearray(h.store.log.file.memory or b""), h.store.log.file.size
    assert h.catalog.checkpoints.moved_few(few, pack.file_id, few.offsets) == [1]
    assert (h.store.log.file.live_rows, pack.live_rows) == (2, 3)
    assert h.seqs(name="a") == [1, 3, 4]
    chunk = h.engine._core.registry.by_name["a"].index.chunks[0]
    assert (chunk.file_id, chunk.files) == (pack.file_id, ())


def test_parts_have_so_many_bytes_or_one_topic(h: Harness) -> None:
    for name, count in (("a", 1), ("b", 9), ("c", 2), ("d", 2)):
        h.append(*range(count), name=name)
    few = few_of(h, "a", "b", "c", "d")
    row = int(few.lengths[0]) + 256
    for bytes_max, counts in ((1, [[1], [9], [2], [2]]), (4 * row, [[1], [9], [2, 2]]), (1 << 20, [[1, 9, 2, 2]])):
        parts = list(few.parts(bytes_max))
        assert [part.counts.tolist() for part in parts] == counts
        for column in ("topic_ids", "counts", "seqs", "file_ids", "offsets", "lengths"):
            assert np.concatenate([getattr(part, column) for part in parts]).tolist() == getattr(few, column).tolist()
        assert [text for part in parts for text in part.descriptions] == few.descriptions
