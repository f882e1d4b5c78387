"""One open watch stream: from the bursts of its feed to frames on its connection.

Source: wire contract, 10.3 and 10.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from topics.engine.delivery.feed import Feed
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, Frame, RecordsFrame, TombstoneFrame
from topics.engine.delivery.subscription import Subscription
from topics.errors import TopicsError
from topics.http.streams import sse
from topics.http.streams.heartbeats import Heartbeats
from topics.http.streams.watch_cursors import Cursors, cursor_id
from topics.http.streams.watch_sessions import Sessions, WatchSession
from topics.http.wire.stream import Block, Stream

_log = logging.getLogger("topics.http")

_EVENTS = {
    RecordsFrame: b"record",
    TombstoneFrame: b"tombstone",
    CaughtUpFrame: b"caught-up",
    DeletedFrame: b"topic-deleted",
}
_FIRST, _LATER = "sse first", "sse"
"""Keys of the bytes that streams of one topic send."""
_GOODBYE = b'{"code":"server_shutting_down","message":"the server is shutting down: connect again in a moment"}'


class WatchStream:
    """A sink of a feed, and a stream with heartbeats.

    It has cursors of its own; the session has those of the stream that sent last.
    """

    __slots__ = (
        "_cursors",
        "_feed",
        "_heartbeats",
        "_on_end",
        "_session",
        "_sessions",
        "_stream",
        "interval_ns",
        "last_ns",
    )

    def __init__(
        self, session: WatchSession, sessions: Sessions, heartbeats: Heartbeats, now_ns: int, on_end: Callable[[], None]
    ) -> None:
        self._session = session
        self._sessions = sessions
        self._heartbeats = heartbeats
        self._on_end = on_end
        self._cursors: Cursors = dict(session.cursors)
        self._feed: Feed | None = None
        self._stream: Stream | None = None
        self.interval_ns = session.interval_ns
        self.last_ns = now_ns

    # --- life --------------------------------------------------------------------------------------------------------
    def open(self, feed: Feed, stream: Stream) -> None:
        """Subscribe to the session's topics and deliver, once the head is sent."""
        self._feed = feed
        self._stream = stream
        self._sessions.on_stream_open(self._session)
        stream.write_block(sse.RETRY)
        self._heartbeats.add(self)
        for name, cursor in self._cursors.items():
            feed.subscribe(name, self._session.query, cursor)
        if feed.subscriptions:
            feed.resume()
        else:
            self._end()

    def on_drained(self) -> None:
        if self._feed is not None:
            self._feed.resume()

    def on_disconnect(self) -> None:
        self._leave()

    def shut_down(self) -> None:
        """Send the goodbye and end, because the server stops (R-WATCH-15)."""
        if self._stream is not None:
            self._stream.write(sse.frame(b"error", _GOODBYE, cursor_id(self._cursors)))
        self._end()

    def on_key_gone(self) -> None:
        """End without a frame (R-WATCH-15): the client learns the reason when it connects again."""
        self._end()

    def _end(self) -> None:
        stream = self._stream
        self._leave()
        if stream is not None:
            stream.end()

    def _leave(self) -> None:
        """Release the resources of the stream. Later calls do nothing."""
        feed, self._feed = self._feed, None
        self._stream = None
        if feed is not None:
            feed.close()
            self._heartbeats.remove(self)
            self._sessions.on_stream_end(self._session)
            on_end, self._on_end = self._on_end, _nothing
            on_end()

    # --- frames ------------------------------------------------------------------------------------------------------
    def beat(self) -> None:
        """Send a heartbeat, except to a client that does not read."""
        if self._stream is not None and not self._stream.over_high_water:
            self._stream.write_block(sse.HEARTBEAT)

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        """Write a burst as one block. Return whether the stream takes more.

        Streams with the same cursors send the same block.
        """
        stream, cursors = self._stream, self._cursors
        if stream is None:
            return False
        first = subscription.fresh and burst.has_tombstone
        # All that the bytes depend on beside the burst. The cursor of a stream of one topic is in
        # it.
        key = (_FIRST if first else _LATER) if len(cursors) == 1 else (first, *cursors.items())
        block = burst.renderings.get(key)
        if block is None:
            block = burst.renderings[key] = Block(self._render(subscription.name, burst, first=first))
        cursors[subscription.name] = burst.cursor
        self._session.cursors = cursors
        self.last_ns = burst.at_ns
        stream.write_block(block)
        if not subscription.feed.subscriptions:
            self._end()  # the last topic has ended
            return False
        return not stream.over_high_water

    def _render(self, name: str, burst: Burst, *, first: bool) -> bytes:
        """Return the frames of a burst.

        first: it is the topic's first burst on this stream, whose tombstone has a reason of its own
        (R-WATCH-11).
        """
        cursors = dict(self._cursors)
        parts = []
        for frame in burst.frames:
            cursors[name] = frame.cursor
            parts.append(sse.frame(_EVENTS[type(frame)], _data(frame, first=first), cursor_id(cursors)))
        return b"".join(parts)

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """End without a frame, because a topic cannot be read (R-WATCH-15).

        The client may return.
        """
        _log.error("a watch stream ends: %s cannot be read: %s", subscription.name, error)
        self._end()


def _data(frame: Frame, *, first: bool) -> bytes:
    if first and isinstance(frame, TombstoneFrame):
        return b"{%b}" % frame.members_with_reason("from_seq_too_old")
    return b"{%b}" % frame.members


def _nothing() -> None:
    """Stand in for the end callback of a stream that has ended, so that it holds no reference."""
