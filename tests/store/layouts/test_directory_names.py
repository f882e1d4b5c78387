"""The names of files in a data directory, and the numbers in them."""

from __future__ import annotations

import pytest

from topics.store.layouts.directory_names import edition_of, file_number, index_path, numbered, segment_path


def test_names_of_files() -> None:
    assert segment_path(255, 7) == "topics/00000000000000ff/seg-00000000000000000007.data"
    assert index_path(segment_path(1, 7)).endswith("/seg-00000000000000000007.idx")
    assert numbered("pack-000000000000001f.data", "pack-", ".data") == 31
    assert numbered("pack-1f.data", "pack-", ".data") is None
    assert numbered("snapshot-0000000000000001.tmp", "snapshot-") is None


@pytest.mark.parametrize("edition", [0, 1, 12])
def test_the_name_of_a_segment_has_its_first_seq_and_its_edition(edition: int) -> None:
    path = segment_path(7, 345, edition)
    assert (file_number(path), edition_of(path.rpartition("/")[2])) == (345, edition)
