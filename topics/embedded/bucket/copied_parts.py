"""The backups, archived logs and slot maps that a copy to a bucket reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from topics.errors import CorruptError, StorageError
from topics.store.archive.archive_note import ArchiveNote
from topics.store.backup.backup_logs import log_id_in
from topics.store.backup.backup_manifest import MANIFEST_NAME, BackupManifest, unpack_manifest
from topics.store.cores.slot_map_file import StoredMap
from topics.store.layouts.directory_names import MARKER_NAME


class BackupPart(NamedTuple):
    """A backup, or a base of an archive."""

    path: str
    """Relative to the directory that is copied; for a part that is the directory, its name."""
    directory: str
    text: str
    """Its manifest."""

    @property
    def manifest(self) -> BackupManifest:
        """Return the manifest, decoded. Raises: CorruptError, FormatError."""
        return unpack_manifest(self.text.encode(), f"{self.directory}/{MANIFEST_NAME}")

    @property
    def marker(self) -> bytes:
        """Return the file that has the id of the log; b"" if there is none. Raises: OSError."""
        try:
            with opened_file(f"{self.directory}/{MARKER_NAME}") as opened:
                return opened.read()
        except FileNotFoundError:
            return b""


class LogFilePart(NamedTuple):
    """An archived log file, as far as the note states that it is archived."""

    path: str
    """Relative to the timeline."""
    data_bytes: int
    """Bytes of the log."""
    bytes: int
    """With the zeros that make whole blocks of it."""
    is_settled: bool
    """Whether nothing will be added."""


class LogPart(NamedTuple):
    """The log of a timeline, as its note states it."""

    path: str
    directory: str
    text: str
    note: ArchiveNote
    files: list[LogFilePart]


class JointPart(NamedTuple):
    """The slot map of a joint timeline, of which each core has timelines of its own."""

    path: str
    text: str
    """Its note."""
    slot_map: bytes
    stored: StoredMap
    """The slot map, decoded."""


def log_id_at(directory: str) -> str:
    """Return the id of the log that a data directory, or a backup, is of.

    "": it states none, or its marker is damaged or missing.
    """
    try:
        return log_id_in(BackupPart("", directory, "").marker)
    except (OSError, CorruptError):
        return ""


@contextmanager
def opened_file(path: str) -> Iterator[BinaryIO]:
    """Open a file that is to be copied.

    Raises: CorruptError, it is no regular file: a pipe may never say anything; OSError.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise CorruptError(f"{path} is no regular file: `topics verify` shows all damage", {"path": path})
        yield opened


def read_text(path: str) -> str:
    """Return the text of a description. Raises: CorruptError, OSError."""
    try:
        with opened_file(path) as opened:
            return opened.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"{path} is damaged: {error}: `topics verify` shows all damage", {"path": path}) from error


def read_log_file(directory: str, file: LogFilePart) -> bytes:
    """Return the bytes of a log file that count. Raises: StorageError, it is shorter; OSError."""
    with opened_file(f"{directory}/{file.path}") as opened:
        data = opened.read(file.data_bytes)
    if len(data) != file.data_bytes:
        raise StorageError(
            f"{directory}/{file.path} has {len(data)} bytes, and {file.data_bytes} were archived: `topics verify` "
            "shows all damage"
        )
    return data + bytes(file.bytes - file.data_bytes)
