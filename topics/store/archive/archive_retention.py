"""Removes from an archive what no restore to a recent time needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from topics.errors import CorruptError, FormatError, StorageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, read_note, timeline_names
from topics.store.archive.archived_log import archived_directory
from topics.store.archive.joint_point import Range, joints_of
from topics.store.archive.joint_timeline import core_place, core_places
from topics.store.archive.timelines import Base, find_timelines
from topics.store.backup.backup_files import remove_durably, remove_leftovers
from topics.store.backup.backup_manifest import BackupManifest, backup_names, read_manifest
from topics.store.disk.whole_files import list_if_there, unlink_if_there
from topics.store.format.log_format import wal_file_no

log = logging.getLogger(__name__)


async def remove_old_timelines(loop: Loop, current: str, line: str, before_ms: int, *, has_joints: bool = True) -> None:
    """Remove timelines of a line that end before a time, except the current one.

    has_joints: whether joint ones, too.

    Others are of other servers, which may be down for longer than this one keeps. One that has
    nothing yet may have been begun just now.
    Raises: StorageError, OSError.
    """
    ends = await _ends_of_others(loop, current, line)
    if not has_joints:
        ends = {path: end_ms for path, end_ms in ends.items() if not await _cores_of(loop, path)}
    await _remove_ended(loop, ends, before_ms)


async def _remove_ended(loop: Loop, ends: Mapping[str, int], before_ms: int) -> None:
    """Remove timelines that end before a time. ends: Unix ms, by path."""
    for timeline, end_ms in ends.items():
        if end_ms < before_ms:
            log.info("%s is removed: it ends before what the archive keeps (TOPICS_ARCHIVE_RETAIN_MS)", timeline)
            await remove_durably(loop.files, timeline)


async def _ends_of_others(loop: Loop, current: str, line: str) -> dict[str, int]:
    """Return the newest times (Unix ms) of the other timelines of a line, by path."""
    archive, found = os.path.dirname(current), dict[str, int]()
    await remove_leftovers(loop.files, archive)
    for name in await loop.files.to_thread(timeline_names, loop.files, archive):
        timeline = f"{archive}/{name}"
        # A damaged one is reported by a restore, and may be of another server.
        with suppress(CorruptError, FormatError):
            if timeline != current and (end_ms := await _end_of(loop, timeline, line)):
                found[timeline] = end_ms
    return found


async def _end_of(loop: Loop, timeline: str, line: str) -> int:
    """Return the newest time (Unix ms) of a timeline of a line, or of any core of a joint one.

    0: it has none, or it is not known that it is of this line as a whole.
    Raises: CorruptError, FormatError, OSError.
    """
    files, ends = loop.files, list[int]()
    parts = [timeline]
    for core in await _cores_of(loop, timeline):
        parts += [f"{core}/{name}" for name in await files.to_thread(timeline_names, files, core)]
    for part in parts:
        note = await read_note(files, part)
        if note is None or note.line != line:
            return 0
        ends.append(note.upto_ms)
    return max(ends)


async def _cores_of(loop: Loop, timeline: str) -> list[str]:
    """Return the directories of the cores of a joint timeline; []: it is none."""
    return await loop.files.to_thread(core_places, loop.files, timeline)


async def kept_from(loop: Loop, archive_dir: str, before_ms: int) -> int | None:
    """Return the time (Unix ms) from which on restores are to be possible; None: remove nothing.

    Of several cores it is not after the newest time that all have. While one is down, or does not
    reach the archive, that time needs a base and the log of each.
    archive_dir: of the server, or of a core. before_ms: the oldest time to be kept, by the clock.
    Raises: OSError.
    """
    place = core_place(archive_dir)
    if place is None:
        return before_ms
    found = await _read_joint(loop, f"{place.archive}/{place.joint}")
    return None if found is None else min(before_ms, found.times[-1][1])


class _JointTimes(NamedTuple):
    """The bases and times of a joint timeline."""

    bases: list[list[Base]]
    """By core, those of its present timeline; their manifests have no files."""
    times: list[Range]
    """The times of all cores. There is one."""


async def _read_joint(loop: Loop, path: str) -> _JointTimes | None:
    """Return what a joint timeline has; None: not all can be read, or it has no time of all."""
    try:
        note = await read_note(loop.files, path)
        joints = await joints_of(loop, await find_timelines(loop, path, has_files=False))
    except StorageError:  # a restore says what is missing or damaged
        return None
    if note is None or not joints:
        return None
    # By all holes and bases of all cores, which may take longer than a pass of the loop.
    times = await loop.files.to_thread(getattr, joints[0], "times")
    return _JointTimes([timelines[-1].bases for timelines in joints[0].cores], times) if times else None


async def remove_old_joints(
    loop: Loop, of_core: str, line: str, before_ms: int, *, retain_ms: int, apart_ms: int
) -> None:
    """Remove timelines of before the joint one that cores have, once all of them lead back as far.

    Only core 0 does, by what all cores have in the archive.
    of_core: the archive of a core. before_ms, retain_ms, apart_ms: as of `remove_old`. Without a
        distance of bases nothing is removed: one base of a clock that is ahead made all look old.
    Raises: StorageError, OSError.
    """
    place = core_place(of_core)
    if place is None or place.core or not apart_ms:
        return
    joint = f"{place.archive}/{place.joint}"
    ends = await _ends_of_others(loop, joint, line)
    kept_ms = await _kept_by_all(loop, joint, before_ms, retain_ms, apart_ms) if ends else None
    if kept_ms is not None:
        await _remove_ended(loop, ends, kept_ms)


async def _kept_by_all(loop: Loop, joint: str, before_ms: int, retain_ms: int, apart_ms: int) -> int | None:
    """Return the earliest time (Unix ms) of the bases that are the first ones the cores keep.

    None: a core has none that is old enough, no time of all is, or not all can be read.
    """
    found = await _read_joint(loop, joint)
    if found is None or found.times[0][0] > before_ms:
        return None
    kept = list[int]()
    for of_core in found.bases:
        bases = {os.path.basename(base.path): base.manifest for base in of_core}
        name = _first_kept(bases, before_ms, retain_ms, apart_ms)
        if name is None:
            return None
        kept.append(bases[name].taken_ms)
    return min(kept)


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
    old = [*names[: names.index(kept)], *(name for name in manifests if begins_before(manifests[name], first_files))]
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


def begins_before(base: BackupManifest, first_files: Mapping[int, int]) -> bool:
    """Return whether the log after a base begins before these files, in any shard."""
    return any(number < first_files.get(shard, 0) for shard, number in base.first_log_files.items())
