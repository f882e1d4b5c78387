"""Deletion of records."""

from __future__ import annotations

import pytest

from tests.engine.harness import Harness, records
from topics.errors import RequestError, StorageError
from topics.store.rows import Record, pack_rows


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    tags = [b"chat-42:a", b"chat-42:b", b"chat-420:c", b"", None, b"a*b"]
    harness.start_append(pack_rows([Record(b"%d" % n, tag) for n, tag in enumerate(tags, 1)]))
    harness.settle()
    return harness


@pytest.mark.parametrize(
    ("match", "left"),
    [
        ("chat-42:*", [3, 4, 5, 6]),
        ("chat-42:a", [2, 3, 4, 5, 6]),
        ("", [1, 2, 3, 5, 6]),
        ("*", [5]),
        ("nothing", [1, 2, 3, 4, 5, 6]),
        ("chat-42*", [4, 5, 6]),
    ],
)
def test_eq_is_the_whole_tag_and_glob_a_literal_prefix(h: Harness, match: str, left: list[int]) -> None:
    """R-DEL-8."""
    assert h.delete(match=match).deleted == 6 - len(left)
    assert h.seqs() == left


def test_both_conditions_hold_and_the_floor_stays(h: Harness) -> None:
    """R-DEL-3."""
    assert h.delete(before_seq=2, match="chat*").deleted == 1
    assert h.seqs() == [2, 3, 4, 5, 6]
    assert h.engine._core.registry.by_name["t"].floors.deleted == 0


def test_records_written_later_stay_even_those_of_the_same_pass(h: Harness) -> None:
    """R-DEL-4."""
    deletion = h.start_delete(match="*")
    h.start_append(records(7, tag="chat-42:a"))
    h.settle()
    assert deletion.get().deleted == 5
    assert h.seqs() == [5, 7]


def test_records_staged_before_a_delete_are_deleted(h: Harness) -> None:
    """R-DEL-2."""
    h.start_append(records(7, tag="x"))
    deletion = h.start_delete(match="x")
    h.settle()
    assert (deletion.get().deleted, deletion.get().head_seq) == (1, 7)


def test_deleting_again_deletes_nothing(h: Harness) -> None:
    """R-DEL-5."""
    h.delete(before_seq=4)
    assert h.delete(before_seq=4).deleted == 0
    assert h.delete(before_seq=0).deleted == 0
    assert h.delete(before_seq=1).deleted == 0


def test_a_bound_above_the_head_means_all_there_is(h: Harness) -> None:
    """R-DEL-1: min(before_seq, H + 1)."""
    assert h.delete(before_seq=2**64 - 1).deleted == 6
    assert h.engine._core.registry.by_name["t"].floors.deleted == 6
    h.append(7)
    assert h.seqs() == [7]


def test_a_delete_that_failed_deletes_nothing(h: Harness) -> None:
    """R-DUR-7."""
    deletion = h.start_delete(before_seq=4)
    h.settle(StorageError("EIO"))
    with pytest.raises(StorageError):
        deletion.get()
    assert h.state().count == 6


@pytest.mark.parametrize(("durability", "synced"), [("memory", False), ("disk", False), ("fsync", True)])
def test_a_delete_is_as_durable_as_its_class(durability: str, synced: bool) -> None:
    """R-DUR-7."""
    h = Harness()
    h.put(durability=durability)
    h.append(1, 2)
    h.start_delete(before_seq=2)
    assert h.store.log.filling.synced is synced


def test_an_absent_topic_is_not_found(h: Harness) -> None:
    with pytest.raises(RequestError) as refused:
        h.delete(before_seq=1, name="none")
    assert refused.value.code == "topic_not_found"


def test_what_is_expired_is_not_counted_as_deleted() -> None:
    """R-FLOOR-7."""
    h = Harness()
    h.put(ttl_ms=10)
    h.append(1, 2)
    h.advance_ms(11)
    h.append(3)
    assert h.delete(before_seq=4).deleted == 1
    assert h.diff(0).tombstone is not None


def test_the_memory_of_dead_tags_is_freed() -> None:
    h = Harness()
    for number in range(100):
        h.append(number, tag=f"tag-{number}")
    index = h.engine._core.registry.by_name["t"].index
    assert index.tags is not None
    assert len(index.tags) == 100
    h.delete(before_seq=100)
    assert len(index.tags) == 1
    h.delete(match="*")
    assert index.tags is None
    assert index.chunks == []
