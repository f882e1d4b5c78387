"""A budget of bytes for the reads of a pass, so that many large reads delay no other client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from topics.config import Config
from topics.engine.values.ports import TimersPort

_DEBT_PASSES = 16
"""Passes at most for which a read uses up the budget, besides its own: the largest one does so."""
_SHORT_NS = 1_000_000
"""Time after which reads that wait for memory are looked at again; its return makes passes, too."""
_PART_HELD = 16
"""Answers that are read in several turns each may have this part of the memory for clients."""
BYTES_TO_MAKE = 16_384
"""A dormant topic that is made counts as a read that renders so much: some 80 us."""


def never() -> bool:
    """Say that the memory for clients is not used up, where nothing counts it."""
    return False


class ReadTurns:
    """Begins a read at once while the pass has bytes left; other reads wait in order.

    budget: bytes of records (as in the log) that the reads of a pass may render, 0 = unlimited. The
    read that exceeds it is completed, at the expense of the next passes. No read begins while the
    memory for clients is used up. The budget is counted in bytes instead of time, so that a run of
    the simulator takes the same turns as a server under load.

    most_held: bytes of the answers that are being read in several turns each, 0 = unlimited. One
    that exceeds it waits until others are answered, whose bytes are held for a client then.
    """

    def __init__(
        self, loop: TimersPort, budget: int, most_held: int = 0, is_memory_short: Callable[[], bool] = never
    ) -> None:
        self._loop = loop
        self._budget = budget or 1 << 62
        self._left = self._budget
        self._waiting: deque[Callable[[], None]] = deque()
        self._counted = -1
        """The last pass in which reads began to wait, or waiting ones began: it is spent."""
        self._is_memory_short = is_memory_short
        self._most_held = most_held or 1 << 62
        self.held = 0
        """Bytes of the answers that are being read in several turns each."""
        self._without_room: deque[tuple[int, Callable[[], None]]] = deque()
        """Reads that wait until there is room for their answers."""

    @classmethod
    def of(cls, loop: TimersPort, config: Config, is_memory_short: Callable[[], bool]) -> ReadTurns:
        """Return the turns that the settings ask for."""
        return cls(loop, config.pass_read_bytes, config.max_client_bytes // _PART_HELD, is_memory_short)

    def __len__(self) -> int:
        """Return the number of waiting reads."""
        return len(self._waiting)

    @property
    def left(self) -> int:
        """The bytes that reads may still render in this pass; none at 0 and below."""
        return self._left

    @property
    def is_free(self) -> bool:
        """Whether a read may begin in this pass, and overtakes no other."""
        return self._left > 0 and not self._waiting

    @property
    def is_ample(self) -> bool:
        """Whether most of the budget is left: the pass may do without its end, which renews it."""
        return 2 * self._left > self._budget

    def take(self, begin: Callable[[], None]) -> None:
        """Call `begin`, now or at the end of a later pass."""
        if self._left > 0 and not self._waiting:
            begin()
        else:
            self.take_later(begin)

    def take_later(self, begin: Callable[[], None]) -> None:
        """Call `begin` at the end of this pass or of a later one: never before this returns.

        For the next one of many steps, which would call each other if the budget has no end.
        """
        if not self._waiting:
            self._counted = self._loop.passes
            self._loop.another_pass()
        self._waiting.append(begin)

    def spend(self, size: int) -> None:
        """Count bytes that a read is about to render or send."""
        self._left -= size

    def hold(self, size: int, begin: Callable[[], None]) -> bool:
        """Count the bytes of an answer that is about to be read in several turns.

        Returns: whether there is room. Otherwise `begin` is called in a later turn, and they count
        by then. `let_go` follows in both cases, also if the answer is not wanted any more.
        """
        if self._without_room or not self._fits(size):
            self._without_room.append((size, begin))
            return False
        self.held += size
        return True

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self._most_held

    def let_go(self, size: int) -> None:
        """Count the bytes of an answer no more: it was read, or given up."""
        self.held -= size
        while self._without_room and self._fits(self._without_room[0][0]):
            size, begin = self._without_room.popleft()
            self.held += size
            self.take_later(begin)

    def next_pass(self) -> None:
        """End the pass: continue the waiting reads with the budget of the next one.

        Only what is left is spent in a pass that has had its budget: in its receives, or at an
        earlier run of its end.
        """
        is_short = False
        if not self._waiting:
            if self._left < self._budget:
                self._renew()
            return
        if self._counted != (number := self._loop.passes):
            self._counted = number
            is_short = self._renew()
        while self._waiting and self._left > 0:
            self._waiting.popleft()()
        if self._waiting:
            self._loop.another_pass(_SHORT_NS if is_short else 0)

    def _renew(self) -> bool:
        """Give the pass its budget, less what is owed, or none while memory is short.

        Return whether it is.
        """
        self._left = max(min(self._left, 0), -_DEBT_PASSES * self._budget) + self._budget
        is_short = self._is_memory_short()
        if is_short:
            self._left = min(self._left, 0)
        return is_short
