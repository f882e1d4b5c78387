"""Notices to the readers that wait for a topic to change, or to exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from topics.engine.state.topic import Life, Topic
from topics.engine.state.waiters import EndsAtShutdown, Waiter
from topics.engine.values.step_queue import StepQueue

NOTICES_A_STEP = 32
"""Waits by prefix that a step notifies of a creation: some 30 us."""

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


class PrefixWaiter(CreationWaiter, Waiter, Protocol):
    """A wait by prefix. It may become a waiter of a topic that it notes."""


class PrefixWaits:
    """The waits by prefix. A creation looks up one beginning of its name for each known length.

    So its cost depends on the waits for this very topic, and neither on other waits nor on topics.
    """

    def __init__(self) -> None:
        self._by_prefix: dict[str, dict[PrefixWaiter, None]] = {}
        self._lengths: Counter[int] = Counter()
        """The number of prefixes by length."""

    def __bool__(self) -> bool:
        return bool(self._by_prefix)

    def enter(self, waiter: PrefixWaiter, prefixes: Iterable[str]) -> None:
        """Add a waiter. No name begins with two of its prefixes."""
        for prefix in prefixes:
            line = self._by_prefix.get(prefix)
            if line is None:
                line = self._by_prefix[prefix] = {}
                self._lengths[len(prefix)] += 1
            line[waiter] = None

    def leave(self, waiter: PrefixWaiter, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            line = self._by_prefix[prefix]
            del line[waiter]
            if not line:
                del self._by_prefix[prefix]
                self._lengths[len(prefix)] -= 1
                if not self._lengths[len(prefix)]:
                    del self._lengths[len(prefix)]

    def of_name(self, name: str) -> list[dict[PrefixWaiter, None]]:
        """Return the waiters for a topic of this name, by prefix; each is in one of the dicts."""
        found = []
        for length in self._lengths:
            if length <= len(name) and (line := self._by_prefix.get(name[:length])) is not None:
                found.append(line)
        return found

    def lines(self) -> list[dict[PrefixWaiter, None]]:
        """Return the waiters by prefix; one with several prefixes is in several of the dicts."""
        return list(self._by_prefix.values())


class CreationCore(WakeCore, Protocol):
    """The part of the core that a notice of a creation needs."""

    awaited: dict[str, dict[CreationWaiter, None]]
    notices: StepQueue
    prefix_waits: PrefixWaits


def wake(core: WakeCore, topic: Topic) -> None:
    """Notify the topic's waiters of a change or a loss, at the end of the pass."""
    if topic.waiters:
        core.awake[topic] = None


def notify_made(core: CreationCore, topic: Topic) -> None:
    """Notify the waits for a topic's creation; they look at the end of the pass.

    Of very many by prefix, some are notified in a pass.
    """
    for place in core.awaited.pop(topic.name, ()):
        place.on_topic_made(topic)
    if core.prefix_waits:
        notices = _Notices(topic, core.prefix_waits.of_name(topic.name))
        core.notices.run(notices.give())
        notices.is_late = True
    wake(core, topic)


class _Notices:
    """The notices of a creation to the waits by prefix that are there by then."""

    def __init__(self, topic: Topic, lines: Iterable[dict[PrefixWaiter, None]]) -> None:
        self._topic = topic
        self._lines = [(line, list(line)) for line in lines]
        self.is_late = False
        """Whether the pass of the creation may have ended, whose end wakes the others."""

    def give(self) -> Iterator[None]:
        """Notify some a step, except those that have left by then."""
        topic, given = self._topic, 0
        for line, waiters in self._lines:
            for waiter in waiters:
                if topic.life is Life.GONE:
                    return
                if waiter in line:
                    waiter.on_topic_made(topic)
                    if self.is_late and waiter in topic.waiters:
                        waiter.look_again()
                given += 1
                if given % NOTICES_A_STEP == 0:
                    yield
