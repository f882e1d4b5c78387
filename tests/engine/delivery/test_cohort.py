"""Cohorts that one write wakes: a pass makes some of their reads, and each cohort has its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.delivery.shared_sends import FakeSharedSends
from tests.engine.delivery.test_audience import Reader as SharingReader
from tests.engine.delivery.test_delivery import Reader
from tests.engine.harness import Answer, Harness, records
from topics.engine.delivery import cohort
from topics.engine.delivery.reader_pass import BYTES_A_PASS
from topics.engine.read.shared_reads import SharedReads
from topics.engine.values.topic_config import make_config

A_PASS = 10
"""Reads of a pass at most, when nothing else is charged for them."""
MANY = 60


@pytest.fixture
def h() -> Harness:
    harness = Harness(pass_read_bytes=A_PASS * BYTES_A_PASS)
    harness.put()
    return harness


def _readers(h: Harness, names: int = 1) -> list[Reader]:
    """Readers at the head, of which each leaves out nodes of its own, or all of them none."""
    readers = [Reader(h, nodes=tuple(b"%d-%d" % (at, n) for n in range(names))).follow() for at in range(MANY)]
    for _ in range(2 * MANY):
        _pass(h)
    assert all(reader.take() == [("t", "caught up", 0)] for reader in readers)
    return readers


def _pass(h: Harness) -> None:
    h.advance_ms(0)
    h.engine.flush()


def _publish(h: Harness, value: Any) -> None:
    """Commit a record; its readers are served from the next pass on."""
    h.start_append(records(value), node=b"somebody")
    h.store.log.commit(None)


@pytest.mark.parametrize("names", [1, 999])
def test_reads_of_woken_cohorts_take_turns_in_order(h: Harness, names: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """800 of them with 999 names each read in one pass, 50 ms, and 2500 in 150 ms."""
    readers, made = _readers(h, names), list[int]()
    read = SharedReads.read

    def counted(*arguments: Any) -> Any:
        made.append(0)
        return read(*arguments)

    monkeypatch.setattr(SharedReads, "read", counted)
    _publish(h, "a")
    passes = 0
    while not readers[-1].told:
        assert passes < MANY
        before = len(made)
        _pass(h)
        passes += 1
        assert len(made) - before <= 2 * A_PASS, "what is left of one budget, and the next"
        served = [bool(reader.told) for reader in readers]
        assert served == sorted(served, reverse=True), "none overtakes those who wait"
    assert passes >= MANY // (2 * A_PASS)
    assert len(made) == MANY
    assert all(reader.take() == [("t", 0, 1, 1, [1]), ("t", "caught up", 1)] for reader in readers)


def test_readers_with_equal_options_are_served_in_the_pass_of_the_write(h: Harness) -> None:
    readers = _readers(h, names=0)
    _publish(h, "a")
    _pass(h)
    assert all(len(reader.bursts) == 2 for reader in readers)


def test_a_lone_reader_is_served_in_the_pass_of_the_write() -> None:
    h = Harness(pass_read_bytes=20_000)
    h.put()
    reader = Reader(h).follow()
    h.engine.flush()
    h.start_append(records("a"))
    h.engine.flush()
    h.store.log.commit(None)
    h.engine.flush()
    assert reader.take() == [("t", "caught up", 0), ("t", 0, 1, 1, [1]), ("t", "caught up", 1)]


def test_what_is_written_while_a_cohort_waits_comes_with_its_turn(h: Harness) -> None:
    readers = _readers(h)
    _publish(h, "a")
    _pass(h)
    assert readers[0].told
    assert not readers[-1].told
    _publish(h, "b")
    for _ in range(2 * MANY):
        _pass(h)
    assert readers[0].take() == [("t", 0, 1, 1, [1]), ("t", "caught up", 1), ("t", 1, 2, 2, [2]), ("t", "caught up", 2)]
    assert readers[-1].take() == [("t", 0, 2, 2, [1, 2]), ("t", "caught up", 2)]
    assert len(h.engine._core.turns) == 0


def test_equal_readers_of_a_topic_that_is_deleted_hear_of_it_some_a_pass(h: Harness) -> None:
    """All did in the pass of the delete. A topic that gets the name meanwhile is not followed."""
    readers = _readers(h, names=0)
    h.engine.delete_topic("t", if_empty=False, done=Answer())
    h.engine.flush()
    h.store.log.commit(None)
    told = [sum(bool(reader.told) for reader in readers)]
    h.engine.put_topic("t", make_config(), Answer())
    h.engine.flush()
    h.store.log.commit(None)
    while told[-1] < MANY:
        _pass(h)
        told.append(sum(bool(reader.told) for reader in readers))
        assert told[-1] - told[-2] <= 4 * A_PASS, "what is left of one budget, and the next"
    assert told[0] <= 4 * A_PASS
    assert all(reader.take() == [("t", "deleted")] for reader in readers)
    assert len(h.engine._core.turns) == 0


def test_a_reader_that_leaves_before_its_turn_costs_none(h: Harness) -> None:
    readers = _readers(h)
    _publish(h, "a")
    _pass(h)
    for reader in readers[1:-1]:
        reader.feed.close()
    _pass(h)
    assert readers[-1].take() == [("t", 0, 1, 1, [1]), ("t", "caught up", 1)]
    assert len(h.engine._core.turns) == 0


def test_a_topic_that_is_deleted_ends_the_readers_that_wait_for_a_turn(h: Harness) -> None:
    readers = _readers(h)
    _publish(h, "a")
    _pass(h)
    h.engine.delete_topic("t", if_empty=False, done=Answer())
    h.settle()
    for _ in range(2 * MANY):
        _pass(h)
    assert all(reader.take()[-1] == ("t", "deleted") for reader in readers)
    assert len(h.engine._core.turns) == 0


def test_readers_that_hear_of_many_deleted_topics_when_they_read_again_take_turns() -> None:
    """The end of 256 topics with 2,000 readers each took passes of 120 ms."""
    an_end, topics = 8192, 20
    h = Harness(pass_read_bytes=A_PASS * an_end)
    names = [f"t{number:02}" for number in range(topics)]
    for name in names:
        h.put(name)
    readers = [Reader(h).follow(*names) for _ in range(MANY)]
    for _ in range(4 * MANY):
        _pass(h)
    assert sum(len(reader.take()) for reader in readers) == MANY * topics
    for reader in readers:
        reader.feed.pause()
    for name in names:
        h.delete_topic(name)
    for _ in range(4 * MANY * topics):
        _pass(h)
    told: list[object] = []
    for reader in readers:
        reader.told = told
        reader.feed.resume()
    counts = [len(told)]
    while len(told) < MANY * topics:
        _pass(h)
        counts.append(len(told) - sum(counts))
        assert counts[-1] > 0
    assert max(counts) <= 2 * A_PASS, "what is left of one budget, and the next"


MOST = 20


def _sharing(monkeypatch: pytest.MonkeyPatch) -> tuple[Harness, list[SharingReader], Callable[[], SharingReader]]:
    """Readers of one audience at the head, three cohorts of them and a half; and what makes another."""
    monkeypatch.setattr(cohort, "_MOST_MEMBERS", MOST)
    h = Harness(pass_read_bytes=MOST * 1024)
    h.put()
    sends = FakeSharedSends()
    audience = sends.audience()

    def another() -> SharingReader:
        reader = SharingReader(h, sends, audience)
        for _ in range(2):
            _pass(h)
        return reader

    readers = [another() for _ in range(3 * MOST + MOST // 2)]
    h.append("a")
    for _ in range(2 * len(readers)):
        _pass(h)
    assert all(reader.got == [1] for reader in readers)
    return h, readers, another


def test_very_many_equal_readers_of_one_write_are_served_some_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """9,500 took one pass of 55 ms."""
    h, readers, _ = _sharing(monkeypatch)
    _publish(h, "b")
    got = [0]
    while got[-1] < len(readers):
        _pass(h)
        got.append(sum(reader.got[-1] == 2 for reader in readers))
        assert 0 <= got[-1] - got[-2] <= MOST
    _publish(h, "c")
    for _ in range(len(readers)):
        _pass(h)
    assert all(reader.got == [1, 2, 3] for reader in readers)


def test_a_reader_joins_the_cohort_that_others_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that come and go would leave many small ones otherwise."""
    h, readers, another = _sharing(monkeypatch)
    assert len(h.engine._core.registry.by_name["t"].waiters) == 4
    for reader in readers[: MOST - 1]:
        reader.feed.close()
    for _ in range(MOST - 1 + MOST // 2):
        another()
    assert len(h.engine._core.registry.by_name["t"].waiters) == 4


def test_a_reader_at_the_head_joins_no_cohort_whose_read_is_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would get what it has got already."""
    h, readers, another = _sharing(monkeypatch)
    waiters = h.engine._core.registry.by_name["t"].waiters
    for _ in range(MOST // 2):
        another()
    readers[0].feed.close()
    first = next(iter(waiters))
    assert isinstance(first, cohort.Cohort)
    first.reading = True
    another()
    assert (len(waiters), len(first.members)) == (5, MOST - 1)


APART = 600


def _apart() -> tuple[Harness, list[Reader]]:
    """Very many equal readers that share no sends."""
    h = Harness()
    h.put()
    readers = [Reader(h).follow() for _ in range(APART)]
    for _ in range(2 * APART):
        _pass(h)
    assert all(reader.take() == [("t", "caught up", 0)] for reader in readers)
    return h, readers


def test_very_many_readers_that_share_no_sends_get_a_write_some_a_pass() -> None:
    """1,024 in one pass took 20 to 31 ms."""
    h, readers = _apart()
    _publish(h, "a")
    got = [0]
    while got[-1] < APART:
        _pass(h)
        got.append(sum(bool(reader.told) for reader in readers))
        assert got[-2] < got[-1] <= got[-2] + 2 * 128
        if len(got) == 2:
            _publish(h, "b")
    for _ in range(20):
        _pass(h)
    told = [("t", 0, 1, 1, [1]), ("t", "caught up", 1), ("t", 1, 2, 2, [2]), ("t", "caught up", 2)]
    assert all(reader.take() == told for reader in readers)
    (waiter,) = h.engine._core.registry.by_name["t"].waiters
    assert isinstance(waiter, cohort.Cohort), "they are one cohort still"
    assert len(waiter.members) == APART


def test_what_readers_do_before_their_turn_to_be_sent_to_costs_them_no_record() -> None:
    h, readers = _apart()
    _publish(h, "a")
    _pass(h)
    first, full, again, gone, buggy = readers[0], readers[-1], readers[-2], readers[-3], readers[-4]
    assert first.told
    assert not any(reader.told for reader in (full, again, gone, buggy))
    full.feed.pause()
    (stale,) = again.feed.subscriptions.values()
    assert stale.cohort is not None
    stale.cohort.remove(stale)
    assert (stale.cursor, stale.reported_caught_up, stale.sent) == (0, True, (0, stale.sent[1]))
    again.feed.fall_behind(stale)
    again.feed.read_on()
    gone.feed.close()
    buggy.raises = True
    late = Reader(h).follow(from_seq=1)
    for _ in range(20):
        _pass(h)
    full.feed.resume()
    _publish(h, "b")
    for _ in range(20):
        _pass(h)
    told = [("t", 0, 1, 1, [1]), ("t", "caught up", 1), ("t", 1, 2, 2, [2]), ("t", "caught up", 2)]
    assert [reader.take() for reader in (first, full, again, gone, buggy)] == [told, told, told, [], []]
    assert late.take() == [("t", "caught up", 1), ("t", 1, 2, 2, [2]), ("t", "caught up", 2)]
    assert len(buggy.errors) == 1
