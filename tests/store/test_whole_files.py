"""Whole files: their pieces, joined for few writes."""

from topics.store.disk.whole_files import joined


def test_small_pieces_are_written_together_and_large_ones_as_they_are() -> None:
    large = bytes(1 << 20)
    pieces = [b"a", memoryview(b"bc"), large, b"", b"d", b"e"]
    assert list(joined(pieces)) == [b"abc", large, b"de"]
    assert next(iter(joined([large]))) is large
    assert list(joined([])) == []
