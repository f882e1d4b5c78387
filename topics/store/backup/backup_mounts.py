"""The disks that backups of a log were made on: one that is not mounted now gets none.

Without its disk a mount point is an empty directory, and a backup there would be a copy of all
files on another disk, which is hidden once the disk is there. So the data directory has a file with
the mount points at or above its backups, a line each.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from urllib.parse import quote, unquote_to_bytes

from topics.config import is_in
from topics.errors import StorageError
from topics.store.disk.whole_files import FileCalls, read_file, replace_file

MOUNTS_NAME = "backup-mounts"
LStat = Callable[[str], os.stat_result]


async def check_mounted(files: FileCalls, lstat: LStat, data_dir: str, root: str) -> None:
    """Check that the disks are mounted on which backups below `root` were made.

    Raises: StorageError, one is not; OSError.
    """
    for point in await _noted(files, data_dir):
        if is_in(root, point) and not await files.to_thread(_is_mount_point, lstat, point):
            remedy = f"mount it, name another directory, or remove {data_dir}/{MOUNTS_NAME} if it has none any more"
            raise StorageError(
                f"{point}, for the backup in {root}, was the mount point of a disk, and is none: {remedy}"
            )


async def note_mount(files: FileCalls, lstat: LStat, data_dir: str, root: str) -> None:
    """Have the data directory know the disk that a backup was made on. Raises: OSError."""
    point = await files.to_thread(_mount_point, lstat, root)
    points = await _noted(files, data_dir)
    if point and point not in points:
        text = "".join(f"{quote(os.fsencode(each))}\n" for each in [*points, point])
        await replace_file(files, f"{data_dir}/{MOUNTS_NAME}", text.encode())


async def _noted(files: FileCalls, data_dir: str) -> list[str]:
    try:
        text = await read_file(files, f"{data_dir}/{MOUNTS_NAME}")
    except FileNotFoundError:
        return []
    return [os.fsdecode(unquote_to_bytes(line)) for line in text.decode("ascii", "replace").splitlines()]


def _mount_point(lstat: LStat, path: str) -> str:
    """Return the nearest mount point at or above a directory; "" for the root and what has none."""
    while path not in {"", "/"}:
        if _is_mount_point(lstat, path):
            return path
        path = os.path.dirname(path)
    return ""


def _is_mount_point(lstat: LStat, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return lstat(f"{path}/.").st_dev != lstat(f"{path}/..").st_dev
    return False
