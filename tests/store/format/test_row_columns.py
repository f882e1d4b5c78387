"""Ranges of frames as a loop finds them and as numpy does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.store.format import row_columns
from topics.store.format.row_columns import contiguous


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 90)), max_size=20))
def test_few_frames_fill_the_same_ranges_as_many_do(frames: list[tuple[int, int]]) -> None:
    lengths = np.array([length for _gap, length in frames], np.uint32)
    gaps = np.array([gap for gap, _length in frames], np.uint32)
    offsets = (np.cumsum(lengths + gaps) - lengths).astype(np.uint32)
    found = []
    for few in (1, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_columns, "_FEW_FRAMES", few)
            found.append(contiguous(offsets, lengths))
    assert found[0] == found[1]
    assert sum(size for _offset, size in found[0]) == lengths.sum()
