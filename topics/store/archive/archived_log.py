"""The archived log files of a timeline, read back."""

from __future__ import annotations

import os
from collections.abc import Callable

from topics.errors import CorruptError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import LOG
from topics.store.disk.whole_files import list_if_there, regular_size
from topics.store.format.file_table import FileTable
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    BLOCK_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    BatchHeader,
    align_up,
    shard_directory,
    wal_file_name,
    wal_file_no,
)
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.log_replay import ShardReplay
from topics.store.recovery.log_survey import Survey, used_file
from topics.store.recovery.missing_batches import REMEDY, LogFile
from topics.store.recovery.verified_batches import VerifiedBatches


def archived_directory(shard: int) -> str:
    """Return the directory of a shard's files, relative to the timeline."""
    return f"{LOG}/{shard_directory(shard).removeprefix('wal/')}"


def archived_name(shard: int, number: int) -> str:
    """Return the path of a log file, relative to the timeline."""
    return f"{archived_directory(shard)}/{wal_file_name(number)}"


def _leave_out(_number: int, _error: CorruptError) -> None:
    """Take no note of a damaged file."""


async def survey(
    loop: Loop,
    timeline: str,
    shard: int,
    first_no: int,
    on_damage: Callable[[int, CorruptError], None] = _leave_out,
) -> list[LogFile]:
    """Return a shard's archived files from a number on, in order, each with a whole first batch.

    A step that failed leaves a part of a block at the end of a file, which is left out. So are
    damaged files, and those that a server removes meanwhile: a restore that needs their batches
    does not find them.
    on_damage: called with the number of each file that is damaged, and its error.
    Raises: FormatError, OSError.
    """
    reader, directory = DirectReader(loop.files, direct=False), f"{timeline}/{archived_directory(shard)}"
    used = []
    for name in sorted(await loop.files.to_thread(list_if_there, loop.files, directory)):
        number, path = wal_file_no(name), f"{directory}/{name}"
        if number is None or number < first_no:
            continue
        try:
            size = await loop.files.to_thread(regular_size, loop.files, path, REMEDY) & -BLOCK_BYTES
            file = await used_file(reader, path, number, size) if size else None
            if file is not None:
                used.append(file)
        except CorruptError as error:
            on_damage(number, error)
        except FileNotFoundError:
            pass
    return used


async def survey_after_base(loop: Loop, timeline: str, shard: int, first_no: int) -> list[LogFile]:
    """Return what `survey` does from the file on with which the log after a base begins.

    Raises: CorruptError, it is missing or damaged; FormatError, OSError.
    """
    used = await survey(loop, timeline, shard, first_no)
    if not used or used[0].number != first_no:
        path = f"{timeline}/{archived_name(shard, first_no)}"
        is_there = os.path.basename(path) in list_if_there(loop.files, os.path.dirname(path))
        what = "damaged" if is_there else "missing"
        message = f"{path}: the log after the base begins in this file, and it is {what}. {REMEDY}"
        raise CorruptError(message, {"path": path})
    return used


async def scan(loop: Loop, used: list[LogFile], take: Callable[[str, VerifiedBatches], None]) -> ShardReplay:
    """Verify the batches of files that follow each other, and return where they end.

    take: called with the path of a file and each piece of it, which is valid during the call.
    Raises: CorruptError, FormatError, OSError.
    """
    table = FileTable()
    replay = ShardReplay(
        loop.files,
        DirectReader(loop.files, direct=False),
        table,
        Survey(used, 0, [], []),
        whole=False,
        pause=loop.next_pass,
        on_bytes=lambda _count: None,
    )
    try:
        while (batches := await replay.next()) is not None:
            take(table[batches.file_id].path, batches)
            await loop.next_pass()
    finally:
        for file in table:
            await loop.files.close(file.fd)
    return replay


def batches_in(data: bytes | memoryview, file: LogFile) -> list[tuple[int, BatchHeader]]:
    """Return the batches of a file with their offsets, unverified."""
    found = []
    at, number = WAL_FIRST_BATCH_OFFSET, file.header.first_batch_no
    while at + BATCH_HEADER_BYTES <= len(data) and data[at : at + len(BATCH_MAGIC)] == BATCH_MAGIC:
        header = BatchHeader.unpack(data[at : at + BATCH_HEADER_BYTES], file.path)
        if header.epoch != file.header.epoch or header.batch_no != number:
            break
        found.append((at, header))
        at = align_up(at + BATCH_HEADER_BYTES + header.body_bytes, BATCH_ALIGN)
        number += 1
    return found
