"""One topic as one reader follows it, and the engine's calls to a reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from topics.engine.delivery.frames import Burst
from topics.engine.state.topic import Topic
from topics.engine.values.results import DiffQuery
from topics.errors import TopicsError


class SharedConnection(Protocol):
    """A connection that may be sent the same bytes as others by one call: see audience.py."""

    @property
    def ref(self) -> int:
        """The connection's reference, as an element of a column."""

    def stop_sharing(self) -> None:
        """End the sharing: from now on only the connection itself sends."""


class Sink(Protocol):
    """The protocol's side of a connection, to which a feed delivers.

    The loop makes one call at a time.
    """

    @property
    def audience(self) -> object | None:
        """The `Audience` whose readers get equal bytes; None: `deliver` is called for each burst.

        An audience may send a burst without a call of `deliver`: see `Subscription.sent`.
        """

    @property
    def shared_connection(self) -> SharedConnection | None:
        """The connection, if its audience may send from it now."""

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        """Take a burst. Return False if the sink holds enough now; it calls `Feed.resume` later.

        The subscription's cursor is still the one before the burst; `subscription.fresh` states
        that this is its first pass. A burst that ends with a `DeletedFrame` is the subscription's
        last.
        """

    def deliver_left_out(self, name: str, most: int) -> bool:
        """Take the news that a topic is not followed although a prefix covers it (R-PREFIX-5).

        most: the topics that may be followed. Returns: as `deliver`.
        """

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """Take the end of the subscription: its topic cannot be read (checksum, I/O error)."""


class CoresSink(Sink, Protocol):
    """A sink of topics of several cores, which ends with one of them."""

    def lose(self, core: int) -> None:
        """End: the core is gone, and what it would deliver is unknown."""

    def stop(self) -> None:
        """End as at a stop of the server, because a core stops."""


class OwningFeed(Protocol):
    """The feed of a subscription, as its cohort and its sink see it: see feed.py."""

    sink: Sink
    paused: bool
    """Whether nothing is delivered until the sink has room."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """The feed's subscriptions, by topic."""

    def fall_behind(self, subscription: Subscription) -> None:
        """Read a subscription that left its cohort by itself, from its cursor on."""

    def read_on(self) -> None:
        """Read lagging topics until all have caught up or a read has to wait."""

    def on_topic_gone(self, subscription: Subscription) -> None:
        """Report that the topic of a subscription is gone. It has left its cohort."""

    def give_up(self, subscription: Subscription, error: Exception) -> None:
        """Close the connection after an unexpected exception in delivery."""


class JoinedCohort(Protocol):
    """The cohort of a subscription, as its feed sees it: see cohort.py."""

    sent: Sent

    def remove(self, subscription: Subscription) -> None:
        """Remove a member, and copy the cohort's cursor to it."""


Sent = tuple[int, int]
"""A burst that was sent: the reader's cursor after it, and the monotonic time of its pass, ns."""
NOTHING_SENT: Sent = (0, 0)


class Subscription:
    """One topic followed by one feed.

    query: clamped options; `from_seq` in it is not used.
    """

    __slots__ = (
        "cohort",
        "cursor",
        "feed",
        "fresh",
        "joined_after",
        "name",
        "own_sent",
        "query",
        "reported_caught_up",
        "topic",
    )

    def __init__(self, feed: OwningFeed, name: str, query: DiffQuery, cursor: int) -> None:
        self.feed = feed
        self.name = name
        self.query = query
        self.cursor = cursor
        """The last seq seen."""
        self.topic: Topic | None = None
        """The topic object that is followed; None before the first pass."""
        self.fresh = True
        """Whether no pass over the topic has ended yet."""
        self.reported_caught_up = False
        """Whether the last frame of this topic was a caught-up."""
        self.cohort: JoinedCohort | None = None
        """Cohort of the caught-up subscription; None if it lags."""
        self.own_sent: Sent = NOTHING_SENT
        """The last burst that it got before it joined its cohort."""
        self.joined_after: Sent = NOTHING_SENT
        """The last burst of its cohort before it joined."""

    @property
    def sent(self) -> Sent:
        """The last burst that this reader got. A cohort sets it after the delivery to all."""
        cohort = self.cohort
        return self.own_sent if cohort is None or cohort.sent is self.joined_after else cohort.sent
