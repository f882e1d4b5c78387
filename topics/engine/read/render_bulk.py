"""Many reads from cursors rendered by one call (index_reads.c), and the settings that bound them."""

from __future__ import annotations

import struct
from typing import Any

from topics.engine.index._index_reads import ffi, lib
from topics.store.in_memory.hot_tail import HOT_RANGE

TOPIC = struct.Struct("=5Q4I")
"""topic_id, head, earliest, lost, chunks, chunk_count, last_rows, usable, reserved: a tp_read_topic."""

_U32 = 2**32 - 1
ROOM_BYTES = 1 << 20
"""Of the elements of all answers of a pass; the reads beyond go one by one."""


class BulkRenderer:
    """Output and bounds of one server. Not for two threads at once."""

    def __init__(self, bounds: tuple[int, int, int, int]) -> None:
        """bounds: of a read, records and accounted bytes: the default and the most of both."""
        self.out = ffi.new("char[]", ROOM_BYTES)
        """The elements of the reads taken by the last `project`, good until the next one."""
        self._taken = ffi.new("uint32_t *")
        self._limits = ffi.new("struct tp_read_limits *")
        limits = self._limits
        default_limit, max_limit, limits.default_bytes, limits.max_bytes = bounds
        limits.default_limit, limits.max_limit = min(default_limit, _U32), min(max_limit, _U32)

    def project(  # noqa: PLR0917 - columns
        self, reads: Any, count: int, topics: bytes, ranges: bytearray, room: int, long_bytes: int
    ) -> tuple[int, int]:
        """Completes `count` tp_read rows at `reads`, C data; topics: TOPIC rows; ranges: HOT_RANGE rows;
        room: the most bytes there may be, if less than ROOM_BYTES; long_bytes: of a read that must be short, too many.

        Returns the bytes of `out` used, and how many were taken.
        """
        self._limits.long_bytes = long_bytes
        hot = ffi.from_buffer("struct tp_hot_range[]", ranges)
        size = lib.tp_project_reads(
            self.out,
            min(room, ROOM_BYTES),
            reads,
            count,
            ffi.from_buffer("struct tp_read_topic[]", topics),
            hot,
            len(ranges) // HOT_RANGE.size,
            self._limits,
            self._taken,
        )
        ffi.release(hot)
        return size, self._taken[0]
