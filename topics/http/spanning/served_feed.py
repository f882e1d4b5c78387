"""A feed for a connection of another core, on the core of its topics: bursts as chunks."""

from __future__ import annotations

import logging

import msgspec

from topics.common.values.begin import Begin, Beginning
from topics.engine.delivery.feed import Feed
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import Subscription
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError, as_request_error
from topics.http.plan.call import Call
from topics.http.plan.service import Service
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.relay.relayed_stream import RelayedStream
from topics.http.spanning.feed_messages import Follow, Leave, Read, burst_chunk, failure_chunk, read_order
from topics.http.wire.stream import Stream

_log = logging.getLogger(__name__)


class AskedBegin(msgspec.Struct, frozen=True, array_like=True):
    """A topic of another core, and where a subscription to it is to begin."""

    name: str
    begin: Begin


BEGINNING = msgspec.json.Decoder(Beginning)
_ASKED_BEGIN = msgspec.msgpack.Decoder(AskedBegin)


def begin(call: Call) -> None:
    """Answer the cursor at which a subscription to a topic of this core begins."""
    asked = _ASKED_BEGIN.decode(call.body)

    @call.or_fail
    def done(found: Beginning) -> None:
        call.reply(msgspec.json.encode(found))

    call.service.engine.begin(asked.name, asked.begin, done)


def open_feed(call: Call) -> None:
    """Serve a feed until its client, which has a slot on its core, leaves, or this core stops."""
    feed = ServedFeed(call.service)
    feed.open(call.open_stream(b"", b"", feed.on_drained, feed.on_disconnect))


class ServedFeed:
    """A sink of a feed, and the writer of a stream. It gets its subscriptions by orders."""

    audience = shared_connection = None

    __slots__ = ("_feed", "_numbers", "_query", "_served", "_stream")

    def __init__(self, service: Service) -> None:
        self._feed: Feed | None = service.engine.open_feed(self)
        self._numbers: dict[str, int] = {}
        """The number of each subscription, by its topic."""
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
        elif isinstance(order, Leave) and self._numbers.get(order.name) == order.number:
            del self._numbers[order.name]
            feed.unsubscribe(order.name)

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

    def deliver_left_out(self, _name: str, _most: int) -> bool:
        raise AssertionError("a far feed has no prefixes")

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """Report the end of a subscription. Its reader does as for a topic of its own core."""
        _log.error("a feed of another core: %s cannot be read: %s", subscription.name, error)
        stream, number = self._stream, self._numbers.pop(subscription.name, None)
        if stream is not None and number is not None:
            stream.write(failure_chunk(number, as_request_error(error)))
