"""Notices to the readers that wait for a topic to change, or to exist."""

from __future__ import annotations

from collections.abc import Callable
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


class CreationCore(WakeCore, Protocol):
    """The part of the core that a notice of a creation needs."""

    awaited: dict[str, dict[CreationWaiter, None]]


def wake(core: WakeCore, topic: Topic) -> None:
    """Let the topic's waiters look again at the end of the pass, after a change or a loss."""
    if topic.waiters:
        core.awake[topic] = None


def notify_made(core: CreationCore, topic: Topic) -> None:
    """Notify the waits for a topic's creation; they look at the end of the pass."""
    line = core.awaited.pop(topic.name, None)
    if line is not None:
        for place in line:
            place.on_topic_made(topic)
        wake(core, topic)
