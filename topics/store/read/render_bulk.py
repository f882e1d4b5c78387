"""Many reads from cursors rendered by one call: the rows of `reads.h`, and the settings that bound them."""

from __future__ import annotations

import struct
from typing import Any

from topics.config import Config
from topics.store.format.codec import ffi, lib
from topics.store.in_memory.hot_tail import HOT_RANGE

READ = struct.Struct("=4I2Q2I2Q2I")
"""receive, slot, flags, end, from_seq, budget, limit, count, next, off, len, taken: a tp_read."""
TOPIC = struct.Struct("=5Q4I")
"""topic_id, head, earliest, lost, chunks, chunk_count, last_rows, usable, reserved: a tp_read_topic."""
INDEX_CHUNK = struct.Struct("=7Q")
"""first, count, and the addresses of flags, file_ids, offsets, lengths, sizes: a tp_index_chunk."""

_U32 = 2**32 - 1
ROOM_BYTES = 1 << 20
"""Of the elements of all answers of a pass; the reads beyond go one by one."""
_AROUND_BYTES = 640
"""More than an answer has around its elements, a topic's name of 255 characters included."""


class BulkRenderer:
    """Output and bounds of one server. Not for two threads at once."""

    def __init__(self, config: Config, bounds: tuple[int, int, int, int]) -> None:
        """bounds: of a read, records and accounted bytes: the default and the most of both."""
        self.out = ffi.new("char[]", ROOM_BYTES)
        """The elements of the reads taken by the last `project`, good until the next one."""
        self._taken = ffi.new("uint32_t *")
        self._limits = ffi.new("struct tp_read_limits *")
        limits = self._limits
        default_limit, max_limit, limits.default_bytes, limits.max_bytes = bounds
        limits.default_limit, limits.max_limit = min(default_limit, _U32), min(max_limit, _U32)
        limits.around_bytes = _AROUND_BYTES
        limits.gzip_bytes = config.gzip_min_bytes if config.gzip_level else 1 << 62

    def project(self, reads: Any, count: int, topics: bytes, ranges: bytearray, room: int) -> tuple[int, int]:
        """Completes `count` READ rows at `reads`, C data; topics: TOPIC rows; ranges: HOT_RANGE rows;
        room: the most bytes there may be, if less than ROOM_BYTES.

        Returns the bytes of `out` used, and how many were taken.
        """
        hot = ffi.from_buffer(ranges)
        ranges_count = len(ranges) // HOT_RANGE.size
        size = lib.tp_project_reads(
            self.out, min(room, ROOM_BYTES), reads, count, topics, hot, ranges_count, self._limits, self._taken
        )
        ffi.release(hot)
        return size, self._taken[0]
