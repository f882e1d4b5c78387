"""The format number in the marker of a data directory, and how it is raised.

A directory keeps number 1 until it is to hold something that an older build would misread. Number 2
is that of records of bytes, frames of named readers and compressed segments, 3 that of records with
a delay, 4 that of routers between cores. Its marker is replaced and synced with the number that is
needed, and only after that may such a frame be staged or such a file be begun. An older build
refuses the number, and does not read the directory wrongly. The number is never lowered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from topics.errors import VERSION_REMEDY, DiskFullError, StorageError
from topics.loop.loop import Loop
from topics.loop.tasks import Task
from topics.store.disk.disk_space import is_full
from topics.store.disk.whole_files import replace_file
from topics.store.layouts.directory_names import KNOWN_FORMATS, MARKER_NAME, THIRD_DIRECTORY_FORMAT

CORES = 1
"""Number of engines that share a data directory."""
NO_CORE = -1
"""In the place of a core's number: a directory that is no core directory."""
DIRECTORY_SHIFT = 48
"""The bits of a topic's id from this one on are the number of the core directory that gave it out.

They are 0 in a directory of one core that never had several.
"""
SLOT_MAP_NAME = "slot-map"
"""Name of the file that says which core owns a topic. A directory of one core has none."""


class Marker(msgspec.Struct, omit_defaults=True):
    """The contents of the marker: the format of the directory and how it is shared."""

    format: int
    cores: int
    """CORES, or the number of cores for which it was made. Builds that know one core refuse others.

    Of a core directory it is never CORES, so that none of these builds opens it by itself.
    """
    core: int = NO_CORE
    """The number of the core whose directory it is."""
    of: str = ""
    """The id that a directory of several cores and its core directories share, in hex digits."""
    number: int = 0
    """The number of a core directory, which no other one of the data directory has or had. It is
    in the ids that the core gives to topics: see `DIRECTORY_SHIFT`.
    """
    log: str = ""
    """The id of the log, in hex digits, which its backups and what is restored from them have, too.
    "": it has had no backup yet.
    """


def refused_marker(marker: Marker, path: str, core: int = NO_CORE, number: int = 0) -> str:
    """Return why a directory with this marker is not opened; "" if it may be.

    core: the number of the core that opens its own directory. number: that of the directory.
    """
    if marker.format not in KNOWN_FORMATS:
        known = f"{KNOWN_FORMATS[0]} to {KNOWN_FORMATS[-1]}"
        return f"{path}: format {marker.format}; this build knows {known}: {VERSION_REMEDY}"
    if core != NO_CORE:
        return (
            ""
            if (marker.core, marker.number) == (core, number)
            else f"{path}: its marker is not that of core {core}: {_NOT_A_CORE}"
        )
    return refused_cores(marker, path)


_NOT_A_CORE = "put the directory of that core there, from where it was moved or copied to"


def refused_cores(marker: Marker, path: str) -> str:
    """Return why a directory is not opened as one of one core; "" if it is one."""
    if marker.core != NO_CORE:
        return (
            f"{path}: holds core {marker.core} of a directory of several cores, and no log by itself: name the "
            "directory above it"
        )
    if marker.cores != CORES:
        return f"{path}: made for {marker.cores} cores: serve it {_served_by(str(marker.cores))}"
    return ""


def has_slot_map(path: str) -> str:
    """Return why a directory with a slot map is not opened, whatever its marker says."""
    return f"{path}: made for several cores, as its {SLOT_MAP_NAME} says: serve it {_served_by('auto')}"


def _served_by(cores: str) -> str:
    return f"by `topics serve --cores {cores}`, or make it one of one core by `topics serve --cores 1`"


class DirectoryFormat:
    """The format of an open data directory: one object of the store, which all its users share.

    A part that is about to stage a frame, or to begin a file, that needs a format does this first:

        if format.number < needed:
            format.when_raised(needed, begin_again)  # or, in a task: await format.raise_to(needed)
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
        self.number = marker.format
        """Frames and files of this format and of lower ones may be written. It never falls."""
        self.takes_all = marker.format >= THIRD_DIRECTORY_FORMAT
        """Whether no record needs a higher number."""

    def when_raised(self, number: int, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` once the number is this on stable storage, or with the disk's error.

        It is called at once if the number is that high already.
        """
        if self.number >= number:
            done(None)
            return
        raising = self._begin(number)

        def on_raised() -> None:
            error = raising.result()
            if error is None:
                self.when_raised(number, done)  # again, if it was raised to less for another caller
            else:
                done(error)

        raising.when_done(on_raised)

    async def raise_to(self, number: int) -> None:
        """Return once the number is this on stable storage. Raises: StorageError."""
        while self.number < number:
            error = await self._begin(number)
            if error is not None:
                raise error

    @property
    def is_of_core(self) -> bool:
        """Whether it is the directory of one of several cores."""
        return self._marker.core != NO_CORE

    def marker_of_copy(self, number: int) -> Marker:
        """Return the marker of a copy whose files need this format."""
        return msgspec.structs.replace(self._marker, format=number)

    async def name_log(self) -> str:
        """Return the id of the log, which is on stable storage, and drawn if it had none.

        Raises: StorageError.
        """
        while not self._marker.log:
            if self._raising is None:
                self._raising = self._loop.spawn(self._raise(self.number, self._loop.random_bytes(8).hex()), "format")
            error = await self._raising
            if error is not None:
                raise error
        return self._marker.log

    async def settle(self) -> None:
        """Return when no raise is in progress: the store is about to be closed."""
        if self._raising is not None:
            await self._raising

    def _begin(self, number: int) -> Task[StorageError | None]:
        if self._raising is None:
            self._raising = self._loop.spawn(self._raise(number), "format")
        return self._raising

    async def _raise(self, number: int, log_id: str = "") -> StorageError | None:
        marker = msgspec.structs.replace(self._marker, format=number, log=log_id or self._marker.log)
        try:
            await replace_file(self._loop.files, self._path, msgspec.json.encode(marker))
        except OSError as error:
            reason = error.strerror or error
            if is_full(error):
                return DiskFullError(f"no space left to raise the format of the data directory: {reason}")
            return StorageError(f"the format of the data directory could not be raised: {reason}")
        finally:
            self._raising = None
        self._marker = marker
        self.number = number
        self.takes_all = number >= THIRD_DIRECTORY_FORMAT
        return None
