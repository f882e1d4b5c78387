"""One open watch stream: bursts from its feed to frames on its connection. Source: wire contract, 10.3 and 10.4."""

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
"""Keys of what streams of one topic send."""
_GOODBYE = b'{"code":"server_shutting_down","message":"the server is shutting down: connect again in a moment"}'


class WatchStream:
    """A sink of its feed and a stream with heartbeats. Its cursors are its own; the session has those of the stream
    that sent last."""

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
        """The head is sent: begins to deliver."""
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
        """The server goes away (R-WATCH-15)."""
        if self._stream is not None:
            self._stream.write(sse.frame(b"error", _GOODBYE, cursor_id(self._cursors)))
        self._end()

    def on_key_gone(self) -> None:
        """No frame tells of it (R-WATCH-15): the client comes back and is told then."""
        self._end()

    def _end(self) -> None:
        stream = self._stream
        self._leave()
        if stream is not None:
            stream.end()

    def _leave(self) -> None:
        """Gives back what the stream held; harmless again."""
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
        """A client that does not read needs no heartbeat."""
        if self._stream is not None and not self._stream.over_high_water:
            self._stream.write_block(sse.HEARTBEAT)

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        """One block for the burst; streams with the same cursors send the same one."""
        stream, cursors = self._stream, self._cursors
        if stream is None:
            return False
        first = subscription.fresh and burst.has_tombstone
        # All that the bytes depend on, beside the burst: a stream of one topic stands where its burst says.
        key = (_FIRST if first else _LATER) if len(cursors) == 1 else (first, *cursors.items())
        block = burst.renderings.get(key)
        if block is None:
            block = burst.renderings[key] = Block(self._render(subscription.name, burst, first=first))
        cursors[subscription.name] = burst.cursor
        self._session.cursors = cursors
        self.last_ns = burst.at_ns
        stream.write_block(block)
        if not subscription.feed.subscriptions:
            self._end()  # its last topic is gone
            return False
        return not stream.over_high_water

    def _render(self, name: str, burst: Burst, *, first: bool) -> bytes:
        """first: of the topic on this stream, whose tombstone has a reason of its own (R-WATCH-11)."""
        cursors = dict(self._cursors)
        parts = []
        for frame in burst.frames:
            cursors[name] = frame.cursor
            parts.append(sse.frame(_EVENTS[type(frame)], _data(frame, first=first), cursor_id(cursors)))
        return b"".join(parts)

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """No frame tells of it (R-WATCH-15): the stream ends, and the client comes back to it or does not."""
        _log.error("a watch stream ends: %s cannot be read: %s", subscription.name, error)
        self._end()


def _data(frame: Frame, *, first: bool) -> bytes:
    if first and isinstance(frame, TombstoneFrame):
        return b"{%b}" % frame.members_with_reason("from_seq_too_old")
    return b"{%b}" % frame.members


def _nothing() -> None:
    """What a stream that has ended calls at its end: it keeps nothing that keeps it."""
