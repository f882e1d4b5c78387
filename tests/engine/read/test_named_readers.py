"""Named readers: pages, positions, leases, gaps, what they hold and trim, and what a restart finds of them."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.amount import seeds
from tests.engine.harness import Answer, Harness
from tests.engine.read.reader_calls_of import Readers, seqs_of
from topics.common.bounded_steps import result_of
from topics.common.values.begin import Begin
from topics.common.values.reader_config import AT_MOST_ONCE, ReaderConfig
from topics.engine.state.control_frames import ReaderPayload
from topics.engine.state.named_reader import NO_HOLD, Interval, NamedReader, TopicReaders
from topics.errors import RequestError, StorageError
from topics.store.format.log_format import FrameType


@pytest.fixture(params=["disk", "fsync", "memory", "ephemeral"])
def durability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(durability: str = "disk", records: int = 6, **config: object) -> tuple[Harness, Readers]:
    harness = Harness()
    harness.put(durability=durability, **config)
    for number in range(records):
        harness.append(number)
    return harness, Readers(harness)


def refused(call: object, *args: object, **more: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call(*args, **more)  # type: ignore[operator]
    return caught.value


# --- pages -----------------------------------------------------------------------------------------------------------
def test_pages_follow_each_other_and_a_page_is_done_with_the_next_read(durability: str) -> None:
    """6.16, R-READER-3: pages follow each other, and the next read says that a page is done."""
    _, readers = make(durability)
    readers.put()
    first = readers.page(limit=2)
    assert seqs_of(first) == [1, 2]
    assert readers.state().committed == 0
    second = readers.page(limit=2, done=first.token)
    assert seqs_of(second) == [3, 4]
    assert readers.state()[2:4] == (4, 2)
    assert readers.commit(second.token) == 4
    assert readers.state()[2:6] == (4, 4, 2, 0)


def test_a_position_is_committed_every_so_many_records(durability: str) -> None:
    """R-READER-3: the position is committed after so many records."""
    _, readers = make(durability)
    readers.put()
    token, committed = 0, []
    for _ in range(6):
        token = readers.page(limit=1, done=token, commit_every=2).token
        committed.append(readers.state().committed)
    assert committed == [0, 0, 2, 2, 4, 4]


def test_two_callers_of_one_reader_get_disjoint_pages_and_commit_below_the_lowest_that_is_out(durability: str) -> None:
    """R-READER-2, R-READER-4: disjoint pages; the lowest that is out bounds the position."""
    _, readers = make(durability)
    readers.put()
    one, two = readers.page(limit=2), readers.page(limit=2)
    assert (seqs_of(one), seqs_of(two)) == ([1, 2], [3, 4])
    assert readers.commit(two.token) == 0
    assert readers.commit(one.token) == 4


def test_what_was_done_above_a_page_that_is_out_is_committed_once_that_is_done(durability: str) -> None:
    """R-READER-3: no matter that each of the pages below has fewer records than `commit_every`."""
    _, readers = make(durability)
    readers.put()
    low, middle, high = (readers.page(limit=limit) for limit in (1, 1, 4))
    assert seqs_of(readers.page(done=high.token, commit_every=3)) == []
    assert readers.state().committed == 0
    readers.page(done=low.token, commit_every=3)
    assert readers.state().committed == 1
    readers.page(done=middle.token, commit_every=3)
    assert readers.state().committed == 6


def test_what_was_done_above_a_page_that_came_back_and_was_deleted_is_committed_by_a_read(durability: str) -> None:
    """R-READER-3: no page is out any more whose end would commit it."""
    harness, readers = make(durability)
    readers.put()
    low, high = readers.page(limit=2), readers.page()
    readers.calls.give_back("t", "r", low.token)
    again = readers.page(limit=2, done=high.token, commit_every=3)
    assert seqs_of(again) == [1, 2]
    readers.calls.give_back("t", "r", again.token)
    harness.delete(before_seq=3)
    assert readers.page(commit_every=3).result.count == 0
    assert readers.state().committed == 6


def test_a_page_that_is_given_back_is_handed_out_again_before_anything_new() -> None:
    """R-READER-5: it comes again first."""
    _, readers = make()
    readers.put()
    one, two = readers.page(limit=2), readers.page(limit=2)
    readers.calls.give_back("t", "r", one.token)
    assert seqs_of(again := readers.page(limit=1)) == [1]
    assert readers.seqs(limit=100) == [2], "no page reaches into another one"
    assert readers.seqs(limit=100) == [5, 6]
    assert refused(readers.commit, one.token).code == "reader_fenced"
    assert readers.commit(two.token) == 0
    assert readers.commit(again.token) == 1


def test_a_page_whose_lease_has_ended_is_late_and_is_handed_out_again() -> None:
    """R-READER-5: late pages."""
    harness, readers = make()
    readers.put()
    page = readers.page(limit=2, lease_ms=100)
    assert page.until_ms == harness.loop.clock.now_ms() + 100
    harness.advance_ms(101)
    error = refused(readers.commit, page.token)
    assert (error.code, error.detail) == ("reader_fenced", {"topic": "t", "reader": "r", "committed": 0})
    assert readers.seqs(limit=2) == [1, 2]


def test_a_read_that_waits_gets_a_page_whose_lease_ends_meanwhile() -> None:
    """R-READER-5, R-READER-6: the end of a lease is news."""
    harness, readers = make(records=2)
    readers.put()
    readers.page(lease_ms=100)
    waiting = readers.start_read(wait_ms=1000)
    harness.settle()
    assert not waiting.given
    harness.advance_ms(101)
    harness.settle()
    assert seqs_of(waiting.get()) == [1, 2]


def test_a_read_waits_for_records_and_ends_with_an_empty_page() -> None:
    """R-READER-6: a long poll."""
    harness, readers = make(records=0)
    readers.put()
    waiting = readers.start_read(wait_ms=1000)
    harness.append("x")
    assert seqs_of(waiting.get()) == [1]
    second = readers.start_read(wait_ms=1000)
    harness.settle()
    harness.advance_ms(1001)
    harness.settle()
    page = second.get()
    assert (seqs_of(page), page.token) == ([], 0)


def test_a_read_that_was_cancelled_leaves_its_records_to_the_next() -> None:
    """R-READER-6: it took nothing."""
    harness, readers = make(records=0)
    readers.put()
    waiting = readers.start_read(wait_ms=1000)
    harness.settle()
    waiting.cancel()  # type: ignore[attr-defined]
    harness.append("x")
    assert not waiting.given
    assert readers.seqs() == [1]


def test_a_look_moves_nothing() -> None:
    """R-READER-6: peek."""
    _, readers = make()
    readers.put()
    assert readers.seqs(peek=True, limit=2) == [1, 2]
    assert readers.state()[2:4] == (0, 0)
    assert readers.seqs(limit=2) == [1, 2]


def test_a_look_passes_over_a_page_that_came_back_and_was_deleted() -> None:
    """7.14: it shows what a read would hand out."""
    harness, readers = make()
    readers.put()
    readers.calls.give_back("t", "r", readers.page(limit=2).token)
    harness.delete(before_seq=3)
    assert readers.seqs(peek=True, limit=2) == [3, 4]
    assert readers.state()[2:4] == (2, 0)
    assert readers.seqs(limit=2) == [3, 4]


def test_at_most_once_the_position_is_committed_before_the_page_is_there(durability: str) -> None:
    """R-READER-7: the commit comes first."""
    _, readers = make(durability)
    readers.put(delivery="at-most-once")
    waiting = readers.start_read(limit=2)
    if durability != "ephemeral":
        assert not waiting.given, "its frame is not written yet"
    assert seqs_of(page := readers.answer(waiting)) == [1, 2]
    assert page.token == 0
    assert readers.state().committed == 2


def test_a_reader_that_delivers_at_most_once_from_now_on_skips_no_page_that_is_out(durability: str) -> None:
    """R-READER-7: the page is late, and its records come again."""
    _, readers = make(durability)
    readers.put()
    low, high = readers.page(limit=2), readers.page(limit=1)
    assert readers.commit(high.token) == 0
    readers.put(delivery=AT_MOST_ONCE)
    assert seqs_of(readers.page(limit=1)) == [1]
    assert readers.state().committed == 1
    assert refused(readers.commit, low.token).code == "reader_fenced"
    assert seqs_of(readers.page()) == [2, 3, 4, 5, 6]


def test_at_most_once_a_page_whose_commit_failed_was_not_delivered() -> None:
    """R-READER-7: without the commit there is no page."""
    harness, readers = make()
    readers.put(delivery="at-most-once")
    waiting = readers.start_read(limit=2)
    harness.settle(StorageError("no"))
    with pytest.raises(StorageError):
        waiting.get()
    assert readers.seqs(limit=2) == [1, 2]
    assert readers.state().committed == 2


def test_at_most_once_what_was_delivered_is_committed_though_something_below_it_was_given_back() -> None:
    """R-READER-7: the page below failed in a batch of its own."""
    reader = NamedReader("r", ReaderConfig(AT_MOST_ONCE), 0)
    reader.pass_over(None, 2)
    reader.pass_over(None, 4)
    reader.give_back_interval(Interval(0, 2))
    assert reader.done_through == 4


def test_a_commit_that_failed_is_made_again() -> None:
    """R-READER-4: a failed position is not committed."""
    harness, readers = make()
    readers.put()
    page = readers.page(limit=2)
    failing = readers.start_commit(page.token)
    harness.settle(StorageError("no"))
    with pytest.raises(StorageError):
        failing.get()
    assert readers.state().committed == 0
    assert readers.commit(page.token) == 2
    harness.restart()
    assert readers.state().committed == 2


def test_a_read_that_waits_gets_a_page_whose_commit_failed_when_its_lease_ends() -> None:
    """R-READER-5, 7.14: the page was done when the read began to wait, and is out again."""
    harness, readers = make()
    readers.put()
    page = readers.page(lease_ms=1000)
    commit = readers.start_commit(page.token)
    waiting = readers.start_read(wait_ms=20_000, lease_ms=1000)
    harness.settle(StorageError("the disk is full"))
    with pytest.raises(StorageError):
        commit.get()
    assert not waiting.given
    harness.advance_ms(1001)
    harness.settle()
    assert seqs_of(waiting.get()) == [1, 2, 3, 4, 5, 6]


def test_a_look_that_waits_shows_a_page_that_comes_back_while_it_reads() -> None:
    """7.14: it waits for the commit of an expiry, and the page is given back meanwhile."""
    harness, readers = make(ttl_ms=1000)
    harness.append("later")
    readers.put()
    page = readers.page()
    harness.advance_ms(1001)
    look = readers.start_read(peek=True, wait_ms=20_000)
    readers.calls.give_back("t", "r", page.token)
    harness.settle()
    assert look.given
    assert look.get().result.tombstone is not None


def test_a_commit_that_a_full_disk_refused_leaves_the_page_out() -> None:
    """R-READER-5: a page that is neither committed nor late is its caller's."""
    harness, readers = make()
    readers.put()
    page = readers.page(limit=2)
    harness.store.log.disk_full = True
    with pytest.raises(StorageError):
        readers.commit(page.token)
    harness.store.log.disk_full = False
    assert readers.commit(page.token) == 2


def test_on_a_full_disk_a_reader_may_stop_to_hold_and_no_other_change_is_taken() -> None:
    """R-READER-8: what it held may go then, which frees space."""
    harness, readers = make()
    readers.put("holds", holds=True)
    readers.put("plain")
    harness.store.log.disk_full = True
    with pytest.raises(StorageError):
        readers.put("plain", holds=True)
    with pytest.raises(StorageError):
        readers.put("another")
    assert not readers.put("holds", holds=False).created
    assert not readers.state("holds").config.holds


def test_a_seek_that_a_full_disk_refused_moves_nothing() -> None:
    """R-READER-6: pages that are out stay so."""
    harness, readers = make()
    readers.put()
    page = readers.page(limit=2)
    harness.store.log.disk_full = True
    with pytest.raises(StorageError):
        readers.seek(5)
    harness.store.log.disk_full = False
    assert readers.seqs(limit=1) == [3]
    assert readers.commit(page.token) == 2


def test_a_part_of_a_page_is_committed_and_the_rest_stays_out() -> None:
    """R-READER-4: commit up to a seq."""
    _, readers = make()
    readers.put()
    page = readers.page(limit=4)
    assert readers.commit(page.token, 2) == 2
    assert "got records up to 4 only" in refused(readers.commit, page.token, 5).message
    assert readers.commit(page.token, 1) == 2, "nothing goes back"
    assert readers.commit(page.token, 4) == 4
    assert refused(readers.commit, page.token).code == "reader_fenced"


def test_a_seek_moves_the_reader_and_its_pages_are_late() -> None:
    """R-READER-6: forwards and backwards, up to the head."""
    _, readers = make()
    readers.put()
    page = readers.page(limit=4)
    assert readers.seek(1) == 1
    assert refused(readers.commit, page.token).code == "reader_fenced"
    assert readers.seqs(limit=1) == [2]
    assert "seq is 7, and topic 't' ends at 6" in refused(readers.seek, 7).message


def test_a_gap_is_reported_until_a_seek_passes_it() -> None:
    """R-READER-6: it is not skipped."""
    _, readers = make(cap_records=3)
    readers.put()
    for _ in range(2):
        page = readers.page()
        assert page.result.tombstone is not None
        assert (page.token, page.result.tombstone.gap_to) == (0, 3)
    readers.seek(3)
    assert readers.seqs() == [4, 5, 6]


def test_a_caller_that_passes_gaps_gets_them_beside_the_records_and_commits_both() -> None:
    """R-READER-6: in band, as on the wire."""
    _, readers = make(cap_records=3)
    readers.put()
    page = readers.page(passes_gaps=True, limit=1)
    assert page.result.tombstone is not None
    assert seqs_of(page) == [4]
    assert readers.commit(page.token) == 4


# --- readers ---------------------------------------------------------------------------------------------------------
def test_a_reader_begins_where_it_is_told_and_keeps_its_position_when_its_settings_change() -> None:
    """R-READER-1: from_seq, and settings."""
    _, readers = make()
    assert readers.put(from_seq=4).created
    assert readers.seqs() == [5, 6]
    readers.commit()
    changed = readers.put(holds=True)
    assert (changed.created, changed.state.config.holds) == (False, True)
    assert readers.state().position == 6
    assert "from_seq is 7, and topic 't' ends at 6" in refused(readers.put, "s", from_seq=7).message


@pytest.mark.parametrize(
    ("begin", "position"),
    [
        (Begin("first"), 2),
        (Begin("now"), 6),
        (Begin("last", 3), 3),
        (Begin("last", 100), 2),
        (Begin("time", 0), 2),
        (Begin("time", 1 << 50), 6),
    ],
)
def test_a_reader_begins_where_a_beginning_is_when_it_is_made(begin: Begin, position: int) -> None:
    """R-FROM-8: the cap has taken 1 and 2, and is not reported; a reader that exists keeps its position."""
    _, readers = make(cap_records=4)
    made = readers.put(begin=begin)
    assert (made.created, made.state.position, made.state.committed) == (True, position, position)
    assert readers.seqs() == list(range(position + 1, 7))
    assert readers.put(begin=Begin("first"), holds=True).state.position == 6


def test_what_has_expired_unseen_is_not_reported_to_a_reader_that_begins_with_the_first_record() -> None:
    """R-FROM-2, R-FROM-8."""
    harness, readers = make(ttl_ms=1000)
    harness.advance_ms(2000)
    harness.append("fresh")
    assert readers.put(begin=Begin("first")).state.position == 6
    assert readers.seqs() == [7]


@pytest.mark.parametrize("name", ["", "a b", "/", "x" * 256])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    """R-READER-1: names."""
    _, readers = make()
    assert refused(readers.put, name).message.startswith("reader name ")


def test_a_topic_has_only_so_many_readers() -> None:
    """R-READER-1: the limit."""
    harness = Harness(max_readers=2)
    harness.put()
    readers = Readers(harness)
    readers.put("a")
    readers.put("b")
    refusal = refused(readers.put, "c")
    assert refusal.detail == {"limit": "max_readers", "max": 2}
    assert refusal.message.endswith("raise max_readers (TOPICS_MAX_READERS)"), "as the library and the server name it"
    assert readers.delete("a")
    assert readers.put("c").created


def test_a_reader_that_is_gone_is_named_in_the_refusal_and_its_waiting_reads_end() -> None:
    """R-READER-1: absent readers."""
    harness, readers = make(records=0)
    assert refused(readers.state).detail == {"topic": "t", "reader": "r"}
    readers.put()
    waiting = readers.start_read(wait_ms=1000)
    harness.settle()
    assert readers.delete()
    assert not readers.delete(), "it is gone already"
    assert refused(waiting.get).code == "reader_not_found"
    assert refused(readers.start_read().get).code == "reader_not_found"


def test_a_read_that_waits_is_answered_by_the_deletion_of_its_topic() -> None:
    """R-READER-1: the end of the topic."""
    harness, readers = make(records=0)
    readers.put()
    waiting = readers.start_read(wait_ms=1000)
    harness.settle()
    harness.delete_topic()
    harness.settle()
    refusal = refused(waiting.get)
    assert (refusal.code, refusal.detail) == ("topic_not_found", {"topic": "t"})
    assert refused(readers.start_read().get).code == "topic_not_found", "a later one is told the same"


def test_reads_that_wait_are_answered_some_a_pass_when_their_topic_is_deleted() -> None:
    """All were answered in the pass of the delete."""
    harness = Harness(pass_read_bytes=10 * 8192)
    harness.put()
    readers = Readers(harness)
    readers.put()
    waiting = [readers.start_read(wait_ms=1000) for _ in range(60)]
    harness.settle()
    harness.engine.delete_topic("t", if_empty=False, done=Answer())
    harness.engine.flush()
    harness.store.log.commit(None)
    given = [0, sum(answer.given for answer in waiting)]
    waiting[-1].cancel()  # type: ignore[attr-defined]
    while given[-1] < 59:
        assert given[-1] - given[-2] <= 2 * 10
        harness.engine.flush()
        given.append(sum(answer.given for answer in waiting))
    assert not waiting.pop().given
    assert {refused(answer.get).code for answer in waiting} == {"topic_not_found"}


def test_a_topic_made_again_has_no_readers_and_its_incarnation_tells_that() -> None:
    """R-READER-1: the end of the topic."""
    harness, readers = make()
    readers.put()
    incarnation = harness.state().incarnation
    harness.delete_topic()
    harness.put()
    assert refused(readers.state).code == "reader_not_found"
    answers: list[object] = []
    readers.calls.state("t", "r", answers.append, incarnation=incarnation)
    (error,) = answers
    assert isinstance(error, RequestError)
    assert error.detail == {"topic": "t", "reader": "r", "reason": "recreated"}


def test_the_states_of_many_readers_take_several_passes() -> None:
    """7.12: each counts live records, which takes time."""
    harness, readers = make()
    for number in range(300):
        readers.put(f"r{number:03}")
    answer = Answer()
    readers.calls.of_topic("t", answer)
    assert not answer.given
    harness.engine.flush()
    harness.engine.flush()
    assert [state.name for state in answer.get()] == [f"r{number:03}" for number in range(300)]


def test_changes_of_a_reader_at_the_same_time_come_one_after_the_other() -> None:
    """R-READER-1: in order."""
    harness, readers = make()
    readers.put()
    readers.page(limit=2)
    gone: list[object] = []
    made: list[object] = []
    readers.calls.delete("t", "r", gone.append)
    readers.calls.put("t", "r", readers.state().config, made.append)
    harness.settle()
    assert gone == [True]
    assert made[0].created  # type: ignore[attr-defined]
    harness.restart()
    assert readers.state().position == 0


# --- what it holds ---------------------------------------------------------------------------------------------------
def test_no_cap_takes_what_a_holding_reader_has_not_committed_and_writes_are_refused() -> None:
    """R-READER-8: caps."""
    harness, readers = make(records=3, cap_records=3)
    readers.put(holds=True)
    refusal = refused(harness.append, 4)
    assert refusal.code == "topic_full"
    assert "cap_records is 3, and reader 'r' holds what it has not committed" in refusal.message
    page = readers.page(limit=2)
    readers.commit(page.token)
    harness.append(4, 5)
    assert refused(harness.append, 6).code == "topic_full"
    assert harness.seqs(2) == [3, 4, 5]
    assert harness.state().earliest_seq == 3
    readers.delete()
    harness.append(6)
    assert harness.state().earliest_seq == 4


def test_a_smaller_cap_takes_what_was_held_once_it_is_committed() -> None:
    """R-READER-8: caps that become smaller."""
    harness, readers = make(records=6)
    readers.put(holds=True)
    harness.put(cap_records=2)
    assert harness.state().earliest_seq == 1
    page = readers.page(limit=3)
    readers.commit(page.token)
    assert harness.state().earliest_seq == 4
    harness.restart()
    assert harness.state().earliest_seq == 4
    assert refused(harness.append, 7).code == "topic_full"


def test_nothing_expires_that_a_holding_reader_has_not_committed() -> None:
    """R-READER-8: expiry."""
    harness, readers = make(records=3, ttl_ms=1000)
    readers.put(holds=True)
    harness.advance_ms(5000)
    assert harness.seqs() == [1, 2, 3]
    readers.commit(readers.page(limit=2).token)
    assert harness.state().earliest_seq == 3
    readers.delete()
    assert harness.state().earliest_seq == 4


def test_positions_that_overlap_let_go_what_is_committed() -> None:
    """R-READER-8: commits without a pause hold no more than one by one."""
    reader = NamedReader("r", ReaderConfig(holds=True), 0)
    reader.stage(1)
    for position in range(2, 6):
        reader.stage(position)
        reader.settle(position - 1)
        assert reader.held == position - 1


@pytest.mark.parametrize("seed", seeds(20))
def test_what_is_held_is_the_least_of_all_readers_that_hold(seed: int) -> None:
    """R-READER-8: however readers come, change, move and go."""
    rng = random.Random(seed)
    readers = TopicReaders()
    staged: list[tuple[NamedReader, int]] = []
    for _ in range(300):
        name = rng.choice("abcde")
        reader = readers.by_name.get(name)
        action = rng.randrange(4)
        if action == 0 or reader is None:
            readers.put(name, ReaderConfig(holds=rng.random() < 0.7), rng.randrange(100))
        elif action == 1 and rng.random() < 0.3:
            readers.remove(name)
        elif action == 2:
            staged.append((reader, rng.randrange(100)))
            reader.stage(staged[-1][1])
        elif staged:
            moved, position = staged.pop(0)
            moved.settle(position)
            readers.hold(moved)
            flying = [seq for other, seq in staged if other is moved]
            assert moved.held <= min([moved.committed, *flying])
        held = [reader.holding for reader in readers.by_name.values() if reader.config.holds]
        assert readers.held == min(held, default=NO_HOLD)


def test_a_deletion_that_a_client_asks_for_is_not_held() -> None:
    """R-READER-8: deletes."""
    harness, readers = make()
    readers.put(holds=True)
    harness.delete(before_seq=4)
    assert readers.seqs() == [4, 5, 6]


# --- what it trims ---------------------------------------------------------------------------------------------------
def test_what_all_trimming_readers_have_committed_is_deleted_silently(durability: str) -> None:
    """R-READER-9: trims."""
    harness, readers = make(durability)
    readers.put("a", trims=True)
    readers.put("b", trims=True)
    readers.put("c")
    readers.commit(readers.page("a", limit=4).token, name="a")
    assert harness.state().earliest_seq == 1
    readers.commit(readers.page("b", limit=3).token, name="b")
    assert harness.state().earliest_seq == 4
    assert readers.seqs("c") == [4, 5, 6], "without a gap"
    if durability != "ephemeral":
        harness.restart()
        assert harness.seqs() == [4, 5, 6]


def test_records_are_trimmed_when_the_slowest_reader_ends_or_stops_to_trim(durability: str) -> None:
    """R-READER-9: what all readers with this setting have committed."""
    harness, readers = make(durability)
    for name in "abc":
        readers.put(name, trims=True)
    readers.commit(readers.page("a", limit=4).token, name="a")
    readers.commit(readers.page("b", limit=2).token, name="b")
    readers.delete("c")
    assert harness.state().earliest_seq == 3
    readers.put("b", trims=False)
    assert harness.state().earliest_seq == 5


# --- restarts --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_finds_readers_with_the_position_that_was_committed(checkpoint: bool) -> None:
    """R-READER-4: log and snapshot."""
    harness, readers = make()
    readers.put("a", delivery="at-most-once", holds=True)
    readers.put("b", trims=True, from_seq=1)
    readers.put("c")
    readers.page("a", limit=2)
    one = readers.page("b", limit=2)
    readers.commit(one.token, name="b")
    readers.page("b", limit=1)
    if checkpoint:
        harness.checkpoint()
    readers.delete("c")
    harness.restart()
    assert readers.state("a")[:4] == ("a", ("at-most-once", True, False), 2, 2)
    assert readers.state("b")[:4] == ("b", ("at-least-once", False, True), 3, 3)
    assert refused(readers.state, "c").code == "reader_not_found"
    assert refused(readers.commit, one.token, None, "b").code == "reader_fenced"
    harness.restart()
    assert readers.state("b").committed == 3


def test_a_power_cut_leaves_no_position_above_the_head() -> None:
    """R-READER-4: a snapshot states topics before readers, and the log after it is gone."""
    harness, readers = make("memory", records=2)
    readers.put(delivery="at-most-once")
    assert readers.seqs() == [1, 2]
    harness.checkpoint()
    steps = harness.catalog.checkpoints.prepare_snapshot(1000)
    next(steps)
    harness.append("x")
    assert readers.seqs() == [3]
    for _ in steps:
        pass
    harness.snapshot = b"".join(harness.catalog.checkpoints.snapshot())
    harness.restart(power_lost=True)
    assert harness.state().head_seq == 2
    assert readers.state()[2:4] == (2, 2)
    harness.append("y")
    assert readers.seqs() == [3]


def test_positions_of_class_ephemeral_are_logged_when_the_class_becomes_another() -> None:
    """R-READER-4: a change of class."""
    harness, readers = make("ephemeral")
    readers.put()
    readers.commit(readers.page(limit=4).token)
    harness.put(durability="disk")
    harness.restart()
    assert readers.state().committed == 4


def test_the_description_of_a_segment_states_the_readers() -> None:
    """R-READER-4: what a segment says."""
    harness, readers = make()
    readers.put(holds=True)
    readers.commit(readers.page(limit=4).token)
    topic = harness.engine._core.registry.named("t")
    assert topic is not None
    described = b"".join(harness.catalog.checkpoints.describe(topic.id))
    rebuilt = Harness()
    rebuilt.catalog.adopt(topic.id, described, 0)
    found = rebuilt.engine._core.registry.named("t")
    assert found is not None
    assert found.readers is not None
    assert [reader.row for reader in found.readers.by_name.values()] == [
        reader.row
        for reader in topic.readers.by_name.values()  # type: ignore[union-attr]
    ]


def test_a_rebuild_takes_readers_from_the_latest_description_and_no_older_frames_of_a_log_that_was_cut() -> None:
    """R-READER-4. The description of the highest seqs won, also if a file of lower ones was written later."""
    harness, readers = make()
    readers.put()
    readers.commit(readers.page(limit=2).token)
    topic = harness.engine._core.registry.named("t")
    assert topic is not None
    before = b"".join(harness.catalog.checkpoints.describe(topic.id))
    harness.append("more")
    readers.commit(readers.page(limit=2).token)
    latest = b"".join(harness.catalog.checkpoints.describe(topic.id))

    def position(*, log_cut: bool, frame_ms: int) -> int:
        catalog = Harness().catalog
        result_of(catalog.restore(None, log_cut=log_cut))
        catalog.adopt(topic.id, latest, 2000)
        catalog.adopt(topic.id, before, 1000)
        frame = msgspec.json.encode(ReaderPayload("r"))
        catalog.apply_control(FrameType.READER_POSITION, topic.id, 3, frame_ms, frame)
        result_of(catalog.recovered(power_lost=False))
        found = catalog._topic(topic.id)
        assert found is not None
        assert found.readers is not None
        return found.readers.by_name["r"].committed

    assert position(log_cut=True, frame_ms=1999) == 4
    assert position(log_cut=True, frame_ms=2000) == 3
    assert position(log_cut=False, frame_ms=1999) == 3, "the log has all frames since, and a clock may go back"
