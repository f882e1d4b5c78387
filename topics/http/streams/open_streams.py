"""The open streams of a server: their slots, heartbeats and sessions, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from topics.config import Config
from topics.engine.delivery.audience import Audience
from topics.engine.shared.limits import AskForRoom
from topics.engine.values.ports import TimersPort
from topics.http.streams.heartbeats import Heartbeats
from topics.http.streams.stream_slots import StreamSlots
from topics.http.streams.watch_sessions import Sessions


class StreamLoop(TimersPort, Protocol):
    """The part of `topics.loop.loop.Loop` that streams use."""

    def random_bytes(self, count: int) -> bytes: ...


class Lasting(Protocol):
    """A stream that stays open until the server stops."""

    def shut_down(self) -> None: ...


class OpenStreams:
    """The state that all open streams of a server share."""

    def __init__(
        self,
        config: Config,
        loop: StreamLoop,
        audience: Audience | None = None,
        owns: Callable[[str], bool] | None = None,
        ask_for_room: AskForRoom | None = None,
    ) -> None:
        """audience: that of watch streams of one topic. owns: see `Sessions`. ask_for_room: see
        `Limit`.
        """
        self._loop = loop
        self.heartbeats = Heartbeats(loop)
        limits = config.max_watch_sessions, config.max_watch_sessions_per_key, config.max_client_bytes
        self.sessions = Sessions(loop.clock, loop.random_bytes, *limits, owns=owns, ask=ask_for_room)
        self.slots = StreamSlots(config.max_sse_connections, config.max_sse_connections_per_key, ask_for_room)
        """Slots of SSE streams and WebSockets together; an opener takes one first."""
        self.watches: dict[Lasting, None] = {}
        """The open watch streams, and feeds for connections of other cores."""
        self.audience = audience
        self.at_drain: list[Callable[[], Iterator[None]]] = [self._end_watches]
        """Callbacks for the start of a shutdown: owners end their open streams (R-LIFE-7).

        Each step ends one at most.
        """

    def _end_watches(self) -> Iterator[None]:
        for stream in list(self.watches):
            if stream in self.watches:
                stream.shut_down()
            yield

    def end_others(self, key_ids: frozenset[int]) -> int:
        """End the streams of keys other than these, some in each pass, and drop their sessions.

        Return the number of streams that end.
        """
        ended = self.slots.end_others(key_ids, self._loop)
        self.sessions.drop_others(key_ids)
        return ended
