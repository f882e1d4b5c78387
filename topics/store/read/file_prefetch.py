"""Parts of files in memory, before the next read asks for them.

A reader that lags by more than the hot tail reads file after file. Each of its reads would wait for
the ring, and none of them would be plain (`engine/read/plain_reads.py`). So a read of a file near
the place of an earlier one begins to fill a window: the part of the file that follows.

The log no longer writes to these files, so their bytes do not change. A read from a window compares
frames with their checksums, as after a read of the file.
"""

from __future__ import annotations

from collections import deque

from topics.common.memory import page_aligned
from topics.loop.files import Files
from topics.store.format._codec import ffi
from topics.store.format.file_table import FileKind, StoredFile
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.in_memory.hot_tail import HOT_RANGE
from topics.store.read.file_range import FileRange

_WINDOW_BYTES_MAX = 1 << 20
_WINDOWS_MIN = 16
_OVERLAP_SHARE = 16
"""A window has a sixteenth more: the rest of a frame that begins at its end."""
_PLACES_NOTED = 256
_FILLING_MAX = 8

_Place = tuple[int, int]
"""A file's number, and which of its windows."""


class _PrefetchWindow:
    """A part of a file from `start` on, of which `used` bytes are there."""

    __slots__ = ("address", "file", "start", "used", "view")

    def __init__(self, size: int) -> None:
        self.view = memoryview(page_aligned(size))
        self.address = int(ffi.cast("uintptr_t", ffi.from_buffer(self.view)))
        self.file: StoredFile | None = None
        self.start = 0
        self.used = 0


class FilePrefetch:
    """The windows of one store. Beyond `budget` bytes the oldest one is used for the next."""

    def __init__(self, files: Files, budget: int) -> None:
        """budget: bytes; 0: there are no windows."""
        self._files = files
        self.window_bytes = min(_WINDOW_BYTES_MAX, budget // (_WINDOWS_MIN + 1) & -BLOCK_BYTES)
        """Distance of windows in a file. The windows of a small budget are small."""
        size = self.window_bytes + self.window_bytes // _OVERLAP_SHARE
        self._most = budget // size if self.window_bytes else 0
        self._made = 0
        self._noted: dict[_Place, None] = {}
        """Where files were read lately, in this order."""
        self._filling: set[_Place] = set()
        self._windows: dict[_Place, _PrefetchWindow] = {}
        """The filled windows, the oldest first."""
        self._free: deque[_PrefetchWindow] = deque()
        self._ranges: bytearray | None = None

    # --- what reads ask ----------------------------------------------------------------------------------------------
    def find(self, piece: FileRange) -> memoryview | None:
        """Return the bytes of a piece if they are in one window, else None.

        The view is valid until the loop continues: a window is used for other bytes then.
        """
        if not self._windows:
            return None
        window = self._windows.get((piece.file_id, piece.offset // self.window_bytes))
        if window is None:
            return None
        at = piece.offset - window.start
        return window.view[at : at + piece.length] if at + piece.length <= window.used else None

    def ranges(self) -> bytearray:
        """Return all windows as packed HOT_RANGE, sorted; valid until the loop continues."""
        if self._ranges is None:
            self._ranges = bytearray()
            for (file_id, _), window in sorted(self._windows.items()):
                self._ranges += HOT_RANGE.pack(file_id, window.start, window.used, window.address)
        return self._ranges

    # --- what they read ----------------------------------------------------------------------------------------------
    def note(self, file: StoredFile, piece: FileRange) -> None:
        """Note that a piece of an open file was read.

        If an earlier one was near, fill a window.
        """
        if not self._most or file.active or file.compressed or file.kind is FileKind.MEMORY or file.fd < 0:
            return
        first = piece.offset // self.window_bytes
        last = (piece.offset + piece.length - 1) // self.window_bytes
        is_near = (file.file_id, first) in self._noted or (file.file_id, first - 1) in self._noted
        self._noted.pop((file.file_id, last), None)
        self._noted[file.file_id, last] = None
        if len(self._noted) > _PLACES_NOTED:
            del self._noted[next(iter(self._noted))]
        place = file.file_id, last
        if is_near and place not in self._windows and place not in self._filling:
            self._fill(file, place)

    def _fill(self, file: StoredFile, place: _Place) -> None:
        window = self._room()
        if window is None:
            return
        start = place[1] * self.window_bytes
        window.file, window.start, window.used = file, start, 0
        room = window.view[: max(0, min(len(window.view), file.size - start))]
        if not room:
            self._free.append(window)
            return
        self._filling.add(place)
        file.hold()
        self._files.read_nowait(file.fd, room, start, lambda res: self._on_filled(window, place, res))

    def _room(self) -> _PrefetchWindow | None:
        """Return memory for a window; None if too many are being filled."""
        if len(self._filling) >= min(_FILLING_MAX, self._most):
            return None
        if self._free:
            return self._free.pop()
        if self._made < self._most:
            self._made += 1
            return _PrefetchWindow(self.window_bytes + self.window_bytes // _OVERLAP_SHARE)
        self._ranges = None
        return self._windows.pop(next(iter(self._windows)))

    def _on_filled(self, window: _PrefetchWindow, place: _Place, res: int) -> None:
        file = window.file
        assert file is not None, "a window of no file was filled"
        self._filling.discard(place)
        is_left = file.is_awaited
        file.release()
        if res <= 0 or is_left:
            # A reader that needs these bytes reads the file, and gets the error.
            window.file = None
            self._free.append(window)
            return
        window.used = res
        self._windows[place] = window
        self._ranges = None

    def forget(self, file: StoredFile) -> None:
        """Drop the windows of a file that is removed."""
        places = [place for place, window in self._windows.items() if window.file is file]
        for place in places:
            window = self._windows.pop(place)
            window.file = None
            self._free.append(window)
            self._ranges = None
