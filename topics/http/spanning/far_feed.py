"""The topics of one other core that a connection of this one follows: a far feed.

docs/internals/cores/spanning.md says what causes each change of its state.

A burst counts as taken when the connection has taken it. While that takes no more, none is reported
as taken, and the other core stops at its marks.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from topics.common.transitions import Transitions
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import Subscription
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.relay.far_stream import OrderedStream
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.spanning.feed_messages import (
    DropPrefixes,
    FillPlaces,
    Follow,
    GiveBack,
    Leave,
    Order,
    Read,
    SentFailure,
    SentName,
    TakeIn,
    bytes_of_nodes,
    order_bytes,
    read_chunk,
)
from topics.http.spanning.portion_answers import PortionAnswer
from topics.http.spanning.portions import Destination, Portion
from topics.http.streams.key_limits import CountedKey
from topics.http.streams.stream_slots import Slot
from topics.http.wire.stream import Block, Stream

_log = logging.getLogger(__name__)
_COUNT_AGAIN_BYTES = 65_536
_AS_THERE = DiffQuery()
"""The query of topics that the other core takes in, as this one knows it."""


class FollowingFeed(Protocol):
    """The feed of the connection, as the far feeds that it is made of see it."""

    @property
    def is_held(self) -> bool:
        """Whether nothing is delivered until its next `resume`."""

    @property
    def is_full(self) -> bool:
        """Whether the connection holds enough."""

    asked: int
    """Writes that the connection has asked other cores for."""
    answered: int
    """How many of them are answered."""

    def subscription(self, name: str, query: DiffQuery, from_seq: int) -> Subscription: ...

    def take_far(self, subscription: Subscription, burst: Burst) -> None:
        """Deliver a burst."""

    def may_take_in(self, name: str) -> bool:
        """Return whether a topic that the other core has taken in is followed."""

    def leave_out(self, name: str, most: int) -> None:
        """Report a topic that has no place."""

    def note_end(self, name: str) -> None:
        """Note that a topic has ended."""

    def fail_far(self, subscription: Subscription, error: TopicsError) -> None:
        """Report a subscription that has ended because its topic cannot be read."""

    def lose(self, core: int) -> None:
        """End with a core that is gone."""

    def stop(self) -> None:
        """End with a core that stops."""

    def now_ns(self) -> int: ...


class FeedCall(Portion):
    """The request for a far feed. Its connection has a slot already."""

    __slots__ = ()

    def take_slot(self, key: CountedKey | None) -> Slot:
        return Slot(_keep_slot, key, is_of_client=False)


def _keep_slot(_slot: Slot) -> None:
    """Do nothing: the slot is counted nowhere."""


class _Door(Destination):
    """Gives the stream of a far feed to its reader, and the refusal of one."""

    __slots__ = ("_feed",)

    def __init__(self, core: int, feed: FarFeed) -> None:
        super().__init__(core, feed.refused)
        self._feed = feed

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Stream:
        return self._feed.opened(on_drained, on_disconnect)


class FarFeedState(enum.Enum):
    ASKED = "asked"
    """The other core has not opened it; orders wait."""
    OPEN = "open"
    """Orders are sent there, and bursts come."""
    ENDED = "ended"
    """By this side, by a stop or a refusal of the other core, or with the socket to it."""


FAR_FEED_STATES = Transitions(
    {
        FarFeedState.ASKED: (FarFeedState.OPEN, FarFeedState.ENDED),
        FarFeedState.OPEN: (FarFeedState.ENDED,),
        FarFeedState.ENDED: (),
    }
)


class FarFeed(OrderedStream):
    """One far feed, and the stream that it is read from."""

    shared_connection = None

    def __init__(self, core: int, follower: FollowingFeed, service: Service, plan: Plan) -> None:
        self.core = core
        self._follower: FollowingFeed | None = follower
        """The connection's feed, until the end."""
        self._turns = service.answer_turns
        self.state = FarFeedState.ASKED
        self.call = FeedCall(service, _Door(core, self), plan, b"", service.now_ns())
        """The request, which is to be asked of the core."""
        self._waiting: list[Order] = []
        """Orders, until it is open."""
        self._send: Callable[[bytes], None] = _refuse
        """Sends an order, once it is open."""
        self._on_drained = self._leave = _nothing
        self.subscriptions: dict[str, Subscription] = {}
        self._by_number: dict[int, Subscription] = {}
        self._numbers: dict[str, int] = {}
        self._last_number = 0
        self._query: DiffQuery | None = None
        """How the other core reads the topics that it is asked for next."""
        self._held: deque[tuple[int, bytes]] = deque()
        """Bursts that wait, each for the writes that were asked before it came."""
        self._held_bytes = 0
        self._node_bytes = 0
        self._count_again = _COUNT_AGAIN_BYTES

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept for the connection, on both cores."""
        return self._held_bytes + self._node_bytes

    # --- what the connection asks for --------------------------------------------------------------------------------
    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        """Follow a topic, instead of an earlier subscription of its name."""
        follower = self._follower
        assert follower is not None, "a feed that has ended"
        number, subscription = self._new(follower, name, query, from_seq)
        self._read(query)
        self._order(Follow(number, name, from_seq))
        return subscription

    def take_in(self, command: TakeIn, query: DiffQuery, begins: Mapping[str, int]) -> None:
        """Follow prefixes, too. begins: topics that are there, and their cursors."""
        follower = self._follower
        assert follower is not None, "a feed that has ended"
        numbered = [
            (self._new(follower, name, query, from_seq)[0], name, from_seq) for name, from_seq in begins.items()
        ]
        self._read(query)
        self._order(TakeIn(command.prefixes, command.within, command.most, numbered))

    def drop_prefixes(self, prefixes: Iterable[str], names: Iterable[str]) -> None:
        """End prefixes. names: of the topics that none covers any more."""
        for name in names:
            self._forget(name)
        self._order(DropPrefixes(list(prefixes)))

    def fill_places(self) -> None:
        self._order(FillPlaces())

    def _new(
        self, follower: FollowingFeed, name: str, query: DiffQuery, from_seq: int, number: int = 0
    ) -> tuple[int, Subscription]:
        """Return a subscription of a name, instead of an earlier one. number: 0: the next one."""
        self._forget(name)
        if not number:
            number = self._last_number = self._last_number + 1
        subscription = follower.subscription(name, query, from_seq)
        self.subscriptions[name] = self._by_number[number] = subscription
        self._numbers[name] = number
        return number, subscription

    def _read(self, query: DiffQuery) -> None:
        """Have the topics of the next order read so."""
        if query is not self._query:
            self._query = query
            self._order(Read.of(query))
            self._count_nodes(query)

    def unsubscribe(self, name: str) -> bool:
        """End a subscription: nothing of it is delivered any more. Return whether it existed."""
        number = self._numbers.get(name)
        if number is None:
            return False
        self._forget(name)
        self._order(Leave(number, name))
        return True

    def _forget(self, name: str) -> None:
        number = self._numbers.pop(name, None)
        if number is not None:
            del self._by_number[number], self.subscriptions[name]

    def _order(self, order: Order) -> None:
        if self.state is FarFeedState.ASKED:
            self._waiting.append(order)
        elif self.state is FarFeedState.OPEN:
            self._send(order_bytes(order))

    def _count_nodes(self, query: DiffQuery) -> None:
        """Count the bytes that the other core holds for the subscriptions; some may have ended."""
        self._node_bytes += len(query.nodes)
        if self._node_bytes > self._count_again:
            self._node_bytes = bytes_of_nodes(each.query for each in self.subscriptions.values())
            self._count_again = 2 * self._node_bytes + _COUNT_AGAIN_BYTES

    def close(self) -> None:
        """End, because the connection does. Nothing is delivered any more."""
        if self._follower is not None:
            was_open = self.state is FarFeedState.OPEN
            self._cut()
            if was_open:
                self._leave()
            else:
                self.call.abandon()
            self._on_drained = self._leave = _nothing

    def _cut(self) -> None:
        self.state = FAR_FEED_STATES.check(self.state, FarFeedState.ENDED)
        self._follower = None
        self._held.clear()
        self._held_bytes = 0
        self.subscriptions.clear()
        self._by_number.clear()
        self._numbers.clear()

    def flush(self) -> None:
        """Deliver held bursts as far as the connection takes them, and report what it has taken."""
        follower, held = self._follower, self._held
        while follower is not None and held and not follower.is_held and not follower.is_full:
            if held[0][0] > follower.answered:
                return
            _, chunk = held.popleft()
            self._held_bytes -= len(chunk)
            self._take(follower, chunk)
            follower = self._follower
        if not self.over_high_water:
            self._on_drained()

    # --- as the stream -----------------------------------------------------------------------------------------------
    def opened(self, on_drained: Callable[[], None], on_disconnect: Callable[[], None]) -> Stream:
        self._on_drained, self._leave = on_drained, on_disconnect
        return self

    def take_order(self, order: Callable[[bytes], None]) -> None:
        self.state = FAR_FEED_STATES.check(self.state, FarFeedState.OPEN)
        self._send = order
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            order(order_bytes(each))

    @property
    def over_high_water(self) -> bool:
        follower = self._follower
        return bool(self._held) or (follower is not None and follower.is_full)

    def write(self, data: bytes) -> None:
        self.write_block(Block(data))

    def write_block(self, block: Block) -> None:
        follower, chunk = self._follower, block.data
        if follower is None:
            return
        if self._held or follower.is_held or follower.asked > follower.answered:
            self._held.append((follower.asked, chunk))
            self._held_bytes += len(chunk)
        else:
            self._take(follower, chunk)

    def end(self) -> None:
        """End, because the other core stops."""
        follower = self._follower
        if follower is not None:
            self._cut()
            follower.stop()

    def drop(self) -> None:
        """End, because the other core is gone."""
        follower = self._follower
        if follower is not None:
            self._cut()
            follower.lose(self.core)

    def refused(self, _answer: PortionAnswer) -> None:
        """End in a later pass, because the other core has not opened it.

        It may be refused while the connection asks for it, as with too many calls under way.
        """
        self._turns.wait(self.drop)

    def _take(self, follower: FollowingFeed, chunk: bytes) -> None:
        """Deliver what a chunk has, unless its subscription has ended."""
        try:
            sent = read_chunk(chunk)
        except DamagedRelayError as error:
            _log.error("a feed of core %d ends: %s", self.core, error)
            self.close()
            follower.lose(self.core)
            return
        if isinstance(sent, SentName):
            self._take_name(follower, sent)
            return
        subscription = self._by_number.get(sent.number)
        if subscription is None:
            return
        if isinstance(sent, SentFailure):
            self._forget(subscription.name)
            follower.fail_far(subscription, sent.error)
            return
        burst = Burst(sent.frames(subscription.name), follower.now_ns())
        subscription.fresh = sent.is_fresh
        if burst.ends_topic:
            self._forget(subscription.name)
        follower.take_far(subscription, burst)
        subscription.cursor = burst.cursor
        if burst.ends_topic:
            follower.note_end(subscription.name)

    def _take_name(self, follower: FollowingFeed, sent: SentName) -> None:
        if sent.most:
            follower.leave_out(sent.name, sent.most)
        elif follower.may_take_in(sent.name):
            self._new(follower, sent.name, _AS_THERE, 0, sent.number)
        elif sent.name not in self.subscriptions:
            self._order(GiveBack(sent.name))


def _refuse(_order: bytes) -> None:
    raise AssertionError("an order for a stream that is not open")


def _nothing() -> None:
    """Stand in for the calls of a stream that is not open, or has ended."""
