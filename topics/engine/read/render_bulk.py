"""Rendering of many reads from cursors by one call (index_reads.c), and its bounds."""

from __future__ import annotations

from typing import Any

from topics.engine.index._index_reads import ffi, lib
from topics.store.format.c_interface import layout_of
from topics.store.in_memory.hot_tail import HOT_RANGE

TOPIC = layout_of(ffi, "tp_read_topic")
"""topic_id, head, earliest, lost, chunks, chunk_count, last_rows, usable, reserved."""
_ASKED, _FOUND = layout_of(ffi, "tp_read", last="limit"), layout_of(ffi, "tp_read", "budget", "next")
"""The layout of a tp_read up to its limit, and from its budget to the cursor after it.

A member of a struct by itself takes cffi as long as all of them by one call.
"""
_FOUND_AT = layout_of(ffi, "tp_read", last="from_seq").size
_U32 = 2**32 - 1
_new_room = ffi.new_allocator(should_clear_after_alloc=False)
ROOM_BYTES = 1 << 20
"""Bytes of the elements of all answers of a pass; further reads are made one by one."""


class BulkRenderer:
    """Output and bounds of one server. For one thread at a time."""

    def __init__(self, bounds: tuple[int, int, int, int]) -> None:
        """Set the bounds of a read, in records and accounted bytes: default and most of each."""
        self.out = _new_room("char[]", ROOM_BYTES)
        """Elements of the reads taken by the last `project`, valid until the next one."""
        self.one = ffi.new("struct tp_read *")
        """A read for `project` that is made by itself."""
        self._one: Any = ffi.buffer(self.one, _FOUND_AT + _FOUND.size)
        self._taken = ffi.new("uint32_t *")
        self._limits = ffi.new("struct tp_read_limits *")
        limits = self._limits
        default_limit, max_limit, limits.default_bytes, limits.max_bytes = bounds
        limits.default_limit, limits.max_limit = min(default_limit, _U32), min(max_limit, _U32)

    def project(  # noqa: PLR0917 - columns
        self,
        reads: Any,
        count: int,
        topics: bytes,
        ranges: bytearray,
        prefetched: bytearray,
        ephemeral: bytearray,
        room: int,
        long_bytes: int,
    ) -> tuple[int, int]:
        """Complete `count` tp_read rows at `reads`.

        Returns: the bytes of `out` used, and the number of reads taken.

        reads: C data; topics: TOPIC rows; ranges, prefetched, ephemeral: HOT_RANGE rows; room: most
        bytes of output, if less than ROOM_BYTES; long_bytes: too many bytes for a read that must be
        short.
        """
        self._limits.long_bytes = long_bytes
        hot = ffi.from_buffer("struct tp_hot_range[]", ranges)
        others = ffi.from_buffer("struct tp_hot_range[]", prefetched) if prefetched else ffi.NULL
        memory = ffi.from_buffer("struct tp_hot_range[]", ephemeral) if ephemeral else ffi.NULL
        size = lib.tp_project_reads(
            self.out,
            min(room, ROOM_BYTES),
            reads,
            count,
            ffi.from_buffer("struct tp_read_topic[]", topics),
            hot,
            len(ranges) // HOT_RANGE.size,
            others,
            len(prefetched) // HOT_RANGE.size,
            memory,
            len(ephemeral) // HOT_RANGE.size,
            self._limits,
            self._taken,
        )
        ffi.release(hot)
        if prefetched:
            ffi.release(others)
        if ephemeral:
            ffi.release(memory)
        return size, self._taken[0]

    def ask_one(self, from_seq: int, limit: int, budget: int, flags: int) -> None:
        """Set the read that is made by itself. flags: TP_READ_* of index_reads.h."""
        _ASKED.pack_into(self._one, 0, 0, 0, flags, 0, from_seq, budget, limit)

    def found_one(self) -> tuple[int, int, int, int]:
        """Return of that read: accounted bytes, limit, records, the cursor after them."""
        return _FOUND.unpack_from(self._one, _FOUND_AT)

    def rendered(self, size: int) -> bytes:
        """Return a copy of the first `size` bytes of `out`."""
        return bytes(ffi.buffer(self.out, size))
