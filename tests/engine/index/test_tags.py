"""Which rows of an index bear a tag that matches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.fake_store import usage_of
from topics.engine.index.index import Index
from topics.engine.routers.forward_steps import matching
from topics.engine.values.predicate import Predicate
from topics.store.format.file_table import FileKind, FileTable

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
    found = matching(index, np.array(seqs, np.uint64), Predicate.of(text))
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
