"""Compares every byte of a copy in a bucket with the SHA-256 that its manifests have."""

from __future__ import annotations

from typing import NamedTuple

from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy, damaged_maps, missing_parts, unlogged_parts
from topics.embedded.bucket.bucket_manifest import BucketManifest, at_once, piece_bytes
from topics.embedded.bucket.copied_timelines import end_ms, without_times
from topics.embedded.bucket.fetch_copy import fault_of
from topics.store.archive.archived_log import archived_name


class VerifiedCopy(NamedTuple):
    """The result of reading a whole copy."""

    backups: int
    """Backups and bases."""
    upto_ms: int
    """Unix ms of the newest time that a restore leads to; 0: there is none."""
    objects: int
    bytes: int
    findings: list[str]
    """Damaged places, one sentence each."""
    incomplete: list[str]
    """Timelines that were not copied to the end, one sentence each."""


async def verify_copy(copy: BucketCopy, options: BucketOptions) -> VerifiedCopy:
    """Read every piece that the newest manifests name. Raises: CorruptError, StorageError."""
    keys = sorted({key for part in copy.parts for key in part.piece_keys()})

    async def check(key: str) -> str:
        fault = fault_of(key, await copy.bucket.get(key))
        return f"{copy.bucket.url}/{key} {fault}" if fault else ""

    findings = [found for found in await at_once(options.parallel, keys, check) if found]
    for part in copy.parts:
        findings += _missing_files(copy, part)
    findings += missing_parts(copy)
    findings = findings or damaged_maps(copy)  # one whose bytes are as they were sent
    upto_ms, waiting = end_ms(copy), without_times(copy)
    if not copy.backups and not findings:
        findings = [f"{copy.bucket.url} has no base yet, so no restore leads there: `topics copy-backup` sends one"]
    if not upto_ms and not findings:
        findings, waiting = waiting, []
    return VerifiedCopy(
        len(copy.backups),
        upto_ms,
        len(keys),
        sum(piece_bytes(key.rpartition("/")[2]) for key in keys),
        findings,
        unlogged_parts(copy) + waiting,
    )


def _missing_files(copy: BucketCopy, part: BucketManifest) -> list[str]:
    """Return what the description of a part needs, and its list of pieces has not."""
    if part.is_backup:
        return [
            f"{copy.bucket.url}: {part.path}/{file.path} has {sum(map(piece_bytes, part.files.get(file.path, [])))} "
            f"bytes of {file.bytes}"
            for file in part.backup().files
            if sum(map(piece_bytes, part.files.get(file.path, []))) != file.bytes
        ]
    upto_ms = part.note().upto_ms
    return [
        f"{copy.bucket.url}: {base.path} needs the log from {archived_name(shard, number)} on, which is missing"
        for base in copy.backups
        if base.path.startswith(f"{part.path}/") and base.backup().taken_ms <= upto_ms
        for shard, number in base.backup().first_log_files.items()
        if archived_name(shard, number) not in part.files
    ]
