"""A feed for a connection of another core, on the core of its topics: bursts as chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from topics.common.values.begin import Begin, Beginning
from topics.engine.delivery.feed import Feed
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import Sink, Subscription
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError, as_request_error
from topics.http.plan.call import Call
from topics.http.plan.service import Service
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.relay.relayed_stream import RelayedStream
from topics.http.spanning.feed_messages import (
    TAKEN_IN_FROM,
    DropPrefixes,
    FillPlaces,
    Follow,
    GiveBack,
    Leave,
    Read,
    TakeIn,
    burst_chunk,
    failure_chunk,
    left_out_chunk,
    read_order,
    taken_in_chunk,
)
from topics.http.wire.stream import Stream

_log = logging.getLogger(__name__)
_NO_LIMIT = 1 << 62


class AskedBegin(msgspec.Struct, frozen=True, array_like=True):
    """A topic of another core, and where a subscription to it is to begin."""

    name: str
    begin: Begin


class AskedNames(msgspec.Struct, frozen=True, array_like=True):
    """Prefixes of names, and of those that the client may see; and the most names."""

    prefixes: tuple[str, ...]
    within: tuple[str, ...]
    most: int


FOUND_NAMES = msgspec.json.Decoder(list[str])
_ASKED_NAMES = msgspec.msgpack.Decoder(AskedNames)
BEGINNING = msgspec.json.Decoder(Beginning)
_ASKED_BEGIN = msgspec.msgpack.Decoder(AskedBegin)


def begin(call: Call) -> None:
    """Answer the cursor at which a subscription to a topic of this core begins."""
    asked = _ASKED_BEGIN.decode(call.body)

    @call.or_fail
    def done(found: Beginning) -> None:
        call.reply(msgspec.json.encode(found))

    call.service.engine.begin(asked.name, asked.begin, done)


def find_topics(call: Call) -> None:
    """Answer the lowest names of this core with some prefixes."""
    asked = _ASKED_NAMES.decode(call.body)
    call.reply(msgspec.json.encode(call.service.engine.topics_with(asked.prefixes, asked.within, asked.most)))


def open_feed(call: Call) -> None:
    """Serve a feed until its client, which has a slot on its core, leaves, or this core stops."""
    feed = ServedFeed(call.service)
    feed.open(call.open_stream(b"", b"", feed.on_drained, feed.on_disconnect))


class Taking:
    """The feed, as its prefixes see it: each topic that they take in is noted before."""

    def __init__(self, feed: Feed, take_in: Callable[[str], None]) -> None:
        self._feed = feed
        self._take_in = take_in

    @property
    def sink(self) -> Sink:
        return self._feed.sink

    @property
    def paused(self) -> bool:
        return self._feed.paused

    @paused.setter
    def paused(self, is_paused: bool) -> None:
        self._feed.paused = is_paused

    @property
    def closed(self) -> bool:
        return self._feed.closed

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self._feed.subscriptions

    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        self._take_in(name)
        return self._feed.subscribe(name, query, from_seq)

    def unsubscribe(self, name: str) -> bool:
        return self._feed.unsubscribe(name)

    def read_on(self) -> None:
        self._feed.read_on()


class ServedFeed:
    """A sink of a feed, and the writer of a stream. It gets its subscriptions by orders."""

    audience = shared_connection = None

    __slots__ = ("_feed", "_given", "_last_taken", "_numbers", "_query", "_served", "_stream", "_taking")

    def __init__(self, service: Service) -> None:
        feed = service.engine.open_feed(self)
        self._feed: Feed | None = feed
        self._taking = Taking(feed, self._take_in)
        self._numbers: dict[str, int] = {}
        """The number of each subscription, by its topic."""
        self._given: dict[str, int] = {}
        """The numbers that an order has given to topics which it takes in."""
        self._last_taken = TAKEN_IN_FROM
        self._query = DiffQuery()
        """How the next topics are read."""
        self._stream: Stream | None = None
        self._served = service.streams.watches

    def open(self, stream: Stream) -> None:
        assert isinstance(stream, RelayedStream), "a feed for a client of this core"
        self._stream = stream
        stream.take_orders(self._take_order)
        self._served[self] = None
        if self._feed is not None:
            self._feed.resume()

    def _take_order(self, body: bytes) -> None:
        """Raises: DamagedRelayError, it is none."""
        feed, order = self._feed, read_order(body)
        if feed is None:
            return
        if isinstance(order, Read):
            self._query = order.query()
        elif isinstance(order, Follow):
            if order.from_seq < 0 or order.number < 0:
                raise DamagedRelayError("an order with a number below 0")
            self._numbers[order.name] = order.number
            feed.subscribe(order.name, self._query, order.from_seq)
            if not feed.paused:
                feed.resume_soon()
            if feed.prefixes is not None:
                feed.prefixes.note_named(order.name)
        elif isinstance(order, Leave):
            self._leave(feed, order)
        else:
            self._take_prefixes(feed, order)

    def _leave(self, feed: Feed, order: Leave) -> None:
        if self._numbers.get(order.name) == order.number:
            del self._numbers[order.name]
            feed.unsubscribe(order.name)

    def _take_prefixes(self, feed: Feed, order: TakeIn | DropPrefixes | GiveBack | FillPlaces) -> None:
        watch = feed.prefixes
        if isinstance(order, TakeIn):
            watch = feed.watch_prefixes(order.within, order.most, _NO_LIMIT, self._taking)
            self._given = {name: number for number, name, _from_seq in order.begins}
            watch.add(order.prefixes, self._query, {name: from_seq for _number, name, from_seq in order.begins})
            self._given = {}
        elif watch is None:
            raise DamagedRelayError("an order about prefixes without any")
        elif isinstance(order, DropPrefixes):
            watch.drop(order.prefixes)
        elif isinstance(order, GiveBack):
            watch.give_back(order.name)
        else:
            watch.fill_places()
        if not feed.paused:
            feed.resume_soon()

    def _take_in(self, name: str) -> None:
        """Give a topic that a prefix takes in its number, and report it."""
        number = self._given.get(name)
        if number is None:
            number = self._last_taken = self._last_taken + 1
            if self._stream is not None:
                self._stream.write(taken_in_chunk(number, name))
        self._numbers[name] = number

    # --- the stream --------------------------------------------------------------------------------------------------
    def on_drained(self) -> None:
        if self._feed is not None:
            self._feed.resume()

    def on_disconnect(self) -> None:
        feed, self._feed = self._feed, None
        self._stream = None
        if feed is not None:
            feed.close()
            self._served.pop(self, None)

    def shut_down(self) -> None:
        """End, because this core stops, as its client is to know."""
        stream = self._stream
        self.on_disconnect()
        if stream is not None:
            stream.end()

    # --- as the feed's sink ------------------------------------------------------------------------------------------
    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        stream, number = self._stream, self._numbers[subscription.name]
        if stream is None:
            return False
        if burst.ends_topic:
            del self._numbers[subscription.name]
        stream.write(burst_chunk(number, burst, is_fresh=subscription.fresh))
        return not stream.over_high_water

    def deliver_left_out(self, name: str, most: int) -> bool:
        stream = self._stream
        if stream is None:
            return False
        stream.write(left_out_chunk(name, most))
        return not stream.over_high_water

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """Report the end of a subscription. Its reader does as for a topic of its own core."""
        _log.error("a feed of another core: %s cannot be read: %s", subscription.name, error)
        stream, number = self._stream, self._numbers.pop(subscription.name, None)
        if stream is not None and number is not None:
            stream.write(failure_chunk(number, as_request_error(error)))
