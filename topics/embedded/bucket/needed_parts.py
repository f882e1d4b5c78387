"""The parts of a copy in a bucket that a restore to a point needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from topics.embedded.bucket.bucket_copy import BucketCopy
from topics.embedded.bucket.bucket_manifest import BucketManifest
from topics.embedded.bucket.copied_timelines import timeline_of
from topics.errors import UsageError
from topics.store.archive.archive_note import BASES
from topics.store.archive.archived_log import archived_name
from topics.store.archive.restore_point import END, RestorePoint, point_at
from topics.store.archive.timelines import Base, Timeline, check_one_line, line_of, of_other_lines
from topics.store.archive.unbroken_log import log_spans, unbroken_parts


class WantedPoint(NamedTuple):
    """The point that a restore is to lead to."""

    at_ms: int | None = None
    """Unix ms; None: the end."""
    find: Callable[[list[Timeline]], RestorePoint] | None = None
    """Returns the point of a record, among the timelines that are restored; None: it is a time."""
    root: str = ""
    """The directory below which those timelines are then."""


def needed_parts(copy: BucketCopy, wanted: WantedPoint) -> tuple[str, BucketCopy]:
    """Return the path of what a restore restores, and the parts that it needs at first.

    Raises: UsageError, CorruptError, as the restore.
    """
    restored = [log.path for log in copy.logs if copy.only in ("", log.path)]
    if not restored:
        backups = [each for each in copy.backups if copy.only in ("", each.path)]
        if wanted.at_ms is not None or wanted.find is not None:
            raise UsageError(
                f"{copy.bucket.url} has backups and no archive (TOPICS_ARCHIVE_DIR): a backup has one time, so leave "
                "out --at and --seq, or name the backup"
            )
        return backups[-1].path, copy._replace(backups=backups[-1:], logs=[])
    root = wanted.root or copy.bucket.url
    timelines = {log.path: timeline_of(copy, log, root) for log in copy.logs}
    chosen = [timelines[path] for path in sorted(restored)]
    check_one_line(copy.bucket.url, chosen)
    at_ms = END if wanted.at_ms is None else wanted.at_ms
    point = point_at(chosen, at_ms) if wanted.find is None else wanted.find(chosen)
    line = next((line_of(each) for each in reversed(chosen) if each.bases), "")
    needed = parts_around(copy, timelines, [point], line)
    return restored[0] if len(restored) == 1 else "", needed._replace(joints=())


def parts_around(
    copy: BucketCopy, timelines: Mapping[str, Timeline], points: Sequence[RestorePoint], line: str
) -> BucketCopy:
    """Return the parts that a restore to some points needs at first.

    Those of all timelines of its line count for the seqs that are left out. Of other lines it needs
    the first base, which shows whether it needs the rest (`rest_of`).
    timelines: all of the copy, by path. points: one, or that of each core.
    """
    of_points = {point.timeline.path: point for point in points}
    others = of_other_lines(list(timelines.values()), line) if line else []
    backups, logs = [], []
    for log in copy.logs:
        timeline = timelines[log.path]
        if timeline in others:
            backups += _manifests_of(copy, log, timeline.bases[:1])
            logs.append(BucketManifest.of(log.path, log.kind, log.description, {}))
            continue
        bases = _manifests_of(copy, log, _wanted_bases(timeline, of_points.get(timeline.path)))
        backups += bases
        logs.append(log_after(log, bases))
    return copy._replace(backups=backups, logs=logs)


def rest_of(copy: BucketCopy, path: str) -> BucketCopy:
    """Return the parts of a timeline of another line that a restore needs for its seqs."""
    (log,) = (log for log in copy.logs if log.path == path)
    bases = _manifests_of(copy, log, _wanted_bases(timeline_of(copy, log, copy.bucket.url)))
    return copy._replace(backups=bases, logs=[log_after(log, bases)], joints=())


def log_after(log: BucketManifest, bases: list[BucketManifest]) -> BucketManifest:
    """Return the part of a log that is needed after some bases."""
    first: dict[int, int] = {}
    for base in bases:
        for shard, number in base.backup().first_log_files.items():
            first[shard] = min(first.get(shard, number), number)

    def is_before(path: str) -> bool:
        return any(
            path.startswith(f"{os.path.dirname(archived_name(shard, number))}/") and path < archived_name(shard, number)
            for shard, number in first.items()
        )

    files = {path: pieces for path, pieces in log.files.items() if not is_before(path)}
    return BucketManifest.of(log.path, log.kind, log.description, files)


def _manifests_of(copy: BucketCopy, log: BucketManifest, bases: list[Base]) -> list[BucketManifest]:
    """Return the manifests of bases of a timeline."""
    paths = {f"{log.path}/{BASES}/{os.path.basename(base.path)}" for base in bases}
    return [base for base in copy.backups if base.path in paths]


def _wanted_bases(timeline: Timeline, point: RestorePoint | None = None) -> list[Base]:
    """Return the bases that a restore to a point reads; None: one to a point of another timeline.

    What a timeline knows of seqs begins with its first base, or with that of the point, and after
    each hole.
    """
    firsts = [part.bases[0] for part in unbroken_parts(timeline) if part.bases]
    if point is None:
        return [*firsts, *timeline.bases[:1], *timeline.bases[-1:]]
    bases = [span.base for span in log_spans(timeline)]
    bases = bases[bases.index(point.base) :]
    return [base for base in bases if base in (*firsts, bases[0], bases[-1])]
