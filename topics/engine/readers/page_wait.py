"""The wait of a reader's read for records: until its deadline, parked at the topic meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.clock import Clock
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LoopPort, TimerPort


class PageWaitCore(Protocol):
    """The part of the core that the wait needs."""

    clock: Clock
    loop: LoopPort
    turns: ReadTurns


class PageWait:
    """One wait, a Waiter (waiters.py) while it is parked.

    again: looks for records; gone: the topic was deleted.
    """

    __slots__ = ("_again", "_core", "_deadline", "_gone", "_lease_end", "_topic", "has_ended")

    def __init__(self, core: PageWaitCore, topic: Topic, again: Callable[[], None], gone: Callable[[], None]) -> None:
        self._core = core
        self._topic = topic
        self._again = again
        self._gone = gone
        self.has_ended = False
        """Whether the next page is the answer, even without records."""
        self._deadline: TimerPort | None = None
        self._lease_end: TimerPort | None = None
        """Timer, while parked, of the first lease that ends."""

    def begin(self, wait_ms: int) -> None:
        self._deadline = self._core.loop.call_later(wait_ms * 1_000_000, self.on_shutdown)

    def park(self, lease_end_ms: int) -> None:
        """Wait for a change of the topic, or the end of a lease; 0: none ends."""
        self._topic.waiters[self] = None
        if lease_end_ms:
            left_ms = max(1, lease_end_ms + 1 - self._core.clock.now_ms())
            self._lease_end = self._core.loop.call_later(left_ms * 1_000_000, self.look_again)

    def end(self) -> None:
        self._unpark()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unpark(self) -> None:
        self._topic.waiters.pop(self, None)
        if self._lease_end is not None:
            self._lease_end.cancel()
            self._lease_end = None

    def look_again(self) -> None:
        self._unpark()
        self._again()

    def on_topic_gone(self) -> None:
        """Answer in a turn of the pass's reads, because thousands may wait."""
        self._unpark()
        self._core.turns.take(self._gone)

    def on_shutdown(self) -> None:
        """Have the next page answered, at the deadline, too."""
        self.has_ended = True
        if self in self._topic.waiters:
            self.look_again()
