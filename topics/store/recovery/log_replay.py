"""Reading one shard of the log back: which files, in which order, up to where, and what is durable.

Files are read in large pieces, past the page cache where the directory allows it: after a failed
sync the cache may show bytes that the disk does not have. Each piece is verified and listed by one
C call.

Where a file ends before the next one's first batch, or the log just ends, something is missing. If
a later batch knows the missing one to have been synced, that is damage (CorruptError). Otherwise it
is the tail that a crash may remove, and everything after the hole is discarded with it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from topics.common.memory import page_aligned
from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.loop.tasks import Future
from topics.store.disk.log_sizes import may_be_spare
from topics.store.disk.side_by_side import side_by_side
from topics.store.disk.whole_files import FileCalls, in_place, list_if_there
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    FRAME_HEADER_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    WAL_HEADER_BYTES,
    BatchHeader,
    FrameType,
    WalHeader,
    align_up,
    spare_file_no,
    wal_file_no,
)
from topics.store.segments.manifest import ReplayStart

CHUNK_BYTES = 8 << 20
TAIL_BYTES_A_PASS = 4 << 20
"""Bytes of the unsynced tail, and a batch beyond them, that a pass verifies a second time."""
TAIL_BATCH_BYTES = 1 << 15
"""Bytes that a smaller batch counts for: 128 of them take some 5 ms."""
_LOOKS_AT_A_TIME = 8
"""Files of a shard whose first batches are read side by side."""
NO_LIMIT = 1 << 63
_O_DIRECT = getattr(os, "O_DIRECT", 0)
REMEDY = "Nothing was changed. Run `topics fsck` to see what is damaged and what can be kept"


class NameOfTopic(msgspec.Struct):
    """The name in the payload of a TOPIC_CREATE, or in another description of a topic."""

    name: str


class LogFile(NamedTuple):
    """A file of the log that was taken into use."""

    path: str
    number: int
    size: int
    header: WalHeader


class Survey(NamedTuple):
    """The files of one shard's directory."""

    used: list[LogFile]
    """Files from the replay's start on, by number; each has a whole first batch."""
    last_file_no: int
    """Highest number of any file."""
    spares: list[str]
    """Paths of files with nothing needed, of a size that log files have."""
    stale: list[str]
    """Other paths of files with nothing needed."""


class VerifiedBatches(NamedTuple):
    """A verified piece of log: frames of whole batches.

    `data` is valid until the next piece is requested.
    """

    frames: codec.Frames
    data: memoryview
    base: int
    """File offset of data[0]."""
    file_id: int

    def payload(self, at: int) -> bytes:
        """Return the payload of the control frame in row `at` of `frames`."""
        frame = self.frames[at]
        texts = int(frame["ext_len"]) + int(frame["node_len"]) + int(frame["tag_len"])
        start = int(frame["offset"]) - self.base + FRAME_HEADER_BYTES + texts
        return bytes(self.data[start : start + int(frame["data_len"])])


def created_topics(batches: VerifiedBatches) -> list[tuple[int, str]]:
    """Return id and name of each topic that was created in a piece of the log."""
    found = np.flatnonzero(batches.frames["type"] == FrameType.TOPIC_CREATE).tolist()
    decode, ids = msgspec.json.decode, batches.frames["topic_id"]
    return [(int(ids[at]), decode(batches.payload(at), type=NameOfTopic).name) for at in found]


class _Place(NamedTuple):
    """The start of a batch."""

    file: LogFile
    offset: int
    batch_no: int
    chain: int


class DirectReader:
    """A reader of files and parts of them into page-aligned memory; O_DIRECT if `direct`."""

    def __init__(self, files: FileCalls, *, direct: bool) -> None:
        self._files = files
        self._flags = os.O_RDONLY | (_O_DIRECT if direct else 0)

    async def open(self, path: str) -> int:
        return await self._files.open(path, self._flags)

    async def close(self, fd: int) -> None:
        await self._files.close(fd)

    async def read(self, fd: int, offset: int, size: int) -> memoryview:
        """Return file bytes [offset, offset + size), fewer at the end of the file.

        They are in memory of their own.
        """
        begin = offset & -BLOCK_BYTES
        buffer = memoryview(page_aligned(max(BLOCK_BYTES, align_up(offset + size - begin, BLOCK_BYTES))))
        count = await self._files.read_into(fd, buffer, begin)
        return buffer[offset - begin : min(count, offset - begin + size)]


def shards_of(files: FileCalls, directory: str, replay: Mapping[int, ReplayStart]) -> list[int]:
    """Return the shards that have a directory, and those that must have one by a snapshot."""
    names = list_if_there(files, f"{directory}/wal")
    there = {int(name[6:]) for name in names if name.startswith("shard-") and name[6:].isdigit()}
    return sorted(there | {shard for shard, start in replay.items() if start.marked})


async def survey_shard(loop: Loop, reader: DirectReader, path: str, start: int, file_bytes: int) -> Survey:
    """Classify the files of a shard's directory. Raises CorruptError, FormatError or OSError."""
    used: list[LogFile] = []
    spares: list[str] = []
    stale: list[str] = []
    last = start - 1
    files = loop.files
    candidates: list[tuple[str, int]] = []
    for name in list_if_there(files, path):
        full = f"{path}/{name}"
        number = wal_file_no(name)
        if number is None:
            spare_number = spare_file_no(name)
            if spare_number is not None or name.endswith(".tmp"):
                stale.append(full)
            # under its old number it would be taken for its former self
            last = max(last, spare_number or 0)
            continue
        last = max(last, number)
        if number >= start:
            candidates.append((full, number))
        else:
            stale.append(full)
    found: list[LogFile | None] = []
    looks = (_used_file(files, reader, full, number) for full, number in candidates)
    await side_by_side(loop.spawn, looks, _LOOKS_AT_A_TIME, found.append)
    for (full, _number), file in zip(candidates, found, strict=True):
        if file is None:
            stale.append(full)
        else:
            used.append(file)
    for full in list(stale):
        if not full.endswith(".tmp") and may_be_spare(files.file_size(full), file_bytes):
            stale.remove(full)
            spares.append(full)
    return Survey(sorted(used, key=lambda file: file.number), last, spares, stale)


def is_whole_blocks(size: int) -> bool:
    """Return whether a log file may have this size in bytes: it gets its size before its name."""
    return size > 0 and size % BLOCK_BYTES == 0


async def _used_file(files: FileCalls, reader: DirectReader, path: str, number: int) -> LogFile | None:
    size = files.file_size(path)
    if not is_whole_blocks(size):
        message = f"{path}: cut short at {size} bytes: a log file is made of whole blocks of {BLOCK_BYTES}. {REMEDY}"
        raise CorruptError(message, {"path": path, "offset": size})
    return await used_file(reader, path, number, size)


async def used_file(reader: DirectReader, path: str, number: int, size: int) -> LogFile | None:
    """Return the file of this size, its first batch verified; None if it was never taken into use.

    Raises: CorruptError, FormatError, OSError.
    """
    fd = await reader.open(path)
    try:
        block = bytes(await reader.read(fd, 0, BLOCK_BYTES))
        if block[:4] == bytes(4) or len(block) < WAL_HEADER_BYTES:
            return None
        try:
            header = WalHeader.unpack(block, path)
        except (CorruptError, FormatError):
            if await _ends_in_its_header(reader, fd, size):
                return None
            raise
        if header.file_no != number:
            return None
        head = await reader.read(fd, WAL_FIRST_BATCH_OFFSET, BATCH_HEADER_BYTES)
        if len(head) == BATCH_HEADER_BYTES:
            body_bytes = BatchHeader.body_bytes_of(head)
            whole = BATCH_HEADER_BYTES + min(body_bytes, size)
            scan = codec.scan_log(
                await reader.read(fd, WAL_FIRST_BATCH_OFFSET, whole),
                epoch=header.epoch,
                batch_no=header.first_batch_no,
                chain=header.checksum,
            )
            if scan.batches:
                return LogFile(path, number, size, header)
            if scan.reason is ScanStop.BAD:
                raise FormatError(f"{path}: a batch that this build does not understand")
        file = LogFile(path, number, size, header)
        known = await _highest_synced(reader, fd, file, WAL_FIRST_BATCH_OFFSET)
        if known >= header.first_batch_no:
            raise _torn_middle(file, WAL_FIRST_BATCH_OFFSET, header.first_batch_no, known)
        return None
    finally:
        await reader.close(fd)


async def _ends_in_its_header(reader: DirectReader, fd: int, size: int) -> bool:
    """Return whether only zeros follow a part of the header.

    The first write to the file was then cut off, so nothing was acknowledged.
    """
    for offset in range(0, size, CHUNK_BYTES):
        data = bytes(await reader.read(fd, offset, min(CHUNK_BYTES, size - offset)))
        if len(data.rstrip(b"\0")) >= (WAL_HEADER_BYTES if offset == 0 else 1):
            return False
    return True


async def _highest_synced(reader: DirectReader, fd: int, file: LogFile, offset: int) -> int:
    """Return the highest `synced_upto` of the file's sound batches from `offset` on; 0: none."""
    return (await _after_the_end(reader, fd, file, offset)).synced_upto


class _AfterTheEnd(NamedTuple):
    synced_upto: int
    """The highest of the sound batches; 0: there are none."""
    size: int
    """Bytes up to the end of the last batch that was begun, whole or not; 0: there is none."""


async def _after_the_end(reader: DirectReader, fd: int, file: LogFile, offset: int) -> _AfterTheEnd:
    """Look at the batches of a file from `offset` on, where one is missing."""
    data = await reader.read(fd, offset, max(0, file.size - offset))
    epoch, highest, at = file.header.epoch, 0, 0
    size = _begun_bytes(data, 0, epoch)
    while (found := codec.find_batch(data, epoch=epoch, start=at)) is not None:
        highest = max(highest, found.synced_upto)
        size = max(size, found.position + _begun_bytes(data, found.position, epoch))
        at = found.position + BATCH_ALIGN
    return _AfterTheEnd(highest, size)


def _begun_bytes(data: bytes | memoryview, at: int, epoch: int) -> int:
    """Return the length of the batch whose header is here, as far as there is room; 0: none."""
    try:
        header = BatchHeader.unpack(data[at : at + BATCH_HEADER_BYTES], "")
    except (FormatError, struct.error):
        return 0
    return min(len(data) - at, BATCH_HEADER_BYTES + header.body_bytes) if header.epoch == epoch else 0


class Cut(NamedTuple):
    """A part of the log that a recovery left out."""

    path: str
    offset: int
    size: int


def _torn_middle(file: LogFile, offset: int, batch_no: int, known: int) -> CorruptError:
    return CorruptError(
        f"{file.path}: damaged at byte {offset}: batch {batch_no} is missing, and a later one knows that batches up to "
        f"{known} were on stable storage. {REMEDY}",
        {"path": file.path, "offset": offset},
    )


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
        self._pieces: _Pieces | None = None
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
        self._pieces = _Pieces(self._files, fd, file)
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
                known, size = await _after_the_end(self._reader, pieces.fd, file, offset)
                if known > self.last_batch_no:
                    raise _torn_middle(file, offset, self.last_batch_no + 1, known)
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
                known = await _highest_synced(self._reader, fd, other, WAL_FIRST_BATCH_OFFSET)
            finally:
                await self._reader.close(fd)
            if known > self.last_batch_no:
                raise _torn_middle(file, offset, self.last_batch_no + 1, known)
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


class _Piece(NamedTuple):
    data: memoryview
    base: int
    fresh: int
    """Number of bytes that were read for it."""
    last: bool


class _Pieces:
    """The pieces of a file, read one ahead.

    Bytes that a scan left over come first in the next piece.
    """

    def __init__(self, files: FileCalls, fd: int, file: LogFile) -> None:
        self._files = files
        self.fd = fd
        self._size = file.size
        self.batch_no = file.header.first_batch_no
        """Number of the next batch."""
        self.chain = file.header.checksum
        self._room = CHUNK_BYTES // 8
        """Room for left-over bytes, before the bytes read."""
        self._buffers = [self._new_buffer(), self._new_buffer()]
        self._offset = WAL_FIRST_BATCH_OFFSET
        self._left = memoryview(b"")
        self._reading: Future[int] | None = None

    def _new_buffer(self) -> memoryview:
        return memoryview(page_aligned(self._room + CHUNK_BYTES))

    def _read_ahead(self) -> Future[int]:
        """Queue the read of the next bytes into the second buffer."""
        future: Future[int] = Future(interruptible=False)
        buffer = self._buffers[1][self._room : self._room + CHUNK_BYTES]
        self._files.read_nowait(self.fd, buffer, self._offset, future.set_result)
        return future

    async def next(self, pause: Callable[[], Future[None]]) -> _Piece:
        """Return the next piece. Raises OSError."""
        count = await (self._reading or self._read_ahead())
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        offset = self._offset
        wanted = min(CHUNK_BYTES, self._size - offset)
        if count < wanted:  # short reads are rare: read the rest at once
            rest = self._buffers[1][self._room + count : self._room + wanted]
            count += await self._files.read_into(self.fd, rest, offset + count)
        count = min(count, wanted)  # the file may have more, which does not count
        left = len(self._left)
        if left > self._room:
            self._grow(left, count)
        buffer = self._buffers[1]
        start = self._room - left
        buffer[start : self._room] = self._left
        self._left = memoryview(b"")
        self._buffers.reverse()
        self._offset = offset + count
        last = self._offset >= self._size or count < wanted
        self._reading = None
        if not last:
            self._reading = self._read_ahead()
            await pause()  # so that the ring submits the read before the scan
        return _Piece(buffer[start : self._room + count], offset - left, count, last)

    def _grow(self, left: int, count: int) -> None:
        """Enlarge the room for left-over bytes, for a batch larger than a piece."""
        old = self._buffers[1][self._room : self._room + count]
        self._room = align_up(2 * left, BLOCK_BYTES)
        self._buffers = [self._buffers[0], self._new_buffer()]
        self._buffers[1][self._room : self._room + count] = old
        self._buffers[0] = self._new_buffer()

    def advance(self, piece: _Piece, scan: codec.LogScan) -> None:
        """Keep the bytes that the scan did not take."""
        self.batch_no = scan.batch_no
        self.chain = scan.chain
        self._left = piece.data[align_up(scan.position, BATCH_ALIGN) :]

    async def finish(self) -> None:
        """Wait for a read in flight, before its descriptor is closed."""
        if self._reading is not None:
            await self._reading


def _limits(used: list[LogFile]) -> list[int]:
    """Return, for each file, the number below which its batches count.

    A later file that begins with that number has replaced the rest.
    """
    limits = []
    lowest = NO_LIMIT
    for file in reversed(used):
        limits.append(lowest)
        lowest = min(lowest, file.header.first_batch_no)
    return limits[::-1]
