"""The timelines of an archive, with their bases, and the times of each."""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from topics.common.values.time_texts import time_text
from topics.errors import CorruptError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, ArchiveNote, read_note, timeline_names
from topics.store.archive.joint_timeline import core_places, is_joint
from topics.store.backup.backup_files import NOTE_NAME, is_timeline_name
from topics.store.backup.backup_manifest import BackupManifest, backup_names, read_manifest
from topics.store.disk.whole_files import FileCalls, list_if_there


class Base(NamedTuple):
    """A backup in an archive."""

    path: str
    manifest: BackupManifest
    first_log_files: dict[int, int]
    """By shard, the number of the log file with which a replay begins."""


class Timeline(NamedTuple):
    """The archived log of one data directory."""

    path: str
    note: ArchiveNote
    bases: list[Base]
    """The backups whose log is archived, too, oldest first."""
    findings: list[str]
    """Backups that are damaged, one sentence each. An older one, with more of the log, is used."""


async def find_timelines(loop: Loop, path: str, *, has_files: bool = True) -> list[Timeline]:
    """Return the timelines of an archive in the order of their begins, or the one that `path` is.

    In any other directory there are none.

    has_files: whether the manifests of bases have their files, which take much memory.
    Raises: CorruptError, FormatError, OSError.
    """
    files, found = loop.files, []
    for timeline in await files.to_thread(_paths, files, path):
        note = await read_note(files, timeline)
        bases, findings = await _read_bases(files, timeline, has_files=has_files)
        if note is None and bases:
            raise StorageError(
                f"{timeline}/{NOTE_NAME} is missing: name another timeline, or restore one of {timeline}/{BASES}, as "
                "a backup"
            )
        note = note or ArchiveNote()
        found.append(Timeline(timeline, note, noted_bases(bases, note), findings))
    return found


def is_timeline(files: FileCalls, path: str) -> bool:
    """Return whether a directory is one timeline, not an archive. Its note may be missing."""
    names = list_if_there(files, path)
    return NOTE_NAME in names or (BASES in names and is_timeline_name(os.path.basename(os.path.realpath(path))))


def _paths(files: FileCalls, path: str) -> list[str]:
    """Return the paths of the timelines of an archive, or of the one that `path` is.

    Those of cores are in the place of their joint one.
    """
    path = path.rstrip("/")
    if cores := core_places(files, path):
        return [f"{core}/{name}" for core in cores for name in timeline_names(files, core)]
    if is_timeline(files, path):
        return [path]
    found = []
    for name in timeline_names(files, path):
        below = f"{path}/{name}"
        if not is_joint(below, list_if_there(files, below)):
            found.append(below)
        elif core_places(files, below):  # else no core has anything yet
            found += _paths(files, below)
    return found


async def timelines_beside(loop: Loop, path: str) -> tuple[list[Timeline], list[str]]:
    """Return all timelines of the archive that a timeline is in, and the damage of their notes.

    They are for the seqs that they state, which bases and log do without a note.
    Raises: FormatError, OSError.
    """
    return await damaged_timelines(loop, os.path.dirname(os.path.abspath(path)))


async def damaged_timelines(loop: Loop, path: str, *, has_files: bool = True) -> tuple[list[Timeline], list[str]]:
    """Return what `find_timelines` does, and the damage of notes.

    One that is damaged or missing is reported, and all bases of its timeline count.
    Raises: FormatError, OSError.
    """
    files = loop.files
    found, damaged = list[Timeline](), list[str]()
    for timeline in await files.to_thread(_paths, files, path):
        note, flaw = None, ""
        try:
            note = await read_note(files, timeline)
        except CorruptError as error:
            flaw = str(error)
        bases, findings = await _read_bases(files, timeline, has_files=has_files)
        if flaw or (note is None and bases):
            missing = f"{timeline}/{NOTE_NAME} is missing: name another timeline, or one of its {BASES} as a backup"
            damaged.append(flaw or missing)
        if note is not None:
            bases = noted_bases(bases, note)
        found.append(Timeline(timeline, note or ArchiveNote(), bases, findings))
    return found, damaged


def lacks_bases(files: FileCalls, timelines: list[Timeline]) -> bool:
    """Return whether a base was removed since the timelines were looked at, as retention does."""
    return any(not is_there(files, base) for timeline in timelines for base in timeline.bases)


def is_there(files: FileCalls, part: Timeline | Base) -> bool:
    """Return whether a timeline or a base was not removed since it was looked at."""
    return _is_there(files, part.path)


def _is_there(files: FileCalls, path: str) -> bool:
    return os.path.basename(path) in list_if_there(files, os.path.dirname(path))


async def _read_bases(files: FileCalls, timeline: str, *, has_files: bool = True) -> tuple[list[Base], list[str]]:
    """Return the backups of a timeline, oldest first, and what is damaged of them.

    has_files: as of `find_timelines`.
    """
    root, bases, findings = f"{timeline}/{BASES}", list[Base](), list[str]()
    for name in await files.to_thread(backup_names, files, root):
        try:
            manifest = await read_manifest(files, f"{root}/{name}")
            first_files = manifest.first_log_files
            if not has_files:
                manifest = msgspec.structs.replace(manifest, files=[])
            bases.append(Base(f"{root}/{name}", manifest, first_files))
        except CorruptError as error:
            findings.append(str(error))
        except FileNotFoundError as error:
            is_damaged = await files.to_thread(_is_there, files, f"{root}/{name}")
            if is_damaged:  # else it was removed just now
                findings.append(f"{error.filename} is missing: its backup cannot be used")
    return bases, findings


def noted_bases(bases: list[Base], note: ArchiveNote) -> list[Base]:
    """Return those bases whose log the note states, too."""

    def is_noted(base: Base) -> bool:
        ends = note.shards
        return base.manifest.taken_ms <= note.upto_ms and all(
            shard in ends and number <= ends[shard].file_no for shard, number in base.first_log_files.items()
        )

    return [base for base in bases if is_noted(base)]


def line_of(timeline: Timeline) -> str:
    """Return the name of the first timeline of the line that a timeline is of."""
    return timeline.note.line or os.path.basename(timeline.path)


def of_other_lines(timelines: list[Timeline], line: str) -> list[Timeline]:
    """Return those timelines that are of another line.

    A note that names none is damaged, and its timeline may be of this one.
    """
    return [timeline for timeline in timelines if timeline.note.line not in {line, ""}]


def check_one_line(path: str, timelines: list[Timeline]) -> None:
    """Check that the timelines are of one line. Raises: UsageError, with the timelines."""
    if len({line_of(timeline) for timeline in timelines if timeline.bases}) > 1:
        listed = ", ".join(f"{timeline.path} (up to {time_text(end_of(timeline))})" for timeline in timelines)
        raise UsageError(f"{path} has the logs of several servers: name a timeline of one of them: {listed}")


def end_of(timeline: Timeline) -> int:
    """Return the newest time of a timeline."""
    hole = timeline.note.open_hole
    return hole.from_ms if hole is not None else timeline.note.upto_ms
