"""Which logs the copies below a prefix are of: it has the backups of one log, or an archive.

A restore takes the newest of what is there. The marker of a backup has the id of its log, and equal
markers are one piece, so few are read. Backups of an older build have no id, and pass for any
log's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from topics.embedded.bucket.bucket import Bucket
from topics.embedded.bucket.bucket_manifest import (
    PIECES,
    BucketManifest,
    base_timeline,
    joint_of,
    list_manifests,
    read_stored_manifest,
)
from topics.embedded.bucket.copied_parts import log_id_at
from topics.errors import CorruptError, UsageError
from topics.store.backup.backup_files import is_timeline_name
from topics.store.backup.backup_logs import log_id_in
from topics.store.backup.backup_manifest import backup_age, is_backup_name
from topics.store.layouts.directory_names import MARKER_NAME


def plain_backups(manifests: Iterable[BucketManifest]) -> list[BucketManifest]:
    """Return those that are no bases of an archive, oldest first."""
    plain = [each for each in manifests if each.is_backup and not base_timeline(each.path)]
    return sorted(plain, key=lambda each: backup_age(each.path))


async def check_one_log(bucket: Bucket, backups: list[BucketManifest], logs: list[BucketManifest]) -> None:
    """Check that copies are backups of one log, or of an archive.

    Raises: UsageError, with one of each.
    """
    plain = plain_backups(backups)
    ids = await _log_ids(bucket, plain)
    newest = {ids[_marker(each)]: each.path for each in plain if logs or ids[_marker(each)]}
    if len(newest) > 1 or (newest and logs):
        found = sorted([*newest.values(), *(log.path for log in logs)])
        listed = ", ".join(f"{bucket.url}/{path}" for path in found)
        raise UsageError(f"{bucket.url} has the copies of several logs: name one of them: {listed}")


async def check_may_add(bucket: Bucket, known: Iterable[BucketManifest], marker: bytes | None) -> None:
    """Check that a copy may be added to those that a bucket has.

    marker: of the backup that is added; None: it is the log of an archive.
    Raises: UsageError, with one that is of another log.
    """
    known = list(known)
    plain = plain_backups(known)
    if marker is None:
        others = [each.path for each in plain]
    else:
        others = [each.path for each in known if not each.is_backup]
        mine, ids = log_id_in(marker), await _log_ids(bucket, [] if others else plain)
        with_ids = [each for each in plain if not others and ids[_marker(each)]]
        others += [each.path for each in with_ids[-1:] if mine and ids[_marker(each)] != mine]
    if others:
        raise _other_log(bucket, others[-1])


async def check_takes_backup(bucket: Bucket, log_id: str) -> None:
    """Check, before a backup is made, that it may be added to what a bucket has.

    log_id: of the log; "": it is not known yet.
    Raises: UsageError, as `check_may_add`.
    """
    keys = await list_manifests(bucket)
    if logs := [path for path in keys if is_timeline_name(path) or base_timeline(path) or joint_of(path)]:
        raise _other_log(bucket, base_timeline(logs[-1]) or logs[-1])
    for path in sorted(keys if log_id else (), key=backup_age, reverse=True):
        with suppress(CorruptError):  # the next one is of the same log
            found = await _log_ids(bucket, [await read_stored_manifest(bucket, keys[path][-1])])
            if other := next(filter(None, found.values()), ""):
                if other != log_id:
                    raise _other_log(bucket, path)
                return


async def check_may_join(
    bucket: Bucket, backups: list[BucketManifest], logs: list[BucketManifest], directory: str
) -> None:
    """Check that copies may be written beside what a directory has: backups of their log, or logs.

    Raises: UsageError, with one of what is there.
    """
    names = os.listdir(directory) if os.path.isdir(directory) else []
    timelines = sorted(filter(is_timeline_name, names))
    there = sorted(filter(is_backup_name, names), key=backup_age)
    plain = plain_backups(backups)
    others = (there if logs else []) + (timelines if plain else [])
    if plain and not others:
        mine = {*(await _log_ids(bucket, plain)).values()} - {""}
        ids = {name: log_id_at(f"{directory}/{name}") for name in there}
        others = [name for name, found in ids.items() if mine and found and found not in mine]
    if others:
        raise UsageError(
            f"is {directory!r}, which has a copy of another log, such as {others[-1]}: name another directory", "to"
        )


def _other_log(bucket: Bucket, path: str) -> UsageError:
    return UsageError(
        f"{bucket.url} has a copy of another log, such as {path}: use a prefix of its own for each log, and for "
        "backups and an archive"
    )


def _marker(backup: BucketManifest) -> tuple[str, ...]:
    """Return the pieces of the marker of a backup."""
    return tuple(backup.files.get(MARKER_NAME, ()))


async def _log_ids(bucket: Bucket, backups: list[BucketManifest]) -> dict[tuple[str, ...], str]:
    """Return the ids of logs by the pieces of markers; "": it has none, or is damaged."""
    found: dict[tuple[str, ...], str] = {}
    for backup in backups:
        pieces = _marker(backup)
        if pieces not in found:
            found[pieces] = log_id_in(b"".join([await bucket.get(f"{PIECES}/{piece}") or b"" for piece in pieces]))
    return found
