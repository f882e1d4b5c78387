"""A data directory as its newest sound snapshot has it, read without a lock and beside a running server."""

from __future__ import annotations

from collections.abc import Mapping

from topics.files.calls import FileCalls
from topics.files.piece import Location
from topics.files.topic import TopicFiles


class Directory:
    """What one snapshot says. It does not change: `refresh` gives the newest one."""

    location: Location
    snapshot: int
    """Its number, as `POST /v0/checkpoint` answers it; 0 before the first one."""
    created_ms: int
    clean: bool
    """The server was stopped when it was taken: nothing is in the log alone."""
    topics: Mapping[str, TopicFiles]
    """By name."""

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def cold(self) -> str:
        return self.location.cold

    def refresh(self) -> Directory:
        """The newest snapshot; this very object when there is no newer one. Raises like `open_directory`."""
        raise NotImplementedError


def open_directory(path: str, cold: str | None = None, *, calls: FileCalls | None = None) -> Directory:
    """Reads the newest sound snapshot of a data directory.

    Args: cold, the cold directory that goes with it, if it has one; calls, the kernel's without.
    Raises: NoDirectoryError, NotReadableError, NoColdDirectoryError, FormatError, CorruptError, DirectoryBusyError.
    """
    raise NotImplementedError
