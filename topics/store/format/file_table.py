"""Every file a record may lie in, by a small number: what the index rows of all topics point to.

A file's number (`file_id`, u32) is given out at start-up or when the file is made, and means nothing in another run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from mmap import mmap


class FileKind(IntEnum):
    """Where the bytes of a file are."""

    WAL = 1
    SEGMENT = 2
    PACK = 3
    MEMORY = 4


@dataclass(slots=True, eq=False)
class StoredFile:
    """One file. Rows point to it by `file_id` and an offset; readers hold it while they read."""

    file_id: int
    kind: FileKind
    path: str
    """Empty for MEMORY."""
    fd: int = -1
    """For buffered access; -1 when not open."""
    direct_fd: int = -1
    """The same file opened with O_DIRECT; -1 where that does not work."""
    size: int = 0
    """Bytes that may be read."""
    active: bool = False
    """Still written to. With O_DIRECT such a file is read past the page cache only."""
    leaving: bool = False
    """A checkpoint has asked for another file: what is staged from now on is not to refer to this one."""
    superseded: bool = False
    """Of a log file: a later one took over from it. It is there for who shares its frames, and may not be durable: no
    replay is to begin in it."""
    zeroed: bool = True
    """Of a log file: written once before it was taken into use. Else its space was only reserved."""
    cold: bool = False
    """In the cold directory."""
    live_rows: int = 0
    """Rows of the index that point here."""
    readers: int = 0
    memory: bytearray | mmap | None = None
    """The bytes of a MEMORY file."""
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def hold(self) -> None:
        """A reader begins: the file is neither closed nor recycled until `release`."""
        self.readers += 1

    def release(self) -> None:
        assert self.readers > 0, "a reader left that never came"
        self.readers -= 1
        if self.readers == 0:
            waiting, self._waiting = self._waiting, []
            for fn in waiting:
                fn()

    def when_unread(self, fn: Callable[[], None]) -> None:
        """Calls `fn` once no reader holds the file, perhaps at once."""
        if self.readers == 0:
            fn()
        else:
            self._waiting.append(fn)


class FileTable:
    """file_id -> StoredFile. Numbers count up from 1 and are not used again."""

    def __init__(self) -> None:
        self._files: dict[int, StoredFile] = {}
        self._log: dict[int, StoredFile] = {}
        """Those of the log: few among many."""
        self._last_id = 0

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
        """The files of the log, in the order of their numbers."""
        return list(self._log.values())

    def __len__(self) -> int:
        return len(self._files)

    def remove(self, file: StoredFile) -> None:
        """Forgets a file no row points to and nobody reads. Closing and deleting it is the caller's."""
        assert file.live_rows == 0, "rows of the index still point to this file"
        assert file.readers == 0, "somebody still reads this file"
        del self._files[file.file_id]
        self._log.pop(file.file_id, None)
