"""The archive of an open store as clients read it: how far it is, and its files piece by piece.

One piece is read at a time, so that readers of the archive do not take the disk from the log.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from topics.common.values.archive_state import ArchivedEnd, ArchiveOfCores, ArchiveState
from topics.errors import RequestError, StorageError, TopicsError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import ArchiveNote, OfCore
from topics.store.archive.archiver import Archiver
from topics.store.archive.joint_timeline import core_place
from topics.store.archive.known_mirrors import KnownMirrors
from topics.store.backup.backup_files import is_timeline_name
from topics.store.disk.directory_format import SLOT_MAP_NAME

_PATH_BYTES_MAX = 512
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_PATH = re.compile(rf"(?:log|bases)(?:/{_NAME}){{1,12}}", re.ASCII)

Done = Callable[[bytes | TopicsError], None]


class _Wanted(NamedTuple):
    path: str
    offset: int
    most: int
    """Bytes."""
    done: Done


def is_archived_path(path: str) -> bool:
    """Return whether a file of an archive may have this path, relative to its timeline."""
    return len(path) <= _PATH_BYTES_MAX and _PATH.fullmatch(path) is not None


class ServedArchive:
    """The archive of one store, or that it has none."""

    def __init__(self, loop: Loop, archive_dir: str, archiver: Archiver | None) -> None:
        self._loop = loop
        self._files = loop.files
        self._archive = archive_dir
        self._place = core_place(archive_dir)
        """Where a core has its archive; None: the server has one core."""
        self._archiver = archiver
        self._wanted: deque[_Wanted] = deque()
        self._reads = False
        self._mirrors = KnownMirrors()

    @property
    def state(self) -> ArchiveState | None:
        """The archive's state; None: there is no archive."""
        archiver = self._archiver
        if archiver is None:
            return None
        note, timeline = archiver.note, archiver.timeline
        return ArchiveState(
            timeline=timeline,
            now_ms=self._loop.clock.now_ms(),
            upto_ms=note.upto_ms,
            shards={shard: ArchivedEnd(end.file_no, end.size, end.batch_no) for shard, end in note.shards.items()},
            holes=tuple((hole.from_ms, hole.to_ms) for hole in note.holes),
            bases=archiver.bases,
            of_cores=self._of_cores(note),
        )

    def _of_cores(self, note: ArchiveNote) -> ArchiveOfCores | None:
        if self._place is None:
            return None
        return ArchiveOfCores(self._place.joint, note.of_core.set_back if isinstance(note.of_core, OfCore) else ())

    def note_mirror(self, name: str, upto_ms: int) -> None:
        """Note that a mirror has all that was acknowledged until a time, Unix ms; 0: nothing."""
        clock, archiver = self._loop.clock, self._archiver
        archived_ms = 0
        if archiver is not None:
            archiver.note_asked()
            archived_ms = archiver.note.upto_ms
            of_cores = self._of_cores(archiver.note)
            upto_ms -= of_cores.ms_again(upto_ms) if upto_ms and of_cores is not None else 0
        self._mirrors.note(name, upto_ms, clock.now_ms(), clock.monotonic_ns(), archived_ms)

    def mirror_lags_ms(self) -> list[tuple[str, int]]:
        """Return the name of each mirror that has asked, and by how many ms it is late."""
        return self._mirrors.lags_ms(self._loop.clock.monotonic_ns())

    def read(self, timeline: str, path: str, offset: int, most: int, done: Done) -> None:
        """Read bytes of a file of the archive, at most so many, fewer at its end.

        timeline: that of several cores together has their slot map.
        done: called once, with a RequestError not_found if there is no such file.
        """
        place = self._place
        if place is not None and (timeline, path) == (place.joint, SLOT_MAP_NAME):
            found = f"{place.archive}/{place.joint}/{SLOT_MAP_NAME}"
        elif is_timeline_name(timeline) and is_archived_path(path) and self._archiver is not None:
            found = f"{self._archive}/{timeline}/{path}"
        else:
            done(_not_found(path))
            return
        self._wanted.append(_Wanted(found, offset, most, done))
        if not self._reads:
            self._reads = True
            self._loop.spawn(self._read_all(), "archive is read")

    async def _read_all(self) -> None:
        try:
            while self._wanted:
                wanted = self._wanted.popleft()
                outcome: bytes | TopicsError
                try:
                    outcome = await self._read(wanted)
                except OSError as error:
                    outcome = StorageError(f"{wanted.path}: {error.strerror or error}")
                wanted.done(outcome)
        finally:
            self._reads = False

    async def _read(self, wanted: _Wanted) -> bytes | RequestError:
        try:
            seen = await self._files.to_thread(self._loop.ring.lstat, wanted.path)
        except (FileNotFoundError, NotADirectoryError):
            return _not_found(wanted.path)
        if not stat.S_ISREG(seen.st_mode):
            return _not_found(wanted.path)
        buffer = bytearray(max(0, min(wanted.most, seen.st_size - wanted.offset)))
        if not buffer:
            return b""
        try:
            fd = await self._files.open(wanted.path, os.O_RDONLY)
        except FileNotFoundError:
            return _not_found(wanted.path)
        try:
            count = await self._files.read_into(fd, buffer, wanted.offset)
        finally:
            await self._files.close(fd)
        return bytes(memoryview(buffer)[:count])


def _not_found(path: str) -> RequestError:
    return RequestError("not_found", f"the archive has no file {path[:_PATH_BYTES_MAX]!r}: ask for its state again")
