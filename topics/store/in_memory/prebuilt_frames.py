"""Frames of one large append, built piece by piece before their seqs are known.

The slow part, copying into memory that was never touched, is done in pieces between other work.
Numbering the frames and passing them to the log, or to memory, is one step: a checksum of each, and
one copy into the hot tail.
"""

from __future__ import annotations

import mmap
from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from topics.common.memory import page_aligned
from topics.store.format._codec import ffi, lib
from topics.store.format.codec import row_pointers, unsound_frame
from topics.store.format.log_format import (
    BATCH_HEADER_BYTES,
    EXT_TIME_BYTES,
    FLAG_FSYNC,
    FRAME_HEADER_BYTES,
    FRAME_MIN_BYTES,
    check_batch_bytes,
)
from topics.store.format.rows import DELAY, PLACED, ROW, ROW_BYTES, TTL, Framed, Rows
from topics.store.in_memory.hot_tail import chunk_for

_PAGE_BYTES = 4096
_CONTROL_ROOM = 4096
"""Bytes for the control frames of the batch: a creation with its config, a reservation, floors."""


class PrebuiltFrames:
    """Memory for `room` bytes of frames, between a batch header and some control frames.

    No page of it is touched when it is created.
    """

    def __init__(self, room: int, extension_bytes: int = 0) -> None:
        """extension_bytes: room for the first frame's extension if only `extend` provides it.

        Raises: RequestError, the frames exceed a batch.
        """
        self._extension_bytes = extension_bytes
        self._extension_at = BATCH_HEADER_BYTES + FRAME_HEADER_BYTES
        size = _batch_bytes(room + extension_bytes)
        self.memory: mmap.mmap = page_aligned(size)
        self.used = BATCH_HEADER_BYTES
        self.count = 0
        """Number of records."""
        self.controls = 0
        """Number of control frames after them."""
        self.mirror = chunk_for(len(self.memory))
        """The chunk for the hot tail, whose pages are faulted in along with the frames'."""
        self._touched = self.used
        """The place up to which the pages of both are faulted in."""

    def take(  # noqa: PLR0917 - columns
        self,
        view: memoryview,
        base: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
        seqs: NDArray[np.uint64],
        topic_id: int,
        extension: bytes = b"",
    ) -> None:
        """Add frames of another topic without their extensions: none has a delay or a ttl.

        Row i is at view[offsets[i] - base].

        extension: for the first of them.
        Raises: CorruptError naming topic id and seq of a row that is not its frame.
        """
        assert self._left >= int(lengths.sum(dtype=np.uint64)) + len(extension), "the room was counted before"
        written = lib.tp_take_frames(
            ffi.from_buffer(self.memory) + self.used,
            ffi.from_buffer(view),
            len(view),
            base,
            *row_pointers(offsets, lengths, seqs),
            len(seqs),
            topic_id,
            extension,
            len(extension),
        )
        if written < 0:
            raise unsound_frame(topic_id, int(seqs[-1 - written]))
        self._added(written, len(seqs))

    def add_rows(self, rows: Rows, node: bytes | None) -> None:
        """Add rows that have no frames yet. node: the node of rows without their own."""
        if not self.count and rows.count:  # a delay and a ttl come first
            flags = ROW.unpack_from(rows.spans)[-1]
            self._extension_at += EXT_TIME_BYTES * (bool(flags & DELAY) + bool(flags & TTL))
        extension = b"" if self.count else bytes(self._extension_bytes)
        placed = ffi.new("char[]", PLACED.size * rows.count)
        written = lib.tp_frame_rows(
            ffi.from_buffer(self.memory),
            self.used,
            len(self.memory),
            rows.buffer if type(rows.buffer) is bytes else ffi.from_buffer(rows.buffer),
            len(rows.buffer),
            rows.spans,
            rows.count,
            0,
            0,
            0,
            0,
            node or b"",
            len(node or b""),
            node is not None,
            extension,
            len(extension),
            0,
            placed,
        )
        assert written > 0 or not rows.count, "the room was counted before, and a row is in its buffer"
        self._added(written, rows.count)

    def extend(self, extension: bytes) -> None:
        """Give the first frame its extension, before the frames are numbered."""
        assert len(extension) == self._extension_bytes, "an extension of another length"
        self.memory[self._extension_at : self._extension_at + len(extension)] = extension

    def touch(self, size: int, step_bytes: int) -> Iterator[None]:
        """Fault in the pages of the next `size` bytes of frames, `step_bytes` in a step.

        A record is copied in one step, and the first touch of a page costs more than a copy of it.
        """
        end = min(self.used + size, len(self.memory))
        for view in (self.memory, self.mirror.view):
            for begin in range(self._touched, end, step_bytes):
                yield
                _touch_pages(view, begin, min(begin + step_bytes, end))
        self._touched = max(self._touched, end)

    def _added(self, size: int, count: int) -> None:
        _touch_pages(self.mirror.view, max(self.used, self._touched), self.used + size)
        self.used += size
        self._touched = max(self._touched, self.used)
        self.count += count

    def number(self, topic_id: int, first_seq: int, ts_ms: int, *, fsync: bool, start: int = 0) -> Framed:
        """Number the frames as those of `topic_id` from `first_seq` on.

        The returned places count from `start`.
        """
        placed = bytearray(PLACED.size * self.count)
        numbered = lib.tp_number_frames(
            ffi.from_buffer(self.memory) + BATCH_HEADER_BYTES,
            self.used - BATCH_HEADER_BYTES,
            topic_id,
            first_seq,
            ts_ms,
            FLAG_FSYNC if fsync else 0,
            start,
            ffi.from_buffer(placed),
            self.count,
        )
        assert numbered == self.count, "frames follow each other"
        return Framed(start, bytes(placed))

    def add_controls(self, frames: memoryview, count: int) -> None:
        """Add `count` control frames after the records, which are already numbered."""
        end = self.used + len(frames)
        assert end <= len(self.memory), "control frames of one write are small"
        self.memory[self.used : end] = frames
        self.used = end
        self.controls += count

    @property
    def _left(self) -> int:
        return len(self.memory) - _CONTROL_ROOM - self.used


def gather(
    rows: Rows, node: bytes | None, extension_bytes: int, step_bytes: int
) -> Generator[None, None, PrebuiltFrames]:
    """Build frames from rows, `step_bytes` a step; a larger record is copied in one."""
    frames = PrebuiltFrames(room_for(rows, node), extension_bytes)
    for some in parts_of(rows, step_bytes):
        room = room_for(some, node)
        if room > 2 * step_bytes:
            yield from frames.touch(room, step_bytes)
        yield
        frames.add_rows(some, node)
    return frames


def _touch_pages(memory: mmap.mmap | memoryview, begin: int, end: int) -> None:
    """Fault in the pages of memory that nothing was written to yet."""
    places = range(begin, end, _PAGE_BYTES)
    memory[begin:end:_PAGE_BYTES] = bytes(len(places))


def parts_of(rows: Rows, size: int) -> Iterator[Rows]:
    """Yield the rows in parts of at least `size` bytes, except the last."""
    columns = rows.columns()
    ends = columns["data_len"].cumsum(dtype=np.uint64) + columns["meta_len"].cumsum(dtype=np.uint64)
    ends += np.arange(1, rows.count + 1, dtype=np.uint64) * np.uint64(FRAME_MIN_BYTES)
    sizes = columns["size"].cumsum(dtype=np.uint64)
    begin = 0
    while begin < rows.count:
        before = int(ends[begin - 1]) if begin else 0
        end = min(int(ends.searchsorted(before + size)) + 1, rows.count)
        accounted = int(sizes[end - 1]) - (int(sizes[begin - 1]) if begin else 0)
        yield Rows(rows.buffer, rows.spans[begin * ROW_BYTES : end * ROW_BYTES], end - begin, accounted)
        begin = end


def check_room(rows: Rows, node: bytes | None, extension_bytes: int) -> None:
    """Check that rows and the control frames of a creation fit in one batch, as frames.

    Raises: RequestError batch_too_large.
    """
    # As if each of a row's four texts were the whole buffer.
    most = rows.count * (4 * len(rows.buffer) + FRAME_MIN_BYTES + len(node or b""))
    if most + extension_bytes >= 1 << 31:
        _batch_bytes(room_for(rows, node) + extension_bytes)


def _batch_bytes(room: int) -> int:
    """Return the bytes of a batch with so many bytes of frames of records. Raises: RequestError."""
    size = BATCH_HEADER_BYTES + room + _CONTROL_ROOM
    check_batch_bytes(size)
    return size


def room_for(rows: Rows, node: bytes | None) -> int:
    """Return the most bytes that rows take as frames."""
    columns = rows.columns()
    texts = sum([int(columns[name].sum(dtype=np.uint64)) for name in ("data_len", "meta_len", "tag_len", "node_len")])
    times = sum([int(np.count_nonzero(columns["flags"] & flag)) for flag in (DELAY, TTL)])
    return texts + EXT_TIME_BYTES * times + rows.count * (FRAME_MIN_BYTES + len(node or b""))
