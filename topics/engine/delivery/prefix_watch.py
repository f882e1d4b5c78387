"""The prefixes of names by which a feed follows topics, also those that are made later.

It costs nothing until a topic with such a name is made or ends. Source: wire contract, R-PREFIX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from topics.engine.delivery.subscription import Sink, Subscription
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import PrefixWaits
from topics.engine.values.name_rules import Prefixes, of_longest_prefix, starts_of
from topics.engine.values.results import DiffQuery

_BYTES_A_TOPIC = 16_384
"""Share of a pass's budget for reads that taking in a topic costs, with its first read."""

_BYTES_A_TURN = 4096
"""Share of it that a turn takes whatever it finds, with a notice: some 10 us."""
_NONE: Mapping[str, int] = {}


class Named(Protocol):
    """A topic, dormant or not."""

    @property
    def name(self) -> str: ...


class WatchedNames(Protocol):
    """The registry of topics, as far as a watch by prefix uses it."""

    def visible(self, name: str) -> Topic | None: ...

    def listed(self, name: str) -> Named | None: ...

    def beginning_with(self, starts: Sequence[str]) -> Iterator[Named]: ...


class ReadBudget(Protocol):
    """The turns of the reads of a pass: see `ReadTurns`."""

    @property
    def left(self) -> int: ...

    def __len__(self) -> int: ...

    def take(self, begin: Callable[[], None]) -> None: ...

    def spend(self, size: int) -> None: ...


class PrefixCore(Protocol):
    """The part of the core that a watch by prefix needs."""

    prefix_waits: PrefixWaits

    @property
    def registry(self) -> WatchedNames: ...

    @property
    def turns(self) -> ReadBudget: ...


class WatchingFeed(Protocol):
    """The feed of a watch by prefix: see feed.py."""

    paused: bool

    @property
    def sink(self) -> Sink: ...

    @property
    def closed(self) -> bool: ...

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription: ...

    def unsubscribe(self, name: str) -> bool: ...

    def read_on(self) -> None: ...


class WatchedPrefixes(Protocol):
    """The prefixes of a feed, as its connection uses them: see `PrefixWatch`."""

    @property
    def queries(self) -> Mapping[str, DiffQuery]: ...

    def __contains__(self, name: str) -> bool: ...

    def is_taken(self, name: str) -> bool: ...

    def note_named(self, name: str) -> None: ...

    def add(self, prefixes: Iterable[str], query: DiffQuery, begins: Mapping[str, int] = _NONE) -> list[str]: ...

    def drop(self, prefixes: Iterable[str]) -> None: ...

    def fill_places(self) -> None: ...


class PrefixWatch:
    """The prefixes of one feed: a waiter for the creation of topics (wakes.py).

    A topic that is made begins at cursor 0, because nothing of it was missed. One that ends gives
    its place to the first one that was left out.
    """

    __slots__ = (
        "_core",
        "_feed",
        "_has_turn",
        "_is_reported",
        "_left_out",
        "_made",
        "_most",
        "_most_in_all",
        "_refills",
        "_starts",
        "_within",
        "queries",
        "taken",
    )

    def __init__(self, core: PrefixCore, feed: WatchingFeed, within: Prefixes, most: int, most_in_all: int) -> None:
        """within: prefixes of the names that the reader may see; () = all.

        most: topics that are followed because of a prefix; most_in_all: with those that were named.
        """
        self._core = core
        self._feed = feed
        self._within = within
        self._most = most
        self._most_in_all = most_in_all
        self.queries: dict[str, DiffQuery] = {}
        """Options by prefix; those of the longest one of a name count."""
        self._starts: tuple[str, ...] = ()
        """The prefixes for which this watch is registered with the creation of topics."""
        self.taken: dict[str, None] = {}
        """The topics that are followed because of a prefix."""
        self._made: dict[str, Topic] = {}
        """Topics that were created since the last pass and are not followed yet."""
        self._left_out = ""
        """The name of a topic that is left out for lack of room; "" if none is."""
        self._is_reported = False
        """Whether the reader was sent a notice about the topic that is left out."""
        self._refills = False
        """Whether there may be a place for topics that were left out."""
        self._has_turn = False

    # --- what a connection calls -------------------------------------------------------------------------------------
    def __contains__(self, name: str) -> bool:
        """Return whether a prefix covers the name."""
        return name.startswith(self._starts)

    def add(self, prefixes: Iterable[str], query: DiffQuery, begins: Mapping[str, int] = _NONE) -> list[str]:
        """Follow the topics with these prefixes, also those that are made later.

        begins: topics that are there, and the cursors at which they begin, as far as there is room.
        One that is followed already begins there again. Others begin at cursor 0.
        Returns: those of `begins` that are followed.
        """
        self.queries |= dict.fromkeys(prefixes, query)
        self._wait_for(tuple(self.queries))
        followed, feed = [], self._feed
        for name, from_seq in begins.items():
            if name not in feed.subscriptions:
                if not self._room:
                    continue
                self.taken[name] = None
            feed.subscribe(name, of_longest_prefix(self.queries, name), from_seq)
            followed.append(name)
        self._take_in(self._others())
        return followed

    def drop(self, prefixes: Iterable[str]) -> None:
        """End prefixes, and the topics that no other prefix covers."""
        for prefix in prefixes:
            self.queries.pop(prefix, None)
        self._wait_for(tuple(self.queries))
        for name in [name for name in self.taken if name not in self]:
            del self.taken[name]
            self._feed.unsubscribe(name)
        self._forget_made()
        self._take_in(self._others())

    def is_taken(self, name: str) -> bool:
        """Return whether a topic is followed because of a prefix."""
        return name in self.taken

    def note_named(self, name: str) -> None:
        """Note that a topic is followed because the connection has named it."""
        self.taken.pop(name, None)

    def give_back(self, name: str) -> None:
        """Leave a topic out for which the connection has no place, until `fill_places`."""
        if self.taken.pop(name, name) is None:
            self._feed.unsubscribe(name)
            self._left_out, self._is_reported = name, True

    def fill_places(self) -> None:
        """Follow topics that were left out, after the connection has left or named others."""
        if self._left_out:
            self._take_in(self._others())

    def close(self) -> None:
        self._wait_for(())
        self._forget_made()

    # --- topics come and end -----------------------------------------------------------------------------------------
    def on_topic_made(self, topic: Topic) -> None:
        """Note a created topic, to follow it at the pass end with the records it has then."""
        if topic.name in self._feed.subscriptions:
            return  # That is the one before it, whose end is delivered first.
        reports = not self._left_out or self._core.registry.listed(self._left_out) is None
        if len(self._made) < self._room + reports:
            self._made[topic.name] = topic
            topic.waiters[self] = None

    def look_again(self) -> None:
        self._take_turn()

    def on_topic_gone(self) -> None:
        self._take_turn()

    def on_shutdown(self) -> None:
        """Ignore the shutdown: the connection that opened the feed ends it."""

    def on_end(self, name: str) -> None:
        """Note that a topic's end was delivered: its place is free, and it may exist again."""
        self.taken.pop(name, None)
        if self._left_out or (name in self and self._core.registry.listed(name) is not None):
            self._refills = True
            self._take_turn()

    # --- taking in ---------------------------------------------------------------------------------------------------
    @property
    def has_news(self) -> bool:
        """Whether a topic was left out and the reader has not been sent a notice about it."""
        return bool(self._left_out) and not self._is_reported

    def report(self) -> None:
        """Send the notice about a topic that is left out, unless the sink is full."""
        if self.has_news and not self._feed.paused:
            self._is_reported = True
            most = self._most if len(self.taken) >= self._most else self._most_in_all
            if not self._feed.sink.deliver_left_out(self._left_out, most):
                self._feed.paused = True

    def _take_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._core.turns.take(self._on_turn)

    def _on_turn(self) -> None:
        self._has_turn = False
        self._core.turns.spend(_BYTES_A_TURN)
        names = [name for name, topic in self._made.items() if topic.visible]
        if len(names) < len(self._made):
            self._refills = True  # Others were made while one that is gone had the last place.
        self._forget_made()
        if self._feed.closed:
            return
        self._take_in(self._others() if self._refills else names)
        self.report()
        self._feed.read_on()

    def _take_in(self, names: Iterable[str]) -> None:
        """Follow topics from cursor 0 while there is room. The next one is left out."""
        feed, before = self._feed, len(self.taken)
        for name in names:
            if name in feed.subscriptions:
                continue
            if not self._room:
                if self._left_out != name:
                    self._left_out, self._is_reported = name, False
                break
            feed.subscribe(name, of_longest_prefix(self.queries, name), 0)
            self.taken[name] = None
        self._core.turns.spend((len(self.taken) - before) * _BYTES_A_TOPIC)

    def _others(self) -> Iterator[str]:
        """Yield the topics that are there and not followed. At the end none is left out."""
        self._refills = False
        for topic in self._core.registry.beginning_with(self._starts):
            if topic.name not in self._feed.subscriptions:
                yield topic.name
        self._left_out, self._is_reported = "", False

    @property
    def has_room(self) -> bool:
        """Whether another topic may be taken in now."""
        return self._room > 0

    @property
    def _room(self) -> int:
        """The number of topics that may be taken in now."""
        return max(min(self._most - len(self.taken), self._most_in_all - len(self._feed.subscriptions)), 0)

    def _forget_made(self) -> None:
        for topic in self._made.values():
            topic.waiters.pop(self, None)
        self._made.clear()

    def _wait_for(self, prefixes: Prefixes) -> None:
        waits = self._core.prefix_waits
        waits.leave(self, self._starts)
        self._starts = tuple(starts_of(prefixes, self._within))
        waits.enter(self, self._starts)
