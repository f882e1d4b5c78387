"""The note of one session for the next, in `session`: boot id and newest snapshot, or lost writes.

The boot id distinguishes a power cut from a kill. After lost writes acknowledged bytes of class
`disk` may be gone although the machine did not go down, and their seqs must not be used again. The
next start then uses the reservations, as after a power cut (R-DUR-6).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

import msgspec

from topics.loop.loop import Loop
from topics.loop.tasks import Task
from topics.store.disk.disk_space import DiskSpace, lacks_space
from topics.store.disk.whole_files import FileCalls, read_file, replace_file

log = logging.getLogger(__name__)

_NO_BOOT = ""
_PADDED_BYTES = 128
"""Size of the file: below a sector, so that it can be overwritten."""
_AGAIN_NS = 1_000_000_000


class SessionNote(msgspec.Struct):
    """The note, written when the store is ready for use, and when its log was latched."""

    boot: str
    """Boot id of the machine; "" after lost writes, because it equals the id of no boot.

    The next start then treats this session as ended by a power cut.
    """
    snapshot: int
    """Number of the newest snapshot then.

    A clean one with a higher number was taken by this session's close.
    """

    @property
    def lost_writes(self) -> bool:
        """Whether a write or sync of this session's log failed."""
        return self.boot == _NO_BOOT


async def read_session(loop: Loop, path: str) -> SessionNote | None:
    """Return the note; None if there is none that can be read."""
    try:
        return msgspec.json.decode(await read_file(loop.files, f"{path}/session"), type=SessionNote)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


async def write_session(loop: Loop, path: str, newest_snapshot: int, *, lost_writes: bool = False) -> None:
    """Write the note durably.

    lost_writes: a write or sync failed, so the next start treats this as a power cut.

    If a disk has no space for another file, the existing one is overwritten: it fills one sector,
    which a torn write leaves as it was or as it is to be. A note of lost writes that cannot be made
    durable is overwritten, too: a kill leaves it in the page cache, with what the cache shows and
    the disk lacks, and a power cut takes both.

    Raises: OSError, it is not durable.
    """
    session = SessionNote(_NO_BOOT if lost_writes else loop.ring.boot_id(), newest_snapshot)
    data, file = msgspec.json.encode(session).ljust(_PADDED_BYTES), f"{path}/session"
    try:
        await replace_file(loop.files, file, data)
    except OSError as error:
        if lacks_space(error):
            if await _write_over(loop.files, file, data):
                return
        elif lost_writes:
            await _write_over(loop.files, file, data, sync=False)
        raise


async def _write_over(files: FileCalls, path: str, data: bytes, *, sync: bool = True) -> bool:
    """Overwrite the note; False if there is no file of the size. Raises OSError."""
    try:
        if files.file_size(path) != len(data):
            return False
    except FileNotFoundError:
        return False
    fd = await files.open(path, os.O_RDWR)
    try:
        await files.write_all(fd, data, 0)
        if sync:
            await files.fsync(fd)
    finally:
        await files.close(fd)
    return True


async def note_lost_writes(loop: Loop, path: str, newest_snapshot: int, space: DiskSpace) -> None:
    """Write the note of lost writes, on a full disk in the reserve's space. Raises OSError."""
    note = partial(write_session, loop, path, newest_snapshot, lost_writes=True)
    try:
        await note()
    except OSError as error:
        if not lacks_space(error) or not await space.release_reserve():
            raise
        await note()


class LatchNote:
    """The writer of the note of lost writes, once the log was latched.

    The failing disk may refuse this write as well. It is repeated until it succeeds, because a kill
    before that loses the knowledge that writes were lost.
    """

    def __init__(self, loop: Loop, path: str, space: DiskSpace, newest_snapshot: Callable[[], int]) -> None:
        self._loop = loop
        self._path = path
        self._space = space
        self._newest_snapshot = newest_snapshot
        self._noting: Task[None] | None = None
        self._noted = self._reported = self._stopped = False

    def begin(self) -> None:
        """Begin to write the note, after the log was latched."""
        self._noting = self._loop.spawn(self._note(), "session")

    async def _note(self) -> None:
        try:
            await note_lost_writes(self._loop, self._path, self._newest_snapshot(), self._space)
            self._noted = True
        except OSError as error:
            if not self._reported:
                self._reported = True
                log.error(
                    "the note that the log failed could not be written (%s): "
                    "a kill before that may leave a gap's end unreported",
                    error,
                )
            if not self._stopped:
                self._loop.call_later(_AGAIN_NS, self._again)

    def _again(self) -> None:
        if not self._stopped:
            self.begin()

    def stop(self) -> None:
        """Start no more timers for a retry.

        A log that is latched from here on is noted nevertheless.
        """
        self._stopped = True

    async def wait(self) -> None:
        """Wait for the write in progress."""
        if self._noting is not None:
            await self._noting

    async def try_last(self) -> None:
        """Try once more if no attempt succeeded so far."""
        if self._noting is not None and not self._noted:
            await self._note()
