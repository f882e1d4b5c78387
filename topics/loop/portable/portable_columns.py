"""Parts that both halves of the portable ring share: completions of a pass, and receive buffers."""

from __future__ import annotations

from collections.abc import Sequence

from topics.common.memory import page_aligned
from topics.loop.ring import F_BUFFER, Completions


class CompletionColumns:
    """Completions since the last reap, oldest first."""

    __slots__ = ("flags", "res", "user_data")

    def __init__(self) -> None:
        self.user_data: list[int] = []
        self.res: list[int] = []
        self.flags: list[int] = []

    def add(self, user_data: int, res: int, flags: int = 0) -> None:
        self.user_data.append(user_data)
        self.res.append(res)
        self.flags.append(flags)

    def take(self) -> Completions:
        taken = self.user_data, self.res, self.flags
        self.user_data, self.res, self.flags = [], [], []
        return taken


class ReceiveBuffers:
    """`count` buffers of `size` bytes each.

    A buffer is lent from its completion until it is recycled.
    """

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        memory = memoryview(page_aligned(count * size))
        self.views = [memory[start : start + size] for start in range(0, count * size, size)]
        self._free = list(range(count))
        self._lent = bytearray(count)

    def next_free(self) -> int:
        """Return the number of a free buffer; -1 if all are lent."""
        return self._free[-1] if self._free else -1

    def lend(self, number: int) -> None:
        """Mark the buffer that `next_free` returned as lent."""
        self._free.pop()
        self._lent[number] = 1

    def recycle(self, flags: Sequence[int]) -> None:
        """Return the buffers of these completions. Completions without a buffer are skipped."""
        for each in flags:
            if each & F_BUFFER:
                number = each >> 16
                assert self._lent[number], "a receive buffer is recycled that is not lent"
                self._lent[number] = 0
                self._free.append(number)
