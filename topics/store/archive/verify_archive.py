"""Compares every checksum of an archive: those of its bases, and of the log after them."""

from __future__ import annotations

from typing import NamedTuple

from topics.errors import CorruptError
from topics.loop.loop import Loop
from topics.store.archive.archived_log import archived_directory, scan, survey
from topics.store.archive.restore_archive import Base, Timeline
from topics.store.backup.restore_backup import check_backup


class VerifiedTimelines(NamedTuple):
    """The result of comparing every checksum of the timelines of an archive."""

    files: int
    bytes: int
    frames: int
    """Frames of the log."""
    findings: list[str]
    """Damaged places, one sentence each."""


async def verify_timelines(loop: Loop, timelines: list[Timeline]) -> VerifiedTimelines:
    """Verify all bases, and the log from the oldest one on. Raises: FormatError, OSError."""
    files = size = frames = 0
    findings: list[str] = []
    for timeline in timelines:
        findings += timeline.findings
        for base in timeline.bases:
            findings += [str(error) for error in await check_backup(loop, base.path)]
            files, size = files + len(base.manifest.files), size + base.manifest.size
        for begin, is_last in _beginnings(timeline):
            for shard, number in begin.manifest.first_log_files.items():
                used = await survey(loop, timeline.path, shard, number)
                try:
                    replay = await scan(loop, used, lambda _path, _batches: None)
                except CorruptError as error:
                    if is_last:
                        findings.append(str(error))
                    continue
                frames += replay.frames
                end = timeline.note.shards.get(shard)
                if is_last and end is not None and replay.last_batch_no < end.batch_no:
                    where = f"{timeline.path}/{archived_directory(shard)}"
                    findings.append(
                        f"{where}: the log ends with batch {replay.last_batch_no}, and {end.batch_no} was archived"
                    )
                if is_last:
                    files, size = files + len(used), size + sum(file.size for file in used)
    return VerifiedTimelines(files, size, frames, findings)


def _beginnings(timeline: Timeline) -> list[tuple[Base, bool]]:
    """Return the bases before which the log is not whole, and whether it is whole from there on."""
    holes = [hole for hole in timeline.note.holes if hole.to_ms is not None]
    firsts = [0, *(hole.to_ms or 0 for hole in holes)]
    found = [next((base for base in timeline.bases if base.manifest.taken_ms >= first), None) for first in firsts]
    bases = [base for base in found if base is not None]
    return [(base, base is bases[-1] and timeline.note.open_hole is None) for base in bases]
