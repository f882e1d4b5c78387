"""Readers of one protocol at one cursor: one call sends to all whose connections are idle."""

from __future__ import annotations

import pytest

from tests.engine.delivery.shared_sends import FakeSharedSends, SharingReader
from tests.engine.harness import Harness, records
from topics.engine.delivery.audience import Audience
from topics.engine.delivery.cohort import Cohort
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import Subscription
from topics.engine.shared import core
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError


class Reader:
    """A sink whose connection shares: `got` are the cursors it got, `called` those by `deliver`."""

    def __init__(self, h: Harness, sends: FakeSharedSends, audience: Audience | None) -> None:
        self.audience = audience
        self.shared_connection = SharingReader(sends, lambda burst: self.got.append(burst.cursor))
        self.got: list[int] = []
        self.called: list[int] = []
        self.feed = h.engine.open_feed(self)
        self.feed.subscribe("t", DiffQuery(), 0)
        self.feed.resume()
        self.got.clear()
        self.called.clear()

    @property
    def subscription(self) -> Subscription:
        return self.feed.subscriptions["t"]

    def deliver(self, _subscription: Subscription, burst: Burst) -> bool:
        self.shared_connection.stop_sharing()
        self.got.append(burst.cursor)
        self.called.append(burst.cursor)
        return self.shared_connection.idle

    def fail(self, _subscription: Subscription, error: TopicsError) -> None:
        raise AssertionError(error)


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.put()
    return harness


def test_a_burst_is_sent_to_the_idle_readers_of_an_audience_by_one_call(h: Harness) -> None:
    sends = FakeSharedSends()
    audience = sends.audience()
    readers = [Reader(h, sends, audience) for _ in range(5)]
    h.append("a")
    assert sends.calls == [(5, 0), (5, 5)], "they begin to share with the first burst"
    h.append("b")
    assert sends.calls[2:] == [(5, 5)]
    assert all(reader.got == [1, 2] and not reader.called for reader in readers)
    assert all(reader.subscription.sent[0] == 2 for reader in readers)


def test_a_reader_whose_connection_is_busy_gets_the_burst_by_its_sink_and_later_shares_again(h: Harness) -> None:
    sends = FakeSharedSends()
    audience = sends.audience()
    readers = [Reader(h, sends, audience) for _ in range(3)]
    h.append("a")
    readers[1].shared_connection.stop_sharing()
    readers[1].shared_connection.idle = False
    h.append("b")
    assert [reader.called for reader in readers] == [[], [2], []]
    h.append("c")
    assert [reader.got for reader in readers] == [[1, 2, 3], [1, 2], [1, 2, 3]], "it has enough"
    assert readers[1].subscription.sent[0] == 2, "the burst that its cohort sent to others is not its own"
    readers[1].shared_connection.idle = True
    readers[1].feed.resume()
    h.append("d")
    h.append("e")
    assert [reader.got for reader in readers] == [[1, 2, 3, 4, 5]] * 3
    assert readers[1].called == [2, 3]


def test_a_reader_that_pauses_leaves_the_shared_sends(h: Harness) -> None:
    sends = FakeSharedSends()
    audience = sends.audience()
    readers = [Reader(h, sends, audience) for _ in range(2)]
    h.append("a")
    readers[0].feed.pause()
    h.append("b")
    assert [reader.got for reader in readers] == [[1], [1, 2]]
    readers[0].feed.resume()
    assert [reader.got for reader in readers] == [[1, 2], [1, 2]]


def test_each_audience_gets_its_own_bytes_and_readers_of_none_are_called(h: Harness) -> None:
    ours, theirs = FakeSharedSends(), FakeSharedSends()
    audiences = [ours.audience(), theirs.audience(), None]
    sends = [ours, theirs, ours]
    readers = [Reader(h, sends[at % 3], audiences[at % 3]) for at in range(6)]
    h.append("a")
    assert ours.calls[-1] == theirs.calls[-1] == (2, 2)
    assert [reader.got for reader in readers] == [[1]] * 6
    assert [bool(reader.called) for reader in readers] == [False, False, True] * 2


def test_a_burst_that_is_too_large_to_share_is_delivered_one_by_one(h: Harness) -> None:
    sends = FakeSharedSends()
    audience = sends.audience(most_bytes=0)
    readers = [Reader(h, sends, audience) for _ in range(2)]
    h.append("a")
    assert [reader.called for reader in readers] == [[1], [1]]
    assert not sends.calls


def test_a_reader_that_joins_later_is_not_credited_with_earlier_bursts(h: Harness) -> None:
    sends = FakeSharedSends()
    audience = sends.audience()
    first = [Reader(h, sends, audience) for _ in range(2)]
    h.append("a")
    late = Reader(h, sends, audience)
    assert late.subscription.sent is late.subscription.own_sent
    h.append("b")
    assert {reader.subscription.sent[0] for reader in (*first, late)} == {2}
    late.feed.close()
    assert first[0].subscription.sent[0] == 2


PARTED, TOPICS, READERS = 20, 60, 6


@pytest.mark.parametrize("shares", [True, False])
def test_the_subscriptions_of_readers_that_leave_at_once_end_some_a_pass(
    shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 WebSockets of 10,000 subscriptions each took one pass of 170 ms. They get nothing more."""
    monkeypatch.setattr(core, "_PARTED_A_PASS", PARTED)
    h, sends = Harness(), FakeSharedSends()
    names = [f"t{number:02}" for number in range(TOPICS)]
    for name in ("t", *names):
        h.put(name)
    audience = sends.audience() if shares else None
    readers = [Reader(h, sends, audience) for _ in range(READERS)]
    for reader in readers:
        for name in names:
            reader.feed.subscribe(name, DiffQuery(), 0)
        reader.feed.resume()
    for _ in range(10 * READERS):
        h.advance_ms(0)
        h.engine.flush()
    h.append("a", name=names[-1])
    ended: list[Subscription] = []
    remove = Cohort.remove
    monkeypatch.setattr(Cohort, "remove", lambda cohort, each: (ended.append(each), remove(cohort, each)))
    leaving, stays = readers[:-1], readers[-1]
    for reader in readers:
        reader.got.clear()
    a_pass = h.count_in_passes(ended)
    for reader in leaving:
        reader.feed.close()
    h.start_append(records("b"), names[-1])
    h.engine.flush()
    h.store.log.commit()
    h.engine.flush()
    assert stays.got == [2]
    for _ in range(READERS * TOPICS // PARTED):
        h.engine.flush()
    assert max(a_pass) <= 2 * PARTED, "what is left of one budget, and the next"
    assert len(set(ended)) == len(ended) == (READERS - 1) * (TOPICS + 1)
    h.append("c", name=names[-1])
    assert stays.got == [2, 3]
    assert not any(reader.got for reader in leaving)
    assert all(len(h.engine._core.registry.by_name[name].waiters) == 1 for name in names)
