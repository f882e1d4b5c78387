"""The layout of a bucket, and its manifests. Source: docs/backup.md.

    <prefix>/manifests/2026-11-27T12-13-14Z/000000000001-<sha256>.json    one backup
             manifests/<timeline>/000000000042-<sha256>.json              the log of an archive
             manifests/<timeline>/bases/2026-11-27T12-13-15Z/...          a base of it
             pieces/<sha256>-<bytes>                        bytes of backups, shared by all of them
             logs/<timeline>/log/shard-00/wal-....log/<sha256>-<bytes>    bytes of one log file

Of several cores each has its timelines below the joint one (joint_timeline.py), which has a
manifest and a piece of its own:

             manifests/<joint>/000000000001-<sha256>.json                 the slot map
             manifests/<joint>/core-00/<timeline>/...                     its log, its bases
             logs/<joint>/slot-map/<sha256>-<bytes>
             logs/<joint>/core-00/<timeline>/log/...

A file is a list of *pieces*, and a piece is named by its SHA-256. A manifest is named by its own,
too. It is written after all that it names, under a name that no other one has. So at any moment the
bucket has the last whole manifest, and all that it names.

The manifest of a log with many files may be an *addition*: it names a whole manifest, which stays
as long, and has those files only that are otherwise in it. Additions are folded into the next whole
manifest once they have more bytes together than that. Each manifest of a log lists its bases, so
one whose manifest was removed is missed.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from topics.embedded.bucket.bucket import Bucket
from topics.errors import CorruptError, FormatError
from topics.store.archive.archive_note import BASES, ArchiveNote, unpack_note
from topics.store.archive.joint_timeline import core_place
from topics.store.backup.backup_files import NOTE_NAME
from topics.store.backup.backup_manifest import MANIFEST_NAME, BackupManifest, unpack_manifest
from topics.store.disk.directory_format import SLOT_MAP_NAME

_VERSION, _ADDITION_VERSION, _BASES_VERSION, _CORES_VERSION = 1, 2, 3, 4
MANIFESTS, PIECES, LOGS = "manifests", "pieces", "logs"
REMEDY = "`topics copy-backup --reread` sends it again, if the directory that it was copied from is there"
_NAME = re.compile(r"(\d{12})-([0-9a-f]{64})\.json", re.ASCII)
_PIECE = re.compile(r"[0-9a-f]{64}-\d{1,12}", re.ASCII)

T = TypeVar("T")
R = TypeVar("R")


class BucketManifest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The contents of a manifest: the pieces of a backup, of a log, or of a slot map."""

    version: int
    """The oldest version that has all of its fields. That of cores is refused by older builds."""
    path: str
    """The directory, relative to the one that was copied."""
    kind: str
    """Name of the file that describes the directory: that of a backup or of a timeline."""
    description: str
    """The text of that file."""
    files: dict[str, list[str]]
    """By path in the directory, the pieces of each other file in their order."""
    adds_to: str = ""
    """Name of the manifest with the other files, in the same directory; "": this one has all."""
    bases: list[str] = []
    """The names of the bases of a log that were copied, oldest first."""

    @classmethod
    def of(
        cls,
        path: str,
        kind: str,
        description: str,
        files: dict[str, list[str]],
        *,
        adds_to: str = "",
        bases: Sequence[str] = (),
    ) -> BucketManifest:
        """Return a manifest of the version that its fields take."""
        version = _BASES_VERSION if bases else _ADDITION_VERSION if adds_to else _VERSION
        made = cls(version, path, kind, description, files, adds_to, list(bases))
        made.version = _CORES_VERSION if made.is_joint or joint_of(path) else version
        return made

    @property
    def is_backup(self) -> bool:
        return self.kind == MANIFEST_NAME

    @property
    def is_joint(self) -> bool:
        """Whether it is that of a joint timeline, and has its slot map."""
        return self.kind == NOTE_NAME and SLOT_MAP_NAME in self.files

    def backup(self) -> BackupManifest:
        """Return the description of a backup. Raises: CorruptError, FormatError."""
        return unpack_manifest(self.description.encode(), f"{self.path}/{self.kind} in the bucket", REMEDY)

    def note(self) -> ArchiveNote:
        """Return the description of a timeline. Raises: CorruptError, FormatError."""
        return unpack_note(self.description.encode(), f"{self.path}/{self.kind} in the bucket", REMEDY)

    def key(self, path: str, piece: str) -> str:
        """Return the key of a piece of a file."""
        return f"{PIECES}/{piece}" if self.is_backup else f"{LOGS}/{self.path}/{path}/{piece}"

    def piece_keys(self) -> set[str]:
        """Return the keys of all pieces."""
        return {self.key(path, piece) for path, pieces in self.files.items() for piece in pieces}


class ManifestKey(NamedTuple):
    """The key of a manifest, in its parts. The later one of two is the newer."""

    path: str
    number: int
    sha256: str

    def __str__(self) -> str:
        return f"{MANIFESTS}/{self.path}/{self.name}"

    @property
    def name(self) -> str:
        return f"{self.number:012}-{self.sha256}.json"


class Known(NamedTuple):
    """A manifest of a bucket, with its key."""

    key: ManifestKey
    manifest: BucketManifest
    """With all files."""
    stored: BucketManifest
    """Its contents in the bucket."""
    whole: WholeManifest
    """The one that it adds to; itself, if it has all files."""


class WholeManifest(NamedTuple):
    """A manifest with all files of a directory, and its key."""

    key: ManifestKey
    manifest: BucketManifest


def base_timeline(path: str) -> str:
    """Return the timeline of a base, by its path; "" for another backup."""
    return path.partition(f"/{BASES}/")[0] if f"/{BASES}/" in path else ""


def joint_of(path: str) -> str:
    """Return the joint timeline that a timeline or a base is in, by its path; "": of one core."""
    place = core_place("/".join(path.split("/")[:2]))
    return "" if place is None else place.joint


def piece_name(data: bytes | memoryview) -> str:
    return f"{hashlib.sha256(data).hexdigest()}-{len(data)}"


def piece_bytes(piece: str) -> int:
    return int(piece.partition("-")[2])


def pack(manifest: BucketManifest, number: int) -> tuple[ManifestKey, bytes]:
    """Return the key and the bytes of a manifest."""
    data = msgspec.json.encode(manifest)
    return ManifestKey(manifest.path, number, hashlib.sha256(data).hexdigest()), data


def to_store(manifest: BucketManifest, whole: WholeManifest | None, files_min: int) -> BucketManifest:
    """Return a manifest as an addition to the last whole one, or as it is, whichever is cheaper.

    files_min: a log with fewer files is never an addition.
    """
    if manifest.is_backup or whole is None or len(manifest.files) < files_min:
        return manifest
    before = whole.manifest.files
    changed = {path: pieces for path, pieces in manifest.files.items() if before.get(path) != pieces}
    # With one more file a step, n additions have n * n / 2 files together.
    if len(changed) ** 2 > 2 * len(manifest.files) or not before.keys() <= manifest.files.keys():
        return manifest
    kind, text = manifest.kind, manifest.description
    return BucketManifest.of(manifest.path, kind, text, changed, adds_to=whole.key.name, bases=manifest.bases)


async def list_manifests(bucket: Bucket, path: str = "") -> dict[str, list[ManifestKey]]:
    """Return the keys of manifests, oldest first, by the path of their directory."""
    found: dict[str, list[ManifestKey]] = {}
    for key in await bucket.sizes(f"{MANIFESTS}/{path}" if path else MANIFESTS):
        directory, _, name = key.removeprefix(f"{MANIFESTS}/").rpartition("/")
        match = _NAME.fullmatch(name)
        if match is not None and (not path or directory == path):
            found.setdefault(directory, []).append(ManifestKey(directory, int(match[1]), match[2]))
    return {directory: sorted(keys) for directory, keys in sorted(found.items())}


async def read_bucket_manifest(bucket: Bucket, key: ManifestKey) -> Known:
    """Return a manifest, with the one that it adds to.

    Raises: CorruptError, one of them is damaged or missing; FormatError.
    """
    stored = await read_stored_manifest(bucket, key)
    if not stored.adds_to:
        return Known(key, stored, stored, WholeManifest(key, stored))
    named = _NAME.fullmatch(stored.adds_to)
    whole_key = ManifestKey(key.path, int(named[1]), named[2]) if named is not None else key
    whole = await read_stored_manifest(bucket, whole_key)
    if whole.adds_to:
        raise CorruptError(f"{bucket.url}/{key} adds to {stored.adds_to!r}, which is no whole manifest: {REMEDY}")
    files = {**whole.files, **stored.files}
    manifest = BucketManifest.of(stored.path, stored.kind, stored.description, files, bases=stored.bases)
    return Known(key, manifest, stored, WholeManifest(whole_key, whole))


async def read_stored_manifest(bucket: Bucket, key: ManifestKey) -> BucketManifest:
    """Return a manifest as it is stored.

    Raises: CorruptError, it is damaged or missing; FormatError.
    """
    data = await bucket.get(str(key))
    where = f"{bucket.url}/{key}"
    if data is None:
        raise CorruptError(f"{where} is missing, although the bucket lists it: {REMEDY}", {"path": where})
    if hashlib.sha256(data).hexdigest() != key.sha256:
        raise CorruptError(f"{where} does not match the SHA-256 in its name: {REMEDY}", {"path": where})
    try:
        manifest = msgspec.json.decode(data, type=BucketManifest)
    except msgspec.DecodeError as error:
        raise FormatError(f"{where} is a manifest that this build does not know: {error}") from error
    if not _VERSION <= manifest.version <= _CORES_VERSION:
        raise FormatError(f"{where} has version {manifest.version}, and this build knows up to {_CORES_VERSION}")
    if manifest.kind not in (MANIFEST_NAME, NOTE_NAME) or manifest.path != key.path:
        raise FormatError(f"{where} is the manifest of something else: {manifest.path}/{manifest.kind}")
    for path in (manifest.path, *manifest.files):
        if posixpath.normpath(path) != path or path.startswith(("/", "..")) or "\0" in path:
            raise CorruptError(f"{where} names {path!r}, which is outside of the copy: {REMEDY}")
    for piece in (piece for pieces in manifest.files.values() for piece in pieces):
        if not _PIECE.fullmatch(piece):
            raise CorruptError(f"{where} names a piece {piece[:100]!r}, which is no name of one: {REMEDY}")
    return manifest


async def at_once(parallel: int, items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return what `work` returns for each item, in order, with so many at the same time.

    Raises: the first exception, once those that had begun have ended; no others are begun then.
    """
    waiting, found, errors = iter(enumerate(items)), dict[int, R](), list[Exception]()

    async def worker() -> None:
        for at, item in waiting:
            try:
                found[at] = await work(item)
            except Exception as error:
                errors.append(error)
            if errors:
                return

    await asyncio.gather(*(worker() for _ in range(parallel)))
    if errors:
        raise errors[0]
    return [found[at] for at in sorted(found)]
