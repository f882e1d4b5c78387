"""The manifest of a backup: what it holds, with a checksum for each file.

A backup is a directory, named by its time, below the directory of all backups:

    <backups>/2026-11-27T12-13-14Z/backup.json     the manifest, written last
                                   topics.json, snapshots/, wal/, topics/, packs/   a data directory
    <backups>/2026-11-28T12-13-14Z.partial/        one that is being written, or was not completed
    <backups>/lock                                 held by the process that writes one

A file that has not changed since the newest backup before is there under both names, as one file
(link(2)). So each backup is whole by itself, and any of them may be removed.
"""

from __future__ import annotations

import re

import msgspec

from topics.store.backup.backup_files import read_description, time_name
from topics.store.disk.whole_files import FileCalls, list_if_there
from topics.store.format.log_format import wal_file_no

MANIFEST_NAME = "backup.json"
LOCK_NAME = "lock"
PARTIAL = ".partial"
"""Suffix of the name of an incomplete backup."""
MANIFEST_VERSION = 1
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}Z(-\d+)?", re.ASCII)


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
    taken_ms: int
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
    def first_log_files(self) -> dict[int, int]:
        """By shard, the number of the log file with which a replay begins."""
        found: dict[int, int] = {}
        for file in self.files:
            kind, _, rest = file.path.partition("/")
            shard, _, name = rest.partition("/")
            number = wal_file_no(name) if kind == "wal" else None
            if number is not None:
                at = int(shard.removeprefix("shard-"))
                found[at] = min(found.get(at, number), number)
        return dict(sorted(found.items()))


def backup_name(taken_ms: int, taken: list[str]) -> str:
    """Return the name of a backup of this time, none of those in `taken`."""
    base = time_name(taken_ms)
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


async def read_manifest(files: FileCalls, directory: str) -> BackupManifest:
    """Return the manifest of the backup in a directory.

    Raises: FileNotFoundError; CorruptError; FormatError, it is of a newer build; OSError.
    """
    path, remedy = f"{directory}/{MANIFEST_NAME}", "Use another backup; `topics verify` shows all damage"
    return await read_description(files, path, BackupManifest, MANIFEST_VERSION, remedy)
