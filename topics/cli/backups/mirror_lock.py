"""The directory of a mirror, for one process at a time."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from topics.cli.backups.mirror_status import STATUS_NAME
from topics.config import Config
from topics.errors import LockedError, UsageError
from topics.loop.choose import open_loop
from topics.loop.loop import Loop
from topics.store.backup.free_places import FOLLOWED_NAME, MIRROR, taken
from topics.store.disk.data_directory import make_with_parents

_LOCK_NAME = "lock"
_EMPTY = re.compile(f"{_LOCK_NAME}|({re.escape(STATUS_NAME)}|{re.escape(FOLLOWED_NAME)}).*")
"""Files of a mirror to which the server has not answered yet."""


def check_free(given: str) -> str:
    """Check that a directory is a mirror, or has nothing; return its path without links.

    Raises: UsageError, with what it has, or what it is in.
    """
    directory = os.path.realpath(given)
    if found := taken(directory, MIRROR):
        raise UsageError(f"--to is {given!r}, {found}: name a path elsewhere")
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    others = [name for name in names if not _EMPTY.fullmatch(name)]
    if others and FOLLOWED_NAME not in names:
        raise UsageError(
            f"--to is {given!r}, which has {others[0]!r}, and is no mirror: name an empty directory, or a path where "
            "nothing is"
        )
    return directory


@contextlib.contextmanager
def locked_mirror(directory: str) -> Iterator[Loop]:
    """Yield a loop while this process has the lock of a mirror. Raises: LockedError, OSError."""
    with open_loop(Config()) as loop:
        ring, fd = loop.ring, -1
        try:
            make_with_parents(ring, directory)
            try:
                fd = ring.lock(f"{directory}/{_LOCK_NAME}")
            except BlockingIOError as error:
                raise LockedError(f"a mirror is running in {directory}: stop it first") from error
            yield loop
        finally:
            if fd >= 0:
                ring.unlock(fd)
