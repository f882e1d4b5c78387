"""Limits over all topics, requests and clients of an engine and of its server.

Of a server of several cores each core has a part of a limit, which changes while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.config import Config
from topics.engine.index.usage import Usage
from topics.engine.shared.router_registry import Routers
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.known_producers import ProducerTotals
from topics.engine.state.staged_parts import StagedParts
from topics.errors import RequestError

NO_LIMIT = 1 << 62
AskForRoom = Callable[[str, int], None]
"""A function that asks other cores for more of the limit with a name."""


class ShareSpentError(RequestError):
    """A request that one of several cores has no room for, where others may have some.

    Nothing of it was done. limit: the name of a `Limit`. more: what it adds to it. ask_later():
    has other cores asked, for a repetition.
    """

    def __init__(self, refusal: RequestError, limit: str, more: int, ask_later: Callable[[], None]) -> None:
        """refusal: what the client gets if no other core has any left."""
        super().__init__(refusal.code, refusal.message, refusal.detail)
        self.limit = limit
        self.more = more
        self.ask_later = ask_later


class Limit:
    """One limit. name: of its setting. whole: as configured, 0 = none. used(): what is in use.

    of: what it is a limit of, where the setting has many. most: how much may be in use here.
    """

    __slots__ = ("_ask", "_refuse", "_setting", "most", "name", "used", "waits_for", "whole")

    def __init__(
        self,
        name: str,
        whole: int,
        used: Callable[[], int],
        ask: AskForRoom | None = None,
        refuse: Callable[[str, int], RequestError] = refusals.limit_reached,
        *,
        of: str = "",
    ) -> None:
        """ask: None, if no other core has a part of it.

        refuse(setting, whole): returns the refusal of what is beyond the whole.
        """
        self._setting = name
        self.name = f"{name} {of}" if of else name
        self.whole = whole
        self.most = whole or NO_LIMIT
        self.used = used
        self._refuse = refuse
        self._ask = ask
        self.waits_for: int | None = None
        """A core that has not said yet what it uses. Nothing is admitted before it has."""

    def lacks(self, more: int) -> None:
        """Have other cores asked for room, for what is tried again later."""
        if self._ask is not None:
            self._ask(self.name, more)

    @property
    def left(self) -> int:
        """How much may be added. Negative if more is in use than may be."""
        return self.most - self.used()

    def check(self, more: int = 1) -> None:
        """Check that this may be added. Raises: RequestError."""
        if self.used() + more > self.most:
            raise self.refusal(more)

    def refusal(self, more: int = 1) -> RequestError:
        """Return the refusal of a request that adds this, for which there is no room."""
        if self.waits_for is not None:
            refusal = refusals.limit_unknown(self._setting, self.waits_for)
        else:
            refusal = self._refuse(self._setting, self.whole)
        return refusal if self._ask is None else ShareSpentError(refusal, self.name, more, partial(self.lacks, more))


class CountedCore(Protocol):
    """The part of the core of which there are limits."""

    producers: ProducerTotals
    registry: Registry
    routers: Routers
    staged: StagedParts
    usage: Usage
    waits: int
    waited_topics: int


class Limits:
    """The limits of an engine, each with what is in use of it."""

    def __init__(self, config: Config, core: CountedCore, ask: AskForRoom | None = None) -> None:
        """ask: see `Limit`."""
        usage, staged = core.usage, core.staged
        self.topics = Limit("max_topics", config.max_topics, lambda: len(core.registry), ask)
        self.routers = Limit("max_routers", config.max_routers, lambda: len(core.routers), ask)
        self.total_bytes = Limit(
            "max_total_bytes", config.max_total_bytes, lambda: usage.bytes + usage.pending_bytes, ask
        )
        self.producers = Limit("max_producers", config.max_producers, lambda: core.producers.producers, ask)
        self.producer_parts = Limit("max_producer_parts", config.max_producer_parts, lambda: core.producers.parts, ask)
        self.staged_bytes = Limit(
            "max_staged_bytes", config.max_staged_bytes, lambda: staged.bytes + staged.coming_bytes, ask
        )
        self.waits = Limit("max_waits", config.max_waits, lambda: core.waits, ask)
        self.waited_topics = Limit("max_waited_topics", config.max_waited_topics, lambda: core.waited_topics, ask)

    @property
    def stored(self) -> tuple[Limit, ...]:
        """The limits of what a start finds again."""
        return self.topics, self.routers, self.total_bytes, self.producers, self.producer_parts, self.staged_bytes

    @property
    def passing(self) -> tuple[Limit, ...]:
        """The limits of what ends with the process."""
        return self.waits, self.waited_topics
