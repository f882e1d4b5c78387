"""Notices to the readers that wait for a topic to change, or to exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from topics.engine.state.topic import Topic
from topics.engine.state.waiters import EndsAtShutdown

CatchUpFirst = Callable[[Topic, Callable[[], None]], None]
"""`catch_up(topic, then)`: `then` is called once routers have forwarded what they can to the topic.

Without routers it is called at once. Every read of a topic calls this first (R-RTR-4).
"""


class WakeCore(Protocol):
    """The part of the core that a notice of a change needs."""

    awake: dict[Topic, None]


class CreationWaiter(EndsAtShutdown, Protocol):
    """A wait for the creation of a topic, in `core.awaited`."""

    def on_topic_made(self, topic: Topic) -> None:
        """Note that the topic exists now, with the records written by the end of the pass."""


class PrefixWaits:
    """The waits by prefix. A creation looks up one beginning of its name for each known length.

    So its cost depends on the waits for this very topic, and neither on other waits nor on topics.
    """

    def __init__(self) -> None:
        self._by_prefix: dict[str, dict[CreationWaiter, None]] = {}
        self._lengths: Counter[int] = Counter()
        """The number of prefixes by length."""

    def __bool__(self) -> bool:
        return bool(self._by_prefix)

    def enter(self, waiter: CreationWaiter, prefixes: Iterable[str]) -> None:
        """Add a waiter. No name begins with two of its prefixes."""
        for prefix in prefixes:
            line = self._by_prefix.get(prefix)
            if line is None:
                line = self._by_prefix[prefix] = {}
                self._lengths[len(prefix)] += 1
            line[waiter] = None

    def leave(self, waiter: CreationWaiter, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            line = self._by_prefix[prefix]
            del line[waiter]
            if not line:
                del self._by_prefix[prefix]
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]

    def of_name(self, name: str) -> list[CreationWaiter]:
        """Return the waiters for a topic of this name."""
        found: list[CreationWaiter] = []
        for length in self._lengths:
            if length <= len(name) and (line := self._by_prefix.get(name[:length])) is not None:
                found += line
        return found

    def lines(self) -> list[dict[CreationWaiter, None]]:
        """Return the waiters by prefix; one with several prefixes is in several of the dicts."""
        return list(self._by_prefix.values())


class CreationCore(WakeCore, Protocol):
    """The part of the core that a notice of a creation needs."""

    awaited: dict[str, dict[CreationWaiter, None]]
    prefix_waits: PrefixWaits


def wake(core: WakeCore, topic: Topic) -> None:
    """Notify the topic's waiters of a change or a loss, at the end of the pass."""
    if topic.waiters:
        core.awake[topic] = None


def notify_made(core: CreationCore, topic: Topic) -> None:
    """Notify the waits for a topic's creation; they look at the end of the pass."""
    for place in core.awaited.pop(topic.name, ()):
        place.on_topic_made(topic)
    if core.prefix_waits:
        for waiter in core.prefix_waits.of_name(topic.name):
            waiter.on_topic_made(topic)
    wake(core, topic)
