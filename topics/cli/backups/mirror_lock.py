"""The directory of a mirror, for one process at a time."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator

from topics.cli.backups.mirror_status import STATUS_NAME
from topics.config import Config, is_in
from topics.errors import DiskFullError, LockedError, StorageError, UsageError
from topics.loop.choose import open_loop
from topics.loop.loop import Loop
from topics.store.backup.free_places import FOLLOWED_NAME, MIRROR, taken
from topics.store.disk.data_directory import make_with_parents
from topics.store.disk.disk_space import is_full

_LOCK_NAME = "lock"
FSTAB = "/etc/fstab"
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_EMPTY = re.compile(f"{_LOCK_NAME}|({re.escape(STATUS_NAME)}|{re.escape(FOLLOWED_NAME)}).*")
"""Files of a mirror to which the server has not answered yet."""


def check_free(given: str) -> str:
    """Check that a directory is a mirror, or has nothing; return its path without links.

    A mirror that is there is only warned of what it is in: that may be newer, and no reason for
    data to be lost.
    Raises: UsageError, with what it has, or what it is in.
    """
    directory = os.path.realpath(given)
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    if found := taken(directory, MIRROR):
        if FOLLOWED_NAME not in names:
            raise UsageError(f"--to is {given!r}, {found}: name a path elsewhere")
        said = f"--to is {given!r}, {found}, which takes it for a part or for damage: stop, and move it elsewhere"
        print(f"topics: {said}", file=sys.stderr, flush=True)
    others = [name for name in names if not _EMPTY.fullmatch(name)]
    if others and FOLLOWED_NAME not in names:
        raise UsageError(
            f"--to is {given!r}, which has {others[0]!r}, and is no mirror: name an empty directory, or a path where "
            "nothing is"
        )
    return directory


def check_mounted(given: str, table: str = FSTAB) -> None:
    """Check that the disk of a mirror is mounted, if the table of file systems has one there.

    Without it the mirror would begin anew in the directory below.
    Raises: StorageError.
    """
    path = os.path.realpath(given)
    for point in _mount_points(table):
        if point != "/" and is_in(path, point) and not os.path.ismount(point):
            raise StorageError(f"--to is {given!r}, and {point} of {table} is not mounted: mount it (`mount {point}`)")


def _mount_points(table: str) -> list[str]:
    """Return the mount points in a table as of fstab(5); none if it cannot be read."""
    try:
        with open(table, "rb") as opened:
            rows = [line.split() for line in opened.read().splitlines()]
    except OSError:
        return []
    found = [_OCTAL.sub(lambda code: bytes([int(code[1], 8)]), row[1]) for row in rows if len(row) > 1]
    return [os.fsdecode(point) for point in found if point.startswith(b"/")]


class MirrorPlace:
    """The directory of a mirror as it was when it was locked: its disk may be unmounted since."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = _identity(path)

    def check(self) -> None:
        """Raises: StorageError, another directory has its path now, or none."""
        if _identity(self.path) != self._seen:
            raise StorageError(f"{self.path} is another directory now, as without its disk: mount that one again")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


@contextlib.contextmanager
def locked_mirror(directory: str, option: str) -> Iterator[Loop]:
    """Yield a loop while this process has the lock of a mirror, whose directory an option names.

    Raises: LockedError; UsageError, this user may not write there; DiskFullError.
    """
    with open_loop(Config()) as loop:
        ring, fd = loop.ring, -1
        try:
            try:
                make_with_parents(ring, directory)
                fd = ring.lock(f"{directory}/{_LOCK_NAME}")
            except BlockingIOError as error:
                raise LockedError(f"a mirror is running in {directory}: stop it first") from error
            except OSError as error:
                said = f"{option} is {directory!r}, where nothing can be written: {error.strerror}"
                if is_full(error):
                    raise DiskFullError(f"{said}: make room there") from error
                remedy = "name another directory, or run this as a user who may write there"
                raise UsageError(f"{said}: {remedy}") from error
            yield loop
        finally:
            if fd >= 0:
                ring.unlock(fd)
