"""A capture: what a data directory holds at one instant, kept as it was while it is copied.

Two things change files in place: a checkpoint sets delete flags in segments and packs, and the log
reuses its files. A capture holds its files, so that none is removed or reused, and keeps the bytes
that flags replace, so that a copy made later shows the instant of the capture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.store.format.file_table import StoredFile


class HeldFile(NamedTuple):
    """A file of a capture."""

    stored: StoredFile
    path: str
    """Where it was at the instant."""
    name: str
    """Its path in a data directory that holds the copy."""
    size: int
    """Number of leading bytes that belong to the capture; -1: all."""
    is_sealed: bool = False
    """Whether only delete flags change the file."""
    has_index: bool = False
    """Whether a file of index columns may be beside it."""


class _Replaced(NamedTuple):
    """Bytes of a file before flags replaced them."""

    offsets: NDArray[np.int64]
    """Offsets in the file, ascending."""
    were: NDArray[np.uint8]


class Capture:
    """The files of one instant. Made by the checkpointer; the owner releases it."""

    def __init__(self, captures: Captures, format_number: int, snapshot_number: int) -> None:
        self._captures = captures
        self.format_number = format_number
        """Format of the data directory."""
        self.snapshot_number = snapshot_number
        """Number of its snapshot, above those in the directory."""
        self.taken_ms = 0
        """Unix ms of the instant."""
        self.store: Sequence[bytes] = ()
        """The store's part of the snapshot, as `write_snapshot` takes it."""
        self.catalog: Sequence[bytes | memoryview] = ()
        """The catalog's part."""
        self.log: list[HeldFile] = []
        """The files of the log that continue the snapshot."""
        self.sealed: list[HeldFile] = []
        """Segments and packs."""
        self._replaced: defaultdict[str, list[_Replaced]] = defaultdict(list)

    def hold(self, files: list[HeldFile], file: HeldFile) -> None:
        """Hold a file, as one of `log` or of `sealed`."""
        file.stored.hold()
        files.append(file)

    def release_log(self) -> None:
        """Let the log reuse its files; idempotent."""
        held, self.log = self.log, []
        for file in held:
            file.stored.release()

    def release(self) -> None:
        """Release all files; idempotent."""
        self.release_log()
        held, self.sealed = self.sealed, []
        self._captures.forget(self)
        for file in held:
            file.stored.release()

    def note(self, path: str, offsets: NDArray[np.int64], were: NDArray[np.uint8]) -> None:
        self._replaced[path].append(_Replaced(offsets, were))

    def has_changed(self, path: str) -> bool:
        """Return whether bytes of this file were replaced since the instant, or are about to be."""
        return path in self._replaced

    def put_back(self, path: str, data: bytearray | memoryview, offset: int) -> None:
        """Put the bytes of the instant into what was read from a file at `offset`.

        Bytes are noted before they are replaced. So it does not matter whether the read was before
        or after that.
        """
        notes = self._replaced.get(path)
        if not notes:
            return
        column = np.frombuffer(data, np.uint8)
        for replaced in reversed(notes):  # the first note of a byte has what it was at the instant
            first, last = np.searchsorted(replaced.offsets, (offset, offset + len(column)))
            column[replaced.offsets[first:last] - offset] = replaced.were[first:last]


class SharedInstant(Protocol):
    """An instant that the captures of several logs of one machine have, by its clock."""

    async def agreed_ms(self) -> int | None:
        """Return the instant, Unix ms, once the clock has passed it; None: there will be none.

        Called when this log has all that a capture of a later instant needs.
        """

    def is_kept(self) -> bool:
        """Return whether the clock was not set back since; called when the log's end is known."""


class Captures:
    """The captures that are in use, for those that are about to replace bytes of files."""

    def __init__(self) -> None:
        self._open: list[Capture] = []

    def begin(self, format_number: int, snapshot_number: int) -> Capture:
        capture = Capture(self, format_number, snapshot_number)
        self._open.append(capture)
        return capture

    def forget(self, capture: Capture) -> None:
        if capture in self._open:
            self._open.remove(capture)

    def note(self, path: str, offsets: NDArray[np.integer] | Sequence[int], were: NDArray[np.uint8]) -> None:
        """Note bytes of a file that are about to be replaced.

        were: the bytes at these offsets, as they are now.
        """
        if not self._open:
            return
        at = np.asarray(offsets, np.int64)
        order = np.argsort(at)
        for capture in self._open:
            capture.note(path, at[order], were[order])
