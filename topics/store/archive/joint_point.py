"""One time of all cores: which ones a joint timeline has, and a data directory made of one.

The log of each core is cut after its last batch of that time or before. A batch states when it was
written, which is before all that it causes on other cores. So there is no copy of a router without
its record, and nothing that was written in the knowledge of what is missing (R-CORE-16).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from topics.common.values.time_texts import time_text
from topics.errors import CorruptError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import ArchiveNote, OfCore, read_note
from topics.store.archive.joint_timeline import continue_joint, core_place, is_just_begun, read_joint_map
from topics.store.archive.restore_archive import copy_point, with_ends
from topics.store.archive.restore_point import END, RestorePoint, point_at
from topics.store.archive.timelines import Timeline
from topics.store.archive.unbroken_log import restorable_ranges
from topics.store.cores.core_directories import CoreDirectories, core_directory, core_marker, core_name
from topics.store.cores.slot_map_file import StoredMap, write_slot_map
from topics.store.disk.directory_format import Marker
from topics.store.disk.whole_files import list_if_there, replace_file
from topics.store.layouts.directory_names import DIRECTORY_FORMAT, MARKER_NAME

Range = tuple[int, int]
"""The first and the last Unix ms."""


class Joint(NamedTuple):
    """The archived logs of all cores of one data directory."""

    path: str
    stored: StoredMap
    line: str
    cores: list[list[Timeline]]
    """By core, in the order of their begins."""

    @classmethod
    def of(cls, path: str, stored: StoredMap, note: ArchiveNote | None, timelines: Iterable[Timeline]) -> Joint:
        """Return a joint timeline with its map and its note.

        timelines: those that are of no core of it are left out.
        """
        cores: list[list[Timeline]] = [[] for _ in range(stored.slots.cores)]
        places = {f"{path}/{core_name(core)}": found for core, found in enumerate(cores)}
        for timeline in timelines:
            places.get(os.path.dirname(timeline.path), []).append(timeline)
        return cls(path, stored, (note and note.line) or os.path.basename(path), cores)

    @property
    def times(self) -> list[Range]:
        """The times that a restore can lead to: those that all cores have, and that came once."""
        return _times(self.cores)

    @property
    def came_twice(self) -> list[Range]:
        """The times that came twice, by each core, since the clock was set back."""
        return [each for core in self.cores for timeline in core for each in _set_back(timeline)]


def core_of(timeline: Timeline) -> str:
    """Return the path of the joint timeline that a timeline is in; "": it is of one core."""
    above = os.path.dirname(timeline.path)
    return os.path.dirname(above) if isinstance(timeline.note.of_core, OfCore) or core_place(above) else ""


async def joints_of(loop: Loop, timelines: Iterable[Timeline]) -> list[Joint]:
    """Return the joint timelines that some timelines are in, in the order of their begins.

    One that was just begun is left out.
    Raises: CorruptError, one has no map; FormatError; OSError.
    """
    timelines, joints = list(timelines), list[Joint]()
    list_names = partial(list_if_there, loop.files)
    for path in sorted({*map(core_of, timelines)} - {""}):
        if await loop.files.to_thread(is_just_begun, list_names, path):
            continue
        stored = await read_joint_map(loop.files, path)
        joints.append(Joint.of(path, stored, await read_note(loop.files, path), timelines))
    return joints


def check_all_cores(source: str, timelines: list[Timeline]) -> None:
    """Check that what is to be restored is the archive of several cores, with all of them.

    source: the path of the directory that was named, in which the timelines are.
    Raises: UsageError.
    """
    joints = sorted({core_of(timeline) for timeline in timelines})
    if source not in {*joints, *map(os.path.dirname, joints)}:
        raise UsageError(f"is {source!r}, a part of {joints[0]}, which has all cores: name that", "backup")
    if "" in joints:
        of_one = [timeline.path for timeline in timelines if not core_of(timeline)]
        listed = ", ".join([*of_one, *filter(None, joints)])
        raise UsageError(f"{source} has the logs of one core and of several: name one of them: {listed}")


class TimeOfAll(NamedTuple):
    """A time of all cores, and the newest one that the archive has."""

    joint: Joint
    at_ms: int
    end_ms: int
    left_out: list[str]
    """A sentence about each later timeline that has no time of all cores, if no time was named."""


def time_of_all(source: str, joints: list[Joint], at_ms: int, begun: Iterable[str] = ()) -> TimeOfAll:
    """Return the joint timeline for a restore to a time, and that time; END is the newest one.

    source: the path of the archive, for messages. begun: paths of others that have nothing yet.
    Raises: UsageError, CorruptError, as `joint_at`.
    """
    check_one_server(source, joints)
    joint, chosen_ms = joint_at(joints, at_ms)
    later = sorted({*begun, *(each.path for each in joints)}) if at_ms == END else []
    left_out = [f"{path} has no time of all its cores yet, so it is left out" for path in later if path > joint.path]
    return TimeOfAll(joint, chosen_ms, newest_ms(joints), left_out)


def newest_ms(joints: list[Joint]) -> int:
    """Return the newest time of all cores, Unix ms. There is one."""
    return max(joint.times[-1][1] for joint in joints if joint.times)


def check_one_server(source: str, joints: list[Joint]) -> None:
    """Check that joint timelines are of one line. Raises: UsageError, with all of them."""
    if len({joint.line for joint in joints}) > 1:
        listed = ", ".join(joint.path for joint in joints)
        raise UsageError(f"{source} has the logs of several servers: name a timeline of one of them: {listed}")


def joint_at(joints: list[Joint], at_ms: int) -> tuple[Joint, int]:
    """Return the joint timeline for a restore to a time, and that time; END is the newest one.

    Raises: UsageError, none has it, with the nearest ones, or it is not clear which is the newest;
        CorruptError, the bases of the newest one are damaged.
    """
    with_times = [joint for joint in joints if joint.times]
    if not with_times:
        check_bases(joints, 0)
        raise UsageError("the archive has no time of all cores yet: each makes a base after its start, if it can")
    if at_ms == END:
        newest, end_ms = with_times[-1], with_times[-1].times[-1][1]
        check_bases(joints[joints.index(newest) :], end_ms)
        _check_newest(with_times)
        return newest, end_ms
    for joint in reversed(with_times):
        if any(begin <= at_ms <= end for begin, end in joint.times):
            return joint, at_ms
    ranges = [each for joint in with_times for each in joint.times]
    before, after = [end for _, end in ranges if end < at_ms], [begin for begin, _ in ranges if begin > at_ms]
    names = [f"{time_text(max(before))} or earlier"] if before else []
    names += [f"{time_text(min(after))} or later"] if after else []
    raise UsageError(
        f"is {time_text(at_ms)}, and the archive does not have it of all cores, or more than once: name "
        f"{', or '.join(names)}",
        "at",
    )


def _check_newest(joints: list[Joint]) -> None:
    """Check that the one that was begun last has the latest times. Raises: UsageError."""
    newest, end_ms = joints[-1], joints[-1].times[-1][1]
    for other in joints[:-1]:
        if other.times[-1][1] > end_ms:
            raise UsageError(
                f"{newest.path} was begun last (up to {time_text(end_ms)}), and {other.path} has later times (up to "
                f"{time_text(other.times[-1][1])}), so it is not clear which is the newest: name one of them"
            )


def check_bases(joints: list[Joint], after_ms: int) -> None:
    """Check that no timeline with later times has damaged bases only. Raises: CorruptError."""
    for timeline in (each for joint in joints for core in joint.cores for each in core):
        if timeline.findings and not timeline.bases and timeline.note.upto_ms > after_ms:
            message = f"{timeline.path} is the newest, and its bases are damaged: {timeline.findings[0]}"
            raise CorruptError(message, {"path": timeline.path})


async def joint_points(loop: Loop, joint: Joint, at_ms: int) -> list[RestorePoint]:
    """Return the points of all cores for one of their times, each with its ends.

    Raises: UsageError; CorruptError, FormatError, OSError.
    """
    return [await with_ends(loop, point) for point in points_at(joint, at_ms)]


def points_at(joint: Joint, at_ms: int) -> list[RestorePoint]:
    """Return the points of all cores for one of their times. Raises: UsageError, CorruptError."""
    return [point_at(timelines, at_ms)._replace(is_once=True) for timelines in joint.cores]


async def copy_joint(loop: Loop, joint: Joint, points: list[RestorePoint], target: str) -> None:
    """Make a data directory of all cores, durably except for its name. `target` is empty.

    Raises: UsageError, the time came twice; CorruptError, FormatError, OSError.
    """
    files, stored = loop.files, joint.stored
    for core, point in enumerate(points):
        path = core_directory(target, core)
        await copy_point(loop, point, path)
        marker = core_marker(DIRECTORY_FORMAT, core, stored)
        await replace_file(files, f"{path}/{MARKER_NAME}", msgspec.json.encode(marker))
    marker = Marker(DIRECTORY_FORMAT, stored.slots.cores, of=stored.id.hex())
    await replace_file(files, f"{target}/{MARKER_NAME}", msgspec.json.encode(marker))
    await write_slot_map(files, target, stored)
    await continue_joint(files, CoreDirectories(target, stored, []), joint.path, joint.line)


# --- times ------------------------------------------------------------------------------------------------------------


def _times(cores: list[list[Timeline]]) -> list[Range]:
    common: list[Range] | None = None
    twice: list[Range] = []
    for timelines in cores:
        ranges = [each for timeline in timelines for each in restorable_ranges(timeline)]
        twice += [both for at, one in enumerate(ranges) for both in _both([one], ranges[at + 1 :])]
        twice += [each for timeline in timelines for each in _set_back(timeline)]
        common = ranges if common is None else _both(common, ranges)
    return sorted(_without(common or [], twice))


def _set_back(timeline: Timeline) -> tuple[Range, ...]:
    of_core = timeline.note.of_core
    return of_core.set_back if isinstance(of_core, OfCore) else ()


def _both(ranges: list[Range], others: list[Range]) -> list[Range]:
    """Return the times that are in a range of each list."""
    pairs = [(max(one[0], other[0]), min(one[1], other[1])) for one in ranges for other in others]
    return [(begin, end) for begin, end in pairs if begin <= end]


def _without(ranges: list[Range], removed: list[Range]) -> list[Range]:
    for first, last in removed:
        cut = [((begin, min(end, first - 1)), (max(begin, last + 1), end)) for begin, end in ranges]
        ranges = [(begin, end) for both in cut for begin, end in both if begin <= end]
    return list(dict.fromkeys(ranges))
