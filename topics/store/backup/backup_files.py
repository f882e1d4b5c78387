"""The parts that backups and archives share: trees, names, descriptions, copies in turns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, Protocol, TypeVar

import msgspec
import xxhash

from topics.common.values.time_texts import LATEST_MS
from topics.errors import CorruptError, FormatError, StorageError
from topics.loop.loop import Loop
from topics.store.disk.whole_files import FileCalls, ReadCalls, list_if_there, make_directories

UnixMs = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]
"""A time of a description: before the year 10000, which is the last one that a datetime has."""
NOTE_NAME = "archive.json"
"""The description of a timeline of an archive: a directory that has it takes no other backups."""
_TIME_FORMAT = "%Y-%m-%dT%H-%M-%SZ"
_TIMELINE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}Z-[0-9a-f]{8}", re.ASCII)
_CHUNK_BYTES = 256 << 10
_CHECKSUM = b',"xxh3":"'
"""Before the checksum at the end of a description."""
_REMOVED = ".removed"
"""Suffix of the name of a directory that is being removed."""
_SYNC_EVERY_BYTES = 4 << 20
"""A sync of much at once delays those of the log, which may use the same disk."""


class Versioned(Protocol):
    """A description of a directory, stored there as JSON."""

    @property
    def version(self) -> int: ...


D = TypeVar("D", bound=Versioned)


class Original(NamedTuple):
    """The part of an open file that is copied: its first `size` bytes."""

    reads: ReadCalls
    fd: int
    path: str
    size: int


def time_name(ms: int) -> str:
    """Return the name of a directory that was begun at a time (Unix ms), to the second.

    There is none after the year 9999: a directory may be there whose name is its last second.
    """
    return datetime.fromtimestamp(min(ms, LATEST_MS) / 1000, UTC).strftime(_TIME_FORMAT)


def time_of_name(name: str) -> int:
    """Return the time (Unix ms) with which a name of `time_name` begins; 0: there is none."""
    try:
        time = datetime.strptime(name[: len(time_name(0))], _TIME_FORMAT)
    except ValueError:
        return 0
    return round(time.replace(tzinfo=UTC).timestamp() * 1000)


def is_timeline_name(name: str) -> bool:
    """Return whether a directory of this name may be a timeline of an archive."""
    return _TIMELINE.fullmatch(name) is not None


def pack_description(description: Versioned) -> bytes:
    """Return a description as JSON, whose last member is the checksum of all before it."""
    text = msgspec.json.encode(description).removesuffix(b"}")
    return text + _CHECKSUM + xxhash.xxh3_64_hexdigest(text).encode() + b'"}'


def unpack_description(data: bytes, path: str, kind: type[D], version: int, remedy: str) -> D:
    """Return a description, decoded.

    path: for messages. version: the highest that is known. remedy: the end of the message if it is
    damaged.

    Raises: CorruptError; FormatError, it is of a newer build.
    """
    text, _, checksum = data.rpartition(_CHECKSUM)
    if checksum.strip() != xxhash.xxh3_64_hexdigest(text).encode() + b'"}':
        raise CorruptError(f"{path} does not match its checksum. {remedy}", {"path": path})
    try:
        found = msgspec.json.decode(text + b"}", type=kind)
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: its text is not UTF-8
        raise CorruptError(f"{path} is damaged: {error}. {remedy}", {"path": path}) from error
    if not 1 <= found.version <= version:
        raise FormatError(f"{path} has version {found.version}, and this build knows {version}")
    return found


async def copy_in_turns(
    loop: Loop, source: Original, write_fd: int, on_piece: Callable[[memoryview, int], None], *, begin: int = 0
) -> None:
    """Copy bytes from `begin` on to an open file, a piece a pass of the loop, synced now and then.

    on_piece: called with each piece and its offset before it is written; it may change the piece.
    The caller syncs the end. Raises: StorageError, the file is shorter; OSError.
    """
    files, size, at = loop.files, source.size, begin
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(0, size - begin))))
    synced = at
    while at < size:
        piece = buffer[: size - at]
        count = await source.reads.read_into(source.fd, piece, at)
        if count != len(piece):
            raise StorageError(f"{source.path} ends at byte {at + count} of {size}")
        on_piece(piece, at)
        await files.write_all(write_fd, piece, at)
        at += count
        if at - synced >= _SYNC_EVERY_BYTES:
            await files.fdatasync(write_fd)
            synced = at
        await loop.next_pass()


class NewTree:
    """A new directory whose files are written one after the other. `root` exists."""

    def __init__(self, files: FileCalls, root: str) -> None:
        self._files = files
        self.root = root
        self._unsynced: dict[str, None] = {root: None}
        """The directories on the way to the files, each after the one that it is in.

        All are synced, because an attempt that failed may have made them.
        """

    async def place(self, name: str) -> str:
        """Return the path of a file below the root, whose directory is there. Raises: OSError."""
        path = f"{self.root}/{name}"
        if os.path.dirname(path) not in self._unsynced:
            await self._files.to_thread(make_directories, self._files, self.root, os.path.dirname(name), {})
            at = self.root
            for part in os.path.dirname(name).split("/"):
                at = f"{at}/{part}"
                self._unsynced[at] = None
        return path

    async def sync(self) -> None:
        """Sync the directories of all new files, innermost first. Raises: OSError."""
        for directory in reversed(self._unsynced):
            await self._files.sync_directory(directory)


async def remove_durably(files: FileCalls, path: str) -> None:
    """Remove a directory whose name states that it is whole.

    It gets another name first, so a kill leaves no part of it under that name.
    Raises: OSError.
    """
    removed = f"{path}{_REMOVED}"
    await files.rename(path, removed)
    await files.sync_directory(os.path.dirname(path))
    await remove_tree(files, removed)


async def remove_leftovers(files: FileCalls, root: str) -> None:
    """Remove from a directory what interrupted calls of `remove_durably` left. Raises: OSError."""
    for name in await files.to_thread(list_if_there, files, root):
        if name.endswith(_REMOVED):
            await remove_tree(files, f"{root}/{name}")


async def remove_tree(files: FileCalls, path: str) -> None:
    """Remove a directory with all that is in it; a link to one as it is. Raises: OSError."""
    try:
        await files.unlink(path)
    except IsADirectoryError:
        for name in await files.to_thread(list_if_there, files, path):
            await remove_tree(files, f"{path}/{name}")
        await files.to_thread(files.remove_directory, path)
