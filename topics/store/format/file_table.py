"""The table of all files that records may be in, by the small numbers that index rows hold.

A file's number (`file_id`, u32) is assigned at start-up or when the file is created, and means
nothing in another run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from mmap import mmap

import numpy as np
from numpy.typing import NDArray

from topics.store.format.compressed_segment import Blocks


class FileKind(IntEnum):
    """The place of a file's bytes."""

    WAL = 1
    SEGMENT = 2
    PACK = 3
    MEMORY = 4


@dataclass(slots=True, eq=False)
class StoredFile:
    """One file. Rows refer to it by `file_id` and an offset; readers hold it while they read."""

    file_id: int
    kind: FileKind
    path: str
    """The path; empty for MEMORY."""
    fd: int = -1
    """The descriptor for buffered access; -1 if not open."""
    direct_fd: int = -1
    """The descriptor opened with O_DIRECT; -1 where O_DIRECT does not work."""
    size: int = 0
    """Bytes that may be read."""
    active: bool = False
    """The file is still written to. With O_DIRECT it is read only past the page cache."""
    leaving: bool = False
    """A checkpoint asked for another file; frames staged from now on must not refer to this one."""
    superseded: bool = False
    """A log file that a later one has replaced.

    It stays for topics that share its frames, and may not be durable, so no replay may begin in it.
    """
    zeroed: bool = True
    """A log file that was zeroed before use. False: its space was only reserved."""
    cold: bool = False
    """The file is in the cold directory."""
    compressed: bool = False
    """The file is a compressed segment: its bytes are those of the segment only once inflated."""
    blocks: Blocks | None = None
    """Where the blocks of a compressed segment are, once it was read."""
    live_rows: int = 0
    """Number of index rows that refer to the file."""
    pack_records: int = 0
    """Number of records in a pack, with those of runs that are no longer in use."""
    readers: int = 0
    memory: bytearray | mmap | None = None
    """The bytes of a MEMORY file."""
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def hold(self) -> None:
        """Begin to read: the file is neither closed nor recycled until `release`."""
        self.readers += 1

    def release(self) -> None:
        assert self.readers > 0, "a reader left that never came"
        self.readers -= 1
        if self.readers == 0:
            waiting, self._waiting = self._waiting, []
            for fn in waiting:
                fn()

    @property
    def is_awaited(self) -> bool:
        """Whether something waits for the readers to leave."""
        return bool(self._waiting)

    def when_unread(self, fn: Callable[[], None]) -> None:
        """Call `fn` once no reader holds the file, perhaps at once."""
        if self.readers == 0:
            fn()
        else:
            self._waiting.append(fn)


class FileTable:
    """The map from file_id to StoredFile. Numbers count up from 1 and are never used again."""

    def __init__(self) -> None:
        self._files: dict[int, StoredFile] = {}
        self._log: dict[int, StoredFile] = {}
        """The files of the log, which are few among many."""
        self._last_id = 0
        self.on_removed: list[Callable[[StoredFile], None]] = []
        """Called with each file that leaves the table."""

    def add(self, kind: FileKind, path: str, *, fd: int = -1, direct_fd: int = -1, size: int = 0) -> StoredFile:
        self._last_id += 1
        assert self._last_id < 1 << 32, "index rows hold a file number in 32 bits"
        file = StoredFile(self._last_id, kind, path, fd, direct_fd, size)
        self._files[file.file_id] = file
        if kind is FileKind.WAL:
            self._log[file.file_id] = file
        return file

    def get(self, file_id: int) -> StoredFile | None:
        return self._files.get(file_id)

    def __getitem__(self, file_id: int) -> StoredFile:
        return self._files[file_id]

    def __iter__(self) -> Iterator[StoredFile]:
        return iter(list(self._files.values()))

    def of_log(self) -> list[StoredFile]:
        """Return the files of the log, in the order of their numbers."""
        return list(self._log.values())

    def log_ids(self) -> NDArray[np.uint32]:
        """Return the ids of the files of the log, ascending."""
        return np.array(list(self._log), np.uint32)

    def leave_log(self, file: StoredFile) -> None:
        """Count a file no longer among those of the log, though readers may still hold it."""
        del self._log[file.file_id]

    def __len__(self) -> int:
        return len(self._files)

    def remove(self, file: StoredFile) -> None:
        """Remove a file that no row refers to and no reader holds.

        The caller closes and deletes it.
        """
        assert file.live_rows == 0, "rows of the index still point to this file"
        assert file.readers == 0, "a reader still uses this file"
        del self._files[file.file_id]
        self._log.pop(file.file_id, None)
        for removed in self.on_removed:
            removed(file)
