"""Rows that die in whole chunks cost no more than chunks; the tags of its rows are counted down in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.engine.fake_store import FakeLoop, usage_of
from tests.engine.harness import Harness
from topics.engine.index import tags as tags_module
from topics.engine.index.chunk import Chunk
from topics.engine.index.index import Index
from topics.engine.index.tags import Tags
from topics.engine.values.step_queue import StepQueue
from topics.store.format.file_table import FileKind, FileTable, StoredFile

ROWS = 60_000
A_STEP = tags_module._A_STEP


class World:
    def __init__(self, tag: Callable[[int], bytes | None]) -> None:
        files = FileTable()
        self.usage = usage_of(files)
        self.usage.reclaim.take_turns()
        self.file: StoredFile = files.add(FileKind.WAL, "")
        self.index = Index(self.usage)
        self.tag = tag
        self.next_seq = 1

    def append(self, count: int) -> None:
        column = np.ones(count, np.uint32)
        seqs = range(self.next_seq, self.next_seq + count)
        stamps = np.array(seqs, np.uint64)
        tags = [self.tag(seq) for seq in seqs]
        zeros = np.zeros(count, np.uint8)
        self.index.append_rows(self.next_seq, self.file.file_id, column, column, column, stamps, zeros, tags)
        self.next_seq += count


def own_tag(seq: int) -> bytes:
    return b"t%d" % seq


class Rows:
    """How many rows are looked at, and how many tags are counted down, one by one."""

    def __init__(self) -> None:
        self.looked_at = self.counted = 0


@pytest.fixture
def rows() -> Iterator[Rows]:
    rows, live_rows, drop_rows = Rows(), Chunk.live_rows, Tags.drop_rows

    def look(chunk: Chunk, start: int, end: int) -> Any:
        rows.looked_at += end - start
        return live_rows(chunk, start, end)

    def count(tags: Tags, numbers: Any) -> None:
        rows.counted += len(numbers)
        drop_rows(tags, numbers)

    with patch.object(Chunk, "live_rows", look), patch.object(Tags, "drop_rows", count):
        yield rows


@pytest.mark.parametrize(
    ("what", "left"),
    [
        (lambda index: index.kill_through(ROWS), 0),
        (lambda index: index.kill_through(ROWS - 10_000), 10_000),
        (lambda index: index.evict_oldest(ROWS - 1, 0, ROWS), 1),
        (lambda index: index.evict_oldest(0, ROWS - 5000, ROWS), 5000),
        (lambda index: index.oldest_through(ROWS - 1, 0, ROWS), ROWS),
        (lambda index: index.last_before(ROWS - 20_000), ROWS),
        (lambda index: index.totals_through(15_000), ROWS),
    ],
)
def test_what_goes_from_below_costs_its_chunks_and_the_rows_of_the_last_one(
    rows: Rows, what: Callable[[Index], object], left: int
) -> None:
    world = World(own_tag)
    world.append(ROWS)
    what(world.index)
    assert rows.looked_at <= 4 * 8192
    assert rows.counted <= A_STEP
    assert world.index.live == world.file.live_rows == world.usage.records == world.usage.bytes == left


def test_what_lies_in_the_log_is_found_without_a_look_at_the_rows_in_segments(rows: Rows) -> None:
    h = Harness()
    h.append(1)
    topic, catalog, log = h.engine._core.registry.by_name["t"], h.catalog, h.store.log.file.file_id
    here = np.array([log], np.uint32)

    def append(count: int) -> Any:
        column, zeros = np.ones(count, np.uint32), np.zeros(count, np.uint8)
        first = topic.index.last_seq + 1
        topic.index.append_rows(first, log, column, column, column, 1, zeros, None)
        return np.arange(first, first + count, dtype=np.uint64)

    for _ in range(6):  # more than a chunk holds: nearly every chunk has rows of two segments
        seqs = append(10_000)
        segment = h.store.new_file(FileKind.SEGMENT).file_id
        catalog.checkpoints.moved(topic.id, seqs, segment, np.ones(len(seqs), np.uint32))
    catalog.checkpoints.moved(topic.id, np.array([1], np.uint64), segment, np.ones(1, np.uint32))
    seqs = append(1000)
    rows.looked_at = 0
    assert [part.seqs.tolist() for part in catalog.checkpoints.rows_in_files(topic.id, here)] == [seqs.tolist()]
    assert catalog.checkpoints.last_in_files(topic.id, here) == seqs[-1]
    assert catalog.checkpoints.bytes_in_files(topic.id, here) == (seqs[0], seqs[-1], 1000, 1000)
    assert rows.looked_at <= 3 * 8192


def test_a_checkpoint_begins_without_a_look_at_each_topic(rows: Rows) -> None:
    h = Harness()
    for number in range(50):
        h.append(1, name=f"t{number}")
    catalog = h.catalog
    rows.looked_at = 0
    ids = list(catalog.checkpoints.topics_in_log())
    assert rows.looked_at == 0
    assert len(ids) == 50
    here = np.array([h.store.log.file.file_id], np.uint32)
    segment = h.store.new_file(FileKind.SEGMENT).file_id
    for topic_id in ids[:20]:
        catalog.checkpoints.moved(topic_id, np.array([1], np.uint64), segment, np.ones(1, np.uint32))
    assert [bool(catalog.checkpoints.last_in_files(topic_id, here)) for topic_id in ids] == 20 * [False] + 30 * [True]
    assert list(catalog.checkpoints.topics_in_log()) == ids[20:]


def test_the_tags_of_very_many_records_are_counted_down_in_turns(rows: Rows) -> None:
    world = World(own_tag)
    world.append(ROWS)
    world.index.evict_oldest(ROWS - 1, 0, ROWS)
    tags = world.index.tags
    assert tags is not None
    assert len(tags) > ROWS - 2 * A_STEP, "they are there until it is their turn"
    most = 0
    while len(world.usage.reclaim):
        before = rows.counted
        world.usage.reclaim.next_pass()
        most = max(most, rows.counted - before)
    assert 0 < most <= 8 * A_STEP
    assert len(tags) == 1
    assert world.index.tags is tags
    world.index.kill_through(ROWS)
    assert world.index.tags is None


def test_the_tags_of_a_topic_that_is_gone_are_given_back_in_turns() -> None:
    h = Harness()
    for _ in range(20):
        h.append(*range(200), tag="x")
    topic = h.engine._core.registry.by_name["t"]
    for seq in range(5000):
        topic.index._take_tag(own_tag(seq))
    tags = topic.index.tags
    assert tags is not None
    h.delete_topic("t")
    reclaim = h.engine._core.usage.reclaim
    sizes = [len(tags)]
    while len(reclaim):
        h.engine.flush()
        sizes.append(len(tags))
    assert sizes[-1] == 0
    assert max(before - after for before, after in pairwise(sizes)) <= 8 * A_STEP
    assert topic.index.tags is None


def test_what_is_evicted_by_each_write_does_not_wait_for_ever_longer(rows: Rows) -> None:
    """Passes that bring and evict more than a step counts: what comes counts down what has gone."""
    world = World(own_tag)
    world.append(20_000)
    for _ in range(30):
        world.append(20_000)
        world.index.evict_oldest(20_000, 0, world.next_seq)
    assert world.index.tags is not None
    assert len(world.index.tags) < 20_000 + 2 * 20_000 + 2 * 8192


def test_a_tag_whose_death_is_not_counted_yet_comes_back_under_its_number() -> None:
    world = World(lambda seq: b"t%d" % (seq % 3000))
    world.append(9000)
    world.index.evict_oldest(8999, 0, 9000)
    world.append(3000)
    while len(world.usage.reclaim):
        world.usage.reclaim.next_pass()
    assert world.index.tags is not None
    assert len(world.index.tags) == 3000
    world.index.kill_through(12_000)
    assert world.index.tags is None


def test_work_takes_so_many_steps_a_pass_and_more_the_longer_there_is_no_end_of_it() -> None:
    steps, log = StepQueue(FakeLoop(), 2, 16, at_once=True), list[str]()

    def work(name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            log.append(name)
            yield

    steps.run(work("now", 1))
    steps.take_turns()
    steps.run(work("a", 3), lambda: log.append("then"))
    steps.run(work("b", 10_000))
    assert log == ["now", "a", "a"]
    steps.next_pass()
    assert log == ["now", "a", "a", "a", "then"]
    counts = []
    while len(steps):
        before = len(log)
        steps.next_pass()
        counts.append(len(log) - before)
    assert (counts[0], max(counts)) == (2, 16)
    assert counts[:-1] == sorted(counts[:-1])
