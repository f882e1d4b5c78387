"""Files and directories that appear complete and durable, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedWriter

from topics.pipelines.errors import TargetError, disk_errors


def replace_file(path: str, write: Callable[[BufferedWriter], object]) -> None:
    """Write a temporary file by `write`, sync it, and rename it to `path`.

    An existing file is replaced. Raises what `write` raises, and OSError.
    """
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "xb") as file:  # pyarrow rejects paths that are not UTF-8
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def new_directory(path: str) -> Iterator[str]:
    """Yield a directory to fill, which becomes `path` at the end of the block.

    The directory is removed if the block raises; a killed process leaves `<path>.<8 hex
    digits>.tmp`.
    Raises: TargetError, `path` exists and is not empty, or the disk fails.
    """
    path = os.path.abspath(path)
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    with disk_errors(f"target {path}"):
        if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise TargetError(f"{path} is there already: name a new directory with --to")
        os.makedirs(temporary)
    try:
        yield temporary
        with disk_errors(f"target {path}"):
            sync_directory(temporary)
            os.rename(temporary, path)
            sync_directory(os.path.dirname(path))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse_unseen(target: str, files: Iterable[tuple[str, int]]) -> None:
    """Raise TargetError unless this process sees every file as an executor wrote it.

    Args: files, the path of each below the target, and its size in bytes.
    """
    for name, size in files:
        path = os.path.join(target, name)
        try:
            seen = os.path.getsize(path)
        except OSError:
            seen = -1
        if seen != size:
            raise TargetError(
                f"an executor wrote {path}, which the driver does not see: the target has to be a directory that all "
                "machines share"
            )
