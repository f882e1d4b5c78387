"""The format number in the marker of a data directory, and how it is raised.

A directory keeps number 1 until it is to hold something that an older build would misread: a
record of bytes, a frame of a named reader, a compressed segment. Its marker is then replaced and
synced with the newest number, and only after that may such a frame be staged or such a file be
begun. An older build refuses the number, and does not read the directory wrongly. The number is
never lowered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from topics.errors import DiskFullError, StorageError
from topics.loop.loop import Loop
from topics.loop.tasks import Task
from topics.store.disk.disk_space import is_full
from topics.store.disk.whole_files import replace_file
from topics.store.format.segment_format import DIRECTORY_FORMAT, KNOWN_FORMATS, MARKER_NAME


class Marker(msgspec.Struct):
    """The contents of the marker: the format of the directory and how it is shared."""

    format: int
    cores: int
    """Number of engines that share the directory.

    Topics are spread over them by hash, so another count is refused.
    """


def refused_marker(marker: Marker, path: str, *, cores: int = 1) -> str:
    """Return why a directory with this marker is not opened; "" if it may be."""
    if marker.format not in KNOWN_FORMATS:
        known = f"{KNOWN_FORMATS[0]} to {KNOWN_FORMATS[-1]}"
        return f"{path}: format {marker.format}; this build knows {known}"
    if marker.cores != cores:
        return f"{path}: made for {marker.cores} cores, and this version runs {cores}: use the one that made it"
    return ""


class DirectoryFormat:
    """The format of an open data directory: one object of the store, which all its users share.

    A part that is about to stage a frame, or to begin a file, that needs the newest format does
    this first:

        if not format.is_newest:
            format.when_raised(begin_again)  # or, in a task: await format.raise_number()
            return

    The first caller starts the raise and the others wait for the same one. If it fails, each of
    them gets the disk's error, has staged nothing, and refuses its request with the error. The
    next caller tries again. No other request waits for a raise.
    """

    def __init__(self, loop: Loop, path: str, marker: Marker) -> None:
        """path: the data directory. marker: what its marker holds."""
        self._loop = loop
        self._path = f"{path}/{MARKER_NAME}"
        self._marker = marker
        self._raising: Task[StorageError | None] | None = None
        self.is_newest = marker.format == DIRECTORY_FORMAT
        """Whether frames and files of the newest format may be written. It stays true."""

    def when_raised(self, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` once the number is the newest on stable storage, or with the disk's error.

        It is called at once if the number is the newest already.
        """
        if self.is_newest:
            done(None)
            return
        raising = self._begin()
        raising.when_done(lambda: done(raising.result()))

    async def raise_number(self) -> None:
        """Return once the number is the newest on stable storage. Raises: StorageError."""
        if self.is_newest:
            return
        error = await self._begin()
        if error is not None:
            raise error

    async def settle(self) -> None:
        """Return when no raise is in progress: the store is about to be closed."""
        if self._raising is not None:
            await self._raising

    def _begin(self) -> Task[StorageError | None]:
        if self._raising is None:
            self._raising = self._loop.spawn(self._raise(), "format")
        return self._raising

    async def _raise(self) -> StorageError | None:
        marker = Marker(DIRECTORY_FORMAT, self._marker.cores)
        try:
            await replace_file(self._loop.files, self._path, msgspec.json.encode(marker))
        except OSError as error:
            reason = error.strerror or error
            if is_full(error):
                return DiskFullError(f"no space left to raise the format of the data directory: {reason}")
            return StorageError(f"the format of the data directory could not be raised: {reason}")
        finally:
            self._raising = None
        self.is_newest = True
        return None
