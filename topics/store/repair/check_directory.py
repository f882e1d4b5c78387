"""A check of a stopped data directory under its lock, and a rebuild of what is damaged."""

from __future__ import annotations

import os

from topics.config import Config
from topics.errors import UsageError
from topics.loop.choose import open_loop
from topics.loop.loop import Loop
from topics.store.cores.core_directories import refuse_several_cores
from topics.store.disk.data_directory import SIGNS, not_usable
from topics.store.repair.check_cores import check_cores, lock_to_check, map_to_check
from topics.store.repair.check_files import FsckReport, found_in, rebuilt, verified
from topics.store.repair.owned_topics import EVERY_TOPIC


def check_directory(config: Config, *, mend: bool, one_core: bool = False) -> FsckReport:
    """Check config.data_dir under its lock; with `mend`, rebuild it if damaged, and check again.

    one_core: a directory of several cores is refused.
    Raises: UsageError if it is no data directory; LockedError while a server uses it; FormatError,
    it is a core directory of several, or of a newer version; StorageError, both files of the
    slot map are damaged, or something was cut short between cores; OSError.
    """
    refuse_missing(config.data_dir)
    with open_loop(config) as loop:
        locked = lock_to_check(loop.ring, config)
        try:
            return check_locked(loop, config, mend=mend, one_core=one_core)
        finally:
            locked.release()


def check_locked(loop: Loop, config: Config, *, mend: bool, one_core: bool = False) -> FsckReport:
    """Check a directory whose lock the caller holds."""
    if one_core:
        loop.run_task(refuse_several_cores(loop.files, config.data_dir))
    elif (found := loop.run_task(map_to_check(loop.files, config.data_dir))) is not None:
        return check_cores(loop, config, found, mend=mend)
    first = verified(loop, config, EVERY_TOPIC)
    if first.sound or not mend:
        return found_in(loop, config, EVERY_TOPIC, first)
    return rebuilt(loop, config, EVERY_TOPIC, first)


def is_data_directory(path: str) -> bool:
    """Return whether `path` looks like a data directory.

    Raises: FileNotFoundError; StorageError if it cannot be listed.
    """
    try:
        return bool(SIGNS.intersection(os.listdir(path)))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise not_usable(path, error) from error


def refuse_missing(path: str) -> None:
    """Raise UsageError unless `path` is a data directory. It is not created.

    Raises: StorageError if it cannot be listed.
    """
    try:
        if not is_data_directory(path):
            raise UsageError(f"{path} is not a data directory of topics")
    except FileNotFoundError:
        raise UsageError(f"data directory {path} does not exist: use the path of a log that was made") from None
