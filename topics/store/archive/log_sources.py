"""The files of the log that an archive copies, as they are at one instant.

A file that a checkpoint no longer needs, and that is not archived, gets the name of a *waiting* one
instead of being reused. So a killed server finds it again.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from topics.loop.loop import Loop
from topics.store.disk.uncached_reads import UncachedReads, is_direct
from topics.store.disk.whole_files import FileCalls, ReadCalls, list_if_there
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import shard_directory, waiting_file_no
from topics.store.recovery.log_survey import shards_of
from topics.store.wal.sharded_log import ShardedLog
from topics.store.wal.wal_files import shard_and_number


class LogSource(NamedTuple):
    """A file to copy, or a part of one."""

    shard: int
    number: int
    size: int
    """Bytes that count."""
    path: str
    stored: StoredFile | None
    """The file as the log has it, held; None for a waiting file of an earlier process."""
    whole: bool
    """Whether nothing will be added to it."""


class LogEnds(NamedTuple):
    """The log at one instant."""

    upto_ms: int
    """Unix ms: all that was written until then is in the log; in this ms it may be written to."""
    sources: list[LogSource]
    """By shard and number."""
    batch_nos: list[int]
    """By shard, the number of its last batch."""

    def release(self) -> None:
        for source in self.sources:
            if source.stored is not None:
                source.stored.release()


def take_ends(loop: Loop, log: ShardedLog, data_dir: str) -> LogEnds:
    """Return the log up to the last commit. The caller waits for its sync, and releases it."""
    found: dict[tuple[int, int], LogSource] = {}
    for shard, path, number in waiting_files(loop.files, data_dir):
        found[shard, number] = LogSource(shard, number, loop.files.file_size(path), path, None, whole=True)
    for stored, size in log.files_to_ends():
        shard, number = shard_and_number(stored)
        stored.hold()
        found[shard, number] = LogSource(shard, number, size, stored.path, stored, whole=not stored.active)
    batch_nos = [shard.last_batch_no for shard in log.shards]
    return LogEnds(loop.clock.now_ms() - 1, [found[at] for at in sorted(found)], batch_nos)


def waiting_files(files: FileCalls, data_dir: str) -> list[tuple[int, str, int]]:
    """Return (shard, path, number) of the files that wait to be archived."""
    found = []
    for shard in shards_of(files, data_dir, {}):
        directory = f"{data_dir}/{shard_directory(shard)}"
        for name in list_if_there(files, directory):
            number = waiting_file_no(name)
            if number is not None:
                found.append((shard, f"{directory}/{name}", number))
    return found


class SourceReader:
    """Reads sources, bypassing the page cache where the log's writes do."""

    def __init__(self, loop: Loop, data_dir: str) -> None:
        self._files = loop.files
        self._direct = is_direct(loop.ring.direct_block_bytes(data_dir))
        self._uncached = UncachedReads(loop.files)

    async def open(self, source: LogSource) -> tuple[ReadCalls, int]:
        """Return the calls and the descriptor to read with; `close` follows. Raises: OSError."""
        stored = source.stored
        if stored is None:
            reads: ReadCalls = self._uncached if self._direct else self._files
            return reads, await reads.open(source.path, os.O_RDONLY)
        return self._uncached.of_log(stored, source.size)

    async def close(self, source: LogSource, reads: ReadCalls, fd: int) -> None:
        if source.stored is None:
            await reads.close(fd)
