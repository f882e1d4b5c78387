"""The prefixes of a connection over all cores: each core takes in its own topics.

Each has a share of the places. The connection has as many as it would have on one core, and gives
topics back for which it has none. Source: R-CORE-10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from topics.engine.delivery.prefix_watch import PrefixWatch
from topics.engine.delivery.subscription import Subscription
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import DiffQuery
from topics.http.spanning.far_feed import FarFeed
from topics.http.spanning.feed_messages import TakeIn

_NONE: Mapping[str, int] = {}


class SpanningFollower(Protocol):
    """The feed of the connection, as its prefixes use it."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    def far_of(self, name: str) -> FarFeed | None:
        """Return the far feed of the core that has a topic; None: it is of this core."""

    def all_far(self) -> list[FarFeed]:
        """Return the far feeds of all other cores, each asked for by now."""

    def report_left_out(self, name: str, most: int) -> None: ...


class SpanningPrefixes:
    """See `WatchedPrefixes`."""

    def __init__(
        self, feed: SpanningFollower, own: PrefixWatch, within: Prefixes, shares: Mapping[int, int], most_in_all: int
    ) -> None:
        """own: of the topics of this core. shares: places of each core."""
        self._feed = feed
        self._own = own
        self._within = within
        self._shares = shares
        self._most_in_all = most_in_all
        self._taken: dict[str, None] = {}
        """The topics of other cores that are followed because of a prefix."""
        self._left_out = ""
        """The name of a topic that was given back; "" if there is a place again."""

    @property
    def queries(self) -> Mapping[str, DiffQuery]:
        return self._own.queries

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def is_taken(self, name: str) -> bool:
        return name in self._taken or self._own.is_taken(name)

    def note_named(self, name: str) -> None:
        self._taken.pop(name, None)
        self._own.note_named(name)

    def add(self, prefixes: Iterable[str], query: DiffQuery, begins: Mapping[str, int] = _NONE) -> list[str]:
        prefixes, feed = tuple(prefixes), self._feed
        of_far: dict[FarFeed, dict[str, int]] = {far: {} for far in feed.all_far()}
        of_own: dict[str, int] = {}
        for name, from_seq in begins.items():
            far = feed.far_of(name)
            if far is None or far not in of_far:
                of_own[name] = from_seq
            elif name in far.subscriptions:
                of_far[far][name] = from_seq
            elif self._has_place(far):
                of_far[far][name] = from_seq
                self._taken[name] = None
        for far, names in of_far.items():
            far.take_in(TakeIn(prefixes, self._within, self._shares[far.core], []), query, names)
        followed = self._own.add(prefixes, query, of_own)
        return [name for names in of_far.values() for name in names] + followed

    def drop(self, prefixes: Iterable[str]) -> None:
        prefixes = list(prefixes)
        self._own.drop(prefixes)
        gone = [name for name in self._taken if name not in self]
        for name in gone:
            del self._taken[name]
        for far in self._feed.all_far():
            far.drop_prefixes(prefixes, [name for name in gone if name in far.subscriptions])
        self._refill()

    def fill_places(self) -> None:
        self._own.fill_places()
        self._refill()

    def may_take_in(self, name: str) -> bool:
        """Return whether a topic is followed that another core has taken in."""
        subscriptions = self._feed.subscriptions
        if name not in self or (name in subscriptions and name not in self._taken):
            return False
        if name not in subscriptions and len(subscriptions) >= self._most_in_all:
            if not self._left_out:
                self._left_out = name
                self._feed.report_left_out(name, self._most_in_all)
            return False
        self._taken[name] = None
        return True

    def note_end(self, name: str) -> None:
        """Note that a topic of another core has ended, which leaves its place."""
        self._taken.pop(name, None)
        if self._own.is_taken(name) or self._own.has_room:
            self._own.on_end(name)
        self._refill()

    def _has_place(self, far: FarFeed) -> bool:
        taken = sum(name in far.subscriptions for name in self._taken)
        return taken < self._shares[far.core] and len(self._feed.subscriptions) < self._most_in_all

    def _refill(self) -> None:
        if self._left_out:
            self._left_out = ""
            for far in self._feed.all_far():
                far.fill_places()
