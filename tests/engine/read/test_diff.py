"""Reads: bounds, holes, filters, cold reads, long polls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.harness import Harness, records
from topics.engine.values.results import Tombstone
from topics.errors import CorruptError, RequestError
from topics.store.format.rows import RowRecord, pack_rows


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_an_absent_topic_is_not_found_and_not_created(h: Harness) -> None:
    with pytest.raises(RequestError) as refused:
        h.diff(0, "none")
    assert (refused.value.code, refused.value.detail) == ("topic_not_found", {"topic": "none"})
    assert h.engine.stats().topics == 0


def test_a_budget_stops_before_the_record_that_passes_it_but_never_before_the_first(h: Harness) -> None:
    h.append("x" * 98, "y" * 98, "z" * 98)
    assert [h.diff(0, max_batch_bytes=size).count for size in (1, 199, 200, 299, 300)] == [1, 1, 2, 2, 3]
    assert [h.diff(0, max_batch_bytes=size, nodes=(b"n",)).count for size in (1, 199, 200, 300)] == [1, 1, 2, 3]


def test_the_reader_chooses_tags_and_meta(h: Harness) -> None:
    h.append(1, tag="a", meta={"m": 1})
    assert h.read()[0].keys() == {"$seq", "$ts", "data", "meta"}
    assert h.read(include_tags=True, include_meta=False)[0].keys() == {"$seq", "$ts", "$tag", "data"}
    assert "data" not in h.read(include_data=False)[0]


def test_a_wide_deleted_gap_costs_one_read(h: Harness) -> None:
    """7.6 [+]: the cost does not depend on the width of a gap."""
    for _ in range(5):
        h.append(*range(10_000))
    h.delete(before_seq=50_000)
    assert len(h.engine._core.registry.by_name["t"].index.chunks) == 1
    result = h.diff(0, limit=1)
    assert (result.count, result.next_from_seq, result.scanned) == (1, 50_000, 1)


def test_a_filtered_read_stops_after_many_slots_with_a_cursor_that_moved(h: Harness) -> None:
    """R-NODE-3."""
    for _ in range(3):
        h.append(*range(10_000), node=b"me")
    result = h.diff(0, nodes=(b"me",))
    assert result.count == 0
    assert 10_000 <= result.next_from_seq < 30_000
    assert not result.caught_up
    cursor = result.next_from_seq
    while not (result := h.diff(cursor, nodes=(b"me",))).caught_up:
        assert result.next_from_seq > cursor
        cursor = result.next_from_seq
    assert result.next_from_seq == 30_000


def test_filtered_records_count_for_neither_bound(h: Harness) -> None:
    """R-NODE-3."""
    rows = [RowRecord(b"1", None, b"me" if number % 2 else b"you") for number in range(3000)]
    h.start_append(pack_rows(rows))
    h.settle()
    result = h.diff(0, nodes=(b"me",), limit=1000)
    assert (result.count, result.next_from_seq) == (1000, 1999)


def test_dedupe_node_false_ignores_the_filter(h: Harness) -> None:
    """R-NODE-4."""
    h.put(dedupe_node=False)
    h.append(1, node=b"me")
    assert h.seqs(nodes=(b"me",)) == [1]


def test_passing_back_the_cursor_never_repeats_the_tombstone(h: Harness) -> None:
    """R-TOMB-5."""
    h.put(cap_records=2)
    h.append(1, 2, 3, 4)
    h.delete(before_seq=4)
    first = h.diff(0, limit=1)
    assert first.tombstone is not None
    assert h.diff(first.next_from_seq).tombstone is None


def test_a_voluntary_gap_above_the_floor_is_silent(h: Harness) -> None:
    """R-TOMB-6."""
    h.put(cap_records=3)
    h.append(1, 2, 3, 4, 5)
    h.delete(before_seq=5)
    assert h.diff(2).tombstone is None
    tombstone = h.diff(1).tombstone
    assert tombstone is not None
    assert (tombstone.gap_to, tombstone.earliest_seq, h.diff(1).earliest_seq) == (2, 3, 5)


def test_cap_and_ttl_together_are_mixed(h: Harness) -> None:
    """R-TOMB-3."""
    h.put(cap_records=2, ttl_ms=50)
    h.append(1, 2, 3)
    h.advance_ms(51)
    tombstone = h.diff(0).tombstone
    assert tombstone is not None
    assert (tombstone.gap_to, tombstone.reason) == (3, "mixed")
    later = h.diff(1).tombstone
    assert later is not None
    assert later.reason == "ttl"


def test_a_cursor_beyond_an_empty_topic_gets_gap_to_zero(h: Harness) -> None:
    """R-REC-2."""
    h.put()
    result = h.diff(7)
    assert result.tombstone is not None
    assert (result.tombstone.gap_from, result.tombstone.gap_to, result.tombstone.missed_estimate) == (1, 0, 1)
    assert result.next_from_seq == 0


def test_expiry_is_reported_only_once_it_is_durable(h: Harness) -> None:
    """R-DUR-8."""
    h.put(ttl_ms=10)
    h.append(1)
    h.advance_ms(11)
    answers = [h.start_diff(0), h.start_diff(0)]
    assert not any(answer.given for answer in answers)
    h.settle()
    assert all(answer.get().tombstone.reason == "ttl" for answer in answers)
    assert h.start_diff(0).given  # nothing more to expire: answered at once


def test_an_expiry_that_cannot_be_made_durable_fails_the_read(h: Harness) -> None:
    """R-DUR-8."""
    h.put(ttl_ms=10)
    h.append(1)
    h.advance_ms(11)
    answer = h.start_diff(0)
    h.settle(CorruptError("EIO"))
    with pytest.raises(CorruptError):
        answer.get()
    assert h.state().count == 0


# --- cold reads ------------------------------------------------------------------------------------------------------
def test_an_eviction_during_a_cold_read_changes_nothing_of_its_answer(h: Harness) -> None:
    """R-TOMB-4."""
    h.put(cap_records=3)
    h.append(1, 2, 3)
    h.store.reader.slow = True
    answer = h.start_diff(0, limit=2)
    h.append(4, 5, 6)
    h.store.reader.release()
    result = answer.get()
    assert (result.count, result.next_from_seq, result.head_seq, result.earliest_seq) == (2, 2, 3, 1)
    assert result.tombstone is None
    h.store.reader.slow = False
    assert h.diff(2).tombstone is not None  # what was evicted after it is reported


def test_a_delete_during_a_cold_read_excludes_its_records(h: Harness) -> None:
    """R-DEL-7."""
    for tag in "abc":
        h.append(tag, tag=tag)
    h.store.reader.slow = True
    answer = h.start_diff(0)
    h.delete(match="b")
    h.store.reader.release()
    assert b'"b"' not in answer.get().records
    assert answer.get().next_from_seq == 3


@pytest.mark.parametrize("how", [{"match": "gone"}, {"before_seq": 3}], ids=["by tag", "before a seq"])
def test_a_record_deleted_during_a_cold_read_that_an_eviction_passes_is_excluded_and_the_loss_is_told(
    h: Harness, how: dict[str, Any]
) -> None:
    """R-DEL-7, R-TOMB-1: whether rows below the floor were lost or deleted shows only in the instants of both."""
    h.put(cap_records=3)
    for tag in ("a", "gone", "c"):
        h.append(tag, tag=tag)
    h.store.reader.slow = True
    answer = h.start_diff(0)
    h.delete(**how)
    h.append(4, 5, 6)
    h.store.reader.slow = False
    h.store.reader.release()
    result = answer.get()
    assert b'"gone"' not in result.records
    assert (result.count, result.next_from_seq, result.earliest_seq) == (3, 6, 4)
    assert result.tombstone is not None
    assert (result.tombstone.gap_from, result.tombstone.gap_to, result.tombstone.reason) == (1, 3, "cap")


def test_a_topic_deleted_during_a_cold_read_is_not_found(h: Harness) -> None:
    h.append(1)
    h.store.reader.slow = True
    answer = h.start_diff(0)
    h.delete_topic()
    h.append(2)
    h.store.reader.release()
    assert answer.results[0].code == "topic_not_found"


def test_a_cancelled_read_is_not_answered(h: Harness) -> None:
    h.append(1)
    h.store.reader.slow = True
    answer = h.start_diff(0)
    h.cancel()
    h.store.reader.release()
    assert not answer.given


def test_a_broken_frame_is_an_error_that_names_topic_and_seq(h: Harness) -> None:
    h.append("first", "second")
    memory = h.store.log.file.memory
    assert memory is not None
    memory[memory.index(b"second")] ^= 1
    with pytest.raises(CorruptError) as broken:
        h.diff(0)
    assert broken.value.detail == {"topic": "t", "seq": 2}


def test_frames_of_other_topics_between_ours_are_read_along(h: Harness) -> None:
    for number in range(50):
        h.start_append(records(number))
        h.start_append(records(-number), "other")
    h.settle()
    before = h.store.reader.pieces
    assert [record["data"] for record in h.read()] == list(range(50))
    assert h.store.reader.pieces == before + 1


# --- long polls ------------------------------------------------------------------------------------------------------
def test_a_long_poll_answers_when_a_record_comes(h: Harness) -> None:
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000)
    assert not answer.given
    h.append(2)
    assert (answer.get().count, answer.get().next_from_seq) == (1, 2)
    assert h.loop.waiting == 0


def test_a_long_poll_with_something_to_say_does_not_wait(h: Harness) -> None:
    h.put(cap_records=1)
    h.append(1, 2)
    assert h.start_diff(0, wait_ms=1000).given
    assert h.start_diff(9, wait_ms=1000).given
    assert not h.start_diff(2, wait_ms=1000).given


def test_a_long_poll_ends_empty_at_its_deadline_with_the_current_head(h: Harness) -> None:
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000, nodes=(b"me",))
    h.append(2, node=b"me")
    h.advance_ms(999)
    assert not answer.given  # [+] an append that yields nothing for this reader does not end the wait
    h.advance_ms(1)
    result = answer.get()
    assert (result.count, result.next_from_seq, result.caught_up, result.tombstone) == (0, 2, True, None)


def test_a_filtered_long_poll_answers_from_its_original_cursor(h: Harness) -> None:
    h.put(cap_records=3)
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000, nodes=(b"me",))
    h.append(2, node=b"me")
    assert not answer.given
    h.append(3)
    assert (answer.get().count, answer.get().next_from_seq, answer.get().tombstone) == (1, 3, None)


def test_a_long_poll_hears_of_records_lost_before_it_could_read_them(h: Harness) -> None:
    h.put(cap_records=1)
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000, nodes=(b"me",))
    h.append(2, 3, node=b"me")
    tombstone = answer.get().tombstone
    assert tombstone is not None
    assert (tombstone.gap_from, tombstone.gap_to) == (2, 2)


def test_a_long_poll_reports_hidden_records_that_expire_without_a_request(h: Harness) -> None:
    h.put(ttl_ms=100)
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000, nodes=(b"me",))
    h.append(2, 3, node=b"me")
    h.advance_ms(100)
    assert not answer.given
    h.advance_ms(1)
    h.settle()
    tombstone = answer.get().tombstone
    assert tombstone is not None
    assert (tombstone.gap_from, tombstone.gap_to, tombstone.reason) == (2, 3, "ttl")
    assert h.loop.waiting == 0


def test_a_long_poll_that_was_looking_when_the_server_stopped_does_not_wait(h: Harness) -> None:
    """R-LIFE-7."""
    h.put(ttl_ms=100)
    h.append(1)
    h.advance_ms(101)
    answer = h.start_diff(1, wait_ms=1000)  # waits for the expiry to be durable
    h.engine.begin_shutdown()
    assert not answer.given
    h.settle()
    assert (answer.get().count, answer.get().caught_up) == (0, True)


def test_a_long_poll_gets_what_its_filter_hid_once_the_topic_filters_no_more(h: Harness) -> None:
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000, nodes=(b"me",))
    h.append(2, node=b"me")
    assert not answer.given
    h.put(dedupe_node=False)
    assert (answer.get().count, answer.get().next_from_seq) == (1, 2)


def test_deleting_the_topic_ends_the_wait_with_not_found_even_if_it_is_recreated(h: Harness) -> None:
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000)
    h.start_append(records(2), "other")
    h.delete_topic()
    h.append(1)
    assert answer.results[0].code == "topic_not_found"
    assert h.loop.waiting == 0


def test_shutdown_ends_waits_with_the_empty_result(h: Harness) -> None:
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000)
    h.engine.begin_shutdown()
    assert (answer.get().count, answer.get().caught_up) == (0, True)
    assert h.start_diff(1, wait_ms=1000).given


def test_long_polls_that_ask_the_same_share_one_answer(h: Harness) -> None:
    h.append(1)
    answers = [h.start_diff(1, wait_ms=1000) for _ in range(3)] + [h.start_diff(1, wait_ms=1000, limit=1)]
    before = h.store.reader.fetched
    h.append(2, 3)
    assert [answer.get().count for answer in answers] == [2, 2, 2, 1]
    assert answers[0].get() is answers[2].get()
    assert h.store.reader.fetched - before < 400
    assert h.loop.waiting == 0


def test_records_that_one_reader_leaves_out_count_for_no_bound_when_many_wait(h: Harness) -> None:
    """R-NODE-3. What most of them hear is read once, without a filter."""
    h.append("first")
    waiting = [h.start_diff(1, nodes=(b"%d" % at,), wait_ms=1000, max_batch_bytes=10) for at in range(5)]
    rows = [
        RowRecord(b'"others"', None, b"9", None),
        RowRecord(b'"left out"', None, b"0", None),
        RowRecord(b"1", None, b"9", None),
    ]
    h.start_append(pack_rows(rows))
    h.settle()
    results = [answer.get() for answer in waiting]
    assert [(result.count, result.next_from_seq) for result in results] == [(2, 4), *[(1, 2)] * 4]


def test_a_cancelled_wait_leaves_nothing_behind(h: Harness) -> None:
    """R-NET-11."""
    h.append(1)
    answer = h.start_diff(1, wait_ms=1000)
    h.cancel()
    h.cancel()
    h.append(2)
    assert not answer.given
    assert h.loop.waiting == 0
    assert not h.engine._core.registry.by_name["t"].waiters


def test_reads_mark_the_topic(h: Harness) -> None:
    """R-PRI-4, 7.2."""
    h.append(1)
    assert h.state().last_read_ts is None
    h.diff(0)
    state = h.state()
    assert (state.last_read_ts, state.effective_priority) == (h.loop.clock.now_ms(), 500)
    h.advance_ms(10)
    assert h.state().last_read_ts == h.loop.clock.now_ms() - 10


def test_a_long_poll_is_told_of_a_loss_during_a_look_that_waited_for_the_disk(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7.6: what its filter hides may be lost as well, and then it is a tombstone."""
    h.append("mine", "mine", record_node="me")
    reader = h.engine._core.reader
    fetch, waiting = reader.fetch, []
    monkeypatch.setattr(reader, "fetch", lambda pieces, done: waiting.append((pieces, done)))
    answer = h.start_diff(nodes=(b"me",), wait_ms=1000)
    h.put(cap_records=1)
    assert not answer.given
    monkeypatch.setattr(reader, "fetch", fetch)
    for pieces, done in waiting:
        fetch(pieces, done)
    assert answer.get().tombstone == Tombstone(1, 1, "cap", 1, 2, 2)
