"""The directory of an archive, whose disk may be another one, or not be mounted."""

from __future__ import annotations

import os

from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.archive.joint_timeline import core_place
from topics.store.disk.data_directory import sync_parents


class ArchivePlace:
    """The directory in which a log has its timeline."""

    def __init__(self, loop: Loop, path: str) -> None:
        self._loop = loop
        self._files = loop.files
        place = core_place(path)
        self._path = path if place is None else place.archive
        self._above = [self._path] if place is None else [self._path, os.path.dirname(path), path]
        """The directories that may be missing: the archive, and those in it above the timelines."""
        self.mount = ""
        """The directory, if it was a mount point when the log used it last."""

    async def mount_point(self) -> str:
        """Return the archive's directory if it is a mount point, else "". Raises: OSError."""
        archive, lstat = self._path, self._loop.ring.lstat
        here, above = [await self._files.to_thread(lstat, f"{archive}/{name}") for name in (".", "..")]
        return archive if here.st_dev != above.st_dev else ""

    async def check_mounted(self) -> None:
        """Raises: StorageError, the archive's directory is that below its disk; OSError."""
        archive = self._path
        if self.mount == archive and not await self.mount_point():
            remedy = "mount it, or name another directory to begin another timeline"
            raise StorageError(f"{archive} was the mount point of a disk, and is none now: {remedy}")

    async def why_lost(self) -> str:
        """Return why the archive has no timeline of this log. Raises: StorageError, OSError."""
        await self.check_mounted()
        if not self.mount and await self.mount_point():
            return "has no note: a disk may have been mounted over it, which hides what was archived before"
        return "has no note, as on a disk that was replaced or is not mounted"

    async def check_there(self, timeline: str) -> None:
        """Raises: StorageError, not even the archive's directory is there, which had a timeline."""
        archive = self._path
        try:
            await self._files.to_thread(self._loop.ring.lstat, archive)
        except FileNotFoundError as error:
            remedy = f"mount its disk, or make it (mkdir {archive}) to begin another timeline"
            said = f"{archive} is not there, and the log has a timeline in its archive, {timeline}"
            raise StorageError(f"{said}: {remedy}") from error

    async def make_timeline(self, timeline: str) -> None:
        """Make the directory of a timeline, durably, and that of the archive, but none above it.

        What is above it is there, unless a disk is not mounted.
        timeline: its path.
        Raises: OSError, StorageError.
        """
        files, above = self._files, os.path.dirname(self._path) or "."
        made_in = list[str]()
        for path in self._above:
            try:
                if await files.to_thread(files.make_directory, path):
                    made_in.append(os.path.dirname(path) or ".")
            except FileNotFoundError as error:
                raise StorageError(f"{above} is not there: mount its disk, or make it (mkdir -p {above})") from error
        await files.to_thread(files.make_directory, timeline)
        await sync_parents(self._loop, timeline, [os.path.dirname(timeline), *made_in])
