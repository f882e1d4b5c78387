"""Deletion of records."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.engine.harness import Answer, Harness, records
from topics.engine.index.tags import Tags
from topics.engine.queue.queue_results import ClaimRequest
from topics.engine.values.step_queue import StepQueue
from topics.errors import RequestError, StorageError, TopicsError
from topics.store.format.rows import RowRecord, pack_rows


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    tags = [b"chat-42:a", b"chat-42:b", b"chat-420:c", b"", None, b"a*b"]
    harness.start_append(pack_rows([RowRecord(b"%d" % n, tag) for n, tag in enumerate(tags, 1)]))
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


def one_step_a_pass(h: Harness, others: int = 1) -> None:
    """A search for what a delete matches takes many passes, as in a topic of millions of records; others: steps of
    other searches before it."""
    h.engine._core.searches = StepQueue(h.loop, 1)
    h.engine._core.searches.run(iter([None] * others))


def tagged(h: Harness, count: int) -> None:
    for number in range(count):
        h.append(number, tag=f"tag-{number}")


@pytest.mark.parametrize("match", ["tag-*", "*"])
@pytest.mark.parametrize("durability", ["disk", "fsync", "ephemeral"])
def test_what_is_written_while_a_delete_searches_is_untouched(match: str, durability: str) -> None:
    """R-DEL-4: the moment is that of the request; also after a restart."""
    h = Harness()
    h.put(durability=durability)
    tagged(h, 3)
    one_step_a_pass(h)
    answer = h.start_delete(match=match)
    later = h.start_append(records("later", tag="tag-9"))
    assert not answer.given
    h.settle()
    assert later.get().last_seq == 4
    while not answer.given:
        h.settle()
    assert answer.get().deleted == 3
    assert h.seqs() == [4]
    if durability != "ephemeral":
        h.restart()
        assert h.seqs() == [4]


def test_what_was_written_before_a_delete_and_is_not_committed_yet_goes_with_it() -> None:
    h = Harness()
    tagged(h, 3)
    one_step_a_pass(h)
    before = h.start_append(records("before", tag="tag-new"))
    answer = h.start_delete(match="tag-*")
    h.settle()
    while not answer.given:
        h.settle()
    assert before.get().last_seq == 4
    assert answer.get().deleted == 4
    h.restart()
    assert h.seqs() == []


@pytest.mark.parametrize("added", [1, 10])
def test_tags_that_come_while_a_delete_compares_many_change_nothing(added: int) -> None:
    """R-DEL-4, R-DEL-8; one tag has the number after those that are compared."""
    h = Harness()
    h.start_append(pack_rows([RowRecord(b"1", b"tag-%d" % n) for n in range(600)] + [RowRecord(b"0")] * 20))
    h.settle()
    h.engine._core.searches = StepQueue(h.loop, 1)
    answer = h.start_delete(match="tag-*")  # makes its first step, of the three that compare tags
    h.start_append(pack_rows([RowRecord(b"1", b"tag-new-%d" % n) for n in range(added)]))
    while not answer.given:
        h.settle()
    assert answer.get().deleted == 600
    assert h.seqs() == list(range(601, 621 + added)), "the untagged ones, and the new"


def test_readers_see_all_that_a_delete_matches_or_nothing_of_it() -> None:
    h = Harness()
    tagged(h, 5)
    one_step_a_pass(h)
    answer = h.start_delete(match="tag-*", before_seq=5)
    seen = [h.seqs()]
    while not answer.given:
        h.settle()
        seen.append(h.seqs())
    assert [seqs for seqs in seen if seqs not in ([1, 2, 3, 4, 5], [5])] == []
    assert answer.get().deleted == 4


@pytest.mark.parametrize("again", [False, True])
def test_a_delete_of_records_ends_with_its_topic(again: bool) -> None:
    h = Harness()
    tagged(h, 3)
    one_step_a_pass(h)
    answer = h.start_delete(match="tag-*")
    gone = Answer()
    h.engine.delete_topic("t", if_empty=False, done=gone)
    if again:
        h.start_append(records(1, tag="tag-1"))
    while not (gone.given and answer.given):
        h.settle()
    with pytest.raises(TopicsError) as refused:
        answer.get()
    assert refused.value.code == "topic_not_found"
    if again:
        h.settle()
        assert h.seqs() == [1]


def test_records_that_go_while_a_delete_searches_are_not_counted_twice() -> None:
    h = Harness()
    h.put(cap_records=4)
    tagged(h, 4)
    one_step_a_pass(h, others=20)
    answer = h.start_delete(match="tag-*")
    h.append(5, tag="other")
    h.delete(before_seq=3)
    while not answer.given:
        h.settle()
    assert answer.get().deleted == 2
    assert h.seqs() == [5]


def test_two_deletes_that_search_at_once_count_each_record_once() -> None:
    h = Harness()
    tagged(h, 6)
    one_step_a_pass(h)
    answers = [h.start_delete(match="tag-*"), h.start_delete(match="*"), h.start_delete(match="tag-3")]
    while not all(answer.given for answer in answers):
        h.settle()
    assert [answer.get().deleted for answer in answers] == [6, 0, 0]


def test_a_job_whose_record_is_deleted_among_many_leaves_the_queue() -> None:
    """R-DEL-10; those that were never leased are more than those that were."""
    h = Harness()
    h.put(type="queue")
    h.append(*range(50), tag="x")
    answer = Answer()
    h.engine.claim(ClaimRequest("t", "w", 2), answer)
    h.settle()
    assert h.delete(match="x").deleted == 50
    state = h.state().queue
    assert state is not None
    assert (state.ready, state.in_flight) == (0, 0)


def test_a_search_for_a_glob_looks_at_so_many_tags_and_chunks_a_pass() -> None:
    h = Harness()
    tags = [f"tag-{number}".encode() for number in range(40_000)]
    for at in range(0, len(tags), 1000):
        rows = pack_rows([RowRecord(b"1", tag) for tag in tags[at : at + 1000]])
        h.start_append(rows)
        h.settle()
    looked = [0]

    names = Tags.names

    def count(self: Tags, start: int, end: int) -> list[bytes]:
        looked[-1] += end - start
        return names(self, start, end)

    with patch.object(Tags, "names", count):
        answer = h.start_delete(match="tag-1*")
        while not answer.given:
            looked.append(0)
            h.engine.flush()
            if h.store.log.filling.waiters:
                h.store.log.commit(None)
    assert answer.get().deleted == 11_111
    assert len(looked) > 2
    assert max(looked) <= 64 * 256


@pytest.mark.parametrize("match", ["x", "*", "y"])
def test_what_a_delete_takes_from_segments_is_gathered_for_the_checkpoint_a_chunk_a_step(match: str) -> None:
    """All of a chunk, or some."""
    h = Harness()
    for _ in range(20):
        h.start_append(
            pack_rows([RowRecord(b"1", b"y" if match == "y" and at % 10 == 0 else b"x") for at in range(1000)])
        )
        h.settle()
    h.checkpoint()
    h.append("in the log", tag=match)
    count = h.delete(match=match).deleted - 1
    assert count == (2000 if match == "y" else 20_000)
    catalog = h.catalog
    assert len(list(catalog.checkpoints.prepare_deletions())) >= 3
    seqs = [seq for part in catalog.checkpoints.take_deletions() for seq in part.seqs.tolist()]
    assert len(seqs) == len(set(seqs)) == count
    assert all(seq % 10 == 1 for seq in seqs) or match != "y"
    assert catalog.checkpoints.take_deletions() == []


def test_a_restart_after_a_checkpoint_finds_what_a_delete_by_tag_left() -> None:
    h = Harness()
    for number in range(30):
        h.append(number, tag="x" if number % 3 else "y")
    h.checkpoint()
    h.delete(match="x")
    h.checkpoint()
    h.restart()
    assert h.seqs() == list(range(1, 31, 3))
