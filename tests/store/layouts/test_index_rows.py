"""The rows of records as the columns of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topics.store.format.catalog import NO_TAG, RowColumns
from topics.store.format.row_columns import select
from topics.store.layouts.index_rows import index_of


class Looked(Sequence[bytes]):
    """A table of tags that counts how often one of them is looked at."""

    def __init__(self, tags: list[bytes]) -> None:
        self._tags = tags
        self.looks = 0

    def __len__(self) -> int:
        return len(self._tags)

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return self._tags[index]


def test_an_index_made_of_many_pieces_of_one_table_looks_at_each_tag_once_and_has_those_that_occur() -> None:
    """A checkpoint selects some megabytes of rows at a time, which share the table of all of them."""
    table = Looked([b"t%d" % number for number in range(100)])
    none = np.zeros(60, np.uint32)
    tags = np.arange(60, dtype=np.uint32)
    tags[::10] = NO_TAG
    rows = RowColumns(7, np.arange(1, 61, dtype=np.uint64), none, none, none, none.astype(np.uint64), none, tags, table)
    other = rows._replace(seqs=rows.seqs + np.uint64(60), tag_table=[b"t%d" % number for number in range(1, 101)])
    pieces = [select(part, slice(at, at + 5)) for part in (rows, other) for at in range(0, 60, 5)]
    columns = index_of(pieces, 1)
    assert table.looks <= len(table) + 1
    found = [None if number == NO_TAG else columns.tag_table[number] for number in columns.tags.tolist()]
    expected = [None if number % 10 == 0 else b"t%d" % number for number in range(60)]
    assert found == expected + [None if number % 10 == 0 else b"t%d" % (number + 1) for number in range(60)]
    assert set(columns.tag_table) == {tag for tag in found if tag is not None}
