"""A data directory made of an archive, as it was at a point.

The log is replayed on the newest base before the time. It ends there with the last batch that was
written by then, in every shard, as after a power cut at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

from topics.common.values.time_texts import time_text
from topics.errors import CorruptError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import LOG
from topics.store.archive.archived_log import (
    archived_directory,
    batches_in,
    scan,
    survey,
    survey_after_base,
)
from topics.store.archive.restore_point import RestoredEnd, RestorePoint
from topics.store.archive.timelines import Timeline
from topics.store.archive.unbroken_log import LogSpan, files_before_hole, noted_files, part_of
from topics.store.backup.backup_files import NewTree
from topics.store.backup.restore_backup import copy_backup
from topics.store.disk.whole_files import list_if_there, read_file, write_new_file
from topics.store.format.log_format import (
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    BatchHeader,
    align_up,
    shard_directory,
    wal_file_name,
)
from topics.store.layouts.directory_names import MARKER_NAME
from topics.store.recovery.missing_batches import REMEDY, LogFile
from topics.store.recovery.verified_batches import VerifiedBatches

_SHARD = "shard-"
_REMEDY = "Restore to an earlier time; `topics verify` shows all damage"


async def copy_point(loop: Loop, point: RestorePoint, target: str) -> None:
    """Make a data directory of a point, durably except for its name. `target` must not exist.

    The directory gets the newest format, because the log may have what the base has not.
    Raises: UsageError, the time came twice, and may not; CorruptError, the base or the log is
        damaged; FormatError; OSError.
    """

    def wants(path: str) -> bool:
        return path != MARKER_NAME and not path.startswith("wal/")

    point = await with_ends(loop, point)
    await copy_backup(loop, point.base.path, target, wants=wants)
    copies, part = NewTree(loop.files, target), part_of(point.timeline, point.base)
    for shard, number in point.base.first_log_files.items():
        try:
            used = part.files(shard, await survey_after_base(loop, point.timeline.path, shard, number))
            end = point.ends[shard]  # there is one where there is log
            chosen = [file for file in used if file.number <= end.file_no]
            made = [await _copy_file(loop, file, shard, copies, point) for file in chosen]
            replay = await scan(loop, made, lambda _path, _batches: None)
        except CorruptError as error:
            raise _earlier(error, f"{target}/wal/", f"{point.timeline.path}/{LOG}/") from error
        if replay.cuts:
            cut = replay.cuts[0]
            path = cut.path.replace(f"{target}/wal/", f"{point.timeline.path}/{LOG}/")
            message = f"{path}: damaged at byte {cut.offset}, or a file before it is missing. {_REMEDY}"
            raise CorruptError(message, {"path": path})
        if not end.is_record:
            await _check_end(loop, point, shard, used[len(chosen) - 1 :], replay.last_batch_no)
    await copies.sync()


def _earlier(error: CorruptError, path: str = "", shown: str = "") -> CorruptError:
    """Return damage of the log with the remedy for a restore. path, shown: replaced in it."""
    found = str(error).replace(path, shown) if path else str(error)
    return CorruptError(f"{found.removesuffix(REMEDY)}{_REMEDY}", error.detail)


async def with_ends(loop: Loop, point: RestorePoint) -> RestorePoint:
    """Return a point with the ends of all shards of which there is log.

    The batches state them: the clock may have been set back, so that times of files come again.
    Raises: CorruptError, FormatError, OSError.
    """
    part, ends = part_of(point.timeline, point.base), dict(point.ends)
    for shard, number in point.base.first_log_files.items():
        if shard not in ends:
            used = part.files(shard, await survey(loop, point.timeline.path, shard, number))
            try:
                ends |= {shard: await _end_by(loop, used, point.at_ms)} if used else {}
            except CorruptError as error:
                raise _earlier(error) from error
    return point._replace(ends=ends)


async def _check_end(loop: Loop, point: RestorePoint, shard: int, files: list[LogFile], last_batch_no: int) -> None:
    """Check that a shard's log ends with this batch at the point, and not because more is damaged.

    It does if no more was archived, or if the next batch is sound and was written later.
    files: the one with the last batch, and those after it.
    Raises: CorruptError, OSError.
    """
    archived_no = part_of(point.timeline, point.base).last_batch_no(shard)
    if last_batch_no >= archived_no:
        return
    for file in files:
        if file.header.first_batch_no <= last_batch_no + 1:
            header = _sound_batch(await read_file(loop.files, file.path), file, last_batch_no + 1)
            if header is not None and header.written_ms > point.at_ms:
                return
    where = f"{point.timeline.path}/{archived_directory(shard)}"
    raise CorruptError(
        f"{where}: batch {last_batch_no + 1} of the log is damaged or missing, and {archived_no} were archived. "
        f"{_REMEDY}",
        {"path": where},
    )


def _name(shard: int, number: int) -> str:
    return f"{shard_directory(shard)}/{wal_file_name(number)}"


async def _copy_file(loop: Loop, file: LogFile, shard: int, copies: NewTree, point: RestorePoint) -> LogFile:
    """Copy a log file, the last one up to the end; return the copy."""
    data, end = memoryview(await read_file(loop.files, file.path)), point.ends[shard]
    if file.number == end.file_no:
        data = data[: end.offset]
    if point.is_once and any(header.written_ms > point.at_ms for _begin, header in batches_in(data, file)):
        raise UsageError(
            f"is {time_text(point.at_ms)}, and {file.path} has later times before it, since the clock was set back: "
            "name another time",
            "at",
        )
    size = align_up(len(data), BLOCK_BYTES)
    path = await copies.place(_name(shard, file.number))
    await write_new_file(loop.files, path, data, bytes(size - len(data)))
    return file._replace(path=path, size=size)


async def _end_by(loop: Loop, used: list[LogFile], at_ms: int) -> RestoredEnd:
    """Return the end of the last batch that was written by a time.

    Those before it count, too, also if they have a later time: the clock was set back then.
    """
    for file in reversed(used):
        end = 0
        data = memoryview(await read_file(loop.files, file.path))[: file.size]
        for begin, header in batches_in(data, file):
            if header.written_ms <= at_ms:
                end = begin + BATCH_HEADER_BYTES + header.body_bytes
        if end:
            return RestoredEnd(file.number, end)
    return RestoredEnd(used[0].number, WAL_FIRST_BATCH_OFFSET)


def _sound_batch(data: bytes, file: LogFile, batch_no: int) -> BatchHeader | None:
    """Return the header of a batch in a file; None if it is not there, or damaged."""
    for begin, header in batches_in(data, file):
        body_at = begin + BATCH_HEADER_BYTES
        if header.batch_no == batch_no and header.is_sound(data[body_at : body_at + header.body_bytes]):
            return header
    return None


Take = Callable[[str, VerifiedBatches], None]


async def scan_after(
    loop: Loop, timeline: Timeline, span: LogSpan, take: Take, ends: Mapping[int, RestoredEnd] = MappingProxyType({})
) -> None:
    """Call `take` with the log of a span of which its base does not know, and with some before it.

    What was copied and not noted, and what was copied in a hole after the span, counts, too, and is
    no damage where it ends.

    ends: of shards of which what is before is not needed.
    Raises: CorruptError, FormatError, OSError.
    """
    for shard, number in span.base.first_log_files.items():
        begins_no = ends[shard].file_no if shard in ends else number
        used = span.up_to_later(shard, await survey(loop, timeline.path, shard, begins_no))
        hole = span.part.hole
        unbroken = used if hole is None else files_before_hole(used, shard, hole)
        try:
            await scan(loop, unbroken, take)
        except (CorruptError, FileNotFoundError):  # a server may copy or remove what is not noted
            noted = noted_files(unbroken, timeline.note.shards.get(shard))
            if noted == unbroken:
                raise
            await scan(loop, noted, take)
        await _scan_each(loop, used[len(unbroken) :], take)


async def scan_without_base(loop: Loop, timeline: Timeline, take: Take) -> None:
    """Call `take` with all log of a timeline: its server was killed before it had a base.

    Raises: FormatError, OSError.
    """
    for name in await loop.files.to_thread(list_if_there, loop.files, f"{timeline.path}/{LOG}"):
        if name.startswith(_SHARD):
            await _scan_each(loop, await survey(loop, timeline.path, int(name.removeprefix(_SHARD)), 0), take)


async def _scan_each(loop: Loop, files: list[LogFile], take: Take) -> None:
    """Scan files between which some may be missing."""
    for file in files:
        with suppress(CorruptError, FileNotFoundError):
            await scan(loop, [file], take)
