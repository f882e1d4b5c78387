"""The end of the log at a time. Each batch states when it was written."""

from __future__ import annotations

from topics.errors import StorageError
from topics.store.disk.uncached_reads import UncachedReads
from topics.store.disk.whole_files import FileCalls, ReadCalls
from topics.store.format.file_table import StoredFile
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    BatchHeader,
    align_up,
)
from topics.store.wal.wal_files import shard_and_number

FileEnds = list[tuple[StoredFile, int]]
"""Files of the log, those of a shard in their order, each with its end."""


async def ends_by_time(files: FileCalls, ends: FileEnds, before: FileEnds, at_ms: int) -> FileEnds:
    """Return the files with batches of a time (Unix ms) or earlier, each with the end of these.

    ends: those of now. before: earlier ones; all batches up to there are of that time or earlier.
    Raises: StorageError, OSError.
    """
    begins = {file.file_id: end for file, end in before}
    uncached, found, ended = UncachedReads(files), FileEnds(), set[int]()
    for file, end in ends:
        shard, _number = shard_and_number(file)
        if shard in ended:
            continue
        begin = begins.get(file.file_id, WAL_FIRST_BATCH_OFFSET)
        by_then = await _end_by(*uncached.of_log(file, end), (begin, end), at_ms, file.path)
        if by_then < end:
            ended.add(shard)
        if by_then > WAL_FIRST_BATCH_OFFSET:
            found.append((file, by_then))
    return found


async def _end_by(reads: ReadCalls, fd: int, within: tuple[int, int], at_ms: int, path: str) -> int:
    at, end = within
    head = memoryview(bytearray(BATCH_HEADER_BYTES))
    while at < end:
        if await reads.read_into(fd, head, at) < len(head):
            raise StorageError(f"{path} ends at byte {at} of {end}")
        header = BatchHeader.unpack(head, path)
        if header.written_ms > at_ms:
            return at
        at = align_up(at + BATCH_HEADER_BYTES + header.body_bytes, BATCH_ALIGN)
    return end
