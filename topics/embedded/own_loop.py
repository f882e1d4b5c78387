"""A loop for a call that works on directories beside any open log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from topics.config import Config
from topics.errors import StorageError, TopicsError
from topics.loop.choose import open_loop
from topics.loop.loop import Loop


@contextmanager
def own_loop(config: Config) -> Iterator[Loop]:
    """Yield a loop of its own, closed in the end. An OSError becomes a StorageError."""
    with open_loop(config) as loop:
        try:
            yield loop
        except OSError as error:
            if isinstance(error, TopicsError):
                raise
            name = f"{error.filename}: " if error.filename else ""
            remedy = ": run this as a user who may read it" if isinstance(error, PermissionError) else ""
            raise StorageError(f"{name}{error.strerror or error}{remedy}") from error
