"""Removes from an archive what no restore to a recent time needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, read_note, timeline_names
from topics.store.archive.archived_log import archived_directory
from topics.store.backup.backup_files import remove_durably, remove_leftovers
from topics.store.backup.backup_manifest import BackupManifest, backup_names, read_manifest
from topics.store.disk.whole_files import list_if_there, unlink_if_there
from topics.store.format.log_format import wal_file_no

log = logging.getLogger(__name__)


async def remove_old_timelines(loop: Loop, current: str, line: str, before_ms: int) -> None:
    """Remove timelines of a line that end before a time, except the current one.

    Others are of other servers, which may be down for longer than this one keeps. One without a
    time stays: it has just begun, or it is a joint one, whose cores have notes of their own.
    Raises: StorageError, OSError.
    """
    archive = os.path.dirname(current)
    await remove_leftovers(loop.files, archive)
    for name in await loop.files.to_thread(timeline_names, loop.files, archive):
        timeline = f"{archive}/{name}"
        if timeline == current:
            continue
        # A damaged one is reported by a restore, and may be of another server.
        with suppress(CorruptError, FormatError):
            note = await read_note(loop.files, timeline)
            if note is not None and note.line == line and 0 < note.upto_ms < before_ms:
                log.info("%s is removed: it ends before what the archive keeps (TOPICS_ARCHIVE_RETAIN_MS)", timeline)
                await remove_durably(loop.files, timeline)


async def remove_old(loop: Loop, timeline: str, before_ms: int, retain_ms: int = 0, apart_ms: int = 0) -> int | None:
    """Remove bases that no restore to a time from `before_ms` on needs, and the log before them.

    retain_ms, apart_ms: how old a base is by those after it, too, and how far apart they are made.
    Return: Unix ms of the first base that is kept as of then; None: all of them are kept.
    Raises: StorageError, OSError.
    """
    files, root = loop.files, f"{timeline}/{BASES}"
    await remove_leftovers(files, root)
    names = await files.to_thread(backup_names, files, root)
    manifests: dict[str, BackupManifest] = {}
    for name in names:
        # A damaged one is kept as long as others of its age.
        with suppress(CorruptError, FileNotFoundError):
            manifests[name] = await read_manifest(files, f"{root}/{name}")
    kept = _first_kept(manifests, before_ms, retain_ms, apart_ms)
    if kept is None:
        return None
    kept_ms = manifests[kept].taken_ms
    first_files = manifests[kept].first_log_files
    # A base of before the clock was set back may have a later time; its log is removed.
    old = [*names[: names.index(kept)], *(name for name in manifests if _is_before(manifests[name], first_files))]
    if not old:
        return kept_ms
    for name in dict.fromkeys(old):
        log.info("%s/%s is removed: the archive keeps a newer base (TOPICS_ARCHIVE_RETAIN_MS)", root, name)
        await remove_durably(files, f"{root}/{name}")
    for shard, first in first_files.items():
        directory = f"{timeline}/{archived_directory(shard)}"
        for name in await files.to_thread(list_if_there, files, directory):
            number = wal_file_no(name)
            if number is not None and number < first:
                await unlink_if_there(files, f"{directory}/{name}")
    return kept_ms


def _first_kept(bases: Mapping[str, BackupManifest], before_ms: int, retain_ms: int, apart_ms: int) -> str | None:
    """Return the newest base before the time that is as old by the bases after it.

    A clock that is ahead makes all bases look old, and it may be set right later. So the time from
    one base to the next counts up to `apart_ms` only, and one more is kept if it was longer.
    """
    age_ms, is_ahead, later_ms = 0, False, 0
    for name in reversed(list(bases)):
        taken_ms = bases[name].taken_ms
        gap_ms = max(0, later_ms - taken_ms)  # 0 if a clock was set back
        is_ahead = is_ahead or gap_ms > apart_ms + apart_ms // 4
        age_ms += min(gap_ms, apart_ms) if apart_ms else gap_ms
        if taken_ms <= before_ms and age_ms >= retain_ms + (apart_ms if is_ahead else 0):
            return name
        later_ms = taken_ms
    return None


def _is_before(base: BackupManifest, first_files: Mapping[int, int]) -> bool:
    """Return whether the log after a base begins before these files."""
    return any(number < first_files.get(shard, 0) for shard, number in base.first_log_files.items())
