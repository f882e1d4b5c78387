"""The share of a volume that the log may take: small at first, and larger as the log is busier.

The settings are maxima, and a small volume lowers them. A new directory takes less than 1 MiB,
because a process may open many logs of which few are busy. Log files grow while they are filled
before a checkpoint leaves them, and the reserve grows with them, since a busy log has more to free
on a full disk.
"""

from __future__ import annotations

from topics.config import Config
from topics.store.format.log_format import BLOCK_BYTES, align_up

START_BYTES = 256 << 10
"""Size of a log file, and of the reserve, in a new directory."""
_FILE_MAX_LEAST_BYTES = 2 << 20
"""Size that log files may grow to on the smallest volume."""
_GROWTH = 8
"""Factor by which a log file is larger than the filled one before it."""
_MIB = 1 << 20


def _at_most(setting: int, volume_bytes: int, part: int, least_bytes: int) -> int:
    """Return the setting, or 1/part of the volume if that is less.

    least_bytes: the minimum of such a part. A setting of 0 stays 0.
    """
    return min(setting, max(volume_bytes // part, least_bytes)) if volume_bytes else setting


def may_be_spare(file_bytes: int, file_max: int) -> bool:
    """Return whether a log of files up to `file_max` bytes may have created one of this size."""
    return min(START_BYTES, file_max) <= file_bytes <= file_max


class LogSizes:
    """The sizes of the log's parts, in bytes.

    volume_bytes: size of the data directory's file system; 0 where it does not report one.
    """

    def __init__(self, config: Config, volume_bytes: int) -> None:
        self.shards = max(1, config.wal_shards)
        part = 32 * self.shards
        self.file_max = align_up(
            _at_most(config.wal_file_bytes, volume_bytes, part, _FILE_MAX_LEAST_BYTES), BLOCK_BYTES
        )
        self.reserve_max = _at_most(config.disk_reserve_bytes, volume_bytes, 64, _MIB)
        self.low_water = _at_most(config.disk_low_water_bytes, volume_bytes, 16, 4 * _MIB)
        self.checkpoint = _at_most(config.checkpoint_wal_bytes, volume_bytes, 16, 4 * _MIB)
        """Bytes of log that begin a checkpoint."""
        self.log_max = _at_most(config.max_log_bytes, volume_bytes, 8, 16 * _MIB)
        self.segment_max = _at_most(config.segment_max_bytes, volume_bytes, 32, _FILE_MAX_LEAST_BYTES)
        """Bytes of a segment. Once some of it is deleted there has to be space to copy the rest."""
        self.file = min(self.file_max, START_BYTES)
        """Size of the next log file."""
        self._spare_files = config.wal_spare_files
        self._keeps_files = config.compact_below < 1

    @property
    def reserve(self) -> int:
        """The reserve's size, in proportion to log files, but at least the initial size."""
        return max(min(self.reserve_max, START_BYTES), self.reserve_max * self.file // self.file_max)

    @property
    def spares_max(self) -> int:
        """Number of files that each shard keeps for reuse.

        That is as many as a checkpoint frees, and those kept ready. None is kept where deleted
        records are to leave the disk soon: until it is filled again, it has what it had.
        """
        return self._spare_files + self.checkpoint // self.file if self._keeps_files else 0

    def is_of_use(self, file_bytes: int) -> bool:
        """Return whether a file of this size can be used instead of a new one."""
        return self.file <= file_bytes <= self.file_max

    def on_found(self, file_bytes: int) -> None:
        """Take over the size of a file that an earlier run of the log had reached."""
        if self.is_of_use(file_bytes):
            self.file = file_bytes

    def on_filled(self, file_bytes: int) -> None:
        """Grow: this file has no room for a batch, so the log needs the next one."""
        self.file = max(self.file, min(self.file_max, file_bytes * _GROWTH))
