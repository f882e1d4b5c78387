"""Watch sessions: topics and cursors of a client between its streams.

Source: wire contract, 10.2, R-WATCH-1.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container
from typing import NamedTuple, Protocol

from topics.clock import Clock
from topics.engine.shared.limits import AskForRoom, Limit
from topics.engine.state.refusals import limit_reached
from topics.engine.values.name_rules import Prefixes, is_topic_name
from topics.engine.values.results import DiffQuery
from topics.http.streams.key_limits import CountedKey, KeyLimits
from topics.http.streams.watch_cursors import Cursors

SESSION_TTL_MS = 300_000


class SessionStream(Protocol):
    """An open stream of a session."""

    def note_sent(self) -> None:
        """Update the session's cursors by what was sent without a call of the stream."""

    def leave_audience(self) -> None:
        """Let every send be a call of the stream from now on."""


class SessionPrefixes(NamedTuple):
    """The prefixes by which the streams of a session take topics in (R-PREFIX)."""

    prefixes: Prefixes
    within: Prefixes
    """Prefixes of the names that the session's key may see."""
    most: int
    """Topics that are followed at once."""

    def covers(self, name: str) -> bool:
        in_scope = not self.within or name.startswith(self.within)
        return in_scope and name.startswith(self.prefixes) and is_topic_name(name)


class WatchSession:
    """One session. wid: of `Sessions.new_wid`. key: of its creator; None without keys."""

    __slots__ = (
        "_cursors",
        "_open",
        "interval_ns",
        "key",
        "prefixes",
        "query",
        "size",
        "streams",
        "used_ns",
        "wid",
    )

    def __init__(
        self,
        wid: str,
        key: CountedKey | None,
        query: DiffQuery,
        interval_ns: int,
        cursors: Cursors,
        *,
        prefixes: SessionPrefixes | None,
    ) -> None:
        self.wid = wid
        self.key = key
        self.query = query
        self.interval_ns = interval_ns
        """Time between heartbeats."""
        self.prefixes = prefixes
        self._cursors = cursors
        self._open: list[SessionStream] = []
        self.size = len(query.nodes) + sum(map(len, cursors))
        """Bytes of the names given at its creation. Topics added later share their strings."""
        if prefixes is not None:
            self.size += sum(map(len, prefixes.prefixes + prefixes.within))
        self.streams = 0
        """Streams open now."""
        self.used_ns = 0

    @property
    def cursors(self) -> Cursors:
        """The cursors after the last frame sent on any of its streams."""
        if self.has_one_stream:
            self._open[0].note_sent()
        return self._cursors

    @cursors.setter
    def cursors(self, cursors: Cursors) -> None:
        self._cursors = cursors

    def rewind(self, seen: Cursors) -> None:
        """Move cursors back to those of an id. It moves none forward (R-WATCH-5).

        A topic of the id that a prefix covers and the session does not have is one that it has
        taken in, and that is gone or about to end (R-PREFIX-7).
        """
        cursors, prefixes = self.cursors, self.prefixes
        back = {name: min(cursor, seen.get(name, cursor)) for name, cursor in cursors.items()}
        if prefixes is not None:
            for name, cursor in seen.items():
                if len(back) < prefixes.most and name not in back and prefixes.covers(name):
                    back[name] = cursor
            back = dict(sorted(back.items()))
        self.cursors = back

    @property
    def has_one_stream(self) -> bool:
        return len(self._open) == 1

    def add_stream(self, stream: SessionStream) -> None:
        """Add an open stream. Each of several streams notes what it sends at once."""
        for other in self._open:
            other.note_sent()
            other.leave_audience()
        self._open.append(stream)

    def remove_stream(self, stream: SessionStream) -> None:
        """Remove a stream that ends."""
        stream.note_sent()
        self._open.remove(stream)


class Sessions:
    """All sessions of a server. A limit of 0 is none.

    most: sessions in all; most_of_key: sessions of one key; most_bytes: bytes of their names. owns:
    whether this core has the slot of a wid, which leads to its session; None: there are no others.
    ask: see `Limit`.
    """

    def __init__(
        self,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        most: int,
        most_of_key: int,
        most_bytes: int,
        *,
        owns: Callable[[str], bool] | None = None,
        ask: AskForRoom | None = None,
    ) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._owns = owns
        self.limit = Limit("max_watch_sessions", most, self.__len__, ask)
        self.of_keys = KeyLimits("max_watch_sessions_per_key", most_of_key, ask)
        self._most_bytes = most_bytes
        self._bytes = 0
        self._by_wid: dict[str, WatchSession] = {}
        self._idle: dict[WatchSession, None] = {}
        """Sessions without a stream, least recently used first."""

    def __len__(self) -> int:
        return len(self._by_wid)

    def add(self, session: WatchSession) -> None:
        """Add a session, after idle ones were collected.

        Raises: RequestError throttled, a limit is reached.
        """
        self.collect()
        self.limit.check()
        of_key = self.of_keys.of(session.key)
        if of_key is not None:
            of_key.check()
        if self._most_bytes and self._bytes + session.size > self._most_bytes:
            raise limit_reached("max_client_bytes", self._most_bytes)
        self._bytes += session.size
        session.used_ns = self._clock.monotonic_ns()
        self._by_wid[session.wid] = session
        self._idle[session] = None
        if of_key is not None:
            of_key.count += 1

    def new_wid(self) -> str:
        """Return a new id, whose slot this core has."""
        while True:  # as often as there are cores, on average
            wid = "wid_" + base64.urlsafe_b64encode(self._random_bytes(16)).rstrip(b"=").decode()
            if self._owns is None or self._owns(wid):
                return wid

    def _forget(self, gone: list[WatchSession]) -> None:
        for session in gone:
            del self._idle[session], self._by_wid[session.wid]
            self._bytes -= session.size
            of_key = self.of_keys.of(session.key)
            if of_key is not None:
                of_key.count -= 1

    def find(self, wid: str) -> WatchSession | None:
        """Return a session; None for one that never existed, or was idle for too long."""
        self.collect()
        return self._by_wid.get(wid)

    def on_stream_open(self, session: WatchSession) -> None:
        session.streams += 1
        self._idle.pop(session, None)

    def on_stream_end(self, session: WatchSession) -> None:
        session.streams -= 1
        session.used_ns = self._clock.monotonic_ns()
        if not session.streams:
            self._idle[session] = None
            if session.key is not None and not session.key.is_valid:
                self._forget([session])

    def drop_others(self, key_ids: Container[int]) -> None:
        """Drop the sessions of keys other than these. Sessions created without keys stay.

        Those with streams go with the last of them.
        """
        gone = [each for each in self._idle if each.key is not None and each.key.key_id not in key_ids]
        self._forget(gone)

    def collect(self) -> None:
        """Drop the sessions that have been idle for longer than SESSION_TTL_MS."""
        before_ns = self._clock.monotonic_ns() - SESSION_TTL_MS * 1_000_000
        gone = []
        for session in self._idle:
            if session.used_ns >= before_ns:
                break
            gone.append(session)
        self._forget(gone)
