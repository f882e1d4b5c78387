"""Waiters for a change of a topic."""

from __future__ import annotations

from typing import Protocol


class EndsAtShutdown(Protocol):
    """A wait that ends when the server shuts down."""

    def on_shutdown(self) -> None:
        """End the wait."""


class Waiter(EndsAtShutdown, Protocol):
    """A reader in `topic.waiters` (a dict, by arrival), which it enters and leaves by itself.

    Code that makes records readable, or loses them, calls `wake` (wakes.py). At the end of the
    pass every waiter of the topic is notified once, topics in ascending order of name; records that
    become readable meanwhile cause another notification. After a lone write, `Engine.settle_lone`
    may notify the waiters of its topic before that. A waiter therefore misses no change if it
    is in `waiters` before the change, or compares `topic.head` with its last view when it enters.
    """

    def look_again(self) -> None:
        """Handle a change of the topic."""

    def on_topic_gone(self) -> None:
        """Handle the deletion of the topic, instead of `look_again`."""
