"""The timelines of an archive, with their bases, and the times of each."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import NamedTuple

from topics.errors import CorruptError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, ArchiveNote, read_note, timeline_names
from topics.store.backup.backup_files import NOTE_NAME
from topics.store.backup.backup_manifest import BackupManifest, backup_names, read_manifest
from topics.store.disk.whole_files import list_if_there


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


def line_of(timeline: Timeline) -> str:
    """Return the name of the first timeline of the line that a timeline is of."""
    return timeline.note.line or os.path.basename(timeline.path)


def check_one_line(path: str, timelines: list[Timeline]) -> None:
    """Check that the timelines are of one line. Raises: UsageError, with the timelines."""
    if len({line_of(timeline) for timeline in timelines if timeline.bases}) > 1:
        listed = ", ".join(f"{timeline.path} (up to {time_text(end_of(timeline))})" for timeline in timelines)
        raise UsageError(f"{path} has the logs of several servers: name a timeline of one of them: {listed}")


def end_of(timeline: Timeline) -> int:
    """Return the newest time of a timeline."""
    hole = timeline.note.open_hole
    return hole.from_ms if hole is not None else timeline.note.upto_ms


def time_text(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.}{ms % 1000:03}Z"
