"""The log files that a checkpoint empties: all before its cut, or those a full disk has room for.

A file is emptied by copying its live records, and is reused or removed after the next snapshot.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from topics.store.checkpoint.low_space import LowSpace
from topics.store.format.file_table import FileTable, StoredFile
from topics.store.segments.store_part import ReplayStart
from topics.store.wal.sharded_log import ShardedLog
from topics.store.wal.wal_files import shard_and_number

log = logging.getLogger(__name__)

Cut = dict[int, ReplayStart]
"""Where the replay of each shard begins after a checkpoint."""


class ChosenFiles(NamedTuple):
    """The log files that a checkpoint empties."""

    files: list[StoredFile]
    is_whole: bool
    """Whether no other file has a live record."""
    all_shared: bool
    """Whether records that share a frame are copied whichever file that is in."""


class FilesToEmpty:
    """The choice of each checkpoint of a store."""

    def __init__(self, store_log: ShardedLog, table: FileTable, low_space: LowSpace, *, has_retired: bool) -> None:
        """has_retired: there are shards of an earlier count."""
        self._log = store_log
        self._table = table
        self._low_space = low_space
        self._has_several = len(store_log.shards) > 1 or has_retired
        """Whether a frame of one shard may concern frames of another."""
        self._left_reported = 0
        """Number of log files that the last choice found no space for."""
        self.room_bytes: int | None = None
        """Space for copies at the last choice, if it was too little for all files; else None."""

    def all_before(self, cut: Cut) -> ChosenFiles:
        """Return all files that the log has left before the cut."""
        return ChosenFiles(self._before(cut), is_whole=True, all_shared=False)

    async def affordable(self, cut: Cut, snapshot_bytes: int) -> ChosenFiles:
        """Return the files before the cut whose live records there is space to copy.

        The cut is moved down to the first of the others.
        snapshot_bytes: left to the next snapshot.

        Raises: OSError.
        """
        before = self._before(cut)
        chosen = await self._low_space.affordable([file for file in before if not file.superseded], snapshot_bytes)
        # the live records of these share a frame
        chosen += [file for file in before if file.superseded]
        others = [file for file in before if file not in chosen]
        self._report_left(len(others))
        self.room_bytes = self._log.space.free_bytes() - snapshot_bytes if others else None
        if not _lower(cut, others):
            chosen = before  # tried all the same
        is_whole = not any(file.live_rows for file in self._table.of_log() if file not in chosen)
        all_shared = self._has_several and not all(file.superseded for file in chosen)
        return ChosenFiles(chosen, is_whole, all_shared)

    def _before(self, cut: Cut) -> list[StoredFile]:
        return [file for file in self._log.left_files() if is_before(file, cut)]

    def _report_left(self, count: int) -> None:
        """Log for the operator that deletes by themselves do not free these files."""
        if count and count != self._left_reported:
            log.warning(
                "no space to empty %d log files: the oldest needs %d KiB more free space, or its live records deleted",
                count,
                -(-self._low_space.lacking_bytes // 1024),
            )
        self._left_reported = count


def _lower(cut: Cut, kept: list[StoredFile]) -> bool:
    """Move the cut down to the first of these files in each shard.

    Returns: False, and the cut is as before, if one is of a shard that is no longer written to:
        such a shard is emptied as a whole, or not at all.
    """
    first: dict[int, int] = {}
    for file in kept:
        shard, number = shard_and_number(file)
        first[shard] = min(first.get(shard, number), number)
    if not first.keys() <= cut.keys():
        return False
    cut.update((shard, ReplayStart(number)) for shard, number in first.items())
    return True


def is_before(file: StoredFile, cut: Cut) -> bool:
    """Return whether a log file is below its shard's cut, or its shard is no longer written to."""
    shard, number = shard_and_number(file)
    return shard not in cut or number < cut[shard].file_no
