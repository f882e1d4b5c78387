"""Sends of equal bytes to many readers, in memory: what an audience asks of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topics.engine.delivery.audience import Audience
from topics.engine.delivery.frames import Burst


class SharingReader:
    """The connection of a reader. take: gets the bursts that are sent without the reader's sink."""

    def __init__(self, sends: FakeSharedSends, take: Callable[[Burst], None]) -> None:
        self.take = take
        self.idle = True
        """Whether nothing is in flight."""
        self.shares = False
        self.ref = len(sends.readers) + 1
        sends.readers[self.ref] = self

    def stop_sharing(self) -> None:
        self.shares = False


class FakeSharedSends:
    def __init__(self) -> None:
        self.readers: dict[int, SharingReader] = {}
        self.bursts: list[Burst] = []
        self.calls: list[tuple[int, int]] = []
        """Readers of each call, and to how many of them it sent."""

    def audience(self, most_bytes: int = 100) -> Audience:
        return Audience(self, most_bytes, self._bytes_of)

    def _bytes_of(self, burst: Burst) -> bytes:
        self.bursts.append(burst)
        return b"%d" % (len(self.bursts) - 1)

    def begin_sharing(self, conn: Any) -> bool:
        if conn.shares:
            return False
        conn.shares = conn.idle
        return bool(conn.idle)

    @staticmethod
    def column(refs: list[int]) -> list[int]:
        return list(refs)

    def share(self, data: bytes, refs: list[int], count: int) -> list[int]:
        left = []
        for at in range(count):
            reader = self.readers.get(refs[at])
            if reader is not None and reader.shares and reader.idle:
                reader.take(self.bursts[int(data)])
            else:
                left.append(at)
        self.calls.append((count, count - len(left)))
        return left
