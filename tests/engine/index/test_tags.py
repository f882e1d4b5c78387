"""Which rows of an index bear a tag that matches."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.fake_store import usage_of
from tests.store.format.frames_by_hand import record_at
from topics.engine.index import tags as tags_module
from topics.engine.index.index import Index
from topics.engine.index.tagged_rows import tagged_mask
from topics.engine.index.tags import Tags
from topics.engine.values.predicate import Predicate
from topics.store.format.catalog import NO_TAG
from topics.store.format.file_table import FileKind, FileTable
from topics.store.format.rows import RowRecord, Rows, pack_rows, tags_in

TAGS = 20_000


class Tag(bytes):
    """Counts how many are looked at."""

    looked_at = 0

    def startswith(self, *given: Any) -> bool:
        Tag.looked_at += 1
        return super().startswith(*given)


@pytest.fixture
def index() -> Index:
    """Seqs 1 .. TAGS, each with a tag of its own, and one without."""
    files = FileTable()
    usage = usage_of(files)
    file = files.add(FileKind.WAL, "")
    index = Index(usage)
    zeros = np.zeros(TAGS + 1, np.uint32)
    tags: list[bytes | None] = [*(Tag(b"chat-%d:x" % at) for at in range(1, TAGS + 1)), None]
    index.append_rows(1, file.file_id, zeros, zeros, zeros, 1, np.zeros(TAGS + 1, np.uint8), tags)
    return index


def matched(index: Index, seqs: list[int], text: str) -> list[int]:
    found = tagged_mask(index, np.array(seqs, np.uint64), Predicate.of(text))
    return [seq for seq, matches in zip(seqs, found.tolist(), strict=True) if matches]


def test_a_filter_takes_what_its_text_says(index: Index) -> None:
    """R-DEL-8, R-RTR-6; in several chunks."""
    seqs = [1, 2, 12, 123, 9000, 12_345, TAGS, TAGS + 1]
    assert matched(index, seqs, "chat-12*") == [12, 123, 12_345]
    assert matched(index, seqs, "chat-12:*") == matched(index, seqs, "chat-12:x") == [12]
    assert matched(index, seqs, "*") == seqs[:-1]
    assert matched(index, seqs, "chat-") == []


def test_a_filter_looks_at_the_tags_of_what_is_to_be_forwarded_alone(index: Index) -> None:
    """A topic may have hundreds of thousands, and a router takes a step a hundred times a second."""
    Tag.looked_at = 0
    assert matched(index, [5, 6, 7, TAGS + 1], "chat-6*") == [6]
    assert Tag.looked_at <= 3


SOME = st.lists(st.none() | st.integers(0, 60).map(lambda at: b"%d" % at), max_size=50)


@settings(deadline=None)
@given(st.lists(st.tuples(SOME, st.integers(0, 40)), max_size=8))
def test_tags_taken_together_are_counted_as_one_by_one(steps: list[tuple[list[bytes | None], int]]) -> None:
    many, tags_module._MANY = tags_module._MANY, 20  # they are spread in the middle
    try:
        one_by_one, together = Tags(), Tags()
        for tags, dropped in steps:
            expected = [NO_TAG if tag is None else one_by_one.take(tag) for tag in tags]
            assert together.take_each(tags) == expected
            gone = np.array(expected[:dropped], np.uint32)
            one_by_one.drop_rows(gone)
            together.drop_rows(gone)
            assert len(one_by_one) == len(together)
            for number in range(one_by_one.numbers_end):
                assert one_by_one.name(number) == together.name(number)
                assert one_by_one.is_borne(number) == together.is_borne(number)
    finally:
        tags_module._MANY = many


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 100])
def test_tags_of_rows_are_theirs_however_many_rows(kind: Any, count: int) -> None:
    records = [RowRecord(b"1", None if at % 3 == 1 else b"" if at % 5 == 0 else b"tag%d" % at) for at in range(count)]
    packed = pack_rows(records)
    rows = Rows(kind(packed.buffer), packed.spans, packed.count, packed.size)
    found = tags_in(rows)
    assert found == [record_at(rows, at).tag for at in range(count)]
    assert all(tag is None or type(tag) is bytes for tag in found or ())
    assert tags_in(pack_rows([RowRecord(b"1")] * count)) is None


@pytest.mark.usefixtures("no_old_garbage")
def test_10000_tags_of_a_write_are_not_taken_by_a_call_each(index: Index) -> None:
    """A write of that many with tags of their own took 25 ms of a pass."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    rows = pack_rows([RowRecord(b"1", b"new-%d" % at) for at in range(10_000)])
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        index.take_tags(tags_in(rows) or [])
    finally:
        sys.setprofile(before)
    assert calls < 100
