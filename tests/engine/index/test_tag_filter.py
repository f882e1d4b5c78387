"""A filter never hides a tag that is there, and a delete by tag looks only at the chunks that hold it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.engine.fake_store import usage_of
from topics.engine.index.chunk import Dead
from topics.engine.index.index import Index
from topics.engine.index.tag_filter import TagFilter
from topics.engine.index.tagged_search import TaggedSearch
from topics.engine.values.predicate import Predicate
from topics.store.format.catalog import NO_TAG
from topics.store.format.file_table import FileKind, FileTable

ROWS = 100_000


@examples(50)
@given(st.integers(0, (1 << 32) - 2), st.sampled_from([1, 100, 60_000, 10**6, 1 << 31]), st.integers(0, 1000))
def test_a_filter_says_perhaps_of_every_tag_that_is_there(lowest: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    column = np.minimum(lowest + rng.integers(0, width, 500), NO_TAG - 1).astype(np.uint32)
    column[::7] = NO_TAG
    tags = TagFilter(column)
    assert tags.has_untagged
    assert all(tags.may_hold(number) for number in column.tolist() if number != NO_TAG)
    assert not tags.may_hold(NO_TAG)


def test_a_filter_of_near_numbers_is_exact_and_one_of_others_is_hardly_ever_in_vain() -> None:
    near = TagFilter(np.arange(1000, 9000, 2, dtype=np.uint32))
    assert [near.may_hold(number) for number in (998, 1000, 1001, 8998, 8999, 9000)] == [0, 1, 0, 1, 0, 0]
    far = TagFilter(np.random.default_rng(0).choice(10**7, 8192, replace=False).astype(np.uint32))
    assert sum(map(far.may_hold, range(10**7, 10**7 + 10_000))) == 0
    assert sum(map(far.may_hold, range(10**6, 10**6 + 10_000))) < 1000


def test_a_filter_of_rows_without_tags_holds_none() -> None:
    tags = TagFilter(np.full(10, NO_TAG, np.uint32))
    assert tags.has_untagged
    assert not tags.may_hold(0)
    assert not TagFilter(np.array([3], np.uint32)).has_untagged


@pytest.mark.parametrize("match", ["rare", "ra*"])
def test_a_delete_by_tag_looks_at_the_chunks_that_hold_it_alone(match: str) -> None:
    files = FileTable()
    usage = usage_of(files)
    index, file_id = Index(usage), files.add(FileKind.WAL, "").file_id
    rare = {5, 50_000, 50_001}
    column = np.ones(1000, np.uint32)
    for first in range(1, ROWS + 1, 1000):
        tags: list[bytes | None] = [
            b"rare" if seq in rare else b"k%d" % (seq % 500) for seq in range(first, first + 1000)
        ]
        index.append_rows(first, file_id, column, column, column, 1, np.zeros(1000, np.uint8), tags)
    looked, which = [], TaggedSearch._which

    def count(self: TaggedSearch, *given: Any) -> Any:
        looked.append(given)
        return which(self, *given)

    with patch.object(TaggedSearch, "_which", count):
        matching = TaggedSearch(index, Predicate.of(match), ROWS)
        for _ in matching.steps():
            pass
        killed = matching.kill()
    dead = [Dead(each.chunk, each.which) for each in killed]
    assert [each.chunk.first + row for each in dead for row in each.rows.tolist()] == sorted(rare)
    assert len(looked) <= 3, "two chunks, and the last one, which takes rows yet"
    assert index.live == ROWS - 3
