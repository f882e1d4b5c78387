"""One topic as one reader follows it, and what the engine asks of a reader."""

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
    """Where a feed delivers: the protocol's side of a connection. Called from the loop, one call at a time."""

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        """Takes a burst. False: it holds enough now, and `Feed.resume` is called when it can take more.

        The subscription still stands where it stood before; `subscription.fresh` says that this is its first pass. A
        burst that ends with a `DeletedFrame` is the subscription's last.
        """

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """The topic cannot be read (a record that fails its checksum, an I/O error); the subscription is over."""


class Subscription:
    """query: clamped options; `from_seq` in it is not used."""

    __slots__ = ("cohort", "cursor", "feed", "fresh", "name", "query", "told_caught_up", "topic")

    def __init__(self, feed: Feed, name: str, query: DiffQuery, cursor: int) -> None:
        self.feed = feed
        self.name = name
        self.query = query
        self.cursor = cursor
        """The last seq seen."""
        self.topic: Topic | None = None
        """The instance followed; None before the first pass."""
        self.fresh = True
        """No pass over the topic has ended yet."""
        self.told_caught_up = False
        """The last frame of this topic was a caught-up."""
        self.cohort: Cohort | None = None
        """Stands there, caught up; None: behind."""
