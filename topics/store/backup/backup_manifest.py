"""The manifest of a backup: what it holds, with a checksum for each file.

A backup is a directory, named by its time, below the directory of all backups:

    <backups>/2026-11-27T12-13-14Z/backup.json     the manifest, written last
                                   topics.json, snapshots/, wal/, topics/, packs/   a data directory
    <backups>/2026-11-28T12-13-14Z.partial/        one that is being written, or was not completed
                                   lock            held by the process that writes it

A backup of a directory of several cores has one such data directory for each, `core-00/` and so on,
and what they share: `topics.json`, `slot-map` and its copy. Its manifest has another version, so
that older builds do not take it for damage.

A file that has not changed since the newest backup before is there under both names, as one file
(link(2)). So each backup is whole by itself, and any of them may be removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from topics.errors import CorruptError
from topics.store.backup.backup_files import UnixMs, time_name, time_of_name, unpack_description
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.disk.whole_files import FileCalls, list_if_there, read_slow_file
from topics.store.format.log_format import wal_file_no
from topics.store.layouts.directory_names import MARKER_NAME, PACK_DIRECTORY, SNAPSHOT_DIRECTORY, TOPICS_DIRECTORY

MANIFEST_NAME = "backup.json"
LOCK_NAME = "lock"
PARTIAL = ".partial"
"""Suffix of the name of an incomplete backup."""
MANIFEST_VERSION = 1
MANIFEST_OF_CORES = 2
"""The version of the manifest of a backup of several cores, whose fields are the same."""
_REMEDY = "Use another backup; `topics verify` shows all damage"
_PATH = re.compile(
    rf"{re.escape(MARKER_NAME)}|({SNAPSHOT_DIRECTORY}|wal|{TOPICS_DIRECTORY}|{PACK_DIRECTORY})(/[a-z0-9][a-z0-9._-]*)+",
    re.ASCII,
)
"""The paths of the files of a data directory: none leads out of it."""
_BELOW_CORE = re.compile(r"core-\d{2,4}/", re.ASCII)
"""How the path of a file of one of several cores begins."""
_XXH3 = re.compile(r"[0-9a-f]{16}", re.ASCII)
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}Z(-\d{1,7})?", re.ASCII)
"""Shorter than the name of a timeline, whose eight hexadecimal digits may all be decimal ones."""


class BackupFile(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A file of a backup."""

    path: str
    """Relative to the backup."""
    bytes: int
    xxh3: str
    """XXH3 with 64 bits of its bytes, as 16 hex digits."""
    source: str = ""
    """The identity of the file that it was copied from, with the time of its last change; "" if the
    next backup has to copy it again.
    """


class BackupManifest(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of a manifest."""

    version: int
    taken_ms: UnixMs
    """Unix ms of the instant of the backup."""
    format: int
    """Format of the data directory."""
    boot: str
    """Boot id of the machine; after a reboot, equal file times do not prove equal contents."""
    files: list[BackupFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def is_of_cores(self) -> bool:
        """Whether it is a backup of a directory of several cores."""
        return self.version == MANIFEST_OF_CORES

    @property
    def logs(self) -> list[str]:
        """The core directories of a backup, each with a slash at its end; [""] for one core."""
        return sorted({_below(file.path) for file in self.files} - {""}) or [""]

    @property
    def first_log_files(self) -> dict[int, int]:
        """By shard, the number of the log file with which a replay begins."""
        return _log_files((file.path for file in self.files), min)

    @property
    def last_log_files(self) -> dict[int, int]:
        """By shard, the number of the log file that had the end of the log at the instant."""
        return _log_files((file.path for file in self.files), max)


def log_files_after(files: FileCalls, backup: str) -> dict[int, int]:
    """Return what `first_log_files` is in the manifest of a backup, which may be large."""
    wal = f"{backup}/wal"
    shards = list_if_there(files, wal)
    return _log_files(
        (f"wal/{shard}/{name}" for shard in shards for name in list_if_there(files, f"{wal}/{shard}")), min
    )


def _log_files(paths: Iterable[str], chosen: Callable[[int, int], int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for path in paths:
        kind, _, rest = path.partition("/")
        shard, _, name = rest.partition("/")
        number = wal_file_no(name) if kind == "wal" else None
        if number is not None:
            at = int(shard.removeprefix("shard-"))
            found[at] = chosen(found.get(at, number), number)
    return dict(sorted(found.items()))


def backup_name(taken_ms: int, taken: list[str]) -> str:
    """Return the name of a backup of this time, none of those in `taken`.

    It sorts after all complete backups there, also if the clock was set back: the one whose name
    sorts last is restored.
    """
    newest_ms = max((time_of_name(name) for name in taken if is_backup_name(name)), default=0)
    base = time_name(taken_ms if newest_ms <= taken_ms else newest_ms + 1000)
    name, count = base, 1
    while name in taken or name + PARTIAL in taken:
        count += 1
        name = f"{base}-{count}"
    return name


def backup_names(files: FileCalls, root: str) -> list[str]:
    """Return the names of the complete backups in a directory, oldest first."""
    return sorted(filter(is_backup_name, list_if_there(files, root)), key=backup_age)


def is_backup_name(name: str) -> bool:
    """Return whether this is the name of a complete backup."""
    return _NAME.fullmatch(name) is not None


def is_partial(name: str) -> bool:
    """Return whether this is the name of a backup that is not complete."""
    return name.endswith(PARTIAL) and is_backup_name(name.removesuffix(PARTIAL))


def backup_age(name: str) -> tuple[str, int]:
    """Return what sorts the names of backups by their times."""
    time, _, count = name.partition("Z")
    return time, int(count[1:] or 1)


def backup_ms(name: str) -> int:
    """Return when a backup was begun (Unix ms), by its name, to the second; 0: it is no time."""
    try:
        return int(datetime.fromisoformat(f"{name[:11]}{name[11:19].replace('-', ':')}+00:00").timestamp()) * 1000
    except ValueError:
        return 0


async def read_manifest(files: FileCalls, directory: str) -> BackupManifest:
    """Return the manifest of the backup in a directory.

    Raises: FileNotFoundError; CorruptError; FormatError, it is of a newer build; OSError.
    """
    path = f"{directory}/{MANIFEST_NAME}"
    return unpack_manifest(await read_slow_file(files, path, _REMEDY), path)


def unpack_manifest(data: bytes, path: str, remedy: str = _REMEDY) -> BackupManifest:
    """Return a manifest, decoded. path, remedy: for messages.

    Raises: CorruptError; FormatError, it is of a newer build.
    """
    manifest = unpack_description(data, path, BackupManifest, MANIFEST_OF_CORES, remedy)
    if flaw := _flaw(manifest):
        raise CorruptError(f"{path} {flaw}. {remedy}", {"path": path})
    return manifest


def _flaw(manifest: BackupManifest) -> str:
    """Return what no manifest that was written as one has; "" if there is nothing.

    A checksum does not prove that, because a program that changes a manifest can compute one.
    """
    for file in manifest.files:
        if not _PATH.fullmatch(file.path.removeprefix(_below(file.path))) and file.path != SLOT_MAP_NAME:
            return f"lists {file.path[:200]!r}, which is no file of a backup"
        if file.bytes < 0 or not _XXH3.fullmatch(file.xxh3):
            return f"lists {file.path} with {file.bytes} bytes and the checksum {file.xxh3[:40]!r}"
    paths = {file.path for file in manifest.files}
    if len(paths) < len(manifest.files):
        return "lists a file twice"
    if not manifest.is_of_cores == (SLOT_MAP_NAME in paths) == (manifest.logs != [""]):
        return f"has version {manifest.version}, and not the files of such a backup"
    for log in manifest.logs:
        if log + MARKER_NAME not in paths or not any(path.startswith(f"{log}{SNAPSHOT_DIRECTORY}/") for path in paths):
            return "lists no snapshot of a log"
    return ""


def _below(path: str) -> str:
    """Return the core directory with which the path of a file begins; "": it is in none."""
    found = _BELOW_CORE.match(path)
    return found[0] if found else ""
