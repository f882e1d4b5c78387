"""The check whether the log takes writes, once per staged write: latch and full disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topics.errors import DiskFullError, LogReadOnlyError, StorageError


class WriteLatch:
    """The latch shared by all shards: an I/O error in one ends writing in all."""

    def __init__(self) -> None:
        self.read_only = ""
        """The reason why nothing is appended any more; "" while all is well.

        It is never reset, because only reopening helps.
        """
        self.disk_full = False
        self.closed = False
        """Whether appends may be refused: read this first, then `check`."""
        self._reserve_users = 0
        self.on_latch: list[Callable[[], None]] = []

    def latch(self, reason: str) -> None:
        """Make the log read-only after a failed write or sync.

        The contents of the disk are unknown then, and a second sync would not reveal them.
        """
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
        """Accept what is staged inside on a full disk: a delete, an ack, a floor frees space."""
        self._reserve_users += 1
        try:
            yield
        finally:
            self._reserve_users -= 1

    def check(self) -> None:
        """Check a write before it is staged. Raises LogReadOnlyError or DiskFullError."""
        if self.read_only:
            raise self.read_only_error()
        if self.disk_full and not self._reserve_users:
            raise self.disk_full_error()

    def read_only_error(self) -> StorageError:
        return LogReadOnlyError(f"the log is read-only since {self.read_only}; reopen the data directory")

    def disk_full_error(self) -> StorageError:
        return DiskFullError("no space left for appends: deletes are accepted, and appends once there is space")
