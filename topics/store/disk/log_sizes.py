"""How much of a volume the log may take: little at first and on a small volume, and more as the log proves busy.

The settings are the most that each may be. A new directory takes a few MiB; log files grow while they are filled before
a checkpoint leaves them, and the reserve with them, since a busy log has more to clear away on a full disk.
"""

from __future__ import annotations

from topics.config import Config
from topics.store.format.log_format import BLOCK_BYTES, align_up

START_BYTES = 2 << 20
"""Of a log file, and of the reserve, in a new directory."""
_GROWTH = 4
"""A log file that was filled is followed by one of so many times its size."""
_MIB = 1 << 20


def _at_most(setting: int, volume_bytes: int, part: int, least_bytes: int) -> int:
    """A setting, or so small a part of the volume; least_bytes: even of the smallest volume. 0 stays 0."""
    return min(setting, max(volume_bytes // part, least_bytes)) if volume_bytes else setting


def may_be_spare(file_bytes: int, file_max: int) -> bool:
    """A log whose files have up to `file_max` bytes may have made a file of this size, for any use."""
    return min(START_BYTES, file_max) <= file_bytes <= file_max


class LogSizes:
    """Sizes in bytes; volume_bytes is of the file system of the data directory, 0 where that does not tell."""

    def __init__(self, config: Config, volume_bytes: int) -> None:
        self.shards = max(1, config.wal_shards)
        part = 32 * self.shards
        self.file_max = align_up(_at_most(config.wal_file_bytes, volume_bytes, part, START_BYTES), BLOCK_BYTES)
        self.reserve_max = _at_most(config.disk_reserve_bytes, volume_bytes, 64, _MIB)
        self.low_water = _at_most(config.disk_low_water_bytes, volume_bytes, 16, 4 * _MIB)
        self.checkpoint = _at_most(config.checkpoint_wal_bytes, volume_bytes, 16, 4 * _MIB)
        """Of log, that begin a checkpoint."""
        self.log_max = _at_most(config.max_log_bytes, volume_bytes, 8, 16 * _MIB)
        self.file = min(self.file_max, START_BYTES)
        """Of the next log file."""
        self._spare_files = config.wal_spare_files

    @property
    def reserve(self) -> int:
        """The same part of its maximum as log files are of theirs, but no less than that of a new directory."""
        return max(min(self.reserve_max, START_BYTES), self.reserve_max * self.file // self.file_max)

    @property
    def spares_max(self) -> int:
        """Files kept for another use by each shard: as many as a checkpoint frees, and those kept ready."""
        return self._spare_files + self.checkpoint // self.file

    def is_of_use(self, file_bytes: int) -> bool:
        """A file of this size can take the place of one that is to be made."""
        return self.file <= file_bytes <= self.file_max

    def on_found(self, file_bytes: int) -> None:
        """A life before this one had come to files of this size."""
        if self.is_of_use(file_bytes):
            self.file = file_bytes

    def on_filled(self, file_bytes: int) -> None:
        """The log needs the next file, since this one has no room for a batch."""
        self.file = max(self.file, min(self.file_max, file_bytes * _GROWTH))
