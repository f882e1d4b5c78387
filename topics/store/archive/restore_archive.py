"""The part of a restore that is about an archive: which base, and which part of the log.

The log is replayed on the newest base before the time. It ends there with the last batch that was
written by then, in every shard, as after a power cut at that time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from topics.errors import CorruptError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, LOG, ArchiveNote, Hole, read_note, timeline_names
from topics.store.archive.archived_log import archived_directory, scan, survey, survey_after_base
from topics.store.backup.backup_files import NOTE_NAME, NewTree
from topics.store.backup.backup_manifest import BackupManifest, backup_names, read_manifest
from topics.store.backup.restore_backup import copy_backup
from topics.store.disk.whole_files import list_if_there, read_file, write_new_file
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    BLOCK_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    BatchHeader,
    FrameType,
    align_up,
    shard_directory,
    wal_file_name,
)
from topics.store.format.segment_format import MARKER_NAME
from topics.store.recovery.log_replay import REMEDY, LogFile, VerifiedBatches

_REMEDY = "Restore to an earlier time; `topics verify` shows all damage"
END = 1 << 62
"""The time of a restore to the end of the archive."""


class Base(NamedTuple):
    """A backup in an archive."""

    path: str
    manifest: BackupManifest


class Timeline(NamedTuple):
    """The archived log of one data directory."""

    path: str
    note: ArchiveNote
    bases: list[Base]
    """The backups whose log is archived, too, oldest first."""
    findings: list[str]
    """Backups that are damaged, one sentence each. An older one, with more of the log, is used."""


class RestoredEnd(NamedTuple):
    """The end of the part of a shard that is restored."""

    shard: int
    file_no: int
    offset: int


class RestorePoint(NamedTuple):
    """The base of a restore, and the time that it leads to."""

    timeline: Timeline
    base: Base
    at_ms: int
    record_end: RestoredEnd | None = None
    """For a restore up to a record, the end of its shard; that of other shards is the time."""


async def find_timelines(loop: Loop, path: str) -> list[Timeline]:
    """Return the timelines of an archive in the order of their ends, or the one that `path` is.

    In any other directory there are none.

    Raises: CorruptError, FormatError, OSError.
    """
    files = loop.files
    if NOTE_NAME in list_if_there(files, path):
        paths = [path.rstrip("/")]
    else:
        paths = [f"{path}/{name}" for name in timeline_names(files, path)]
    found = []
    for timeline in paths:
        root, note = f"{timeline}/{BASES}", await read_note(files, timeline)
        bases, findings = list[Base](), list[str]()
        for name in backup_names(files, root):
            try:
                bases.append(Base(f"{root}/{name}", await read_manifest(files, f"{root}/{name}")))
            except CorruptError as error:
                findings.append(str(error))
            except FileNotFoundError as error:
                findings.append(f"{error.filename} is missing: its backup cannot be used")
        if note is None and bases:
            path = f"{timeline}/{NOTE_NAME}"
            raise StorageError(f"{path} is missing: name another timeline, or restore one of {root}, as a backup")
        note = note or ArchiveNote()
        bases = [base for base in bases if base.manifest.taken_ms <= note.upto_ms]
        found.append(Timeline(timeline, note, bases, findings))
    return sorted(found, key=lambda timeline: timeline.note.upto_ms)


def point_at(timelines: list[Timeline], at_ms: int) -> RestorePoint:
    """Return the base and the timeline for a restore to a time; END is the newest one.

    Raises: UsageError, there is none, with the times that there are.
    """
    with_bases = [timeline for timeline in timelines if timeline.bases]
    if not with_bases:
        raise UsageError("the archive has no base yet: the server makes one after its start, if it can")
    later_ms = None
    for timeline in reversed(with_bases):
        begins_ms, end_ms = timeline.bases[0].manifest.taken_ms, end_of(timeline)
        wanted_ms = end_ms if at_ms == END else at_ms
        if begins_ms <= wanted_ms <= end_ms:
            for hole in timeline.note.holes:
                _check_outside(hole, wanted_ms)
            base = next(base for base in reversed(timeline.bases) if base.manifest.taken_ms <= wanted_ms)
            # To the end: with what was written in the very ms in which the log was closed.
            is_whole = at_ms == END and timeline.note.open_hole is None
            return RestorePoint(timeline, base, END if is_whole else wanted_ms)
        if end_ms < wanted_ms:
            _check_outside(Hole(end_ms, later_ms), wanted_ms)
        later_ms = begins_ms
    raise UsageError(f"the archive begins at {_text(with_bases[0].bases[0].manifest.taken_ms)}: name a later time")


def line_of(timeline: Timeline) -> str:
    """Return the name of the first timeline of the line that a timeline is of."""
    return timeline.note.line or os.path.basename(timeline.path)


def check_one_line(path: str, timelines: list[Timeline]) -> None:
    """Check that the timelines are of one line. Raises: UsageError, with the timelines."""
    if len({line_of(timeline) for timeline in timelines if timeline.bases}) > 1:
        listed = ", ".join(f"{timeline.path} (up to {_text(end_of(timeline))})" for timeline in timelines)
        raise UsageError(f"{path} has the logs of several servers: name a timeline of one of them: {listed}")


def end_of(timeline: Timeline) -> int:
    """Return the newest time of a timeline."""
    hole = timeline.note.open_hole
    return hole.from_ms if hole is not None else timeline.note.upto_ms


def _check_outside(hole: Hole, at_ms: int) -> None:
    """Check that a time is not in a hole. Raises: UsageError."""
    if hole.from_ms < at_ms and (hole.to_ms is None or at_ms < hole.to_ms):
        before = f"at is {_text(at_ms)}, which is not in the archive: name {_text(hole.from_ms)} or earlier"
        raise UsageError(before if hole.to_ms is None else f"{before}, or {_text(hole.to_ms)} or later")


def _text(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.}{ms % 1000:03}Z"


async def copy_point(loop: Loop, point: RestorePoint, target: str) -> None:
    """Make a data directory of a point, durably except for its name. `target` must not exist.

    The directory gets the newest format, because the log may have what the base has not.
    Raises: CorruptError, the base or the log is damaged; FormatError; OSError.
    """

    def wants(path: str) -> bool:
        return path != MARKER_NAME and not path.startswith("wal/")

    await copy_backup(loop, point.base.path, target, wants=wants)
    copies = NewTree(loop.files, target)
    for shard, number in point.base.manifest.first_log_files.items():
        try:
            used = await survey_after_base(loop, point.timeline.path, shard, number)
            end = point.record_end
            if end is None or end.shard != shard:
                end = await _end_by(loop, used, point, shard)
            chosen = [file for file in used if file.number <= end.file_no]
            made = [await _copy_file(loop, file, _name(shard, file.number), copies, end) for file in chosen]
            replay = await scan(loop, made, lambda _path, _batches: None)
        except CorruptError as error:
            found = str(error).replace(f"{target}/wal/", f"{point.timeline.path}/{LOG}/").removesuffix(REMEDY)
            raise CorruptError(f"{found}{_REMEDY}", error.detail) from error
        if replay.cuts:
            cut = replay.cuts[0]
            path = cut.path.replace(f"{target}/wal/", f"{point.timeline.path}/{LOG}/")
            message = f"{path}: damaged at byte {cut.offset}, or a file before it is missing. {_REMEDY}"
            raise CorruptError(message, {"path": path})
        if end is not point.record_end:
            await _check_end(loop, point, shard, used[len(chosen) - 1 :], replay.last_batch_no)
    await copies.sync()


async def _check_end(loop: Loop, point: RestorePoint, shard: int, files: list[LogFile], last_batch_no: int) -> None:
    """Check that a shard's log ends with this batch at the point, and not because more is damaged.

    It does if no more was archived, or if the next batch is sound and was written later.
    files: the one with the last batch, and those after it.
    Raises: CorruptError, OSError.
    """
    timeline = point.timeline
    archived_no = timeline.note.last_batch_no(shard, min(point.at_ms, end_of(timeline)))
    if last_batch_no >= archived_no:
        return
    for file in files:
        if file.header.first_batch_no <= last_batch_no + 1:
            header = _sound_batch(await read_file(loop.files, file.path), file, last_batch_no + 1)
            if header is not None and header.written_ms > point.at_ms:
                return
    where = f"{timeline.path}/{archived_directory(shard)}"
    raise CorruptError(
        f"{where}: batch {last_batch_no + 1} of the log is damaged or missing, and {archived_no} were archived. "
        f"{_REMEDY}",
        {"path": where},
    )


def until(used: list[LogFile], at_ms: int) -> list[LogFile]:
    """Return the files before the first one that was begun after a time."""
    later = next((at for at, file in enumerate(used) if file.header.created_ms > at_ms), len(used))
    return used[: max(later, 1)]


def _name(shard: int, number: int) -> str:
    return f"{shard_directory(shard)}/{wal_file_name(number)}"


async def _copy_file(loop: Loop, file: LogFile, name: str, copies: NewTree, end: RestoredEnd) -> LogFile:
    """Copy a log file, the last one up to the end; return the copy."""
    data = memoryview(await read_file(loop.files, file.path))
    if file.number == end.file_no:
        data = data[: end.offset]
    size = align_up(len(data), BLOCK_BYTES)
    path = await copies.place(name)
    await write_new_file(loop.files, path, data, bytes(size - len(data)))
    return file._replace(path=path, size=size)


async def _end_by(loop: Loop, used: list[LogFile], point: RestorePoint, shard: int) -> RestoredEnd:
    """Return the end of the last batch that was written by the time, and is before the noted end.

    Those before it count, too, also if they have a later time: the clock was set back then. What
    was copied after the noted end was not synced, and may be cut off.
    """
    noted = point.timeline.note.shards.get(shard) if point.record_end is None else None
    for file in reversed(used):
        end = 0
        data = memoryview(await read_file(loop.files, file.path))
        if noted is not None and file.number >= noted.file_no:
            data = data[: noted.size if file.number == noted.file_no else 0]
        for begin, header in _batches(data, file):
            if header.written_ms <= point.at_ms:
                end = begin + BATCH_HEADER_BYTES + header.body_bytes
        if end:
            return RestoredEnd(shard, file.number, end)
    return RestoredEnd(shard, used[0].number, WAL_FIRST_BATCH_OFFSET)


def _sound_batch(data: bytes, file: LogFile, batch_no: int) -> BatchHeader | None:
    """Return the header of a batch in a file; None if it is not there, or damaged."""
    for begin, header in _batches(data, file):
        body_at = begin + BATCH_HEADER_BYTES
        if header.batch_no == batch_no and header.is_sound(data[body_at : body_at + header.body_bytes]):
            return header
    return None


def _batches(data: bytes | memoryview, file: LogFile) -> list[tuple[int, BatchHeader]]:
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


class WantedRecord(NamedTuple):
    """The last record of a restore."""

    topic: str
    topic_id: int
    """The id of the topic in the base; 0 if only one that was created later counts."""
    seq: int


class Copied(Protocol):
    """Seqs that one frame states beside its own, such as `CopiedSeqs` of known_seqs.py."""

    @property
    def frame(self) -> int: ...
    @property
    def topic_id(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


class _Created(msgspec.Struct):
    """The part of a creation's payload that is used."""

    name: str


async def find_record(
    loop: Loop,
    timeline: Timeline,
    number: int,
    wanted: WantedRecord,
    copied_seqs: Callable[[VerifiedBatches], Sequence[Copied]],
) -> RestorePoint | None:
    """Return the point right after a record was written; None if it was not between two bases.

    Of a topic that was deleted and created again it is the newest record with this seq.
    number: of the base before it, in the timeline. copied_seqs: returns the seqs of records that
    have no frame of their own, since a router copied them.

    Raises: CorruptError, FormatError, OSError.
    """
    base = timeline.bases[number]
    later = timeline.bases[number + 1 : number + 2]
    before_ms = later[0].manifest.taken_ms if later else END
    ids = {wanted.topic_id} - {0}
    found: list[tuple[str, int]] = []

    def take(path: str, batches: VerifiedBatches) -> None:
        frames = batches.frames
        for at in np.flatnonzero(frames["type"] == FrameType.TOPIC_CREATE).tolist():
            if msgspec.json.decode(batches.payload(at), type=_Created).name == wanted.topic:
                ids.add(int(frames["topic_id"][at]))
        is_it = (
            (frames["type"] == FrameType.RECORD)
            & (frames["seq"] == wanted.seq)
            & np.isin(frames["topic_id"], list(ids))
        )
        for copied in copied_seqs(batches):
            is_it[copied.frame] |= copied.topic_id in ids and copied.first <= wanted.seq <= copied.last
        found.extend((path, int(frames["offset"][at])) for at in np.flatnonzero(is_it).tolist())

    for shard, first_no in base.manifest.first_log_files.items():
        used = until(await survey(loop, timeline.path, shard, first_no), before_ms)
        try:
            await scan(loop, used, take)
        except CorruptError:
            if not found:
                raise
        if not found:
            continue
        path, offset = found[-1]
        file = next(file for file in used if file.path == path)
        data = await read_file(loop.files, path)
        begin, header = [batch for batch in _batches(data, file) if batch[0] <= offset][-1]
        end = RestoredEnd(shard, file.number, begin + BATCH_HEADER_BYTES + header.body_bytes)
        for hole in timeline.note.holes:
            _check_outside(hole, header.written_ms)
        return RestorePoint(timeline, base, header.written_ms, end)
    return None


async def scan_after(loop: Loop, point: RestorePoint, take: Callable[[str, VerifiedBatches], None]) -> None:
    """Call `take` with the log that a restore leaves out, and with some before it.

    Raises: CorruptError, FormatError, OSError.
    """
    for shard, number in point.base.manifest.first_log_files.items():
        used = await survey(loop, point.timeline.path, shard, number)
        if used:
            after = used[len(until(used, point.at_ms)) - 1 :]
            for unbroken in _split(after, point.timeline.note.batch_nos_before_holes(shard)):
                await scan(loop, unbroken, take)


def _split(files: list[LogFile], last_batch_nos: list[int]) -> list[list[LogFile]]:
    """Return files in parts without a hole. last_batch_nos: of the last batch before each hole."""
    parts = []
    for last_batch_no in last_batch_nos:
        before = [file for file in files if file.header.first_batch_no <= last_batch_no]
        parts.append(before)
        files = files[len(before) :]
    return [part for part in (*parts, files) if part]
