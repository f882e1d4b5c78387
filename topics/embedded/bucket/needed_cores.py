"""The parts of a copy in a bucket that a restore of several cores needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from topics.embedded.bucket.bucket_copy import BucketCopy, damaged_maps, missing_map
from topics.embedded.bucket.bucket_manifest import joint_of
from topics.embedded.bucket.copied_timelines import joints_below, timeline_of
from topics.embedded.bucket.needed_parts import parts_around
from topics.errors import CorruptError
from topics.store.archive.joint_point import Joint, check_all_cores, check_one_server, joint_at, points_at, time_of_all
from topics.store.archive.restore_point import END
from topics.store.archive.timelines import Timeline, line_of


class NeededOfCores(NamedTuple):
    """The parts that a restore of several cores reads."""

    path: str
    """The joint timeline that is restored; "": the archive."""
    copy: BucketCopy
    at_ms: int
    left_out: list[str]
    """A sentence about each later timeline that has no time of all cores, if no time was named."""


def is_of_cores(copy: BucketCopy) -> bool:
    """Return whether what a restore restores has the logs of several cores."""
    if logs := [log.path for log in copy.logs if copy.only in ("", log.path, joint_of(log.path))]:
        return any(map(joint_of, logs))
    return any(copy.only in ("", joint.manifest.path) for joint in copy.joints)


def needed_of_cores(copy: BucketCopy, at_ms: int | None) -> NeededOfCores:
    """Return what a restore to a time needs: of each core a base, and the log after it.

    at_ms: None is the end. What is read has not all bases, so the end is decided here.
    Raises: UsageError, CorruptError, as the restore.
    """
    root = copy.bucket.url
    timelines = {log.path: timeline_of(copy, log, root) for log in copy.logs}
    joints = _chosen_joints(copy, timelines, root)
    begun = {f"{root}/{joint.manifest.path}" for joint in copy.joints if copy.only in ("", joint.manifest.path)}
    found = time_of_all(root, joints, END if at_ms is None else at_ms, begun)
    needed = _around(copy, timelines, found.joint, found.at_ms)
    return NeededOfCores(copy.only, needed, found.at_ms, found.left_out)


def needed_up_to_record(copy: BucketCopy, root: str, find: Callable[[list[Joint]], tuple[Joint, int]]) -> NeededOfCores:
    """Return what a restore to the time of a record needs.

    find: returns that time and its joint timeline, among those of the copy as below `root`.
    Raises: UsageError, CorruptError, as the restore, and what `find` raises.
    """
    timelines = {log.path: timeline_of(copy, log, root) for log in copy.logs}
    joints = _chosen_joints(copy, timelines, root)
    check_one_server(copy.bucket.url, joints)
    joint, at_ms = find(joints)
    is_newest = joint_at(joints, at_ms)[0] == joint  # else a later one has this time, too
    path = copy.only if is_newest else os.path.basename(joint.path)
    return NeededOfCores(path, _around(copy, timelines, joint, at_ms), at_ms, [])


def _chosen_joints(copy: BucketCopy, timelines: dict[str, Timeline], root: str) -> list[Joint]:
    """Return the joint timelines of which one is restored.

    timelines: all of the copy, by path, as below `root`.
    Raises: UsageError, there are timelines of one core, too; CorruptError, a slot map is missing.
    """
    chosen = {path: each for path, each in timelines.items() if copy.only in ("", path, joint_of(path))}
    if chosen:
        check_all_cores(f"{root}/{copy.only}".rstrip("/"), list(chosen.values()))
    names = set(map(joint_of, chosen))
    if missing := sorted(names - {joint.manifest.path for joint in copy.joints}):
        raise CorruptError(missing_map(copy, missing[0]))
    mine = copy._replace(joints=[joint for joint in copy.joints if joint.manifest.path in names])
    if damaged := damaged_maps(mine):
        raise CorruptError(damaged[0])
    return joints_below(copy, chosen.values(), root)


def _around(copy: BucketCopy, timelines: dict[str, Timeline], joint: Joint, at_ms: int) -> BucketCopy:
    """Return the parts that a restore of a joint timeline to one of its times needs."""
    points = points_at(joint, at_ms)
    needed = parts_around(copy, timelines, points, line_of(points[0].timeline))
    maps = [each for each in copy.joints if copy.only in ("", each.manifest.path)]
    return needed._replace(joints=[each for each in maps if each.stored is not None])
