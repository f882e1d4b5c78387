"""Parts of files in memory, before the next read asks for them.

A reader that lags by more than the hot tail reads file after file. Each of its reads would wait for
the ring, and none of them would be plain (`engine/read/plain_reads.py`). So a read of a file near
the place of an earlier one begins to fill a window: the part of the file that follows.

The log no longer writes to these files, so their bytes do not change; a segment only grows. A read
from a window compares frames with their checksums, as after a read of the file.
"""

from __future__ import annotations

from bisect import bisect_left
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
_NEAR_SHARE = 16
"""Reads are near each other in the same sixteenth of a window, and in two that follow."""
_NOTED_MAX = 256
_AGAIN_SHARE = 4
"""A window that is gone is filled again once a quarter of its bytes was read from the file."""
_FILLED_NOTED_MAX = 1024
_FILLING_MAX = 8

_Place = tuple[int, int]
"""A file's number, and which of its windows."""


class _PrefetchWindow:
    """A part of a file from `start` on, of which `used` bytes are there; `asked` were to be."""

    __slots__ = ("address", "asked", "file", "start", "used", "view")

    def __init__(self, size: int) -> None:
        self.view = memoryview(page_aligned(size))
        self.address = int(ffi.cast("uintptr_t", ffi.from_buffer(self.view)))
        self.file: StoredFile | None = None
        self.start = 0
        self.used = 0
        self.asked = 0


class FilePrefetch:
    """The windows of one store. Beyond `budget` bytes the oldest one is used for the next."""

    def __init__(self, files: Files, budget: int) -> None:
        """budget: bytes; 0: there are no windows."""
        self._files = files
        self.window_bytes = min(_WINDOW_BYTES_MAX, budget // (_WINDOWS_MIN + 1) & -BLOCK_BYTES)
        """Distance of windows in a file. The windows of a small budget are small."""
        self._size = self.window_bytes + self.window_bytes // _OVERLAP_SHARE
        """Bytes of a window."""
        self._most = budget // self._size if self.window_bytes else 0
        self._near_bytes = max(1, self.window_bytes // _NEAR_SHARE)
        self._made = 0
        self._noted: dict[_Place, int] = {}
        """Where files were read lately, in this order: parts of `_near_bytes`."""
        self._ends: dict[_Place, int] = {}
        """Parts in which windows end that were filled lately: a reader continues there."""
        self._read: dict[_Place, int] = {}
        """Bytes read from the file beside a window that was filled lately, in this order."""
        self._filling: set[_Place] = set()
        self._windows: dict[_Place, _PrefetchWindow] = {}
        """The filled windows, the oldest first."""
        self._places: list[_Place] = []
        """Where there are windows, sorted."""
        self._ranges = bytearray()
        """A HOT_RANGE for each of them."""
        self._free: deque[_PrefetchWindow] = deque()

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
        return self._ranges

    # --- what they read ----------------------------------------------------------------------------------------------
    def note(self, file: StoredFile, piece: FileRange) -> None:
        """Note that a piece of an open file was read.

        If an earlier one was near, fill a window.
        """
        if not self._most or file.active or file.compressed or file.kind is FileKind.MEMORY or file.fd < 0:
            return
        file_id, last = file.file_id, piece.offset + piece.length - 1
        first_part, last_part = piece.offset // self._near_bytes, last // self._near_bytes
        near = [(file_id, part) for part in range(first_part - 1, last_part + 1)]
        goes_on = any(self._ends.pop(part, 0) for part in near)
        is_near = goes_on or any(part in self._noted for part in near)
        _put_last(self._noted, (file_id, last_part), 1, _NOTED_MAX)
        place = file_id, last // self.window_bytes
        if self._is_due(file, place, piece.length, goes_on=goes_on) and is_near:
            self._fill(file, place)

    def _is_due(self, file: StoredFile, place: _Place, size: int, *, goes_on: bool) -> bool:
        """Return whether the window of this place would be of use.

        Where windows are gone before they were used, they cost little beside what is read.
        size: of what was read there. goes_on: the reader has come from the end of a window.
        """
        if place in self._filling:
            return False
        window = self._windows.get(place)
        if window is not None:
            return self._reach(file, window.start) > window.asked
        before = self._read.get(place)
        if before is None or goes_on:
            return True
        self._read[place] = before + size
        return before + size >= self.window_bytes // _AGAIN_SHARE

    def _reach(self, file: StoredFile, start: int) -> int:
        """Return how many bytes a window may have that begins at `start`."""
        return max(0, min(self._size, file.size - start))

    def _fill(self, file: StoredFile, place: _Place) -> None:
        start = place[1] * self.window_bytes
        size = self._reach(file, start)
        window = self._room(place) if size else None
        if window is None:
            return
        window.file, window.start, window.used = file, start, 0
        window.asked = size
        self._filling.add(place)
        _put_last(self._read, place, 0, _FILLED_NOTED_MAX)
        file.hold()
        self._files.read_nowait(file.fd, window.view[:size], start, lambda res: self._on_filled(window, place, res))

    def _room(self, place: _Place) -> _PrefetchWindow | None:
        """Return memory for a window; None if too many are being filled."""
        if len(self._filling) >= min(_FILLING_MAX, self._most):
            return None
        if place in self._windows:
            return self._take(place)
        if self._free:
            return self._free.pop()
        if self._made < self._most:
            self._made += 1
            return _PrefetchWindow(self._size)
        return self._take(next(iter(self._windows)))

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
        at = bisect_left(self._places, place)
        self._places.insert(at, place)
        self._windows[place] = window
        at *= HOT_RANGE.size
        self._ranges[at:at] = HOT_RANGE.pack(file.file_id, window.start, window.used, window.address)
        _put_last(self._ends, (file.file_id, (window.start + res - 1) // self._near_bytes), 1, _NOTED_MAX)

    def _take(self, place: _Place) -> _PrefetchWindow:
        at = bisect_left(self._places, place)
        del self._places[at]
        del self._ranges[at * HOT_RANGE.size : (at + 1) * HOT_RANGE.size]
        return self._windows.pop(place)

    def drop(self, file_id: int, offset: int) -> None:
        """Drop the window of a frame that is not sound: the next read reads the file."""
        place = file_id, offset // self.window_bytes if self._most else 0
        if place in self._windows:
            self._give_up(place)

    def forget(self, file: StoredFile) -> None:
        """Drop the windows of a file that is removed."""
        at = bisect_left(self._places, (file.file_id, 0))
        while at < len(self._places) and self._places[at][0] == file.file_id:
            self._give_up(self._places[at])

    def _give_up(self, place: _Place) -> None:
        window = self._take(place)
        window.file = None
        self._free.append(window)


def _put_last(noted: dict[_Place, int], place: _Place, value: int, most: int) -> None:
    """Put a value at the end of what is noted; forget the oldest beyond `most`."""
    noted.pop(place, None)
    noted[place] = value
    if len(noted) > most:
        del noted[next(iter(noted))]
