"""A stopped data directory of several cores, whose logs only a server opens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from topics.common.values.backup_result import BackupResult
from topics.config import Config
from topics.embedded.own_loop import own_loop
from topics.embedded.starts import root_of_backups
from topics.engine.moves.back_up_cores import back_up_cores
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.backup.write_backup import failure_of
from topics.store.cores.core_directories import CoreDirectories, read_cores
from topics.store.disk.data_directory import lock_directory


def backed_up_cores(config: Config, to: str | os.PathLike[str] | None) -> BackupResult | None:
    """Make a backup of config.data_dir, as `log.backup` does; return None if it is of one core.

    Raises: UsageError, LockedError, StorageError.
    """
    with own_loop(config) as loop:
        if loop.run_task(read_cores(loop.files, config.data_dir)) is None:
            return None
        root = root_of_backups(config, to)
        with _locked(loop, config) as cores:
            try:
                return loop.run_task(back_up_cores(loop, config, cores, root))
            except OSError as error:
                raise failure_of(root, error) from error


@contextmanager
def _locked(loop: Loop, config: Config) -> Iterator[CoreDirectories]:
    """Yield the layout of a directory whose lock is held meanwhile."""
    locked = lock_directory(loop.ring, config)
    try:
        cores = loop.run_task(read_cores(loop.files, config.data_dir))
        if cores is None:
            raise StorageError(f"{config.data_dir} has just become one of one core: try again")
        yield cores
    finally:
        locked.release()
