"""The newest part of the log, still in memory: what the last commits wrote and readers want next.

A chunk mirrors a region of a WAL file in page-aligned memory, from a block boundary on. A commit's
write is therefore a slice of a chunk made of whole blocks, fit for O_DIRECT, and the partly filled
last block is there to be written again. A batch is in one chunk; where the next one does not fit, a
new chunk begins with a copy of the block that the batch begins in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from topics.common.memory import LARGE_BYTES, page_aligned
from topics.store.format._codec import ffi
from topics.store.format.c_interface import layout_of
from topics.store.format.codec import Pointer
from topics.store.format.log_format import BLOCK_BYTES, align_up

_CHUNK_BYTES_MAX = 1 << 20
"""Less than LARGE_BYTES, so that a chunk's memory comes page by page as commits fill it.

The first touch of a huge page may take 10 ms, in the middle of a commit.
"""
_FREE_CHUNKS_MAX = 4
_LARGE_SHARE = 16
"""A batch of more than this share of the budget is large: it would displace what readers want."""
_KEPT_SHARE = 4
_ZEROS = memoryview(bytes(BLOCK_BYTES))
HOT_RANGE = layout_of(ffi, "tp_hot_range")
"""file id, start, used, address."""


class TailBuffer:
    """Memory for file bytes [start, start + capacity); [start, start + used) is filled."""

    __slots__ = ("address", "capacity", "file_id", "lent", "pointer", "start", "used", "view")

    def __init__(self, capacity: int) -> None:
        self.view = memoryview(page_aligned(capacity))
        # No export of the view stays: the collector clears views while memory of a closed log is
        # freed, and fails at one that is exported.
        self.address = int(ffi.cast("uintptr_t", ffi.from_buffer(self.view)))
        self.pointer: Pointer = ffi.cast("char *", self.address)
        self.capacity = capacity
        self.file_id = 0
        self.start = 0
        self.used = 0
        self.lent = False
        """Whether another thread may read it, so that it is not used for other bytes."""


class HotTail:
    """The chunks of all shards' files.

    Beyond `budget` bytes the oldest are dropped; a file's newest chunk always stays.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.large_bytes = max(BLOCK_BYTES, budget // _LARGE_SHARE)
        """Size above which a batch is better passed over than placed, if its commit can."""
        self.kept_bytes = budget // _KEPT_SHARE
        """Memory that a shard may keep besides for its next large batch."""
        self._chunk_bytes = max(BLOCK_BYTES * 8, min(_CHUNK_BYTES_MAX, align_up(budget // 8, BLOCK_BYTES)))
        self._files: dict[int, list[TailBuffer]] = {}
        self._oldest: deque[TailBuffer] = deque()
        self._free: list[TailBuffer] = []
        self._ranges = bytearray()
        """HOT_RANGE of all chunks by file and start, built on request; empty after a change."""
        self._newest: list[tuple[TailBuffer, int]] = []
        """The newest chunk of each file and its index in `_ranges`: only these grow."""
        self.bytes_held = 0

    def ranges(self) -> bytearray:
        """Return all chunks as packed HOT_RANGE, sorted; valid until the next commit is placed."""
        ranges = self._ranges
        if not ranges:
            self._newest = []
            for file_id, chunks in sorted(self._files.items()):
                for chunk in chunks:
                    ranges += HOT_RANGE.pack(file_id, chunk.start, chunk.used, chunk.address)
                if chunks:
                    self._newest.append((chunks[-1], len(ranges) - HOT_RANGE.size))
        else:
            for chunk, at in self._newest:
                HOT_RANGE.pack_into(ranges, at, chunk.file_id, chunk.start, chunk.used, chunk.address)
        return ranges

    def place(
        self,
        file_id: int,
        begin: int,
        data: memoryview,
        *,
        head: bytes = b"",
        room: TailBuffer | None = None,
        fresh: int = 1 << 62,
    ) -> memoryview:
        """Mirror `head` and `data` at file offset `begin`, the end of the file's last bytes.

        Return the blocks to write.

        The result is a view of file bytes [begin rounded down, end rounded up), zeros after the
        end. It stays unchanged until the next `place` of this file.

        room: used if a new chunk is needed (see `chunk_for`).
        fresh: bytes of `data` from this index on are already in the room, at their place.
        """
        start = begin & -BLOCK_BYTES
        size = len(head) + len(data)
        chunk = self.chunk_at(file_id, begin, size, room)
        view, at = chunk.view, begin - chunk.start
        assert chunk.used <= at, "bytes of the log never change"
        end = at + size
        blocks_end = (end + BLOCK_BYTES - 1) & -BLOCK_BYTES
        if head:
            view[at : at + len(head)] = head
            at += len(head)
        if chunk is room and fresh < len(data):
            view[at : at + fresh] = data[:fresh]
        else:
            view[at:end] = data
        view[end:blocks_end] = _ZEROS[: blocks_end - end]
        chunk.used = end
        return view[start - chunk.start : blocks_end]

    def chunk_at(self, file_id: int, begin: int, size: int, room: TailBuffer | None = None) -> TailBuffer:
        """Return the chunk for `size` bytes at file offset `begin`, where its bytes end.

        It has all bytes of the block in which they begin. The caller fills them, the zeros up to
        the end of the last block, and then counts them as used.

        room: see `place`.
        """
        chunks = self._files.get(file_id)
        if chunks is None:
            chunks = self._files[file_id] = []
        chunk = chunks[-1] if chunks else None
        if chunk is None or begin + size > chunk.start + chunk.capacity:
            start = begin & -BLOCK_BYTES
            block = _ZEROS[:0]
            if begin > start:
                assert chunk is not None, "a file's first bytes begin a block"
                block = chunk.view[start - chunk.start : begin - chunk.start]
            chunk = self._open(file_id, start, block, begin - start + size, chunk, room)
            chunks.append(chunk)
        return chunk

    def pass_over(self, file_id: int, end: int, last: memoryview) -> None:
        """Continue at `end` after bytes that the file has and the tail has not.

        last: the bytes before `end` that are in its block.
        """
        assert len(last) == end % BLOCK_BYTES, "what is passed over is more than a block"
        chunks = self._files.setdefault(file_id, [])
        chunk = self._open(file_id, end - len(last), last, len(last), chunks[-1] if chunks else None, None)
        chunk.view[len(last) : BLOCK_BYTES] = _ZEROS[len(last) :]
        chunks.append(chunk)

    def take_back(self, file_id: int, begin: int) -> None:
        """Remove the bytes placed last, from `begin` on, which are not in the file.

        The next ones begin there again.
        """
        chunk = self._files[file_id][-1]
        chunk.used = begin - chunk.start

    def _open(  # noqa: PLR0917 - called in two places
        self,
        file_id: int,
        start: int,
        block: memoryview,
        needed: int,
        before: TailBuffer | None,
        room: TailBuffer | None,
    ) -> TailBuffer:
        """Return a chunk from block `start` on, whose first bytes are `block`.

        A large batch takes the memory of the large one before it, which is then read from its file:
        new memory would cost more than the write, a page at a time. A chunk that holds less than a
        block, the end of a batch that was passed over, is used again, too.
        """
        capacity = max(self._chunk_bytes, align_up(needed, BLOCK_BYTES))
        prefix, block = len(block), memoryview(bytes(block))  # its memory may be the chunk's
        if room is not None and capacity <= room.capacity:
            chunk, capacity = room, room.capacity
        elif self._free and capacity == self._chunk_bytes:
            chunk = self._free.pop()
        elif before is not None and not before.lent and _may_replace(before, capacity):
            chunk, capacity = before, before.capacity
            self._files[file_id].remove(chunk)
            self._oldest.remove(chunk)
            self.bytes_held -= capacity
        else:
            chunk = TailBuffer(capacity)
        chunk.file_id, chunk.start, chunk.used = file_id, start, prefix
        chunk.view[:prefix] = block
        self.bytes_held += capacity
        self._ranges = bytearray()
        self._oldest.append(chunk)
        self._evict(keep=chunk)
        return chunk

    def _evict(self, keep: TailBuffer) -> None:
        for _ in range(len(self._oldest)):
            if self.bytes_held <= self._budget:
                return
            chunk = self._oldest.popleft()
            chunks = self._files[chunk.file_id]
            if chunk is keep or chunk is chunks[-1]:
                self._oldest.append(chunk)  # its blocks may be in flight, or be written again
                continue
            chunks.remove(chunk)
            self._drop(chunk)

    def _drop(self, chunk: TailBuffer) -> None:
        self.bytes_held -= chunk.capacity
        if chunk.capacity == self._chunk_bytes and len(self._free) < _FREE_CHUNKS_MAX and not chunk.lent:
            self._free.append(chunk)

    def forget(self, file_id: int) -> None:
        """Drop the chunks of a file that is no longer written to."""
        self._ranges = bytearray()
        for chunk in self._files.pop(file_id, ()):
            self._oldest.remove(chunk)
            self._drop(chunk)

    def find(self, file_id: int, offset: int, length: int) -> memoryview | None:
        """Return file bytes [offset, offset + length), or None if they are not all here.

        The view is valid until the next commit is placed; a caller that keeps the bytes longer
        copies them.
        """
        chunks = self._files.get(file_id)
        if not chunks:
            return None
        index = bisect_right(chunks, offset, key=_start) - 1
        if index < 0:
            return None
        chunk = chunks[index]
        at = offset - chunk.start
        if at + length <= chunk.used:
            return chunk.view[at : at + length]
        parts: list[memoryview] = []
        while length:
            at = offset - chunk.start
            part = chunk.view[at : min(at + length, chunk.used)]
            if not part:
                return None
            parts.append(part)
            offset += len(part)
            length -= len(part)
            index += 1
            if length:
                if index == len(chunks) or chunks[index].start > offset:
                    return None
                chunk = chunks[index]
        return memoryview(b"".join(parts))

    def lend(self, file_id: int, offset: int, length: int) -> list[tuple[int, memoryview]] | None:
        """Return chunks that hold file bytes [offset, offset + length), in order, or None.

        Each is the offset of its first byte, and a view that stays valid: any thread may read it.
        A frame is whole in the last chunk that begins at or before it.
        """
        chunks = self._files.get(file_id)
        if not chunks:
            return None
        found: list[TailBuffer] = []
        end = offset
        for chunk in chunks[max(0, bisect_right(chunks, offset, key=_start) - 1) :]:
            if chunk.start > end or end >= offset + length:
                break
            found.append(chunk)
            end = chunk.start + chunk.used
        if end < offset + length:
            return None
        for chunk in found:
            chunk.lent = True
        return [(chunk.start, chunk.view[: chunk.used]) for chunk in found]


def _may_replace(before: TailBuffer, capacity: int) -> bool:
    """Return whether a chunk of this capacity takes the memory of the one before it."""
    if before.used <= BLOCK_BYTES and before.capacity == capacity:
        return True
    return LARGE_BYTES <= capacity <= before.capacity <= 2 * capacity


def chunk_for(size: int) -> TailBuffer:
    """Return memory for a large batch of up to `size` bytes, wherever in its file it begins."""
    return TailBuffer(align_up(size, BLOCK_BYTES) + 2 * BLOCK_BYTES)


def _start(chunk: TailBuffer) -> int:
    return chunk.start
