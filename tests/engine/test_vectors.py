"""The wire contract's test vectors that concern one topic, against the engine: TV-1 to TV-9 and TV-20 to TV-22."""

from __future__ import annotations

import pytest

from tests.engine.harness import Harness, records
from topics.engine.values.results import Tombstone


@pytest.fixture
def h() -> Harness:
    return Harness()


def lost(gap_from: int, gap_to: int, reason: str, head: int) -> Tombstone:
    return Tombstone(gap_from, gap_to, reason, gap_to - gap_from + 1, gap_to + 1, head)


def test_a_cap_evicts_the_oldest_and_tells_readers(h: Harness) -> None:
    """TV-1."""
    h.put(cap_records=3)
    for value in range(1, 7):
        h.append(value)
    state = h.state()
    assert (state.head_seq, state.earliest_seq, state.count) == (6, 4, 3)
    whole = h.diff(0)
    assert whole.tombstone == lost(1, 3, "cap", 6)
    assert (whole.next_from_seq, whole.caught_up, whole.count) == (6, True, 3)
    assert h.diff(3).tombstone is None
    assert h.seqs(3) == [4, 5, 6]
    assert h.diff(2).tombstone == lost(3, 3, "cap", 6)


def test_a_prefix_delete_is_silent(h: Harness) -> None:
    """TV-2."""
    h.append(1, 2, 3, 4, 5)
    deleted = h.delete(before_seq=3)
    assert (deleted.deleted, deleted.earliest_seq, deleted.count) == (2, 3, 3)
    result = h.diff(0)
    assert (result.tombstone, result.earliest_seq) == (None, 3)
    assert h.seqs(0) == [3, 4, 5]


def test_a_cap_counts_live_records_after_a_delete(h: Harness) -> None:
    """TV-3."""
    h.put(cap_records=4)
    for value in range(1, 5):
        h.append(value)
    h.delete(before_seq=3)
    assert h.state().earliest_seq == 3
    assert h.diff(0).tombstone is None
    h.append(*range(5, 11))
    state = h.state()
    assert (state.earliest_seq, state.count) == (7, 4)
    assert h.diff(0).tombstone == lost(1, 6, "cap", 10)
    assert h.seqs(0) == [7, 8, 9, 10]


def test_expiry_is_strict_and_told_as_ttl(h: Harness) -> None:
    """TV-4."""
    h.put(ttl_ms=150)
    for value in range(3):
        h.append(value)
    h.advance_ms(150)
    assert h.state().count == 3
    h.advance_ms(50)
    h.append(3)
    state = h.state()
    assert (state.earliest_seq, state.count) == (4, 1)
    assert h.diff(0).tombstone == lost(1, 3, "ttl", 4)
    assert h.seqs(0) == [4]


def test_match_deletes_move_e_over_what_is_gone(h: Harness) -> None:
    """TV-5."""
    for tag in "abc":
        h.append(tag, tag=tag)
    assert h.delete(match="a")[:2] == (1, 2)
    assert h.delete(match="c")[:3] == (1, 2, 3)
    last = h.delete(match="b")
    assert (last.earliest_seq, last.count, last.bytes) == (4, 0, 0)
    result = h.diff(0)
    assert (result.records, result.next_from_seq, result.caught_up, result.tombstone) == (b"", 3, True, None)


def test_a_reader_skips_its_own_node(h: Harness) -> None:
    """TV-6."""
    for node in ("self", "other", "self"):
        h.append(node, record_node=node)
    result = h.diff(0, nodes=(b"self",))
    assert (result.count, result.next_from_seq, result.caught_up) == (1, 3, True)
    assert h.seqs(0, nodes=(b"self",)) == [2]
    nothing = h.diff(0, nodes=(b"self", b"other"))
    assert (nothing.count, nothing.next_from_seq, nothing.caught_up, nothing.lag) == (0, 3, True, 0)


def test_pages_have_bounds(h: Harness) -> None:
    """TV-7."""
    h.append(*range(300))
    page = h.diff(0)
    assert (page.count, page.next_from_seq, page.lag, page.caught_up) == (256, 256, 44, False)
    h.append(*range(900))
    assert h.diff(0, limit=5000).count == 1000
    h.append(1, 2, 3, name="small")
    page = h.diff(0, "small", limit=2)
    assert (page.next_from_seq, page.lag) == (2, 1)


def test_a_recreated_topic_is_recognized_by_a_cursor_beyond_its_head(h: Harness) -> None:
    """TV-8."""
    h.append(1, 2, 3, 4, 5)
    assert h.delete_topic().deleted
    h.append(1, 2)
    result = h.diff(5)
    assert result.tombstone == Tombstone(1, 2, "recreated", 2, 1, 2)
    assert (h.seqs(5), result.next_from_seq) == ([1, 2], 2)
    assert h.diff(2)[:1] == (b"",)
    assert h.diff(2).tombstone is None


def test_bytes_are_the_accounted_sizes(h: Harness) -> None:
    """TV-9."""
    h.append("x")
    assert h.state().bytes == 3
    h.append({"a": 1}, meta={"k": "v"})
    assert h.state().bytes == 3 + 16
    h.append(None)
    assert (h.state().bytes, h.state().count) == (23, 3)


def test_the_effective_priority_decays_with_time_since_consumption(h: Harness) -> None:
    """TV-20."""
    assert h.put("p", priority=5000).config.priority == 5000
    assert h.state("p").effective_priority == 1000
    h.put("d")
    assert h.state("d").effective_priority == 0
    assert h.state("d", touch=True).effective_priority == 500
    h.advance_ms(30_000)
    assert h.state("d").effective_priority == 250
    h.advance_ms(30_000)
    assert h.state("d").effective_priority == 125
    h.advance_ms(240_000)
    assert h.state("d").effective_priority == 0


def test_a_repeated_key_answers_as_the_first_time(h: Harness) -> None:
    """TV-21."""
    first = h.append(1, 2, key=b"k")
    h.append(3)
    again = h.append(9, 9, key=b"k")
    assert (again.first_seq, again.last_seq, again.head_seq, again.count) == (1, 2, 2, 2)
    assert (first.deduped, again.deduped, again.created) == (False, True, False)
    assert h.state().head_seq == 3


def test_a_put_replaces_the_whole_config(h: Harness) -> None:
    """TV-22."""
    h.put(cap_records=100)
    config = h.put(ttl_ms=5).config
    assert (config.cap_records, config.ttl_ms) == (0, 5)
    config = h.put(durable=True, durability="disk").config
    assert (config.durability, config.durable) == ("disk", False)
    config = h.put(lease_ms=1, claim_jitter_ms=9999).config
    assert (config.lease_ms, config.claim_jitter_ms) == (100, 5000)


def test_records_of_one_write_become_visible_together_and_only_when_committed(h: Harness) -> None:
    """R-SEQ-2."""
    h.put()
    answer = h.start_append(records(1, 2, 3))
    h.engine.flush()
    assert not answer.given
    assert h.start_diff(0).get().count == 0
    h.settle()
    assert (answer.get().first_seq, answer.get().last_seq) == (1, 3)
    assert h.seqs() == [1, 2, 3]
