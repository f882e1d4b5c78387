"""The replay of one shard's log: up to where it counts, and what of it is known to be durable.

The files of a survey (log_survey.py) are read in large pieces (log_pieces.py), each of which is
verified and listed by one C call.

Where a file ends before the next one's first batch, or the log just ends, something is missing. If
a later batch knows the missing one to have been synced, that is damage (CorruptError). Otherwise it
is the tail that a crash may remove, and everything after the hole is discarded with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from topics.errors import CorruptError, FormatError
from topics.loop.tasks import Future
from topics.store.disk.whole_files import FileCalls, in_place
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    BatchHeader,
    align_up,
)
from topics.store.recovery.direct_reader import DirectReader
from topics.store.recovery.log_pieces import LogPieces
from topics.store.recovery.log_survey import Survey
from topics.store.recovery.missing_batches import LogFile, highest_synced, later_batches, torn_middle
from topics.store.recovery.verified_batches import VerifiedBatches

TAIL_BYTES_A_PASS = 4 << 20
"""Bytes of the unsynced tail, and a batch beyond them, that a pass verifies a second time."""
TAIL_BATCH_BYTES = 1 << 15
"""Bytes that a smaller batch counts for: 128 of them take some 5 ms."""
_NO_LIMIT = 1 << 63


class _Place(NamedTuple):
    """The start of a batch."""

    file: LogFile
    offset: int
    batch_no: int
    chain: int


class Cut(NamedTuple):
    """A part of the log that a recovery left out."""

    path: str
    offset: int
    size: int


class ShardReplay:
    """The pieces of one shard's log, in order.

    Call `next` until it returns None; then the end is known.

    whole: the log is replayed from its very first batch on.
    """

    def __init__(
        self,
        files: FileCalls,
        reader: DirectReader,
        table: FileTable,
        survey: Survey,
        *,
        whole: bool,
        pause: Callable[[], Future[None]],
        on_bytes: Callable[[int], None],
    ) -> None:
        self._files = files
        self._reader = reader
        self._table = table
        self._used = survey.used
        self._limits = _limits(survey.used)
        self._pause = pause
        self._on_bytes = on_bytes
        self._at = -1
        self._fd = -1
        self._stored: dict[int, StoredFile] = {}
        self._pieces: LogPieces | None = None
        self._places: list[_Place] = []
        """The start of each piece that was scanned."""
        self._ends: dict[int, int] = {}
        """Offset of the end of each file's last batch."""
        self.last_batch_no = 0 if whole or not survey.used else survey.used[0].header.first_batch_no - 1
        """Number of the last batch that counts."""
        self.synced_upto = self.last_batch_no
        """Highest batch number known to be on stable storage."""
        self.batches = 0
        self.boot_id = survey.used[-1].header.boot_id if survey.used else b""
        self.frames = 0
        self.cuts: list[Cut] = []
        """Batches that are not whole, and files after them."""
        self.lost: list[str] = []
        """Paths of files after a hole, or replaced by a later file: nothing in them counts."""

    async def next(self) -> VerifiedBatches | None:
        """Return the next piece with frames; None at the end.

        Raises CorruptError, FormatError or OSError.
        """
        while True:
            if self._pieces is None and not await self._open_next():
                return None
            chunk = await self._next_of_file()
            if chunk is not None:
                return chunk

    async def _open_next(self) -> bool:
        """Open the next file; False at the end of the log."""
        while True:
            self._at += 1
            if self._at >= len(self._used):
                return False
            file = self._used[self._at]
            if file.header.first_batch_no <= self.last_batch_no + 1:
                break
            if file.header.first_batch_no < self._limits[self._at]:
                await self._on_hole(file, WAL_FIRST_BATCH_OFFSET, self._at)
                return False
            # The file is after a hole, but a later file takes over before it: an earlier recovery
            # gave it up, and its unlink did not survive a power cut. It does not affect where the
            # log ends.
            self.lost.append(file.path)
        fd = await self._reader.open(file.path)
        self._pieces = LogPieces(self._files, fd, file)
        if file.number not in self._stored:
            buffered = await self._files.open(file.path, os.O_RDONLY)
            self._stored[file.number] = self._table.add(FileKind.WAL, file.path, fd=buffered, size=file.size)
        return True

    async def _next_of_file(self) -> VerifiedBatches | None:
        """Return the next piece of the open file; None when it has ended."""
        pieces = self._pieces
        assert pieces is not None, "a file is open"
        file, limit = self._used[self._at], self._limits[self._at]
        piece = await pieces.next(self._pause)
        self._on_bytes(piece.fresh)
        first = pieces.batch_no
        scan = codec.scan_log(
            piece.data, epoch=file.header.epoch, batch_no=first, chain=pieces.chain, start=0, base=piece.base
        )
        if scan.reason is ScanStop.BAD:
            raise FormatError(f"{file.path}: byte {piece.base + scan.position}: a batch this build does not understand")
        frames = scan.frames
        counted = min(scan.batches, limit - first)
        if counted < scan.batches:
            frames = frames[frames["batch"] < counted]
        self.frames += len(frames)
        if counted:
            self._places.append(_Place(file, piece.base, first, pieces.chain))
            self.last_batch_no = first + counted - 1
            self.batches += counted
            self._ends[file.number] = piece.base + scan.position
            self.synced_upto = max(self.synced_upto, min(scan.synced_upto, self.last_batch_no))
        pieces.advance(piece, scan)
        if self.last_batch_no + 1 >= limit or scan.reason is not ScanStop.MORE or piece.last:
            await self._end_file(file, piece.base + align_up(scan.position, BATCH_ALIGN), limit)
        return (
            VerifiedBatches(frames, piece.data, piece.base, self._stored[file.number].file_id) if len(frames) else None
        )

    async def _end_file(self, file: LogFile, offset: int, limit: int) -> None:
        pieces, self._pieces = self._pieces, None
        assert pieces is not None, "a file is open"
        self._stored[file.number].size = offset
        try:
            if self.last_batch_no + 1 < limit:
                known, size = await later_batches(self._reader, pieces.fd, file, offset)
                if known > self.last_batch_no:
                    raise torn_middle(file, offset, self.last_batch_no + 1, known)
                if size:
                    self.cuts.append(Cut(file.path, offset, size))
                await self._on_hole(file, offset, self._at + 1)
                self._at = len(self._used)
        finally:
            await pieces.finish()
            await self._reader.close(pieces.fd)

    async def _on_hole(self, file: LogFile, offset: int, later: int) -> None:
        """Handle the missing batch last_batch_no + 1.

        It is damage if a later file knows that the batch was synced, else the end of the log.
        """
        for other in self._used[later:]:
            fd = await self._reader.open(other.path)
            try:
                known = await highest_synced(self._reader, fd, other, WAL_FIRST_BATCH_OFFSET)
            finally:
                await self._reader.close(fd)
            if known > self.last_batch_no:
                raise torn_middle(file, offset, self.last_batch_no + 1, known)
        self.lost += [other.path for other in self._used[later:]]
        self.cuts += [Cut(other.path, 0, other.size) for other in self._used[later:]]

    def superseded(self, first_batch_no: int) -> list[StoredFile]:
        """Return the files that are void once a file that begins with this batch is durable.

        The file that the replay begins in is never among them, because it is found by name.
        """
        return [
            self._stored[file.number]
            for file in self._used[1:]
            if file.header.first_batch_no >= first_batch_no and file.number in self._stored
        ]

    async def sync_tail(self) -> None:
        """Make everything that counts durable, after `next` returned None. Raises OSError."""
        if self.last_batch_no > self.synced_upto:
            for stored in self._stored.values():
                await in_place(self._files.fsync(stored.fd))
            self.synced_upto = self.last_batch_no

    @property
    def tail_bytes(self) -> int:
        """Upper bound on the bytes of the tail: those that `tail` reads.

        After `next` returned None.
        """
        return sum(self._ends[place.file.number] - place.offset for place in self._tail_places())

    def _tail_places(self) -> list[_Place]:
        """Return where the tail begins in each file that has a part of it.

        Its first batch may be later in that piece.
        """
        if self.last_batch_no <= self.synced_upto:
            return []
        first = self.synced_upto + 1
        begin = max((at for at, place in enumerate(self._places) if place.batch_no <= first), default=0)
        places = self._places[begin:]
        # The other places of a file are read together with the first one.
        return [place for at, place in enumerate(places) if not at or place.file is not places[at - 1].file]

    async def tail(self) -> list[TailPart]:
        """Return the batches that count but are not known to be durable, oldest first.

        After `next` returned None.
        """
        first = self.synced_upto + 1
        parts: list[TailPart] = []
        for place in self._tail_places():
            limit = min(self._limits[self._used.index(place.file)], self.last_batch_no + 1)
            parts += await self._tail_of(place, first, limit)
        return parts

    async def _tail_of(self, place: _Place, first: int, limit: int) -> list[TailPart]:
        """Return the batches of one file from number `first` on and below `limit`."""
        fd = await self._reader.open(place.file.path)
        try:
            data = await self._reader.read(fd, place.offset, self._ends[place.file.number] - place.offset)
        finally:
            await self._reader.close(fd)
        parts = []
        at = checked = 0
        for number in range(place.batch_no, limit):
            at = align_up(at, BATCH_ALIGN)
            header = BatchHeader.unpack(data[at:], f"{place.file.path}, byte {place.offset + at}")
            body = bytes(data[at + BATCH_HEADER_BYTES : at + BATCH_HEADER_BYTES + header.body_bytes])
            if header.batch_no != number or not header.is_sound(body):
                raise CorruptError(
                    f"{place.file.path}: byte {place.offset + at} reads differently the second time",
                    {"path": place.file.path, "offset": place.offset + at},
                )
            at += BATCH_HEADER_BYTES + header.body_bytes
            checked += max(BATCH_HEADER_BYTES + header.body_bytes, TAIL_BATCH_BYTES)
            if checked >= TAIL_BYTES_A_PASS:
                checked = 0
                await self._pause()
            if number >= first:
                parts.append(TailPart(body, codec.scan_frames(body).frames))
        return parts


class TailPart(NamedTuple):
    """The body of a batch, and its frames with offsets into it."""

    body: bytes
    frames: codec.Frames


def _limits(used: list[LogFile]) -> list[int]:
    """Return, for each file, the number below which its batches count.

    A later file that begins with that number has replaced the rest.
    """
    limits = []
    lowest = _NO_LIMIT
    for file in reversed(used):
        limits.append(lowest)
        lowest = min(lowest, file.header.first_batch_no)
    return limits[::-1]
