"""`topics.fsck`, and the rebuild of a damaged directory that is about to be opened."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from topics.common.values import arguments
from topics.config import Config
from topics.store.backup.free_places import check_places
from topics.store.repair.check_directory import check_directory, is_data_directory
from topics.store.repair.check_files import FsckReport

_log = logging.getLogger("topics.embedded")


def fsck(path: str | os.PathLike[str], rebuild: bool = False, *, cold_dir: str = "") -> FsckReport:
    """Compare every checksum of a data directory that no process has open; see `topics fsck`.

    rebuild: if the directory is damaged, restore what is sound, set damaged files aside, and check
    again. cold_dir: the directory of older segments, if the log has one.
    Raises: UsageError, it is no data directory; LockedError, it is open; StorageError.
    """
    arguments.flag("rebuild", rebuild)
    config = Config(data_dir=arguments.path(path))
    if cold_dir != "":
        config = replace(config, cold_dir=arguments.path(cold_dir, "cold_dir"))
    if rebuild:
        check_places(config)
    return check_directory(config, mend=rebuild)


def rebuild_if_damaged(config: Config) -> None:
    """Rebuild the directory of a log that is about to be opened, unless there is none yet.

    The caller of `topics.open` gets no report, so what was damaged is logged, place by place.
    """
    try:
        is_used = is_data_directory(config.data_dir)
    except FileNotFoundError:
        return
    if is_used:
        _log_rebuild(check_directory(config, mend=True, one_core=True))


def _log_rebuild(outcome: FsckReport) -> None:
    rebuilt, report = outcome.rebuilt, outcome.report
    if rebuilt is None:
        return
    for finding in outcome.damage:
        _log.warning("damage: %s", report.describe(finding))
    for path in rebuilt.set_aside:
        _log.warning("set aside: %s", path)
    if all(finding.is_index for finding in outcome.damage):
        what = "all damage was in indexes and flags, so no record is lost"
    else:
        what = "records at the damaged places that are not among these are lost, and no tombstone reports them"
    _log.warning(
        "data directory %s was damaged and is rebuilt: %d records of %d topics are kept in segments and packs, "
        "and %d records in the log; %s",
        outcome.data_dir,
        rebuilt.records,
        rebuilt.topics,
        report.log_records,
        what,
    )
    for finding in report.findings:
        _log.error("still damaged: %s", report.describe(finding))
