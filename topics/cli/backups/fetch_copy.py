"""Copies backups or an archive from a bucket to a directory, all of it or what a restore needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from topics.cli.backups.bucket import Bucket, BucketOptions, open_bucket
from topics.cli.backups.bucket_manifest import (
    REMEDY,
    BucketManifest,
    Known,
    at_once,
    list_manifests,
    piece_bytes,
    piece_name,
    read_bucket_manifest,
)
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import BASES
from topics.store.archive.archived_log import archived_name
from topics.store.archive.timelines import Base, Timeline
from topics.store.archive.unbroken_log import unbroken_parts
from topics.store.backup.backup_manifest import PARTIAL, backup_age


class BucketCopy(NamedTuple):
    """The copies that a bucket has below a URL."""

    bucket: Bucket
    backups: list[BucketManifest]
    """Backups and bases of archives, oldest first."""
    logs: list[BucketManifest]
    """The logs of the timelines of archives."""

    @property
    def parts(self) -> list[BucketManifest]:
        return [*self.backups, *self.logs]


class Fetched(NamedTuple):
    """The outcome of a copy from a bucket."""

    files: int
    bytes: int
    """Bytes that were read from the bucket: what the directory had was not."""


async def look_at_copy(
    url: str, options: BucketOptions, opening: Callable[[str, BucketOptions], Bucket] = open_bucket
) -> BucketCopy:
    """Return what a bucket has below a URL, which may name one backup or timeline of a copy.

    Raises: UsageError, there is no copy; CorruptError, a manifest is damaged; FormatError;
        StorageError.
    """
    bucket, only = opening(url, options), ""
    keys = await list_manifests(bucket)
    if not keys and url.rstrip("/").count("/") > 3:
        above, _, only = url.rstrip("/").rpartition("/")
        bucket = opening(above, options)
        keys = {
            path: found for path, found in (await list_manifests(bucket)).items() if f"{path}/".startswith(f"{only}/")
        }
    if not keys:
        raise UsageError(f"{url} has no copy of a backup or an archive: `topics copy-backup` makes one")

    async def read(path: str) -> Known:
        return await read_bucket_manifest(bucket, keys[path][-1])

    found = [known.manifest for known in await at_once(options.parallel, keys, read)]
    logs = [each for each in found if not each.is_backup]
    timelines = {log.path for log in logs}
    backups = [each for each in found if each.is_backup and _timeline_of(each.path) in {*timelines, ""}]
    if not backups and not logs:
        raise UsageError(f"{url} has a base of an archive and no log yet: let `topics copy-backup` end first")
    return BucketCopy(bucket, sorted(backups, key=lambda each: backup_age(os.path.basename(each.path))), logs)


def _timeline_of(path: str) -> str:
    """Return the timeline of a base; "" for another backup."""
    return path.partition(f"/{BASES}/")[0] if f"/{BASES}/" in path else ""


def needed_parts(copy: BucketCopy, at_ms: int | None, *, all_bases: bool) -> tuple[str, BucketCopy]:
    """Return the path of what a restore restores, and the parts that it needs.

    at_ms: the time; None for the end. all_bases: for a restore up to a record.
    Raises: UsageError.
    """
    if not copy.logs:
        if at_ms is not None or all_bases:
            raise UsageError(
                f"{copy.bucket.url} has backups and no archive (TOPICS_ARCHIVE_DIR): a backup has one time, so leave "
                "out --at and --seq, or name the backup"
            )
        return copy.backups[-1].path, copy._replace(backups=copy.backups[-1:])
    backups, logs = [], []
    newest = max(copy.logs, key=lambda log: log.note().upto_ms)
    for log in copy.logs:
        upto_ms = log.note().upto_ms
        bases = [
            base for base in copy.backups if base.path.startswith(f"{log.path}/") and base.backup().taken_ms <= upto_ms
        ]
        before = [base for base in bases if at_ms is None or base.backup().taken_ms <= at_ms]
        if at_ms is None and not all_bases and log is newest:
            chosen = bases[-1:]
        else:  # what the timeline knows of seqs begins with its first base, and after each hole
            known = {bases[0].path, bases[-1].path, *_bases_after_holes(log, bases)} if bases else set()
            chosen = [each for each in bases if all_bases or each.path in known or each in before[-1:]]
        backups += chosen
        logs.append(_log_after(log, chosen))
    root = logs[0].path if len(logs) == 1 else ""
    return root, copy._replace(backups=backups, logs=logs)


def _bases_after_holes(log: BucketManifest, bases: list[BucketManifest]) -> list[str]:
    """Return the paths of the first bases after the holes of a log."""
    found = [Base(base.path, base.backup(), base.backup().first_log_files) for base in bases]
    parts = unbroken_parts(Timeline(log.path, log.note(), found, []))
    return [part.bases[0].path for part in parts[1:] if part.bases]


def _log_after(log: BucketManifest, bases: list[BucketManifest]) -> BucketManifest:
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
    return BucketManifest(log.version, log.path, log.kind, log.description, files)


async def fetch(copy: BucketCopy, to: str, options: BucketOptions) -> Fetched:
    """Copy parts below the directory `to`, each under its path. What is there is not read again.

    A backup is whole once it has its name, and a timeline once it has its note.
    Raises: UsageError, something else is there; CorruptError, a piece is damaged or missing;
        StorageError, the bucket fails or is slow; OSError. What was copied stays then, and the next
        call continues.
    """
    fetching = _Fetching(copy.bucket, options)
    for part in copy.parts:
        await fetching.fetch(part, f"{to}/{part.path}")
    return Fetched(fetching.files, fetching.bytes)


class _FetchedPiece(NamedTuple):
    """A piece of a file that is to be written."""

    path: str
    offset: int
    key: str


class _Fetching:
    """One call of `fetch`."""

    def __init__(self, bucket: Bucket, options: BucketOptions) -> None:
        self._bucket = bucket
        self._options = options
        self._copies: dict[tuple[str, tuple[str, ...]], str] = {}
        """Files that are there by now, by their key and pieces."""
        self.files = 0
        self.bytes = 0

    async def fetch(self, part: BucketManifest, target: str) -> None:
        """Copy one part to a directory."""
        described = f"{target}/{part.kind}"
        if os.path.lexists(described):
            if Path(described).read_bytes() != part.description.encode():
                raise UsageError(f"{described} is of another copy: use a directory where it is not")
            self._note(part, target)
            return
        if part.is_backup and os.path.lexists(target):
            raise UsageError(f"{target} exists, and is no backup: use another directory, or remove it")
        made = f"{target}{PARTIAL}" if part.is_backup else target
        os.makedirs(made, exist_ok=True)
        missing: list[_FetchedPiece] = []
        links: list[tuple[str, str]] = []
        for name, pieces in part.files.items():
            path = f"{made}/{name}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            same = (part.key(name, ""), tuple(pieces))
            if pieces and same in self._copies:
                links.append((self._copies[same], path))
                continue
            missing += _missing_pieces(part, name, path)
        await at_once(self._options.parallel, missing, self._write_piece)
        for original, path in links:
            _link(original, path)
        self.files += len(part.files)
        _sync_all(f"{made}/{name}" for name in part.files)
        _write_whole(f"{made}/{part.kind}", part.description.encode())
        _sync_directories(made)
        if part.is_backup:
            os.rename(made, target)
        _sync(os.path.dirname(target) or ".")
        self._note(part, target)

    def _note(self, part: BucketManifest, target: str) -> None:
        """Note files that are there: an equal one of a later backup becomes a link to it."""
        self._copies.update(((part.key(name, ""), tuple(part.files[name])), f"{target}/{name}") for name in part.files)

    async def _write_piece(self, piece: _FetchedPiece) -> None:
        data = await self._bucket.get(piece.key)
        if (fault := fault_of(piece.key, data)) or data is None:
            where = f"{self._bucket.url}/{piece.key}"
            raise CorruptError(f"{where} {fault}: {REMEDY}", {"path": where})
        fd = os.open(piece.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, piece.offset + len(data) - len(view))
                view = view[done:]
        finally:
            os.close(fd)
        self.bytes += len(data)


def fault_of(key: str, data: bytes | None) -> str:
    """Return what is wrong with the bytes of a piece; "" if nothing is."""
    piece = key.rpartition("/")[2]
    if data is None:
        return "is missing"
    if len(data) != piece_bytes(piece):
        return f"has {len(data)} bytes, and {piece_bytes(piece)} were written"
    return "" if piece_name(data) == piece else "does not match the SHA-256 in its name"


def _missing_pieces(part: BucketManifest, name: str, path: str) -> list[_FetchedPiece]:
    """Return the pieces of a file that are not there yet, and cut off what is too much."""
    pieces = part.files[name]
    size = sum(map(piece_bytes, pieces))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        is_new = not os.fstat(fd).st_size
        os.ftruncate(fd, size)
        found, at = [], 0
        for piece in pieces:
            if is_new or piece_name(os.pread(fd, piece_bytes(piece), at)) != piece:
                found.append(_FetchedPiece(path, at, part.key(name, piece)))
            at += piece_bytes(piece)
        return found
    finally:
        os.close(fd)


def _link(original: str, path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
    os.link(original, path)


def _write_whole(path: str, data: bytes) -> None:
    """Write a file that is there under its name only with all of its bytes."""
    with open(f"{path}.new", "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    os.rename(f"{path}.new", path)


def _sync_all(paths: Iterable[str]) -> None:
    for path in paths:
        _sync(path)


def _sync_directories(root: str) -> None:
    for directory, _, _ in os.walk(root, topdown=False):
        _sync(directory)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
