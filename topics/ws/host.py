"""The objects that all WebSockets of a server share, passed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from topics.common.values.begin import Begin, Beginning
from topics.config import Config
from topics.engine.bodies.long_bodies import LongBodies
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.bodies.write_columns import MakeFraming
from topics.engine.delivery.audience import Audience
from topics.engine.delivery.prefix_watch import WatchedPrefixes
from topics.engine.delivery.subscription import CoresSink, Subscription
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.topic import Topic
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import AppendResult, DiffQuery, Done
from topics.engine.write.write_streak import WriteStreak
from topics.errors import RequestError
from topics.ws.frame_turns import FrameTurns
from topics.ws.lone_publishes import LonePublishes


class WsFeed(Protocol):
    """The feed of a connection: that of an engine, or one of several cores."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    @property
    def prefixes(self) -> WatchedPrefixes | None: ...

    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription: ...

    def unsubscribe(self, name: str) -> bool: ...

    def watch_prefixes(self, within: Prefixes, most: int, most_in_all: int) -> WatchedPrefixes: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def resume_soon(self) -> None: ...

    def close(self) -> None: ...


class WsFeeds(Protocol):
    """The topics that connections follow: those of an engine, or of all cores of a server."""

    def open_feed(self, sink: CoresSink) -> WsFeed: ...

    def begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None: ...


class WsEngine(WsFeeds, Protocol):
    """The part of `topics.engine.engine.Engine` that commands need."""

    def topics_with(self, prefixes: Prefixes, within: Prefixes, most: int) -> list[str]: ...

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None: ...

    def append_lone(
        self, request: AppendRequest, on_committed: Callable[[AppendResult], None] | None = None
    ) -> AppendResult | None:
        """Append within this call. None: nothing was done. See `Engine.append_lone`."""

    def plain_topic(self, name: str) -> Topic | None:
        """Return the topic if a write needs no checks of it. See `Engine.plain_topic`."""

    def write_streak(self, framing: MakeFraming) -> WriteStreak:
        """Return a streak for lone writes: see `Engine.write_streak`."""

    def settle_lone(self) -> bool:
        """Deliver what `append_lone` has published: see `Engine.settle_lone`."""

    @property
    def is_settled(self) -> bool:
        """Whether the end of the pass may be left out. See `Engine.is_settled`."""

    @property
    def has_expired_enough(self) -> bool:
        """Whether writes have cost so much by what expires that others are for the next pass."""

    @property
    def refuses_writes(self) -> bool: ...

    def refuse_write(self) -> RequestError: ...

    @property
    def throttle_window_ns(self) -> int: ...


class FarTopics(WsFeeds, Protocol):
    """The topics of all cores, as one connection follows them, and writes to those of others."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept for the connection."""

    def find_topics(
        self, prefixes: Prefixes, within: Prefixes, most: int, then: Callable[[list[str] | Exception], None]
    ) -> None:
        """Pass on the lowest names of all cores with these prefixes, at most so many."""

    def is_far(self, topic: str) -> bool:
        """Return whether another core has the topic."""

    def publish(
        self,
        topic: str,
        message: bytes | bytearray | memoryview,
        done: Callable[[bytes | RequestError | None], None],
        *,
        return_seqs: bool,
    ) -> None:
        """Write the records of a message there.

        done: gets the JSON of the answer of 7.5, or the refusal; None: it is unknown whether they
        are written.
        """

    def end(self) -> None:
        """Forget the writes: the connection has ended."""


class AckTurns(Protocol):
    """The part of `topics.http.plan.answer_turns.AnswerTurns` that acks need."""

    @property
    def is_free(self) -> bool:
        """Whether `answer` sends at once."""

    def answer(self, send: Callable[[], None]) -> None:
        """Call `send` now, or in a later pass after those that wait. It must not raise."""


@dataclass(slots=True)
class Host:
    config: Config
    now_ns: Callable[[], int]
    scanner: WriteScanner
    engine: WsEngine
    turns: FrameTurns
    long_bodies: LongBodies
    ack_turns: AckTurns
    audience: Audience | None = None
    """The audience of all WebSockets, if their connections share sends."""
    has_one_sender: Callable[[], bool] = lambda: False
    """Whether a single connection has work: see `Loop.has_one_sender`."""
    lone: LonePublishes | None = None
    """The streak of the connection that publishes by itself, made for the first one."""
