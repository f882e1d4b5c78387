"""One topic as one reader follows it, and the engine's calls to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from topics.engine.delivery.frames import Burst
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.engine.delivery.cohort import Cohort
    from topics.engine.delivery.feed import Feed
    from topics.engine.state.topic import Topic


class Sink(Protocol):
    """The protocol's side of a connection, to which a feed delivers.

    The loop makes one call at a time.
    """

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        """Take a burst. Return False if the sink holds enough now; it calls `Feed.resume` later.

        The subscription's cursor is still the one before the burst; `subscription.fresh` states
        that this is its first pass. A burst that ends with a `DeletedFrame` is the subscription's
        last.
        """

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """Take the end of the subscription: its topic cannot be read (checksum, I/O error)."""


class Subscription:
    """One topic followed by one feed.

    query: clamped options; `from_seq` in it is not used.
    """

    __slots__ = ("cohort", "cursor", "feed", "fresh", "name", "query", "told_caught_up", "topic")

    def __init__(self, feed: Feed, name: str, query: DiffQuery, cursor: int) -> None:
        self.feed = feed
        self.name = name
        self.query = query
        self.cursor = cursor
        """The last seq seen."""
        self.topic: Topic | None = None
        """Instance of the topic that is followed; None before the first pass."""
        self.fresh = True
        """Whether no pass over the topic has ended yet."""
        self.told_caught_up = False
        """Whether the last frame of this topic was a caught-up."""
        self.cohort: Cohort | None = None
        """Cohort of the caught-up subscription; None if it lags."""
