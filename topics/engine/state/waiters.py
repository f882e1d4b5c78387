"""Who waits for a topic to change."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """Stands in `topic.waiters` (a dict, in order of arrival) while it waits; it enters and leaves by itself.

    Whoever makes something readable, or loses it, calls `core.wake(topic)`. At the end of that pass every waiter of the
    topic is told once, topics in ascending order of name; what becomes readable meanwhile tells them again. So nobody
    misses a change who stands in `waiters` before it, or compares `topic.head` with what it saw when it enters.
    """

    def look_again(self) -> None:
        """Something changed."""

    def on_topic_gone(self) -> None:
        """The topic was deleted; told instead of `look_again`."""

    def on_shutdown(self) -> None:
        """Nobody is to wait any longer."""
