"""The turns of moves of jobs to other cores.

A queue has one move at a time, and some of all queues are on their way to a core, so that what is
held for it is bounded. A pass of the loop decodes the records of one move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from topics.engine.values.ports import LoopPort

T = TypeVar("T")
_MOVES_MAX = 4
"""Moves to one core whose copies are read, or on their way, of all queues."""


class MoveTurns:
    """The moves to one core, of which some are on their way."""

    def __init__(self, loop: LoopPort) -> None:
        self._loop = loop
        self._begun = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def has_taken(self) -> bool:
        """Take a turn, until `end`, and return True, if one is free."""
        if self._begun >= _MOVES_MAX:
            return False
        self._begun += 1
        return True

    def take(self, begin: Callable[[], None]) -> None:
        """Call `begin` when its turn comes, which lasts until `end`."""
        if self.has_taken():
            begin()
        else:
            self._waiting.append(begin)

    def end(self) -> None:
        if self._waiting:
            self._loop.call_later(0, self._waiting.popleft())
        else:
            self._begun -= 1


class MoveReads:
    """The reads of records that are to be moved, one after another: the next in another pass.

    The budget of reads bounds what begins in a pass. Records that are read from files may come
    together later, and a queue that is noted moves all of its jobs at once, whatever their size.
    """

    def __init__(self, loop: LoopPort) -> None:
        self._loop = loop
        self._is_taken = False
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, read: Callable[[], None]) -> None:
        """Call `read` when its turn comes, which lasts until `end`."""
        if self._is_taken:
            self._waiting.append(read)
        else:
            self._is_taken = True
            read()

    def end(self) -> None:
        self._loop.call_later(0, self._next)

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._is_taken = False


class MoveLine(Generic[T]):
    """The moves of one queue: one in progress, and those that wait for its end, with their claims.

    After one that has failed, or takes long, no more wait: their jobs stay in the queue, and claims
    pass over them.
    """

    def __init__(self, now_ns: int, wait_ns: int) -> None:
        """wait_ns: what takes longer takes long."""
        self._wait_ns = wait_ns
        self._since_ns = now_ns
        """When the move in progress began."""
        self.has_failed = False
        """Whether the move in progress is tried again."""
        self._waiting: dict[T, None] = {}

    def takes(self, now_ns: int) -> bool:
        """Return whether further moves may wait."""
        return not self.has_failed and now_ns - self._since_ns < self._wait_ns

    def add(self, move: T) -> None:
        self._waiting[move] = None

    def has_left(self, move: T) -> bool:
        """Take a move out, and return True, if it waits."""
        if move not in self._waiting:
            return False
        del self._waiting[move]
        return True

    def pop(self) -> T | None:
        """Take the first one out; None: none waits."""
        first = next(iter(self._waiting), None)
        if first is not None:
            del self._waiting[first]
        return first

    def next(self, now_ns: int) -> T | None:
        """Return the one that is in progress from now on; None: none waits."""
        self._since_ns, self.has_failed = now_ns, False
        return self.pop()
