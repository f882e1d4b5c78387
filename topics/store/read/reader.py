"""Reads of byte ranges of stored files: at once from memory, through the ring from disk.

The loop never waits for a disk here: a slow one delays only its reader. Files are not mapped,
because a page fault would stop the loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from topics.common.memory import page_aligned
from topics.errors import CorruptError, StorageError
from topics.loop.files import Files
from topics.store.disk.open_files import OpenFiles
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import BLOCK_BYTES, align_up
from topics.store.in_memory.hot_tail import HotTail
from topics.store.read.compressed_reads import CompressedReads
from topics.store.read.file_prefetch import FilePrefetch
from topics.store.read.file_range import FileRange

log = logging.getLogger(__name__)

_PLACES_LOGGED = 256
"""Damaged places that are remembered, so that reads of one place again and again log it once."""


Fetched = list[memoryview] | StorageError
"""The bytes of each piece, or the error for which there are none.

Views that come before `fetch` returns are valid until `done` returns, so the caller copies what it
keeps. Later ones belong to the caller.
"""


class Reader:
    """The reader of pieces of any StoredFile."""

    def __init__(
        self,
        files: Files,
        table: FileTable,
        tail: HotTail,
        opener: OpenFiles | None = None,
        inflating: CompressedReads | None = None,
        *,
        prefetch: FilePrefetch | None = None,
    ) -> None:
        self.files = files
        self.table = table
        self.tail = tail
        self.opener = opener
        """The opener of files without a descriptor; None: those cannot be read."""
        self.inflating = inflating
        """The reads of compressed segments; None: there are none."""
        self.prefetch = FilePrefetch(files, 0) if prefetch is None else prefetch
        self.checksum_failures = 0
        """Reads that found a frame, or a block of frames, that is not what was written."""
        self._logging = threading.RLock()
        self._logged: dict[tuple[str, int], None] = {}

    def fetch(self, pieces: Sequence[FileRange], done: Callable[[Fetched], None]) -> None:
        """Fetch the pieces' bytes for a reader that may continue after them; call `done` once.

        It is called before returning if all bytes are in memory, else when the last read has ended.
        """
        found = [self.find(piece) or self.prefetch.find(piece) for piece in pieces]
        missing = [piece for piece, view in zip(pieces, found, strict=True) if view is None]

        def on_fetched(fetched: Fetched) -> None:
            done(fetched)
            # The answer is first: a window takes longer to fill than these pieces.
            for piece in missing:
                file = self.table.get(piece.file_id)
                if file is not None:
                    self.prefetch.note(file, piece)

        self._fetch(pieces, found, on_fetched if missing else done, None)

    def fetch_once(
        self, pieces: Sequence[FileRange], done: Callable[[Fetched], None], memory: memoryview | None = None
    ) -> None:
        """Fetch pieces as `fetch` does, for a caller that reads each file once.

        memory: the caller's; one piece may be read to it, unless it is read past the page cache.
        """
        self._fetch(pieces, [self.find(piece) for piece in pieces], done, memory)

    def _fetch(
        self,
        pieces: Sequence[FileRange],
        found: Sequence[memoryview | None],
        done: Callable[[Fetched], None],
        memory: memoryview | None,
    ) -> None:
        views = [view for view in found if view is not None]
        if len(views) == len(pieces):
            done(views)
            return
        missing = len(pieces) - len(views)
        _Fetch(self, done, missing, memory).start(pieces, found)

    def readable(self, file_id: int) -> StoredFile | StorageError:
        """Return a file that is open, or that can be opened; else why it cannot be read."""
        file = self.table.get(file_id)
        if file is None or (file.fd < 0 and file.direct_fd < 0 and (self.opener is None or not file.path)):
            return StorageError(f"file {file_id} is not open")
        return file

    def open(self, file: StoredFile, done: Callable[[StorageError | None], None]) -> None:
        """Open a readable file that is not open, then call `done`. The caller holds it."""
        assert self.opener is not None, "without one, it was not readable"

        def on_opened(res: int) -> None:
            done(StorageError(f"opening {file.path} failed: {os.strerror(-res)}") if res < 0 else None)

        self.opener.open(file, on_opened)

    def on_unsound(self, file_id: int, offset: int, size: int, what: str) -> None:
        """Count and log a frame that does not match its checksum or its place.

        what: the record that was read.
        """
        self.prefetch.drop(file_id, offset)  # they may be wrong only in memory
        file = self.table.get(file_id)
        path = file.path if file is not None else ""
        text = f"the {size} bytes of {what} do not match their checksum or their place"
        self._log_damage(path, offset, text)

    def on_corrupt(self, error: CorruptError) -> None:
        """Count and log bytes of a file that cannot be what was written."""
        detail = error.detail or {}
        self._log_damage(detail.get("path", ""), detail.get("offset", 0), str(error))

    def _log_damage(self, path: str, offset: int, what: str) -> None:
        with self._logging:  # Callers' threads read, too, and signals' handlers within.
            self.checksum_failures += 1
            is_new = (path, offset) not in self._logged
            if is_new:
                if len(self._logged) >= _PLACES_LOGGED:
                    del self._logged[next(iter(self._logged))]
                self._logged[path, offset] = None
        if is_new:
            log.error("damage in %s at byte %d: %s", path or "memory", offset, what)

    def find(self, piece: FileRange) -> memoryview | None:
        """Return the bytes of a piece if they are in memory, else None."""
        view = self.tail.find(*piece)
        if view is None:
            file = self.table.get(piece.file_id)
            if file is not None and file.memory is not None and piece.offset + piece.length <= file.size:
                return memoryview(file.memory)[piece.offset : piece.offset + piece.length]
        return view

    def ranges(self) -> bytearray:
        """Return the hot tail's chunks as packed HOT_RANGE rows.

        Valid until the next commit is placed.
        """
        return self.tail.ranges()

    def is_prefetched(self, piece: FileRange) -> bool:
        """Return whether a piece of a file is in memory because it was prefetched."""
        return self.prefetch.find(piece) is not None

    def prefetched_ranges(self) -> bytearray:
        """Return what was prefetched as packed HOT_RANGE rows. Valid until the loop continues."""
        return self.prefetch.ranges()


class _Fetch:
    """One fetch with reads in flight; it ends when all of them have, after an error, too."""

    def __init__(
        self, reader: Reader, done: Callable[[Fetched], None], missing: int, memory: memoryview | None
    ) -> None:
        self.reader = reader
        self._done = done
        self._missing = missing
        self._memory = memory
        self._views: list[memoryview] = []
        self._error: StorageError | None = None

    def start(self, pieces: Sequence[FileRange], found: Sequence[memoryview | None]) -> None:
        reader = self.reader
        reads: list[_PieceRead] = []
        for index, (piece, view) in enumerate(zip(pieces, found, strict=True)):
            if view is not None:
                # the tail may change before the reads end
                self._views.append(memoryview(bytes(view)))
                continue
            self._views.append(memoryview(b""))
            file = reader.readable(piece.file_id)
            if isinstance(file, StorageError):
                self._error = file
                self._missing -= 1
                continue
            if file.compressed and reader.inflating is not None:
                reads.append(_InflatedRead(self, index, file, piece, reader.inflating))
            else:
                reads.append(_Read(self, index, file, piece, self._memory))
        if not reads:
            self._end()
        for read in reads:
            read.submit()

    def on_read(self, read: _PieceRead, error: StorageError | None) -> None:
        read.file.release()
        self._views[read.index] = read.view
        if isinstance(error, CorruptError):
            self.reader.on_corrupt(error)
        self._error = self._error or error
        self._missing -= 1
        if self._missing == 0:
            self._end()

    def _end(self) -> None:
        self._done(self._error or self._views)


class _PieceRead:
    """The read of one piece of a file, which is opened first if it is not open."""

    __slots__ = ("_fd", "_fetch", "file", "index")

    def __init__(self, fetch: _Fetch, index: int, file: StoredFile, fd: int) -> None:
        file.hold()
        self._fetch = fetch
        self.index = index
        self.file = file
        self._fd = fd

    @property
    def view(self) -> memoryview:
        """The bytes that were read."""
        raise NotImplementedError

    def submit(self) -> None:
        reader = self._fetch.reader
        if self._fd < 0:
            reader.open(self.file, self._on_opened)
            return
        if reader.opener is not None:
            reader.opener.touch(self.file)
        self._read()

    def _on_opened(self, error: StorageError | None) -> None:
        if error is not None:
            self._fetch.on_read(self, error)
            return
        self._fd = self.file.fd
        self._read()

    def _read(self) -> None:
        raise NotImplementedError


class Filling:
    """The memory that one piece is read to, by one read or, after a short one, by several.

    O_DIRECT reads whole blocks into page-aligned memory.
    """

    __slots__ = ("_begin", "_buffer", "_count", "_direct", "_length", "_path", "_skip", "fd")

    def __init__(self, file: StoredFile, piece: FileRange, memory: memoryview | None = None) -> None:
        """memory: the caller's, see `Reader.fetch`."""
        self.fd = file.fd if file.fd >= 0 else file.direct_fd
        """The descriptor to read from; -1: the file is not open."""
        self._path = file.path
        self._length = piece.length
        self._count = 0
        # A file that commits write past the page cache is read past it, too: a page cached here
        # would become stale.
        if file.kind is FileKind.WAL and file.active and file.direct_fd >= 0:
            self.fd = file.direct_fd
            self._begin = piece.offset & -BLOCK_BYTES
            self._skip = piece.offset - self._begin
            self._buffer = memoryview(page_aligned(align_up(self._skip + piece.length, BLOCK_BYTES)))
        else:
            self._begin = piece.offset
            self._skip = 0
            self._buffer = np.empty(piece.length, np.uint8).data if memory is None else memory[: piece.length]
        self._direct = 0 <= file.direct_fd == self.fd

    @property
    def view(self) -> memoryview:
        """The bytes of the piece."""
        return self._buffer[self._skip : self._skip + self._length]

    @property
    def rest(self) -> tuple[memoryview, int]:
        """The memory that the next read is to fill, and its offset in the file."""
        return self._buffer[self._count :], self._begin + self._count

    def on_result(self, res: int) -> StorageError | None:
        """Note what a read returned. Return the error that ends the reads."""
        if res < 0:
            return StorageError(f"reading {self._path} failed: {os.strerror(-res)}")
        self._count += res
        if self.is_full:
            return None
        if res == 0:
            end = self._begin + self._count
            text = f"{self._path} ends at {end}, inside a record"
            return CorruptError(text, {"path": self._path, "offset": end})
        if self._skip or self._direct:
            self._count &= -BLOCK_BYTES
        return None

    @property
    def is_full(self) -> bool:
        return self._count >= self._skip + self._length


class _Read(_PieceRead):
    """The read of one piece through the ring."""

    __slots__ = ("_filling",)

    def __init__(
        self, fetch: _Fetch, index: int, file: StoredFile, piece: FileRange, memory: memoryview | None
    ) -> None:
        self._filling = Filling(file, piece, memory)
        super().__init__(fetch, index, file, self._filling.fd)

    @property
    def view(self) -> memoryview:
        return self._filling.view

    def _read(self) -> None:
        self._fetch.reader.files.read_nowait(self._fd, *self._filling.rest, self._on_result)

    def _on_result(self, res: int) -> None:
        error = self._filling.on_result(res)
        if error is not None or self._filling.is_full:
            self._fetch.on_read(self, error)
        else:
            self._read()


class _InflatedRead(_PieceRead):
    """The read of one piece of a compressed segment."""

    __slots__ = ("_inflating", "_piece", "_view")

    def __init__(
        self, fetch: _Fetch, index: int, file: StoredFile, piece: FileRange, inflating: CompressedReads
    ) -> None:
        super().__init__(fetch, index, file, file.fd)
        self._piece = piece
        self._inflating = inflating
        self._view = memoryview(b"")

    @property
    def view(self) -> memoryview:
        return self._view

    def _read(self) -> None:
        self._inflating.begin(self.file, self._piece.offset, self._piece.length, self._on_result)

    def _on_result(self, found: memoryview | StorageError) -> None:
        if isinstance(found, StorageError):
            self._fetch.on_read(self, found)
        else:
            self._view = found
            self._fetch.on_read(self, None)
