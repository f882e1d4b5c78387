"""One open watch stream: from the bursts of its feed to frames on its connection.

Source: wire contract, 10.3 and 10.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from topics.engine.delivery.audience import Audience
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, Frame, RecordsFrame, TombstoneFrame
from topics.engine.delivery.prefix_watch import WatchedPrefixes
from topics.engine.delivery.subscription import NOTHING_SENT, SharedConnection, Subscription
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import DiffQuery
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


class WatchFeed(Protocol):
    """The feed of a stream: that of an engine, or one of several cores."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    @property
    def prefixes(self) -> WatchedPrefixes | None: ...

    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription: ...

    def watch_prefixes(self, within: Prefixes, most: int, most_in_all: int) -> WatchedPrefixes: ...

    def resume(self) -> None: ...

    def close(self, *, at_once: bool = False) -> None: ...


class WatchStream:
    """A sink of a feed, and a stream with heartbeats.

    It has cursors of its own; the session has those of the stream that sent last.
    """

    __slots__ = (
        "_cursors",
        "_feed",
        "_heartbeats",
        "_last_ns",
        "_noted",
        "_on_end",
        "_only",
        "_session",
        "_sessions",
        "_stream",
        "audience",
        "interval_ns",
    )

    def __init__(  # noqa: PLR0917 - one call
        self,
        session: WatchSession,
        sessions: Sessions,
        heartbeats: Heartbeats,
        now_ns: int,
        on_end: Callable[[], None],
        audience: Audience | None = None,
    ) -> None:
        """audience: that of all streams of one topic; None: there is none."""
        self._session = session
        self._sessions = sessions
        self._heartbeats = heartbeats
        self._on_end = on_end
        self._cursors: Cursors = dict(session.cursors)
        self._feed: WatchFeed | None = None
        self._stream: Stream | None = None
        self._noted = NOTHING_SENT
        """The value of `Subscription.sent` that the cursors include."""
        self._only: Subscription | None = None
        """The subscription of a stream of one topic."""
        is_of_one = len(self._cursors) == 1 and session.prefixes is None
        self.audience = audience if is_of_one else None
        """See `Sink`. The bytes of a stream of several topics depend on all its cursors."""
        self.interval_ns = session.interval_ns
        self._last_ns = now_ns

    # --- life --------------------------------------------------------------------------------------------------------
    def open(self, feed: WatchFeed, stream: Stream) -> None:
        """Subscribe to the session's topics and deliver, once the head is sent."""
        self._feed = feed
        self._stream = stream
        self._sessions.on_stream_open(self._session)
        self._session.add_stream(self)
        stream.write_block(sse.RETRY)
        self._heartbeats.add(self)
        for name, cursor in self._cursors.items():
            self._only = feed.subscribe(name, self._session.query, cursor)
        if self.audience is None:
            self._only = None
        prefixes = self._session.prefixes
        if prefixes is not None:
            watch = feed.watch_prefixes(prefixes.within, prefixes.most, prefixes.most)
            watch.add(prefixes.prefixes, self._session.query)
        if feed.subscriptions or prefixes is not None:
            feed.resume()
        else:
            self._end()

    def on_drained(self) -> None:
        if self._feed is not None:
            self._feed.resume()

    def on_disconnect(self) -> None:
        self._leave(at_once=False)

    def shut_down(self) -> None:
        """Send the goodbye and end, because the server stops (R-WATCH-15)."""
        self.note_sent()
        if self._stream is not None:
            self._stream.write(sse.frame(b"error", _GOODBYE, cursor_id(self._cursors)))
        self._end()

    def on_key_gone(self) -> None:
        """End without a frame (R-WATCH-15): the client learns the reason when it connects again."""
        self._end()

    def stop(self) -> None:
        """End as at a stop of the server: a core of its topics stops."""
        self.shut_down()

    def lose(self, _core: int) -> None:
        """End without the end of the answer: a core of its topics is gone."""
        stream = self._stream
        self._leave()
        if stream is not None:
            stream.drop()

    def _end(self) -> None:
        stream = self._stream
        self._leave()
        if stream is not None:
            stream.end()

    def _leave(self, *, at_once: bool = True) -> None:
        """Release the resources of the stream. Later calls do nothing.

        at_once: its connection may continue.
        """
        feed, self._feed = self._feed, None
        self._stream = None
        if feed is not None:
            self._session.remove_stream(self)
            self._only = None
            feed.close(at_once=at_once)
            self._heartbeats.remove(self)
            self._sessions.on_stream_end(self._session)
            on_end, self._on_end = self._on_end, _nothing
            on_end()

    # --- frames ------------------------------------------------------------------------------------------------------
    @property
    def shared_connection(self) -> SharedConnection | None:
        """See `Sink`. With several streams, a session has the cursors of the one that sent last."""
        stream = self._stream
        return stream.shared_connection if stream is not None and self._session.has_one_stream else None

    def leave_audience(self) -> None:
        conn = self.shared_connection
        if conn is not None:
            conn.stop_sharing()

    def note_sent(self) -> None:
        """Note the bursts that an audience has sent without a call of `deliver`."""
        only = self._only
        if only is None:
            return
        sent = only.sent
        if sent is not self._noted:
            self._noted = sent
            cursor, at_ns = sent
            if self._cursors[only.name] != cursor:  # else `deliver` has noted it
                self._cursors[only.name] = cursor
                self._session.cursors = self._cursors
            self._last_ns = max(self._last_ns, at_ns)

    @property
    def last_ns(self) -> int:
        """See `Beating`."""
        self.note_sent()
        return self._last_ns

    @last_ns.setter
    def last_ns(self, now_ns: int) -> None:
        self._last_ns = now_ns

    def beat(self) -> None:
        """Send a heartbeat, except to a client that does not read."""
        if self._stream is not None and not self._stream.over_high_water:
            self._stream.write_block(sse.HEARTBEAT)

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        """Write a burst as one block. Return whether the stream takes more.

        Streams with the same cursors send the same block.
        """
        stream, feed = self._stream, self._feed
        if stream is None or feed is None:
            return False
        self.note_sent()
        cursors = self._cursors
        if subscription.name not in cursors:  # it was just taken in
            cursors = self._cursors = dict(sorted([*cursors.items(), (subscription.name, subscription.cursor)]))
        first = subscription.fresh and burst.has_tombstone
        # All that the bytes depend on beside the burst. The cursor of a stream of one topic is in
        # it.
        key = (_FIRST if first else _LATER) if len(cursors) == 1 else (first, *cursors.items())
        block = burst.renderings.get(key)
        if block is None:
            leaves = burst.ends_topic and self._takes_in(subscription.name)
            block = burst.renderings[key] = Block(_rendered(cursors, burst, first=first, leaves=leaves))
        if burst.ends_topic and self._takes_in(subscription.name):
            del cursors[subscription.name]
        else:
            cursors[subscription.name] = burst.cursor
        self._session.cursors = cursors
        self._last_ns = burst.at_ns
        stream.write_block(block)
        if not feed.subscriptions and self._session.prefixes is None:
            self._end()  # the last topic has ended
            return False
        return not stream.over_high_water

    def _takes_in(self, name: str) -> bool:
        """Return whether the session follows a topic of this name should it be created again."""
        feed = self._feed
        return feed is not None and feed.prefixes is not None and name in feed.prefixes

    def deliver_left_out(self, name: str, most: int) -> bool:
        """Write the frame about a topic without a place (R-PREFIX-5)."""
        stream = self._stream
        if stream is None:
            return False
        data = b'{"topic":"%b","max":%d}' % (name.encode(), most)
        stream.write(sse.frame(b"left-out", data, cursor_id(self._cursors)))
        return not stream.over_high_water

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """End without a frame, because a topic cannot be read (R-WATCH-15).

        The client may return.
        """
        _log.error("a watch stream ends: %s cannot be read: %s", subscription.name, error)
        self._end()


def shared_bytes(burst: Burst) -> bytes:
    """Return the chunk of a burst that streams of only this topic send, beyond their first one."""
    block: Block | None = burst.renderings.get(_LATER)
    if block is None:
        block = burst.renderings[_LATER] = Block(_rendered({}, burst, first=False))
    return block.chunk


def _rendered(cursors: Cursors, burst: Burst, *, first: bool, leaves: bool = False) -> bytes:
    """Return the frames of a burst.

    cursors: those of the stream before it. first: it is the topic's first burst on this stream,
    whose tombstone has a reason of its own (R-WATCH-11). leaves: the topic has ended, and later ids
    do not have it (R-PREFIX-7).
    """
    cursors = dict(cursors)
    parts = []
    frame_id = b""
    for frame in burst.frames:
        if not frame_id or cursors[frame.topic] != frame.cursor:
            cursors[frame.topic] = frame.cursor
            if leaves:
                del cursors[frame.topic]
            frame_id = cursor_id(cursors)
        parts.append(sse.frame(_EVENTS[type(frame)], _data(frame, first=first), frame_id))
    return b"".join(parts)


def _data(frame: Frame, *, first: bool) -> bytes:
    if first and isinstance(frame, TombstoneFrame):
        return b"{%b}" % frame.members_with_reason("from_seq_too_old")
    return b"{%b}" % frame.members


def _nothing() -> None:
    """Stand in for the end callback of a stream that has ended, so that it holds no reference."""
