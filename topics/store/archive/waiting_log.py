"""The log files that are no longer needed and not archived yet: they wait, or they are given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from topics.config import Config
from topics.loop.loop import Loop
from topics.store.archive.archive_note import ShardEnd, mark_losses
from topics.store.archive.log_sources import waiting_files
from topics.store.disk.whole_files import unlink_if_there
from topics.store.format.file_table import StoredFile
from topics.store.wal.sharded_log import ShardedLog
from topics.store.wal.wal_files import shard_and_number

log = logging.getLogger(__name__)


class WaitingLog:
    """The waiting files of one data directory.

    Once more bytes than `archive_keep_bytes` wait, or on a full disk, all of them are given up.
    """

    def __init__(self, loop: Loop, config: Config, store_log: ShardedLog) -> None:
        self._loop = loop
        self._config = config
        self._log = store_log
        self.bytes = 0
        self._drops = False
        """Whether the files are being removed."""
        self.given_up: dict[int, tuple[int, int]] = {}
        """By shard, number and bytes of the newest file that was given up, until it is noted."""

    def look(self) -> None:
        """Count the files that an earlier process has left."""
        files = self._loop.files
        self.bytes = sum(self._loop.ring.file_size(path) for _, path, _ in waiting_files(files, self._config.data_dir))

    def add(self, file: StoredFile) -> bool:
        """Have a file wait. Return False if it is given up, with all others."""
        size = self._loop.ring.file_size(file.path)
        if self._log.disk_full or self.bytes + size > self._config.archive_keep_bytes:
            shard, number = shard_and_number(file)
            is_first = not self.given_up
            self.given_up[shard] = number, file.size
            self._give_up(is_first)
            return False
        self.bytes += size
        return True

    def _give_up(self, is_first: bool) -> None:
        """Give up the files that wait: a later one is reused, so no restore leads over them.

        is_first: whether the hole begins here; else it grows.
        """
        if is_first:
            log.error(
                "the archive gets a hole: %d bytes of log wait for %s, and no more may (TOPICS_ARCHIVE_KEEP_BYTES)",
                self.bytes,
                self._config.archive_dir,
            )
        if not self._drops:
            self._drops = True
            self._loop.spawn(self._drop(), "archive gives up")

    async def _drop(self) -> None:
        """Remove the files, newest first: what a kill leaves is a part without a gap."""
        for _shard, path, _number in reversed(waiting_files(self._loop.files, self._config.data_dir)):
            try:
                await unlink_if_there(self._loop.files, path)
            except OSError as error:
                log.warning("removing %s failed: %s", path, error)
        self.bytes = 0
        self._drops = False

    async def remove(self, is_done: Callable[[int, int], bool]) -> None:
        """Remove files. is_done: returns whether to, by shard and number. Raises: OSError."""
        for shard, path, number in waiting_files(self._loop.files, self._config.data_dir):
            if is_done(shard, number):
                size = self._loop.ring.file_size(path)
                await unlink_if_there(self._loop.files, path)
                self.bytes = max(0, self.bytes - size)

    async def leave_word(self) -> None:
        """Leave word for the next start of files that were given up: the target may stay away."""
        if self.given_up:
            with suppress(OSError):  # on a full disk the note has it, if the target works
                await mark_losses(self._loop.files, self._config.data_dir)

    def lacks_given_up(self, shards: Mapping[int, ShardEnd]) -> bool:
        """Return whether an archive with these ends lacks a file that was given up."""
        ends = {shard: shards.get(shard, ShardEnd(0, 0, 0)) for shard in self.given_up}
        return any(self.given_up[shard] > (end.file_no, end.size) for shard, end in ends.items())
