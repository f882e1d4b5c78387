"""The chunks of an index as one C table (index_reads.h), for reads without Python objects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.engine.index._index_reads import ffi
from topics.engine.index.chunk import Chunk
from topics.store.format.c_interface import layout_of

INDEX_CHUNK = layout_of(ffi, "tp_index_chunk")
"""first, count; the addresses of flags, file_ids, offsets, lengths, sizes, ts."""


class ChunkTable:
    """The C table of an index's chunks, at `address` with `count` entries.

    Both are valid until the index changes. The table does not state the number of rows of the last
    chunk, which grows.
    """

    __slots__ = ("_chunks", "_flags", "_rows", "address", "count")

    def __init__(self) -> None:
        self._chunks: list[Chunk] | None = None
        self._rows = np.empty(0, np.uint8)
        self._flags: NDArray[np.uint8] | None = None
        """The flags array of the last chunk as the table has it; growth replaces that array."""
        self.address = 0
        self.count = 0

    def refresh(self, chunks: list[Chunk]) -> None:
        """Rebuild the table if chunks were added or the last one has grown.

        chunks: the chunks of an index, at least one. After any other change the index discards the
        table.
        """
        last = chunks[-1]
        if self._chunks is chunks and self.count == len(chunks) and self._flags is last.flags:
            return
        self._chunks, self.count, self._flags = chunks, len(chunks), last.flags
        self._rows = np.frombuffer(b"".join([_packed(chunk) for chunk in chunks]), np.uint8)
        self.address = _address(self._rows)


def _packed(chunk: Chunk) -> bytes:
    packed = chunk.packed
    if packed is None or packed[0] != chunk.count:
        numbers = (chunk.file_ids, chunk.offsets, chunk.lengths, chunk.sizes)
        addresses = (_address(chunk.flags), *map(_address, numbers), _address(chunk.ts))
        row = INDEX_CHUNK.pack(chunk.first, chunk.count, *addresses)
        chunk.packed = packed = chunk.count, row
    return packed[1]


def _address(column: NDArray[Any]) -> int:
    return int(column.__array_interface__["data"][0])
