"""The copies that a bucket has below a URL, and which parts of them are missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from topics.embedded.bucket.bucket import Bucket, BucketOptions, open_bucket
from topics.embedded.bucket.bucket_logs import check_one_log
from topics.embedded.bucket.bucket_manifest import (
    LOGS,
    MANIFESTS,
    PIECES,
    REMEDY,
    BucketManifest,
    Known,
    at_once,
    base_timeline,
    joint_of,
    list_manifests,
    read_bucket_manifest,
)
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import BASES
from topics.store.backup.backup_files import is_timeline_name
from topics.store.backup.backup_manifest import backup_age
from topics.store.cores.slot_map_file import StoredMap
from topics.store.disk.directory_format import SLOT_MAP_NAME


class BucketJoint(NamedTuple):
    """A joint timeline: the archived logs of several cores are below its path."""

    manifest: BucketManifest
    stored: StoredMap | None
    """The slot map; None: it is damaged or missing."""


class BucketCopy(NamedTuple):
    """The copies that a bucket has below a URL."""

    bucket: Bucket
    backups: list[BucketManifest]
    """Backups and bases of archives, oldest first."""
    logs: list[BucketManifest]
    """The logs of the timelines of archives."""
    only: str = ""
    """The one that the URL names; "": all of them."""
    unlogged: Sequence[str] = ()
    """The timelines that have bases and no log."""
    joints: Sequence[BucketJoint] = ()

    @property
    def parts(self) -> list[BucketManifest]:
        return [*(joint.manifest for joint in self.joints), *self.backups, *self.logs]


async def look_at_copy(
    url: str,
    options: BucketOptions,
    opening: Callable[[str, BucketOptions], Bucket] = open_bucket,
    *,
    beside: bool = False,
) -> BucketCopy:
    """Return what a bucket has below a URL, which may name one backup or timeline of a copy.

    beside: with the other timelines of the archive, if it names one.
    Raises: UsageError, there is no copy, or there are those of several logs; CorruptError, a
        manifest is damaged; FormatError; StorageError.
    """
    named = bucket = opening(url, options)
    only = ""
    keys = await list_manifests(bucket)
    if not keys and url.rstrip("/").count("/") > 3:
        above, _, only = url.rstrip("/").rpartition("/")
        bucket = opening(above, options)
        found_above = await list_manifests(bucket)
        keys = {path: found for path, found in found_above.items() if f"{path}/".startswith(f"{only}/")}
        if keys and beside and is_timeline_name(only):
            keys = found_above
    if not keys:
        if await named.sizes(PIECES) or await named.sizes(LOGS):
            why = "a first copy was cut off, or they were removed: `topics copy-backup` of its directory writes them"
            raise UsageError(f"{url} has parts of a copy, and no manifests: {why}")
        raise UsageError(f"{url} has no copy of a backup or an archive: `topics copy-backup` makes one")

    async def read(path: str) -> Known:
        return await read_bucket_manifest(bucket, keys[path][-1])

    found = [known.manifest for known in await at_once(options.parallel, keys, read)]
    logs = [each for each in found if not each.is_backup and not each.is_joint]
    timelines = {log.path for log in logs}
    backups = [each for each in found if each.is_backup and base_timeline(each.path) in {*timelines, ""}]
    if not backups and not logs:
        raise UsageError(f"{url} has a part of an archive and no log yet: let `topics copy-backup` end first")
    unlogged = sorted({base_timeline(each.path) for each in found if each.is_backup} - timelines - {""})
    backups.sort(key=lambda each: backup_age(os.path.basename(each.path)))
    if not only:
        await check_one_log(bucket, backups, logs)
    joints = [await _read_joint(bucket, each) for each in found if each.is_joint]
    return BucketCopy(bucket, backups, logs, only, unlogged, joints)


async def _read_joint(bucket: Bucket, manifest: BucketManifest) -> BucketJoint:
    """Raises: FormatError, StorageError."""
    keys = [manifest.key(SLOT_MAP_NAME, piece) for piece in manifest.files[SLOT_MAP_NAME]]
    data = b"".join([await bucket.get(key) or b"" for key in keys])
    try:
        return BucketJoint(manifest, StoredMap.unpack(data, f"{bucket.url}/{manifest.path}"))
    except CorruptError:
        return BucketJoint(manifest, None)


def unlogged_parts(copy: BucketCopy) -> list[str]:
    """Return a sentence for each timeline of which no log is there, but bases are."""
    url, why = copy.bucket.url, "its copy was cut off, or the manifest was removed: `topics copy-backup` sends it"
    return [f"{url}/{MANIFESTS}/{path} has bases and no manifest of their log: {why}" for path in copy.unlogged]


def missing_parts(copy: BucketCopy) -> list[str]:
    """Return a sentence for each base and each slot map whose manifest should be there."""
    joints = {joint_of(log.path) for log in copy.logs} - {""} - {joint.manifest.path for joint in copy.joints}
    unmapped = [missing_map(copy, joint) for joint in sorted(joints)]
    return [*unmapped, *(missing for log in copy.logs for missing in missing_bases(copy, log))]


def damaged_maps(copy: BucketCopy) -> list[str]:
    """Return a sentence for each slot map that is damaged."""
    damaged = [joint.manifest.path for joint in copy.joints if joint.stored is None]
    return [f"{copy.bucket.url}/{path} has a damaged slot map: {REMEDY}" for path in damaged]


def missing_map(copy: BucketCopy, joint: str) -> str:
    """Return the sentence for a joint timeline, by its path, whose manifest is there no more."""
    return f"{copy.bucket.url}/{MANIFESTS}/{joint} has no manifest, which says what each core owns: {REMEDY}"


def missing_bases(copy: BucketCopy, log: BucketManifest) -> list[str]:
    """Return a sentence for each base of a log whose manifest is there no more."""
    there = {base.path for base in copy.backups}
    paths = (f"{log.path}/{BASES}/{name}" for name in log.bases)
    return [
        f"{copy.bucket.url}/{MANIFESTS}/{path} has no manifest any more, so no restore begins with this base: {REMEDY}"
        for path in paths
        if path not in there
    ]
