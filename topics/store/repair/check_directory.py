"""A check of a stopped data directory under its lock, and a rebuild of what is damaged."""

from __future__ import annotations

import os

import msgspec

from topics.clock import SystemClock
from topics.config import Config
from topics.errors import FormatError, LockedError, StorageError, UsageError
from topics.loop.choose import open_ring
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.store.cores.core_directories import refuse_several_cores
from topics.store.disk.data_directory import SIGNS, LockedDirectory, lock_directory, refuse_links
from topics.store.repair.newer_files import refuse_newer
from topics.store.repair.rebuild import Rebuilt, rebuild
from topics.store.repair.verify_directory import Damage, VerifyReport, verify
from topics.store.segments.tiers import Tiers


class FsckReport(msgspec.Struct):
    """The last check of a directory, and the rebuild before it, if any."""

    data_dir: str
    report: VerifyReport
    rebuilt: Rebuilt | None = None
    damage: list[Damage] = []
    """Findings of the first check, if a rebuild followed it."""
    newer: str = ""
    """Why a rebuild of the damaged directory would refuse: the file of a newer version."""

    @property
    def sound(self) -> bool:
        """Whether the last check found no damage."""
        return self.report.sound

    @property
    def findings(self) -> list[Damage]:
        """The damage that the last check found, place by place."""
        return self.report.findings


def check_directory(config: Config, *, mend: bool) -> FsckReport:
    """Check config.data_dir under its lock; with `mend`, rebuild it if damaged, and check again.

    Raises: UsageError if it is no data directory; LockedError while a server uses it; FormatError,
    it is of several cores; StorageError, and something is wrong with how they share it; OSError.
    """
    refuse_missing(config.data_dir)
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    try:
        locked = _lock(ring, config)
        try:
            loop.run_task(refuse_several_cores(loop.files, config.data_dir))
            first = loop.run_task(verify(loop, config.data_dir, config.cold_dir))
            if first.sound:
                return FsckReport(config.data_dir, first)
            if not mend:
                return FsckReport(config.data_dir, first, newer=_newer(loop, config))
            for directory in filter(None, (config.data_dir, config.cold_dir)):
                refuse_links(directory)
            result = loop.run_task(rebuild(loop, config.data_dir, config.cold_dir))
            again = loop.run_task(verify(loop, config.data_dir, config.cold_dir))
            return FsckReport(config.data_dir, again, result, first.findings)
        finally:
            locked.release()
    finally:
        loop.close()


def _newer(loop: Loop, config: Config) -> str:
    try:
        loop.run_task(refuse_newer(loop.files, Tiers.of(config)))
    except FormatError as error:
        return str(error)
    return ""


def _lock(ring: Ring, config: Config) -> LockedDirectory:
    try:
        return lock_directory(ring, config)
    except LockedError as error:
        raise LockedError(f"{error}, then check again") from error


def is_data_directory(path: str) -> bool:
    """Return whether `path` looks like a data directory.

    Raises: FileNotFoundError; StorageError if it cannot be listed.
    """
    try:
        return bool(SIGNS.intersection(os.listdir(path)))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"data directory {path} is not usable: {error.strerror}") from error


def refuse_missing(path: str) -> None:
    """Raise UsageError unless `path` is a data directory. It is not created.

    Raises: StorageError if it cannot be listed.
    """
    try:
        if not is_data_directory(path):
            raise UsageError(f"{path} is not a data directory of topics")
    except FileNotFoundError:
        raise UsageError(f"data directory {path} does not exist: use the path of a log that was made") from None
