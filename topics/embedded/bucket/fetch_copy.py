"""Copies backups or an archive from a bucket to a directory, all of it or what a restore needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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
    list_manifests,
    piece_bytes,
    piece_name,
    read_bucket_manifest,
)
from topics.errors import CorruptError, UsageError
from topics.store.archive.archive_note import BASES
from topics.store.archive.archived_log import archived_name
from topics.store.archive.restore_point import END, RestorePoint, point_at
from topics.store.archive.timelines import Base, Timeline, check_one_line, line_of, noted_bases, of_other_lines
from topics.store.archive.unbroken_log import log_spans, unbroken_parts
from topics.store.backup.backup_files import is_timeline_name
from topics.store.backup.backup_manifest import PARTIAL, backup_age


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

    @property
    def parts(self) -> list[BucketManifest]:
        return [*self.backups, *self.logs]


class Fetched(NamedTuple):
    """The outcome of a copy from a bucket."""

    files: int
    bytes: int
    """Bytes that were read from the bucket: what the directory had was not."""


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
    logs = [each for each in found if not each.is_backup]
    timelines = {log.path for log in logs}
    backups = [each for each in found if each.is_backup and base_timeline(each.path) in {*timelines, ""}]
    if not backups and not logs:
        raise UsageError(f"{url} has a base of an archive and no log yet: let `topics copy-backup` end first")
    unlogged = sorted({base_timeline(each.path) for each in found if each.is_backup} - timelines - {""})
    backups.sort(key=lambda each: backup_age(os.path.basename(each.path)))
    if not only:
        await check_one_log(bucket, backups, logs)
    return BucketCopy(bucket, backups, logs, only, unlogged)


def unlogged_parts(copy: BucketCopy) -> list[str]:
    """Return a sentence for each timeline of which no log is there, but bases are."""
    url, why = copy.bucket.url, "its copy was cut off, or the manifest was removed: `topics copy-backup` sends it"
    return [f"{url}/{MANIFESTS}/{path} has bases and no manifest of their log: {why}" for path in copy.unlogged]


def missing_parts(copy: BucketCopy) -> list[str]:
    """Return a sentence for each base that should be there and has no manifest."""
    return [missing for log in copy.logs for missing in missing_bases(copy, log)]


def missing_bases(copy: BucketCopy, log: BucketManifest) -> list[str]:
    """Return a sentence for each base of a log whose manifest is there no more."""
    there = {base.path for base in copy.backups}
    paths = (f"{log.path}/{BASES}/{name}" for name in log.bases)
    return [
        f"{copy.bucket.url}/{MANIFESTS}/{path} has no manifest any more, so no restore begins with this base: {REMEDY}"
        for path in paths
        if path not in there
    ]


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

    Those of all timelines of its line count for the seqs that are left out. Of other lines it needs
    the first base, which shows whether it needs the rest (`rest_of`).
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
    timelines = {log.path: _timeline(copy, log, root) for log in copy.logs}
    chosen = [timelines[path] for path in sorted(restored)]
    check_one_line(copy.bucket.url, chosen)
    at_ms = END if wanted.at_ms is None else wanted.at_ms
    point = point_at(chosen, at_ms) if wanted.find is None else wanted.find(chosen)
    line = next((line_of(each) for each in reversed(chosen) if each.bases), "")
    others = of_other_lines(list(timelines.values()), line) if line else []
    backups, logs = [], []
    for log in copy.logs:
        timeline = timelines[log.path]
        if timeline in others:
            backups += _manifests_of(copy, root, timeline.bases[:1])
            logs.append(BucketManifest.of(log.path, log.kind, log.description, {}))
            continue
        bases = _manifests_of(copy, root, _wanted_bases(timeline, point))
        backups += bases
        logs.append(_log_after(log, bases))
    return restored[0] if len(restored) == 1 else "", copy._replace(backups=backups, logs=logs)


def rest_of(copy: BucketCopy, path: str) -> BucketCopy:
    """Return the parts of a timeline of another line that a restore needs for its seqs."""
    (log,) = (log for log in copy.logs if log.path == path)
    bases = _manifests_of(copy, copy.bucket.url, _wanted_bases(_timeline(copy, log, copy.bucket.url)))
    return copy._replace(backups=bases, logs=[_log_after(log, bases)])


def _manifests_of(copy: BucketCopy, root: str, bases: list[Base]) -> list[BucketManifest]:
    paths = {base.path for base in bases}
    return [base for base in copy.backups if f"{root}/{base.path}" in paths]


def _timeline(copy: BucketCopy, log: BucketManifest, root: str) -> Timeline:
    """Return a timeline as a restore finds it below `root`."""
    note = log.note()
    manifests = {base.path: base.backup() for base in copy.backups if base_timeline(base.path) == log.path}
    bases = [Base(f"{root}/{path}", manifest, manifest.first_log_files) for path, manifest in manifests.items()]
    return Timeline(f"{root}/{log.path}", note, noted_bases(bases, note), missing_bases(copy, log))


def _wanted_bases(timeline: Timeline, point: RestorePoint | None = None) -> list[Base]:
    """Return the bases that a restore to a point reads; None: one to a point of another timeline.

    What a timeline knows of seqs begins with its first base, or with that of the point, and after
    each hole.
    """
    firsts = [part.bases[0] for part in unbroken_parts(timeline) if part.bases]
    if point is None or timeline.path != point.timeline.path:
        return [*firsts, *timeline.bases[:1], *timeline.bases[-1:]]
    bases = [span.base for span in log_spans(timeline)]
    bases = bases[bases.index(point.base) :]
    return [base for base in bases if base in (*firsts, bases[0], bases[-1])]


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
    return BucketManifest.of(log.path, log.kind, log.description, files)


async def fetch(copy: BucketCopy, to: str, options: BucketOptions) -> Fetched:
    """Copy parts below the directory `to`, each under its path. What is there is not read again.

    A backup is whole once it has its name, and a timeline once it has its note.
    Raises: UsageError, something else is there; CorruptError, a piece is damaged or missing;
        StorageError, the bucket fails or is slow; OSError. What was copied stays then, and the next
        call continues.
    """
    fetching = CopyFetch(copy, to, options)
    await fetching.fetch(copy.parts)
    return Fetched(fetching.files, fetching.bytes)


class _FetchedPiece(NamedTuple):
    """A piece of a file that is to be written."""

    path: str
    offset: int
    key: str


class CopyFetch:
    """Reads parts of a copy to one directory, and no file of them twice.

    Its calls raise as `fetch`.
    """

    def __init__(self, copy: BucketCopy, to: str, options: BucketOptions) -> None:
        self._copy = copy
        self._to = to
        self._bucket = copy.bucket
        self._options = options
        self._copies: dict[tuple[str, tuple[str, ...]], str] = {}
        """Files that are there by now, by their key and pieces."""
        self.files = 0
        self.bytes = 0

    async def fetch(self, parts: Iterable[BucketManifest]) -> None:
        """Copy parts, each under its path."""
        for part in parts:
            await self._fetch(part, f"{self._to}/{part.path}")

    async def fetch_after(self, base: str) -> None:
        """Copy a base, and the log after it, without the note of the timeline, which is not whole.

        base: its path in the copy. Those after it are there.
        """
        (manifest,) = (each for each in self._copy.backups if each.path == base)
        (log,) = (each for each in self._copy.logs if each.path == base_timeline(base))
        await self.fetch([manifest])
        timeline, files = f"{self._to}/{log.path}", _log_after(log, [manifest]).files
        missing = {name: pieces for name, pieces in files.items() if not os.path.lexists(f"{timeline}/{name}")}
        await self._fetch_files(BucketManifest.of(log.path, log.kind, log.description, missing), timeline)

    async def _fetch(self, part: BucketManifest, target: str) -> None:
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
        await self._fetch_files(part, made)
        _write_whole(f"{made}/{part.kind}", part.description.encode())
        _sync_directories(made)
        if part.is_backup:
            os.rename(made, target)
        _sync(os.path.dirname(target) or ".")
        self._note(part, target)

    async def _fetch_files(self, part: BucketManifest, made: str) -> None:
        """Copy the files of a part to a directory, without the one that describes it."""
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

    def _note(self, part: BucketManifest, target: str) -> None:
        """Note files that are there: an equal one of a later backup becomes a link to it."""
        self._copies.update(((part.key(name, ""), tuple(part.files[name])), f"{target}/{name}") for name in part.files)

    async def _write_piece(self, piece: _FetchedPiece) -> None:
        data = await self._bucket.get(piece.key)
        if (fault := fault_of(piece.key, data)) or data is None:
            where = f"{self._bucket.url}/{piece.key}"
            raise CorruptError(f"{where} {fault}: {REMEDY}", {"path": where})
        with _opened(piece.path, os.O_WRONLY | os.O_CREAT) as fd:
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, piece.offset + len(data) - len(view))
                view = view[done:]
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
    with _opened(path, os.O_RDWR | os.O_CREAT) as fd:
        is_new = not os.fstat(fd).st_size
        os.ftruncate(fd, size)
        found, at = [], 0
        for piece in pieces:
            if is_new or piece_name(os.pread(fd, piece_bytes(piece), at)) != piece:
                found.append(_FetchedPiece(path, at, part.key(name, piece)))
            at += piece_bytes(piece)
        return found


def _link(original: str, path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
    os.link(original, path)


def _write_whole(path: str, data: bytes) -> None:
    """Write a file that is there under its name only with all of its bytes."""
    with _opened(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd, open(fd, "wb", closefd=False) as opened:
        opened.write(data)
        opened.flush()
        os.fsync(fd)
    os.rename(f"{path}.new", path)


def _sync_all(paths: Iterable[str]) -> None:
    for path in paths:
        _sync(path)


def _sync_directories(root: str) -> None:
    for directory, _, _ in os.walk(root, topdown=False):
        _sync(directory)


def _sync(path: str) -> None:
    with _opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    """Yield a descriptor of a file, closed in the end. Raises: OSError, with the path."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)
