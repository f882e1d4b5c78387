"""Ephemeral records: ordinary frames, but only in memory.

All topics share chunks, which are files to the index.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from topics.store.format import codec
from topics.store.format._codec import ffi
from topics.store.format.codec import Pointer
from topics.store.format.file_table import FileKind, FileTable, StoredFile
from topics.store.format.log_format import BATCH_HEADER_BYTES
from topics.store.format.rows import Framed, Rows, TopicRows
from topics.store.in_memory.hot_tail import HOT_RANGE
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames

_CHUNK_BYTES = 256 * 1024


class InMemory(NamedTuple):
    """Rows framed into file `file_id`; starts are offsets in it."""

    file_id: int
    framed: Framed


class ChunkRanges:
    """The addresses of chunks, for C that reads their frames."""

    def __init__(self) -> None:
        self.packed = bytearray()
        """A HOT_RANGE row for each chunk, in the order of their numbers."""
        self._file_ids: list[int] = []
        self._pointers: list[Pointer] = []

    def add(self, file: StoredFile) -> None:
        """Add a chunk, whose number is above all others."""
        pointer = ffi.from_buffer(file.memory)
        self._file_ids.append(file.file_id)
        self._pointers.append(pointer)
        self.packed += HOT_RANGE.pack(file.file_id, 0, file.size, int(ffi.cast("uintptr_t", pointer)))

    def grown(self, file: StoredFile) -> None:
        """Note that a chunk has more frames."""
        at = bisect_left(self._file_ids, file.file_id)
        address = int(ffi.cast("uintptr_t", self._pointers[at]))
        HOT_RANGE.pack_into(self.packed, at * HOT_RANGE.size, file.file_id, 0, file.size, address)

    def remove(self, file: StoredFile) -> None:
        at = bisect_left(self._file_ids, file.file_id)
        del self._file_ids[at], self._pointers[at]
        del self.packed[at * HOT_RANGE.size : (at + 1) * HOT_RANGE.size]


class EphemeralFrames:
    """The chunks of ephemeral frames.

    Frames are appended to the newest one; a chunk is dropped with its last row (see `discard`).
    """

    def __init__(self, files: FileTable) -> None:
        self._files = files
        self.ranges = ChunkRanges()
        self._newest: StoredFile | None = None

    def stage_records(
        self,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        rows: Rows,
        *,
        node: bytes | None = None,
        extension: bytes = b"",
        routed: bool = False,
    ) -> InMemory:
        """Frame the rows. They may be read at once and count as live rows of their file."""
        frames, framed = codec.frame_rows(
            rows,
            topic_id=topic_id,
            first_seq=first_seq,
            ts_ms=ts_ms,
            node=node,
            extension=extension,
            start=self._used,
            routed=routed,
        )
        return self._put(frames, framed, rows.count)

    def stage_topics(self, rows: TopicRows) -> InMemory:
        """Frame rows of several topics. See `stage_records`."""
        frames, framed = codec.frame_topics(rows, start=self._used)
        return self._put(frames, framed, sum(rows.counts))

    @property
    def _used(self) -> int:
        """The bytes of the newest chunk, where the next frames begin if it has room for them."""
        return 0 if self._newest is None else self._newest.size

    def _put(self, frames: bytes, framed: Framed, count: int) -> InMemory:
        """Put frames for `_used` into the newest chunk, or at the beginning of another one."""
        file = self._newest
        if file is None or file.size + len(frames) > _CHUNK_BYTES:
            file = self._files.add(FileKind.MEMORY, "")
            file.memory = bytearray(max(_CHUNK_BYTES, len(frames)))
            self.ranges.add(file)
            before, self._newest = self._newest, file
            if before is not None:
                self.discard(before, 0)
            framed = framed.moved_to(0)
        assert file.memory is not None, "a memory file has memory"
        offset = file.size
        memoryview(file.memory)[offset : offset + len(frames)] = frames
        file.size = offset + len(frames)
        self.ranges.grown(file)
        file.live_rows += count
        return InMemory(file.file_id, framed)

    def stage_prebuilt(self, topic_id: int, frames: PrebuiltFrames, first_seq: int, ts_ms: int) -> InMemory:
        """Stage frames that were put together before, as a chunk of their own.

        See `stage_records`.
        """
        file = self._files.add(FileKind.MEMORY, "")
        framed = frames.number(topic_id, first_seq, ts_ms, fsync=False, start=BATCH_HEADER_BYTES)
        file.memory, file.size, file.live_rows = frames.memory, frames.used, frames.count
        self.ranges.add(file)
        return InMemory(file.file_id, framed)

    def discard(self, file: StoredFile, rows: int) -> None:
        """Remove this many rows from the file's count.

        A chunk without rows is dropped unless it is still filled.
        """
        file.live_rows -= rows
        if file.live_rows == 0 and file is not self._newest:
            self.ranges.remove(file)
            file.when_unread(lambda: self._files.remove(file))
