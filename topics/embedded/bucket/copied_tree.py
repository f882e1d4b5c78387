"""The parts of a directory of backups or an archive, in the order in which they are copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from topics.embedded.bucket.copied_parts import BackupPart, JointPart, LogFilePart, LogPart, opened_file, read_text
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import BASES, REMEDY, OfCore, unpack_note
from topics.store.archive.archived_log import archived_directory
from topics.store.archive.joint_timeline import core_place, is_joint, is_just_begun
from topics.store.backup.backup_files import NOTE_NAME, is_timeline_name
from topics.store.backup.backup_logs import log_id_in
from topics.store.backup.backup_manifest import MANIFEST_NAME, backup_age, is_backup_name
from topics.store.cores.slot_map_file import StoredMap
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.format.log_format import BLOCK_BYTES, align_up, wal_file_no


class Tree(NamedTuple):
    """A part after which the bucket can restore more than before: a backup, or a timeline.

    If it is of several cores, the bucket needs a timeline of each. Their slot map comes first.
    """

    backups: list[BackupPart]
    log: LogPart | None
    joint: JointPart | None = None


def copied_trees(source: str) -> Iterator[Tree]:
    """Yield what a directory has: backups newest first, or timelines oldest first.

    Each is looked at when its turn comes. The note of a timeline is read before its bases are
    listed: a base that a note relies on is there before the note.
    Raises: UsageError, there is nothing to copy; CorruptError; FormatError; FileNotFoundError, a
        part was removed meanwhile; OSError.
    """
    names = _names(source)
    own = os.path.basename(os.path.abspath(source))
    _check_all_cores(source)
    if MANIFEST_NAME in names:
        yield Tree([_backup(own, source)], None)
    elif NOTE_NAME in names or any(core_place(f"{own}/{name}") is not None for name in names):
        yield from _timelines(own, source)
    elif timelines := sorted(filter(is_timeline_name, names)):
        if backups := sorted(filter(is_backup_name, names)):
            mixed = f"{source} has backups, such as {backups[-1]}, and a log, {timelines[-1]}"
            raise UsageError(f"{mixed}: name one of them")
        for name in timelines:
            yield from _timelines(name, f"{source}/{name}")
    elif backups := sorted(filter(is_backup_name, names), key=backup_age, reverse=True):
        _check_one_log(source, backups)
        yield from (Tree([_backup(name, f"{source}/{name}")], None) for name in backups)
    else:
        raise UsageError(
            f"is {source!r}, and there is no backup and no archive in it: name the directory of one", "source"
        )


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []


def _check_one_log(source: str, names: list[str]) -> None:
    """names: backups, newest first. Raises: UsageError, with the newest of each log; OSError."""
    newest: dict[str, str] = {}
    for name in names:
        newest.setdefault(log_id_in(BackupPart(name, f"{source}/{name}", "").marker), name)
    newest.pop("", None)
    if len(newest) > 1:
        listed = ", ".join(f"{source}/{name}" for name in sorted(newest.values()))
        raise UsageError(f"{source} has the backups of several logs: name a backup of one of them: {listed}")


def _backup(path: str, directory: str) -> BackupPart:
    return BackupPart(path, directory, read_text(f"{directory}/{MANIFEST_NAME}"))


def _check_all_cores(source: str) -> None:
    """Raises: UsageError, it is of one of several cores."""
    at = os.path.realpath(source)
    while at != "/":
        if core_place(at) is not None:
            raise _of_one(source, os.path.dirname(at))
        at = os.path.dirname(at)


def _of_one(part: str, whole: str) -> UsageError:
    return UsageError(f"is {part!r}, a part of {whole}, which has all cores: name that", "source")


def _timelines(path: str, directory: str) -> Iterator[Tree]:
    """Yield a timeline, or of a joint one the slot map, and then the timelines of all its cores."""
    names = sorted(os.listdir(directory))
    if not is_joint(path, names):
        yield _timeline(path, directory)
        return
    if not is_timeline_name(path):
        remedy = "give it the name that it had in its archive, such as 2026-11-27T12-13-14Z-5f3a9c01"
        raise UsageError(f"is {directory!r}, of several cores, which no restore finds by this name: {remedy}", "source")
    if is_just_begun(_names, directory):
        yield Tree([], None)
        return
    if NOTE_NAME not in os.listdir(directory):
        path = f"{directory}/{NOTE_NAME}"
        raise CorruptError(f"{path} is missing, which is there before a base of core 0. {REMEDY}", {"path": path})
    cores = [name for name in names if core_place(f"{path}/{name}") is not None]
    below = [(name, each) for name in cores for each in sorted(os.listdir(f"{directory}/{name}"))]
    timelines = [f"{name}/{each}" for name, each in below if is_timeline_name(each)]
    yield Tree([], None, _joint(path, directory))
    for each in timelines:
        yield _timeline(f"{path}/{each}", f"{directory}/{each}")
        # Else retention has removed it meanwhile, and a log that is missing is not a new one.
        os.stat(f"{directory}/{NOTE_NAME}")


def _joint(path: str, directory: str) -> JointPart:
    """Raises: CorruptError, it is damaged; FormatError; OSError."""
    of_map = f"{directory}/{SLOT_MAP_NAME}"
    try:
        with opened_file(of_map) as opened:
            data = opened.read()
    except FileNotFoundError:
        raise CorruptError(f"{of_map} is missing, which says what each core owns. {REMEDY}", {"path": of_map}) from None
    text = read_text(f"{directory}/{NOTE_NAME}")
    unpack_note(text.encode(), f"{directory}/{NOTE_NAME}")
    return JointPart(path, text, data, StoredMap.unpack(data, of_map))


def _timeline(path: str, directory: str) -> Tree:
    """Raises: UsageError, it is of one of several cores, and not in the place of that."""
    try:
        text = read_text(f"{directory}/{NOTE_NAME}")
    except FileNotFoundError:
        return Tree([], None)  # the server has just begun it
    note = unpack_note(text.encode(), f"{directory}/{NOTE_NAME}")
    if isinstance(note.of_core, OfCore) and core_place(os.path.dirname(path)) is None:
        raise _of_one(directory, "the archive that it was copied from")
    files: list[LogFilePart] = []
    for shard, end in note.shards.items():
        of_shard = f"{directory}/{archived_directory(shard)}"
        for name in sorted(_names(of_shard)):
            number = wal_file_no(name)
            if number is None or number > end.file_no:
                continue
            is_settled = number < end.file_no
            size = os.stat(f"{of_shard}/{name}").st_size if is_settled else end.size
            whole = size & -BLOCK_BYTES if is_settled else align_up(size, BLOCK_BYTES)
            files.append(LogFilePart(f"{archived_directory(shard)}/{name}", min(size, whole), whole, is_settled))
    bases = f"{directory}/{BASES}"
    found = sorted(filter(is_backup_name, _names(bases)), key=backup_age)
    backups = [_backup(f"{path}/{BASES}/{name}", f"{bases}/{name}") for name in found]
    return Tree(backups, LogPart(path, directory, text, note, files))
