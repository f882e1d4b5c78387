"""The files of one shard's directory: which were taken into use, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.disk.log_sizes import may_be_spare
from topics.store.disk.side_by_side import side_by_side
from topics.store.disk.whole_files import FileCalls, list_if_there
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.log_format import (
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    WAL_HEADER_BYTES,
    BatchHeader,
    WalHeader,
    spare_file_no,
    wal_file_no,
)
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.missing_batches import REMEDY, LogFile, highest_synced, torn_middle
from topics.store.segments.store_part import ReplayStart

_LOOKS_AT_A_TIME = 8
"""Files of a shard whose first batches are read side by side."""
_LOOKED_THROUGH_BYTES = 8 << 20
"""Bytes of a file that are read at once to see whether they are zeros."""


class Survey(NamedTuple):
    """The files of one shard's directory."""

    used: list[LogFile]
    """Files from the replay's start on, by number; each has a whole first batch."""
    last_file_no: int
    """Highest number of any file."""
    spares: list[str]
    """Paths of files with nothing needed, of a size that log files have."""
    stale: list[str]
    """Other paths of files with nothing needed."""


def shards_of(files: FileCalls, directory: str, replay: Mapping[int, ReplayStart]) -> list[int]:
    """Return the shards that have a directory, and those that must have one by a snapshot."""
    names = list_if_there(files, f"{directory}/wal")
    there = {int(name[6:]) for name in names if name.startswith("shard-") and name[6:].isdigit()}
    return sorted(there | {shard for shard, start in replay.items() if start.marked})


async def survey_shard(loop: Loop, reader: DirectReader, path: str, start: int, file_bytes: int) -> Survey:
    """Classify the files of a shard's directory. Raises CorruptError, FormatError or OSError."""
    used: list[LogFile] = []
    spares: list[str] = []
    stale: list[str] = []
    last = start - 1
    files = loop.files
    candidates: list[tuple[str, int]] = []
    for name in list_if_there(files, path):
        full = f"{path}/{name}"
        number = wal_file_no(name)
        if number is None:
            spare_number = spare_file_no(name)
            if spare_number is not None or name.endswith(".tmp"):
                stale.append(full)
            # under its old number it would be taken for its former self
            last = max(last, spare_number or 0)
            continue
        last = max(last, number)
        if number >= start:
            candidates.append((full, number))
        else:
            stale.append(full)
    found: list[LogFile | None] = []
    looks = (_used_file(files, reader, full, number) for full, number in candidates)
    await side_by_side(loop.spawn, looks, _LOOKS_AT_A_TIME, found.append)
    for (full, _number), file in zip(candidates, found, strict=True):
        if file is None:
            stale.append(full)
        else:
            used.append(file)
    for full in list(stale):
        if not full.endswith(".tmp") and may_be_spare(files.file_size(full), file_bytes):
            stale.remove(full)
            spares.append(full)
    return Survey(sorted(used, key=lambda file: file.number), last, spares, stale)


def is_whole_blocks(size: int) -> bool:
    """Return whether a log file may have this size in bytes: it gets its size before its name."""
    return size > 0 and size % BLOCK_BYTES == 0


async def _used_file(files: FileCalls, reader: DirectReader, path: str, number: int) -> LogFile | None:
    size = files.file_size(path)
    if not is_whole_blocks(size):
        message = f"{path}: cut short at {size} bytes: a log file is made of whole blocks of {BLOCK_BYTES}. {REMEDY}"
        raise CorruptError(message, {"path": path, "offset": size})
    return await used_file(reader, path, number, size)


async def used_file(reader: DirectReader, path: str, number: int, size: int) -> LogFile | None:
    """Return the file of this size, its first batch verified; None if it was never taken into use.

    Raises: CorruptError, FormatError, OSError.
    """
    fd = await reader.open(path)
    try:
        block = bytes(await reader.read(fd, 0, BLOCK_BYTES))
        if block[:4] == bytes(4) or len(block) < WAL_HEADER_BYTES:
            return None
        try:
            header = WalHeader.unpack(block, path)
        except (CorruptError, FormatError):
            if await _ends_in_its_header(reader, fd, size):
                return None
            raise
        if header.file_no != number:
            return None
        head = await reader.read(fd, WAL_FIRST_BATCH_OFFSET, BATCH_HEADER_BYTES)
        if len(head) == BATCH_HEADER_BYTES:
            body_bytes = BatchHeader.body_bytes_of(head)
            whole = BATCH_HEADER_BYTES + min(body_bytes, size)
            scan = codec.scan_log(
                await reader.read(fd, WAL_FIRST_BATCH_OFFSET, whole),
                epoch=header.epoch,
                batch_no=header.first_batch_no,
                chain=header.checksum,
            )
            if scan.batches:
                return LogFile(path, number, size, header)
            if scan.reason is ScanStop.BAD:
                raise FormatError(f"{path}: a batch that this build does not understand")
        file = LogFile(path, number, size, header)
        known = await highest_synced(reader, fd, file, WAL_FIRST_BATCH_OFFSET)
        if known >= header.first_batch_no:
            raise torn_middle(file, WAL_FIRST_BATCH_OFFSET, header.first_batch_no, known)
        return None
    finally:
        await reader.close(fd)


async def _ends_in_its_header(reader: DirectReader, fd: int, size: int) -> bool:
    """Return whether only zeros follow a part of the header.

    The first write to the file was then cut off, so nothing was acknowledged.
    """
    for offset in range(0, size, _LOOKED_THROUGH_BYTES):
        data = bytes(await reader.read(fd, offset, min(_LOOKED_THROUGH_BYTES, size - offset)))
        if len(data.rstrip(b"\0")) >= (WAL_HEADER_BYTES if offset == 0 else 1):
            return False
    return True
