"""Compares every checksum of an archive: those of its bases, and of the log after them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.archive.archived_log import archived_directory, scan, survey, survey_after_base
from topics.store.archive.timelines import Timeline, lacks_bases
from topics.store.archive.unbroken_log import Unbroken, unbroken_parts
from topics.store.backup.restore_backup import check_backup
from topics.store.format.log_format import FrameType
from topics.store.recovery.missing_batches import REMEDY
from topics.store.recovery.verified_batches import VerifiedBatches


class VerifiedTimelines(NamedTuple):
    """The result of comparing every checksum of the timelines of an archive."""

    files: int
    bytes: int
    records: int
    """Records of the log after the oldest base."""
    findings: list[str]
    """Damaged places, one sentence each."""


async def verify_timelines(loop: Loop, timelines: list[Timeline]) -> VerifiedTimelines:
    """Verify all bases, and the log from the oldest one on. Raises: OSError."""
    files = size = records = 0
    findings: list[str] = []
    for timeline in timelines:
        findings += timeline.findings
        for base in timeline.bases:
            try:
                damaged = await check_backup(loop, base.path)
            except FileNotFoundError as error:
                damaged = [f"{error.filename} is missing"]
            if damaged and lacks_bases(loop.files, [timeline._replace(bases=[base])]):
                continue  # the server has removed it
            findings += damaged
            files, size = files + len(base.manifest.files), size + base.manifest.size
        for part in unbroken_parts(timeline):
            found = await _verify_part(loop, timeline, part)
            files, size, records = files + found.files, size + found.bytes, records + found.records
            findings += found.findings
    return VerifiedTimelines(files, size, records, findings)


async def _verify_part(loop: Loop, timeline: Timeline, part: Unbroken) -> VerifiedTimelines:
    """Verify the log of a part from its first base on, or from the first that is still there."""
    for base in part.bases:
        found = [
            await _verify_log(loop, timeline, part, shard, number) for shard, number in base.first_log_files.items()
        ]
        all_of_it = VerifiedTimelines(
            sum(one.files for one in found),
            sum(one.bytes for one in found),
            sum(one.records for one in found),
            [finding for one in found for finding in one.findings],
        )
        if not (all_of_it.findings and lacks_bases(loop.files, [timeline._replace(bases=[base])])):
            return all_of_it
    return VerifiedTimelines(0, 0, 0, [])  # the server has removed all of it


async def _verify_log(loop: Loop, timeline: Timeline, part: Unbroken, shard: int, first_no: int) -> VerifiedTimelines:
    """Verify the log of a shard from a base to the end of the part, as a restore reads it."""
    directory = f"{timeline.path}/{archived_directory(shard)}"
    last_no = part.last_batch_no(shard)
    records = 0

    def count(_path: str, batches: VerifiedBatches) -> None:
        nonlocal records
        records += _records_in(batches)

    try:
        used = part.files(shard, await survey_after_base(loop, timeline.path, shard, first_no))
        replay = await scan(loop, used, count)
    except (CorruptError, FormatError, FileNotFoundError) as error:
        return await _each_file(loop, timeline, part, shard, first_no, error=error)
    findings = []
    if replay.last_batch_no < last_no:
        findings.append(f"{directory}: the log ends with batch {replay.last_batch_no}, and {last_no} was archived")
    return VerifiedTimelines(len(used), sum(file.size for file in used), records, findings)


async def _each_file(
    loop: Loop, timeline: Timeline, part: Unbroken, shard: int, first_no: int, *, error: Exception
) -> VerifiedTimelines:
    """Verify each log file of a part by itself, since damage ends a scan of all.

    error: of that scan; it is reported if no file is damaged by itself.
    """
    damaged: dict[int, str] = {}
    last_no = part.last_file_no(shard)

    def on_damage(number: int, each: CorruptError) -> None:
        if last_no is None or number <= last_no:
            damaged[number] = _sentence(each)

    try:
        used = part.files(shard, await survey(loop, timeline.path, shard, first_no, on_damage))
    except (FormatError, FileNotFoundError):
        return VerifiedTimelines(0, 0, 0, [_sentence(error)])
    records = 0

    def count(_path: str, batches: VerifiedBatches) -> None:
        nonlocal records
        records += _records_in(batches)

    end_no, end_file, end_path = 0, 0, ""
    for file in used:
        if end_no and file.header.first_batch_no > end_no + 1 and not damaged.keys() & range(end_file, file.number):
            damaged[end_file] = f"{end_path}: it ends with batch {end_no}, and {file.path} begins with a later one"
        end_file, end_path = file.number, file.path
        try:
            end_no = (await scan(loop, [file], count)).last_batch_no
        except (CorruptError, FormatError, FileNotFoundError) as each:
            damaged[file.number] = _sentence(each)
            end_no = 0
    if first_no not in damaged and (not used or used[0].number != first_no):
        damaged[first_no] = _sentence(error)
    findings = [damaged[number] for number in sorted(damaged)] or [_sentence(error)]
    looked = len({file.number for file in used} | damaged.keys())
    return VerifiedTimelines(looked, sum(file.size for file in used), records, findings)


def _records_in(batches: VerifiedBatches) -> int:
    return int(np.count_nonzero(batches.frames["type"] == FrameType.RECORD))


def _sentence(error: Exception) -> str:
    return str(error).removesuffix(f". {REMEDY}")
