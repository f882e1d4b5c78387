"""Deleted flags in segments and packs: one byte after the frame, one in the index's flags column.

Neither is under a checksum: the first is decided by most of its bits, the second includes its
parity. They are durable before the snapshot that lets the log drop the delete.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError, StorageError
from topics.loop.files import NOTHING_DONE, TRIES
from topics.loop.tasks import Future
from topics.store.checkpoint.capture import Captures
from topics.store.disk.whole_files import FileCalls, in_place
from topics.store.format.catalog import Deletions
from topics.store.format.compressed_segment import CODEC_PLAIN, flag_place
from topics.store.format.log_format import DELETED, DELETED_LIVE
from topics.store.layouts.directory_names import index_path
from topics.store.layouts.index_format import INDEX_HEADER_BYTES, IndexHeader
from topics.store.segments.data_files import Segment
from topics.store.segments.index_flags import flag_columns, flag_pack_index
from topics.store.segments.manifest import Manifest
from topics.store.segments.tiers import Tiers

_FLAG = bytes([DELETED])
_IN_FLIGHT_MAX = 128


class Writes:
    """Many small writes to one file, a bounded number of them in flight."""

    def __init__(self, write: Callable[[int, bytes, int, Callable[[int], None]], None], fd: int) -> None:
        self._write = write
        self._fd = fd
        self._in_flight = 0
        self._repeated = 0
        """Writes that did nothing and were begun again."""
        self._error = 0
        self._room: Future[None] | None = None

    async def put(self, data: bytes, offset: int) -> None:
        while self._in_flight >= _IN_FLIGHT_MAX:
            await self._wait()
        self._in_flight += 1
        self._begin(data, offset)

    async def finish(self) -> None:
        """Wait for all writes. Raises OSError, the first that failed."""
        while self._in_flight:
            await self._wait()
        if self._error:
            raise OSError(self._error, os.strerror(self._error))

    async def _wait(self) -> None:
        self._room = Future()
        await self._room

    def _begin(self, data: bytes, offset: int) -> None:
        self._write(self._fd, data, offset, partial(self._on_written, data, offset))

    def _on_written(self, data: bytes, offset: int, res: int) -> None:
        if res in NOTHING_DONE and self._repeated < TRIES:
            self._repeated += 1
            self._begin(data, offset)
            return
        self._in_flight -= 1
        if res != 1 and not self._error:
            self._error = -res or errno.EIO
        if self._room is not None:
            room, self._room = self._room, None
            room.set_result(None)


class DeleteFlags:
    """The flags of one checkpoint's deletions."""

    def __init__(
        self,
        files: FileCalls,
        write: Callable[[int, bytes, int, Callable[[int], None]], None],
        tiers: Tiers,
        manifest: Manifest,
        captures: Captures,
    ) -> None:
        self._files = files
        self._write = write
        self._tiers = tiers
        self._captures = captures
        self._by_file = {segment.file_id: segment for segment in manifest.all_segments()}
        self._packs = {pack.file_id: pack for pack in manifest.packs.values()}

    async def flag(self, deletions: Iterable[Deletions]) -> int:
        """Flag the deletions durably, except those in files no longer in use.

        Return how many. Raises OSError.
        """
        by_file: dict[int, list[Deletions]] = defaultdict(list)
        for entry in deletions:
            if len(entry.seqs):
                by_file[entry.file_id].append(entry)
        count = 0
        for file_id, entries in by_file.items():
            segment, pack = self._by_file.get(file_id), self._packs.get(file_id)
            if segment is None and pack is None:
                continue
            offsets = np.concatenate([entry.offsets for entry in entries])
            lengths = np.concatenate([entry.lengths for entry in entries])
            if segment is not None:
                path = self._tiers.path(segment)
                await self._flag_frames(path, offsets, lengths, compressed=segment.codec != CODEC_PLAIN)
                if segment.sealed:
                    await self._flag_segment_index(path, segment, offsets)
            elif pack is not None:
                path = f"{self._tiers.hot}/{pack.path}"
                await self._flag_frames(path, offsets, lengths)
                await flag_pack_index(self._files, path, offsets, note=partial(self._captures.note, path))
            count += len(offsets)
        return count

    async def _flag_frames(
        self, path: str, offsets: NDArray[np.uint32], lengths: NDArray[np.uint32], *, compressed: bool = False
    ) -> None:
        fd = await self._open(path)
        try:
            writes = Writes(self._write, fd)
            ends = offsets.astype(np.int64) + lengths - 1
            places = [flag_place(end) if compressed else end for end in ends.tolist()]
            self._captures.note(path, places, np.full(len(places), DELETED_LIVE, np.uint8))
            for place in places:
                await writes.put(_FLAG, place)
            await writes.finish()
            await in_place(self._files.fdatasync(fd))
        finally:
            await self._files.close(fd)

    async def _flag_segment_index(self, path: str, segment: Segment, offsets: NDArray[np.uint32]) -> None:
        """Flag rows in the index of a segment.

        A missing or damaged index stays as it is: it will be derived from the data, flags included.
        """
        index = index_path(path)
        try:
            fd = await self._open(index)
        except FileNotFoundError:
            return
        try:
            fixed = bytearray(INDEX_HEADER_BYTES)
            await self._files.read_into(fd, fixed, 0)
            header = IndexHeader.unpack_header(memoryview(fixed), path)
            if header.epoch == segment.epoch:
                note = partial(self._captures.note, index)
                await flag_columns(self._files, fd, INDEX_HEADER_BYTES, header.rows, offsets, note=note)
        except (CorruptError, FormatError):
            return
        finally:
            await self._files.close(fd)

    async def _open(self, path: str) -> int:
        """Open a file to flag.

        An unreachable cold directory fails a checkpoint, not the log, because nothing was written
        to it.
        """
        try:
            return await self._files.open(path, os.O_RDWR)
        except FileNotFoundError:
            raise
        except OSError as error:
            if self._tiers.cold and path.startswith(f"{self._tiers.cold}/"):
                raise StorageError(f"{path}: deletes cannot be flagged: {error}") from error
            raise
