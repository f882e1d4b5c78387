"""The timelines of a copy in a bucket, as a restore finds them in a directory."""

from __future__ import annotations

from collections.abc import Iterable

from topics.embedded.bucket.bucket_copy import BucketCopy, missing_bases
from topics.embedded.bucket.bucket_manifest import BucketManifest, base_timeline, joint_of
from topics.store.archive.joint_point import Joint, core_of
from topics.store.archive.timelines import Base, Timeline, noted_bases


def timeline_of(copy: BucketCopy, log: BucketManifest, root: str) -> Timeline:
    """Return a timeline as a restore finds it below `root`. Raises: CorruptError, FormatError."""
    note = log.note()
    manifests = {base.path: base.backup() for base in copy.backups if base_timeline(base.path) == log.path}
    bases = [Base(f"{root}/{path}", manifest, manifest.first_log_files) for path, manifest in manifests.items()]
    return Timeline(f"{root}/{log.path}", note, noted_bases(bases, note), missing_bases(copy, log))


def joints_below(copy: BucketCopy, timelines: Iterable[Timeline], root: str) -> list[Joint]:
    """Return the joint timelines of a copy that some timelines below `root` are in.

    Those whose slot maps are damaged or missing are left out.
    Raises: CorruptError, FormatError.
    """
    timelines = list(timelines)
    names = set(map(core_of, timelines))
    return [
        Joint.of(f"{root}/{joint.manifest.path}", joint.stored, joint.manifest.note(), timelines)
        for joint in copy.joints
        if joint.stored is not None and f"{root}/{joint.manifest.path}" in names
    ]


def end_ms(copy: BucketCopy) -> int:
    """Return the newest time of a copy (Unix ms); 0: the logs of several cores have none yet."""
    ends = [log.note().upto_ms for log in copy.logs if not joint_of(log.path)]
    root = copy.bucket.url
    for joint in joints_below(copy, (timeline_of(copy, log, root) for log in copy.logs), root):
        ends += [end for _begin, end in joint.times]
    backups = [] if copy.logs else copy.backups[-1:]
    return max(ends or [backup.backup().taken_ms for backup in backups], default=0)


def without_times(copy: BucketCopy) -> list[str]:
    """Return a sentence for each joint timeline that has no time of all its cores yet."""
    root = copy.bucket.url
    timelines = [timeline_of(copy, log, root) for log in copy.logs if joint_of(log.path)]
    found = {joint.path: bool(joint.times) for joint in joints_below(copy, timelines, root)}
    why = (
        "the copy of a core was cut off, a core has no base yet, or the archive has removed it meanwhile: "
        "`topics copy-backup` sends what is there"
    )
    return [
        f"{root}/{joint.manifest.path} has no time of all its cores: {why}"
        for joint in copy.joints
        if not found.get(f"{root}/{joint.manifest.path}")
    ]
