"""Whether the log takes writes: the read-only latch and the full disk, asked once per staged write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topics.errors import DiskFullError, LogReadOnlyError, StorageError


class WriteLatch:
    """Shared by all shards: an I/O error in one ends writing in all."""

    def __init__(self) -> None:
        self.read_only = ""
        """Why nothing is appended any more; "" while all is well. Never taken back: only reopening helps."""
        self.disk_full = False
        self.closed = False
        """Something stands against appends: read this first, then `check`."""
        self._reserve_users = 0
        self.on_latch: list[Callable[[], None]] = []

    def latch(self, reason: str) -> None:
        """A write or sync failed: after that nobody knows what the disk holds, and a second sync would not tell."""
        if not self.read_only:
            self.read_only = reason
            self.closed = True
            for fn in self.on_latch:
                fn()

    def set_disk_full(self, full: bool) -> None:
        self.disk_full = full
        self.closed = full or bool(self.read_only)

    @contextmanager
    def use_reserve(self) -> Iterator[None]:
        """What is staged inside frees space (a delete, an ack, a floor): it goes on when the disk is full."""
        self._reserve_users += 1
        try:
            yield
        finally:
            self._reserve_users -= 1

    def check(self) -> None:
        """Raises LogReadOnlyError or DiskFullError for a write that may not be staged now."""
        if self.read_only:
            raise self.read_only_error()
        if self.disk_full and not self._reserve_users:
            raise self.disk_full_error()

    def read_only_error(self) -> StorageError:
        return LogReadOnlyError(f"the log is read-only since {self.read_only}; reopen the data directory")

    def disk_full_error(self) -> StorageError:
        return DiskFullError("no space left for appends; deletes go on, appends resume when there is space")
