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


def test_they_have_the_same_rows_and_descriptions_as_one_by_one(h: Harness) -> None:
    h.append(1, 2, name="a", tag="red")
    h.append(3, name="b")
    h.append(4, name="a")
    h.put("c", cap_records=7)
    h.append(5, name="c")
    few = few_of(h, "a", "b", "c")
    assert names_of(h, few) == ["a", "b", "c"]
    parts = [h.catalog.checkpoints.rows_in_files(topic_id, log_of(h)) for topic_id in few.topic_ids.tolist()]
    rows = [part for parts_of_one in parts for part in parts_of_one]
    assert few.seqs.tolist() == [1, 2, 3, 1, 1] == [seq for part in rows for seq in part.seqs.tolist()]
    assert few.offsets.tolist() == [offset for part in rows for offset in part.offsets.tolist()]
    assert few.lengths.tolist() == [length for part in rows for length in part.lengths.tolist()]
    assert few.counts.tolist() == [3, 1, 1]
    for topic_id, text in zip(few.topic_ids.tolist(), few.descriptions, strict=True):
        one = b"".join(h.catalog.checkpoints.describe(topic_id))
        image, other = (msgspec.json.decode(each, type=TopicImage) for each in (text, one))
        assert image == other


def test_those_that_need_a_look_at_each_are_left_out(h: Harness) -> None:
    h.append(1, 2, 3, name="plain")
    h.append(1, 2, 3, name="hole", tag="x")
    h.append("x" * 2000, "y" * 2000, name="large")
    h.append(*range(17), name="many")
    h.put("deleted")
    h.append(1, name="deleted", tag="x")
    h.append(2, name="deleted")
    h.delete(match="x", name="deleted")
    h.delete(before_seq=2, name="hole")
    h.put("job", type="queue")
    h.append(1, name="job")
    h.put("expires", ttl_ms=60_000)
    h.append(1, name="expires")
    h.put("memory", durability="memory")
    h.append(1, name="memory")
    everything = ("plain", "hole", "large", "many", "deleted", "job", "expires", "memory")
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
