"""The log of a mirror: copied from where it ends, and verified as it comes.

Each batch has to follow the one before, by its number and its chained checksum. So a log that does
not continue what the mirror has is noticed before it is noted.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from topics.common.values.archive_state import HOLE, ArchivedEnd
from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.archive.archived_log import archived_name
from topics.store.backup.backup_files import NewTree
from topics.store.format import codec
from topics.store.format.codec import ScanStop
from topics.store.format.log_format import BATCH_ALIGN, BLOCK_BYTES, WAL_FIRST_BATCH_OFFSET, WalHeader, align_up
from topics.store.mirror.mirror_source import MirrorSource, MissingPartError

_SYNC_EVERY_BYTES = 4 << 20


class ChainEnd(NamedTuple):
    """The end of the part of a shard's log that is copied and verified."""

    file_no: int
    size: int
    """Bytes of that file."""
    verified: int
    """Offset in that file at which the next batch begins."""
    epoch: int
    batch_no: int
    """Number of the next batch."""
    chain: int


class FileChain:
    """The batches of one file, verified piece by piece."""

    def __init__(self, path: str, number: int, begin: ChainEnd | None = None) -> None:
        """begin: the end of the file so far; None: it is new, and its header comes first."""
        self._path = path
        self._number = number
        self._left = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 0
        self._header: WalHeader | None = None
        self._ended = False
        self.first_batch_no = 0
        """Number of its first batch, once the header has come."""
        self._end = begin or ChainEnd(number, 0, 0, 0, 0, 0)
        self._is_new = begin is None

    def take(self, piece: bytes) -> None:
        """Take the next bytes of the file. Raises: CorruptError, FormatError."""
        if self._ended:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= self._needed:
            self._scan()

    def end(self, size: int) -> ChainEnd:
        """Return the end of the file, which has this size. Raises: CorruptError."""
        if self._pieces and not self._ended:
            self._scan()
        if self._is_new:
            raise damaged(self._path, "its header is cut off")
        return self._end._replace(size=size)

    def _scan(self) -> None:
        data = b"".join(self._pieces)
        base, begin = self._end.verified, 0
        if self._is_new:
            if len(data) < WAL_FIRST_BATCH_OFFSET:
                self._needed, self._pieces = WAL_FIRST_BATCH_OFFSET, [data]
                return
            header = WalHeader.unpack(data[:BLOCK_BYTES], self._path)
            if header.file_no != self._number:
                raise damaged(self._path, f"it is file {header.file_no}")
            self.first_batch_no, self._is_new = header.first_batch_no, False
            self._end = ChainEnd(
                self._number, 0, WAL_FIRST_BATCH_OFFSET, header.epoch, header.first_batch_no, header.checksum
            )
            data, base = data[WAL_FIRST_BATCH_OFFSET:], WAL_FIRST_BATCH_OFFSET
        scan = codec.scan_log(data, epoch=self._end.epoch, batch_no=self._end.batch_no, chain=self._end.chain)
        if scan.reason is ScanStop.BAD:
            raise FormatError(f"{self._path}: a batch that this build does not understand")
        if scan.reason not in (ScanStop.MORE, ScanStop.END):
            self._ended = True  # an earlier use of the file, or a kill, left the rest
        begin = align_up(scan.position, BATCH_ALIGN) if scan.batches else 0
        self._end = self._end._replace(verified=base + begin, batch_no=scan.batch_no, chain=scan.chain)
        rest = data[begin:]
        self._pieces, self._size = [rest] if rest else [], len(rest)
        self._needed = scan.needed if scan.reason is ScanStop.MORE else 0


def damaged(path: str, what: str) -> CorruptError:
    """Return the error for a file that is not what the archive states."""
    return CorruptError(
        f"{path} does not continue what this mirror has ({what}): the archive of the server is damaged, or was put "
        "back to an older copy; see `topics verify`, and begin a mirror in another directory",
        {"path": path},
    )


class LogPull:
    """The log of one timeline, copied to a directory."""

    def __init__(self, loop: Loop, source: MirrorSource, root: str, timeline: str, piece_bytes: int) -> None:
        self._loop = loop
        self._files = loop.files
        self._source = source
        self._timeline = timeline
        self._root = root
        self._piece_bytes = piece_bytes
        self.copied_bytes = 0

    async def shard(
        self, shard: int, begin: ChainEnd | int, end: ArchivedEnd, *, until_ns: int | None = None
    ) -> ChainEnd:
        """Copy a shard's log up to an end, durably; return where it ends.

        begin: the end of what is there; or the number of the first file that is wanted. until_ns:
        loop time after which no more files are begun, but one; None: there is none.
        Raises: MissingPartError, a part is in the archive no more; CorruptError, FormatError;
            OSError; TopicsError, there is no answer.
        """
        tree = NewTree(self._files, f"{self._root}/{self._timeline}")
        at = begin if isinstance(begin, ChainEnd) else None
        first = begin.file_no if isinstance(begin, ChainEnd) else begin
        for number in range(first, end.file + 1):
            is_last, known = number == end.file, at if at is not None and at.file_no == number else None
            try:
                found = await self._file(tree, shard, number, known, end.bytes if is_last else None)
            except MissingPartError:
                if is_last or number == first:
                    raise
                continue  # it was prepared, and never used
            if at is not None and known is None and found[1] > at.batch_no:
                raise MissingPartError(f"the log before {archived_name(shard, number)}")
            at = found[0]
            if until_ns is not None and number > first and self._loop.clock.monotonic_ns() >= until_ns:
                break
        await tree.sync()
        if at is None:
            raise MissingPartError(f"the log of shard {shard}")
        if at.file_no < end.file:
            return at
        if end.batch != HOLE and at.batch_no != end.batch + 1:
            path = archived_name(shard, end.file)
            raise damaged(path, f"its last batch is {at.batch_no - 1}, not {end.batch}")
        return at

    async def _file(
        self, tree: NewTree, shard: int, number: int, known: ChainEnd | None, to: int | None
    ) -> tuple[ChainEnd, int]:
        """Copy a file up to a size, or to its end. Return its end and its first batch's number."""
        name = archived_name(shard, number)
        begin = 0 if known is None else known.verified
        if known is not None and to is not None and to <= known.size:
            return known, 0
        chain, at, synced = FileChain(name, number, known), begin, begin
        piece = await self._source.piece(self._timeline, name, at, self._room(at, to))
        fd = await self._files.open(await tree.place(name), os.O_RDWR | os.O_CREAT)
        try:
            while piece:
                chain.take(piece)
                await self._files.write_all(fd, piece, at)
                at += len(piece)
                self.copied_bytes += len(piece)
                if at - synced >= _SYNC_EVERY_BYTES:
                    await self._files.fdatasync(fd)
                    synced = at
                await self._loop.next_pass()
                room = self._room(at, to)
                piece = await self._source.piece(self._timeline, name, at, room) if room else b""
            if to is not None and at < to:
                raise MissingPartError(f"{name} from byte {at} on")
            if padding := bytes(-at % BLOCK_BYTES):
                await self._files.write_all(fd, padding, at)
            await self._files.fdatasync(fd)
        finally:
            await self._files.close(fd)
        return chain.end(at), chain.first_batch_no

    def _room(self, at: int, to: int | None) -> int:
        return self._piece_bytes if to is None else max(0, min(self._piece_bytes, to - at))

    async def local_end(self, shard: int, end: ArchivedEnd) -> ChainEnd:
        """Return the verified end of what is there already. Raises: CorruptError, OSError."""
        path = f"{self._root}/{self._timeline}/{archived_name(shard, end.file)}"
        chain, at = FileChain(path, end.file), 0
        await self._files.to_thread(self._files.file_size, path)  # which refuses a pipe
        fd = await self._files.open(path, os.O_RDONLY)
        try:
            while at < end.bytes:
                buffer = bytearray(min(self._piece_bytes, end.bytes - at))
                count = await self._files.read_into(fd, buffer, at)
                if not count:
                    break
                chain.take(bytes(memoryview(buffer)[:count]))
                at += count
        finally:
            await self._files.close(fd)
        return chain.end(at)
