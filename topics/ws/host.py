"""The objects that all WebSockets of a server share, passed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from topics.common.values.begin import Begin, Beginning
from topics.config import Config
from topics.engine.delivery.audience import Audience
from topics.engine.delivery.feed import Feed
from topics.engine.delivery.subscription import Sink
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.topic import Topic
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.long_bodies import LongBodies
from topics.engine.write.write_body import WriteScanner
from topics.engine.write.write_columns import MakeFraming
from topics.engine.write.write_streak import WriteStreak
from topics.errors import RequestError
from topics.ws.frame_turns import FrameTurns
from topics.ws.lone_publishes import LonePublishes


class WsEngine(Protocol):
    """The part of `topics.engine.engine.Engine` that commands need."""

    def append(self, request: AppendRequest, done: Done[AppendResult]) -> None: ...

    def append_lone(
        self, request: AppendRequest, on_committed: Callable[[AppendResult], None] | None = None
    ) -> AppendResult | None:
        """Append within this call. None: nothing was done. See `Engine.append_lone`."""

    def plain_topic(self, name: str) -> Topic | None:
        """Return the topic if it needs nothing for a write but seqs. See `Engine.plain_topic`."""

    def write_streak(self, framing: MakeFraming) -> WriteStreak:
        """Return a streak for lone writes: see `Engine.write_streak`."""

    def settle_lone(self) -> bool:
        """Deliver what `append_lone` has published: see `Engine.settle_lone`."""

    @property
    def is_settled(self) -> bool:
        """Whether the end of the pass may be left out. See `Engine.is_settled`."""

    @property
    def refuses_writes(self) -> bool: ...

    def refuse_write(self) -> RequestError: ...

    @property
    def throttle_window_ns(self) -> int: ...

    def open_feed(self, sink: Sink) -> Feed: ...

    def begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None: ...

    def topics_with(self, prefixes: Prefixes, within: Prefixes, most: int) -> list[str]: ...


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
