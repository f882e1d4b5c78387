"""The view of a data directory that its newest sound snapshot gives.

It is read without a lock, beside a running server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topics.common.topic_names import is_topic_name
from topics.errors import VERSION_REMEDY, FormatError
from topics.files.errors import NoColdDirectoryError, NoDirectoryError
from topics.files.file_calls import SYSTEM, FileReads, read_file
from topics.files.newest_snapshot import SnapshotContents, load_newest, newest_number
from topics.files.piece import Location
from topics.files.piece_files import reading
from topics.files.stored_topic import TopicFiles
from topics.store.layouts.directory_names import COLD_MARK_NAME, KNOWN_FORMATS, MARKER_NAME


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """A data directory as of one snapshot. It does not change: `refresh` returns the newest one."""

    location: Location
    snapshot: int
    """Number of the snapshot, as `POST /v0/checkpoint` answers it; 0 before the first one."""
    created_ms: int
    clean: bool
    """The snapshot was taken when the server stopped, so every record is in segments and packs."""
    topics: Mapping[str, TopicFiles]
    """All topics, by name."""
    calls: FileReads

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def cold(self) -> str:
        return self.location.cold

    def refresh(self) -> Directory:
        """Return the directory as of the newest snapshot; this object if there is no newer one.

        Raises: the errors of `open_directory`.
        """
        with reading(self.location, self.calls):
            if newest_number(self.calls, self.path) == self.snapshot:
                return self
        return open_directory(self.path, self.cold or None, calls=self.calls)


def open_directory(path: str, cold: str | None = None, *, calls: FileReads | None = None) -> Directory:
    """Read the newest sound snapshot of a data directory.

    cold: its cold directory, if it has one.
    calls: the file calls; those of the kernel by default.
    Raises: NoDirectoryError, NotReadableError, NoColdDirectoryError, FormatError, CorruptError,
    DirectoryBusyError, StorageError (the disk failed).
    """
    calls = calls or SYSTEM
    location = Location(path.rstrip("/") or "/", (cold or "").rstrip("/"))
    with reading(location, calls):
        _check_marker(location, calls)
        snapshot = load_newest(calls, location.path)
        _check_cold(location, calls, snapshot)
    topics = {
        name: TopicFiles(name, entry, snapshot, location, calls)
        for name, entry in snapshot.topics.items()
        if is_topic_name(name)
    }
    return Directory(location, snapshot.number, snapshot.created_ms, snapshot.clean, topics, calls)


def _check_marker(location: Location, calls: FileReads) -> None:
    name = f"{location.path}/{MARKER_NAME}"
    try:
        marker = _json_of(calls, name)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_directory(location, calls) from None
    if marker.get("format") not in KNOWN_FORMATS:
        raise FormatError(
            f"data directory {location.path} has format {marker.get('format')}, and this build knows "
            f"{KNOWN_FORMATS[0]} to {KNOWN_FORMATS[-1]}: {VERSION_REMEDY}"
        )
    if isinstance(core := marker.get("core"), int):
        raise FormatError(
            f"data directory {location.path} holds core {core} of a directory of several cores, and no log by itself"
        )
    if marker.get("cores") != 1:
        raise FormatError(
            f"data directory {location.path} was made for {marker.get('cores')} cores, and those of one are read here: "
            "`topics serve --cores 1` makes it one of them"
        )


def _no_directory(location: Location, calls: FileReads) -> NoDirectoryError:
    try:
        calls.list_directory(location.path)
    except FileNotFoundError:
        return NoDirectoryError(
            f"data directory {location.path} does not exist on this machine: give its path on this machine (each "
            "executor must see it under this path), or read by url"
        )
    except NotADirectoryError:
        return NoDirectoryError(f"data directory {location.path} is a file: name the directory of the server's data")
    return NoDirectoryError(
        f"{location.path} is not a data directory of topics, it has no {MARKER_NAME}: give the server's TOPICS_DATA_DIR"
    )


def _check_cold(location: Location, calls: FileReads, snapshot: SnapshotContents) -> None:
    """Raise NoColdDirectoryError unless the cold directory is the one of this data directory.

    Both have the same id. Before a segment was moved to it, a cold directory need not have one.
    """
    if not location.cold:
        if snapshot.has_cold:
            raise NoColdDirectoryError(
                f"data directory {location.path} has older segments in a cold directory: name it, too (coldPath)"
            )
        return
    ours, theirs = _mark_of(calls, location.path), _mark_of(calls, location.cold)
    if ours == theirs and ours is not None:
        return
    if theirs is None and not snapshot.has_cold:
        return  # no segment was moved to it yet
    raise NoColdDirectoryError(
        f"cold directory {location.cold} is not the one of {location.path}: is it mounted on this machine, is it the "
        "right one?"
    )


def _mark_of(calls: FileReads, path: str) -> str | None:
    try:
        mark = _json_of(calls, f"{path}/{COLD_MARK_NAME}").get("id")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return str(mark)


def _json_of(calls: FileReads, name: str) -> dict[str, Any]:
    try:
        found = json.loads(bytes(read_file(calls, name)))
    except ValueError as error:
        raise FormatError(f"{name} does not hold the JSON that topics writes: {error}") from error
    return found if isinstance(found, dict) else {}
