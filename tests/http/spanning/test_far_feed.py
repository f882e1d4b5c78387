"""A far feed by itself: orders go out once it is open, bursts come in their order, and what waits is counted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fake_store import FakeLoop
from tests.http.byte_stream import Echo, make_service
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, RecordsFrame
from topics.engine.delivery.subscription import Subscription
from topics.engine.values.node_set import node_set
from topics.engine.values.results import DiffQuery
from topics.errors import RequestError, TopicsError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.access.routes import RouteTable
from topics.http.relay.relayed_head import inner_plan, inner_route
from topics.http.spanning.far_feed import FAR_FEED_STATES, FarFeed, FarFeedState
from topics.http.spanning.feed_messages import (
    TAKEN_IN_FROM,
    DropPrefixes,
    Follow,
    GiveBack,
    Leave,
    Order,
    Read,
    TakeIn,
    burst_chunk,
    failure_chunk,
    left_out_chunk,
    read_order,
    taken_in_chunk,
)
from topics.http.wire.stream import Block

QUERY = DiffQuery(limit=3)


class Following:
    """A connection that follows topics of core 7."""

    def __init__(self) -> None:
        self.is_held = self.is_full = False
        self.asked = self.answered = 0
        self.places: set[str] = set()
        self.came: list[tuple[str, int, bool]] = []
        self.ends: list[str] = []
        self.orders: list[Order] = []
        self.reports = 0
        self.has_left = False
        self._loop = FakeLoop()
        service = make_service(Echo().routes(), loop=self._loop)
        self._turns = service.answer_turns
        routes = RouteTable([inner_route("GET", "feed", lambda _call: None, stream=True)])
        self.feed = FarFeed(7, self, service, inner_plan(routes, "GET", "feed", UNAUTHENTICATED, {}))

    def subscription(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        feed: Any = None
        return Subscription(feed, name, query, from_seq)

    def take_far(self, subscription: Subscription, burst: Burst) -> None:
        self.came.append((subscription.name, burst.cursor, subscription.fresh))

    def fail_far(self, subscription: Subscription, error: TopicsError) -> None:
        self.ends.append(f"{subscription.name}: {error}")

    def lose(self, core: int) -> None:
        self.ends.append(f"core {core} is lost")

    def stop(self) -> None:
        self.ends.append("stop")

    def may_take_in(self, name: str) -> bool:
        return name in self.places

    def leave_out(self, name: str, most: int) -> None:
        self.ends.append(f"{name} is left out: {most}")

    def note_end(self, name: str) -> None:
        self.ends.append(f"{name} has ended")

    def now_ns(self) -> int:
        return 5

    def open(self) -> None:
        self.feed.opened(self._report, self._leave)
        self.feed.take_order(lambda body: self.orders.append(read_order(body)))

    def another_pass(self) -> None:
        self._loop.advance_ms(1)
        self._turns.next_pass()

    def _report(self) -> None:
        self.reports += 1

    def _leave(self) -> None:
        self.has_left = True

    def send(self, number: int, cursor: int, *, is_fresh: bool = False) -> None:
        burst = Burst((RecordsFrame("t", cursor - 1, cursor, cursor, b"{}"),), 0)
        self.feed.write_block(Block(burst_chunk(number, burst, is_fresh=is_fresh)))


@pytest.fixture
def connection() -> Following:
    return Following()


def test_orders_wait_until_the_feed_is_open_and_name_a_query_once(connection: Following) -> None:
    feed, other = connection.feed, DiffQuery(limit=4)
    feed.subscribe("a", QUERY, 1)
    feed.subscribe("b", QUERY, 2)
    assert connection.orders == []
    connection.open()
    assert connection.orders == [Read.of(QUERY), Follow(1, "a", 1), Follow(2, "b", 2)]
    feed.subscribe("a", other, 3)
    assert feed.unsubscribe("b")
    assert not feed.unsubscribe("b")
    assert connection.orders[3:] == [Read.of(other), Follow(3, "a", 3), Leave(2, "b")]
    assert list(feed.subscriptions) == ["a"]


def test_a_burst_of_a_subscription_that_has_ended_or_was_replaced_is_left_out(connection: Following) -> None:
    connection.open()
    for name in ("a", "b"):
        connection.feed.subscribe(name, QUERY, 0)
    connection.feed.subscribe("a", QUERY, 5)
    connection.feed.unsubscribe("b")
    for number in (1, 2, 3):
        connection.send(number, 6, is_fresh=True)
    assert connection.came == [("a", 6, True)]
    assert connection.feed.subscriptions["a"].cursor == 6


def test_what_comes_while_deliveries_pause_waits_in_its_order_and_counts_as_not_taken(connection: Following) -> None:
    connection.open()
    connection.feed.subscribe("a", QUERY, 0)
    connection.send(1, 1)
    assert not connection.feed.over_high_water
    connection.is_held = True
    connection.send(1, 2)
    connection.is_held = False
    connection.send(1, 3)
    assert (connection.came, connection.feed.over_high_water) == ([("a", 1, False)], True)
    assert connection.feed.held_bytes > 20
    connection.feed.flush()
    assert [cursor for _, cursor, _ in connection.came] == [1, 2, 3]
    assert (connection.feed.held_bytes, connection.reports, connection.feed.over_high_water) == (0, 1, False)


def test_a_burst_waits_for_the_writes_that_were_asked_before_it_came_and_for_no_later_ones(
    connection: Following,
) -> None:
    """R-WS-2: writes that never pause do not keep deliveries back."""
    connection.open()
    connection.feed.subscribe("a", QUERY, 0)
    connection.asked = 2
    connection.send(1, 1)
    connection.asked = 3
    connection.send(1, 2)
    for answered, cursors in ((1, []), (2, [1]), (3, [1, 2])):
        connection.answered = answered
        connection.feed.flush()
        assert [cursor for _, cursor, _ in connection.came] == cursors


def test_a_full_connection_gets_what_comes_but_has_not_taken_it(connection: Following) -> None:
    connection.open()
    connection.feed.subscribe("a", QUERY, 0)
    connection.is_full = True
    connection.send(1, 1)
    assert (len(connection.came), connection.feed.over_high_water, connection.feed.held_bytes) == (1, True, 0)
    connection.feed.flush()
    assert connection.reports == 0
    connection.is_full = False
    connection.feed.flush()
    assert connection.reports == 1


def test_node_sets_are_counted_as_long_as_their_subscriptions_may_hold_them(connection: Following) -> None:
    connection.open()
    size = 0
    for number in range(40):
        query = QUERY._replace(nodes=node_set([f"{number:05000}".encode()]))
        connection.feed.subscribe("a", query, 0)
        size = len(query.nodes)
        assert connection.feed.held_bytes >= size
    assert connection.feed.held_bytes < 20 * size, "those of replaced subscriptions are forgotten"


def test_the_end_of_a_topic_ends_its_subscription(connection: Following) -> None:
    connection.open()
    for name in ("a", "b"):
        connection.feed.subscribe(name, QUERY, 0)
    connection.feed.write(burst_chunk(1, Burst((DeletedFrame("a", 4),), 0), is_fresh=False))
    connection.feed.write(failure_chunk(2, RequestError("internal", "a checksum is wrong")))
    assert connection.came == [("a", 4, False)]
    assert connection.ends == ["a has ended", "b: a checksum is wrong"]
    assert not connection.feed.subscriptions


def test_topics_that_the_other_core_takes_in_are_followed_if_they_have_a_place(connection: Following) -> None:
    connection.open()
    feed, number = connection.feed, TAKEN_IN_FROM + 1
    feed.take_in(TakeIn(("a",), (), 5, []), QUERY, {"a0": 3})
    assert connection.orders == [Read.of(QUERY), TakeIn(("a",), (), 5, [(1, "a0", 3)])]
    connection.places = {"a1"}
    for name in ("a1", "a2"):
        feed.write(taken_in_chunk(number, name))
        connection.send(number, 1, is_fresh=True)
        number += 1
    assert connection.came == [("a1", 1, True)]
    assert connection.orders[2:] == [GiveBack("a2")]
    feed.write(left_out_chunk("a3", 5))
    assert connection.ends == ["a3 is left out: 5"]
    feed.drop_prefixes(["a"], ["a1"])
    connection.send(TAKEN_IN_FROM + 1, 2)
    assert (connection.came[1:], connection.orders[3:]) == ([], [DropPrefixes(["a"])])
    feed.write(taken_in_chunk(number, "a0"))
    assert connection.orders[4:] == [], "one that was named meanwhile stays"


def test_a_chunk_that_is_none_ends_the_feed_as_the_end_of_its_core_does(connection: Following) -> None:
    connection.open()
    connection.feed.subscribe("a", QUERY, 0)
    connection.feed.write(b"nonsense")
    assert (connection.ends, connection.has_left) == (["core 7 is lost"], True)
    connection.send(1, 1)
    connection.feed.drop()
    connection.feed.end()
    assert (connection.came, connection.ends) == ([], ["core 7 is lost"])


@pytest.mark.parametrize(("end", "said"), [("drop", "core 7 is lost"), ("end", "stop")])
def test_a_core_that_is_gone_or_stops_ends_the_connection(connection: Following, end: str, said: str) -> None:
    connection.open()
    connection.feed.subscribe("a", QUERY, 0)
    connection.is_held = True
    connection.send(1, 1)
    getattr(connection.feed, end)()
    assert (connection.ends, connection.feed.held_bytes) == ([said], 0)
    connection.feed.close()
    assert not connection.has_left, "there is nothing to leave"


def test_a_feed_that_is_refused_ends_the_connection(connection: Following) -> None:
    connection.feed.call.fail(RequestError("not_ready", "it recovers"))
    assert connection.ends == [], "it may be asking for it"
    connection.feed.subscribe("a", QUERY, 0)
    connection.another_pass()
    assert connection.ends == ["core 7 is lost"]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_closed_feed_leaves_the_other_core(connection: Following, is_open: bool) -> None:
    if is_open:
        connection.open()
    connection.feed.subscribe("a", QUERY, 0)
    connection.feed.close()
    assert (connection.has_left, connection.feed.call.answered) == (is_open, not is_open)
    connection.feed.write(burst_chunk(1, Burst((CaughtUpFrame("a", 1, 1),), 0), is_fresh=True))
    assert (connection.came, connection.ends) == ([], [])


ASKED, OPEN, ENDED = FarFeedState
ENDS: list[Callable[[FarFeed], None]] = [FarFeed.close, FarFeed.drop, FarFeed.end]
ALLOWED = {(old, new) for old, after in FAR_FEED_STATES.after.items() for new in after}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_feed_takes_every_allowed_state_and_no_other_one(
    connection: Following, is_open: bool, end: Callable[[FarFeed], None]
) -> None:
    feed, states = connection.feed, [connection.feed.state]
    if is_open:
        connection.open()
        states.append(feed.state)
    for again in (end, *ENDS):
        again(feed)
    states.append(feed.state)
    assert states == ([ASKED, OPEN, ENDED] if is_open else [ASKED, ENDED])
    assert set(itertools.pairwise(states)) <= ALLOWED
    feed.fill_places()
    assert connection.orders == [], "an order of a feed that has ended"
    with pytest.raises(AssertionError, match="OPEN does not follow ENDED"):
        connection.open()


def test_the_page_about_spanning_has_the_same_table() -> None:
    page = Path(__file__).resolve().parents[3] / "docs/internals/cores/spanning.md"
    rows = re.findall(r"^\| `([a-z]+)` \| ([^|]*) \|", page.read_text(), re.M)
    documented = {(old, new) for old, after in rows for new in re.findall(r"`([a-z]+)`", after)}
    assert documented == {(old.value, new.value) for old, new in ALLOWED}
    assert documented == {("asked", "open"), ("asked", "ended"), ("open", "ended")}
